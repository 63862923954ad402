"""The model that can be fetched: its file, and the path of that file."""

import pathlib

from models import cache

# Its name for `--model`.
MODEL = 'gemma3-270m'
FILE_NAME = 'gemma-3-270m-q4_k_m.gguf'
SHA256 = 'a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818'
# The command that fetches it, for errors.
COMMAND = f'dp-corpus models fetch {MODEL}'
REMEDY = f'Fetch it with `{COMMAND}`'


def fetched_file() -> pathlib.Path:
    """Path of the file once it is fetched."""
    return cache.cache_folder() / 'weights' / MODEL / FILE_NAME
