"""In-context use: a decoder sees a few labelled texts of the corpus, and labels real ones."""
