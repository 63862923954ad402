"""The small model that ships with the package, and its cluster centres; tools/bundled made them."""

import pathlib

# What `--model` calls it.
MODEL = 'bundled'
FOLDER = pathlib.Path(__file__).parent
CHECKPOINT = FOLDER / 'checkpoint'
TOKENIZER = FOLDER / 'tokenizer.model'
CENTERS = FOLDER / 'centers'
