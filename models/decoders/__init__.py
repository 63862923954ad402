"""Language models behind two interfaces, a decoder and a tokenizer."""
