"""The budget of a dataset over all runs on it."""
