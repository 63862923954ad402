"""One batch, from contexts to synthetic examples: the loop of METHOD 4, and what is around it."""
