"""Private Evolution: texts of public prompts, which records vote on, in rounds (METHOD 4e)."""
