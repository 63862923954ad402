"""Votes on whole texts, in rounds (METHOD 4e)."""
