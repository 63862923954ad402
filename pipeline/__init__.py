"""One run: what the user asked for, its price, its graph, and the command line."""
