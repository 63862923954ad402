"""The small model that ships with the package, and its cluster centres; tools/bundled made them."""

import pathlib

# Its name for `--model`.
MODEL = 'bundled'
FOLDER = pathlib.Path(__file__).parent
CHECKPOINT = FOLDER / 'checkpoint'
TOKENIZER = FOLDER / 'tokenizer.model'
CENTERS = FOLDER / 'centers'
