"""One round of votes on the texts of a corpus (METHOD 4e)."""
