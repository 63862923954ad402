"""Everything that is Gemma's: sizes, checkpoints, tokenizer, decoder."""
