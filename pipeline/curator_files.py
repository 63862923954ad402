"""Files that only the curator may read: true counts, audits, and all else that no guarantee covers.

A folder with a corpus will be published, whole. So no such file is written into
one: not beside the corpus, not into a folder below, and not through a link.
"""

import os
import pathlib
from collections.abc import Iterator, Sequence

from transforms.run_files import CARD, DATA_FOLDER, REPORT, REPORT_PAGE

# What such a file may be.
JSON = ('.json',)
PAGE_OR_JSON = ('.html', '.json')

_SHARDS = '*.parquet'


def check(path: pathlib.Path, endings: Sequence[str]) -> None:
    """Checks the place of such a file, before the work for it begins.

    Args:
        path: The file to be.
        endings: What its name may end in: `JSON` or `PAGE_OR_JSON`.

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
    """Checks the place of a folder of such files, before the work for it begins.

    Raises:
        ValueError: A folder that holds a corpus or lies in one.
        FileExistsError: There is something of this name.
        FileNotFoundError: There is no folder that it could lie in.
    """
    _check_place(path, 'folder')


def check_work_dir(path: str) -> None:
    """Checks that a work directory lies in no folder that an earlier run has published.

    Raises:
        ValueError: See above.
    """
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
    """Writes such a file for its owner alone.

    Raises:
        ValueError: As `check`.
        FileExistsError: As `check`; a file is never replaced.
        FileNotFoundError: As `check`.
    """
    check(path, endings)
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
