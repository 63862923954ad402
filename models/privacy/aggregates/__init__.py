"""Ways to combine the votes of a batch, each a file with its price and its facts."""
