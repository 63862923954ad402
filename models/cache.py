"""The folder for files that can be fetched or computed again."""

import os
import pathlib

# Moves the folder; without it the desktop's rule holds, XDG Base Directory 0.8.
VARIABLE = 'DP_CORPUS_CACHE'
_RULE = 'XDG_CACHE_HOME'


def cache_folder() -> pathlib.Path:
    """`$DP_CORPUS_CACHE`, else `$XDG_CACHE_HOME/dp-corpus`, else `~/.cache/dp-corpus`; it need not exist."""
    if folder := os.environ.get(VARIABLE):
        return pathlib.Path(folder).expanduser().absolute()
    shared = os.environ.get(_RULE, '')
    # The rule says of a relative path that it is to be ignored.
    root = pathlib.Path(shared) if os.path.isabs(shared) else pathlib.Path.home() / '.cache'
    return root / 'dp-corpus'
