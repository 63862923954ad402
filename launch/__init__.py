"""Ways to start a run, a folder for each engine; image/ is what all workers are."""
