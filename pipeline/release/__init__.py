"""The folder that a run releases: its corpus and report read back, and what may not lie in it."""
