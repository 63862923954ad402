"""Settings of the user: panels that every run has or that methods share, and `JobConfig`, one run's.

Each panel of `--help` is a frozen class with its own checks. Every field is a key of the TOML file and
a flag of the command line, with the same name. All of them are public; the run key is not among them.
What one method alone has stands in its folder, `pipeline/methods/`.
"""
