"""From the columns of a file and a few answers to the settings of a run: what `dp-corpus start` does."""
