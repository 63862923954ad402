"""Private prediction: batches of records vote on every token of a frozen model (METHOD 1 to 5)."""
