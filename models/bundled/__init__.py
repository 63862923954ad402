"""The small model that ships with the package, its cluster centres, and the scripts that made them."""

import pathlib

# What `--model` calls it.
MODEL = 'bundled'
FOLDER = pathlib.Path(__file__).parent
CHECKPOINT = FOLDER / 'checkpoint'
TOKENIZER = FOLDER / 'tokenizer.model'
CENTERS = FOLDER / 'centers'
