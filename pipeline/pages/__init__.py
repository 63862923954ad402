"""Reports for people: HTML pages, the terminal, the dataset card."""
