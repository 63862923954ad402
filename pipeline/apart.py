"""What may not lie in a folder that is published, compared where links really lead."""

import os
import pathlib
from collections.abc import Iterable

_WHY = {
    'work_dir': 'the work directory holds the key',
    'input': 'the input holds the records',
    'ledger': 'the ledger is for the curator alone',
}


def check(output: str, name: str, given: str, places: Iterable[str]) -> None:
    """Refuses places of a run that lie in its output, or that its output lies in.

    Args:
        output: The folder that is published.
        name: The setting that names the places: a key of `_WHY`.
        given: Its value, for the error.
        places: Files and folders, there already or not; those of an object store are compared as texts.

    Raises:
        ValueError: See above.
    """
    if any(lies_in(place, output) or lies_in(output, place) for place in places):
        # Files of records are not named: a name may tell whose they are.
        raise ValueError(
            f'Expected {name} outside the output, got {name}={given!r}, output={output!r}, which lie in each '
            f'other where their links lead. The output is published; {_WHY[name]}. Choose another --output.'
        )


def lies_in(place: str, folder: str) -> bool:
    """Whether a file or folder is a folder, or lies in it at any depth."""
    if '://' in place or '://' in folder:
        named, around_it = pathlib.PurePosixPath(place), pathlib.PurePosixPath(folder)
        return named == around_it or around_it in named.parents
    inner, outer = (pathlib.Path(os.path.realpath(path)) for path in (place, folder))
    around = (inner, *inner.parents)
    # One folder may have two names without a link: another spelling, or another mount.
    return outer in around or (outer.exists() and any(p.exists() and p.samefile(outer) for p in around))
