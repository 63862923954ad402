"""Work before a run: records are set apart, centres are fitted, weights are fetched."""
