"""The released folder, and what may not lie in it: records, keys, ledgers, and files for the curator alone.

A folder with a corpus will be published, whole. So nothing that no guarantee covers, such as a true count
or an audit, is written into one: not beside the corpus, not into a folder below, and not through a link.
"""

import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence

from transforms.run_files import CARD, DATA_FOLDER, REPORT, REPORT_PAGE

# Endings of a file for the curator alone.
PAGE_OR_JSON = ('.html', '.json')

_SHARDS = '*.parquet'
# The settings that name the curator's places, and why these lie elsewhere.
_WHY = {
    'work_dir': 'the work directory holds the key',
    'input': 'the input holds the records',
    'ledger': 'the ledger is for the curator alone',
    'compilation_cache': 'programs tell of sizes of batches',
}


def check_outside(output: str, name: str, value: str, places: Iterable[str]) -> None:
    """Refuses places of a run that lie in its output, or that its output lies in.

    Args:
        output: The folder that is published.
        name: The setting that names the places: a key of `_WHY`.
        value: The value of that setting, for the error.
        places: Files and folders, there already or not; those of an object store are compared as texts.
    """
    if any(lies_in(place, output) or lies_in(output, place) for place in places):
        # Files of records are not named: a name may tell whose they are.
        raise ValueError(
            f'Expected {name} outside the output, got {name}={value!r}, output={output!r}, which lie in each '
            f'other where their links lead. The output is published; {_WHY[name]}. Choose another --output.'
        )


def lies_in(place: str, folder: str) -> bool:
    """True if a file or folder is a folder, or lies in it at any depth."""
    if '://' in place or '://' in folder:
        named, around_it = pathlib.PurePosixPath(place), pathlib.PurePosixPath(folder)
        return named == around_it or around_it in named.parents
    inner, outer = (pathlib.Path(os.path.realpath(path)) for path in (place, folder))
    around = (inner, *inner.parents)
    # One folder may have two names without a link: another spelling, or another mount.
    return outer in around or (outer.exists() and any(p.exists() and p.samefile(outer) for p in around))


def check_file(path: pathlib.Path, endings: Sequence[str]) -> None:
    """Checks the place of a file for the curator alone, before the work for it begins.

    Args:
        path: The file to be.
        endings: Endings that its name may have: `PAGE_OR_JSON`, say.

    Raises:
        ValueError: Another ending, or a folder that holds a corpus or lies in one.
        FileExistsError: There is something of this name.
        FileNotFoundError: There is no such folder.
    """
    if path.suffix not in endings:
        raise ValueError(
            f'Expected a file ending in {" or ".join(endings)}, got path={path.name!r}. Rename it.'
        )
    _check_place(path, 'file')


def check_folder(path: pathlib.Path) -> None:
    """Checks the place of a folder of files for the curator alone; errors as of `check_file`."""
    _check_place(path, 'folder')


def check_work_dir(path: str) -> None:
    """Checks that a work directory lies in no folder that an earlier run has published."""
    folder = pathlib.Path(path).resolve()
    for corpus in _reports_around(folder):
        raise _beside_a_corpus(pathlib.Path(path), corpus, 'folder')


def _check_place(path: pathlib.Path, kind: str) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f'Expected a folder for path={str(path)!r}, which is not there. Make it.')
    for corpus in _corpora_around(path):
        raise _beside_a_corpus(path, corpus, kind)
    # A link that leads nowhere is there, too.
    if path.exists() or path.is_symlink():
        raise FileExistsError(f'Expected a new {kind}, got path={str(path)!r}, which is there. Rename it.')


def _beside_a_corpus(path: pathlib.Path, corpus: pathlib.Path, kind: str) -> ValueError:
    return ValueError(
        f'Expected a folder without a corpus, got path={str(path)!r} with the corpus of '
        f'{str(corpus)!r}. Only the curator may read this {kind}: write it where nobody publishes it '
        'by mistake.'
    )


def write(path: pathlib.Path, text: str, endings: Sequence[str]) -> None:
    """Writes a new file for its owner alone; errors as of `check_file`."""
    check_file(path, endings)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 'w', encoding='utf-8') as file:
        file.write(text)


def _corpora_around(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Folders of corpora that the file would lie in, where its links really lead."""
    folder = path.parent.resolve()
    # A run makes its folder of shards first, still empty.
    if (folder / DATA_FOLDER).exists():
        yield folder
    yield from _reports_around(folder)
    for around in (folder, *folder.parents):
        # Far above, `data` is a common name: there, only shards tell of a corpus.
        if around.name == DATA_FOLDER and any(around.glob(_SHARDS)):
            yield around.parent
        if (around / CARD).exists() and any((around / DATA_FOLDER).glob(_SHARDS)):
            yield around


def _reports_around(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for around in (folder, *folder.parents):
        if (around / REPORT).exists() or (around / REPORT_PAGE).exists():
            yield around
