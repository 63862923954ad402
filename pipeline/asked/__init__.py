"""From flags, a TOML file or a call to the config of a run, and the method that it has."""
