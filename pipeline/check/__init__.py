"""A look at the records as a run would read them, for the curator alone."""
