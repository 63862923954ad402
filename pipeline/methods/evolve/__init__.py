"""Votes on whole texts (METHOD 4e): of public prompts, in rounds, or once of a corpus that is given."""
