"""The privacy budget of a dataset, over all runs on it. It knows no run, no settings and no method."""
