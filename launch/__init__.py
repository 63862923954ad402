"""Ways to start a run, and the data of the demo."""
