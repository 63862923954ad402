"""Scripts that made the bundled model, its tokenizer and its centres: see models/bundled/README.md."""
