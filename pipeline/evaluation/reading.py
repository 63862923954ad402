"""Texts of a run's corpus, or of files, for evaluation."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import typing
from collections.abc import Iterator

from etils import epy

from models.records import Record
from pipeline.evaluation.sources import Texts
from transforms.run_files import DATA_FOLDER, REPORT

with epy.lazy_imports():
    from transforms import read

if typing.TYPE_CHECKING:
    from transforms.read import RecordRules

# Of a run's corpus, whatever the columns of its records were called.
_TEXT, _LABEL = 'text', 'label'


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadTexts:
    """What one source gave.

    Attributes:
        texts: Its texts.
        left_out: Rows that gave none, by reason, without the rows.
    """

    texts: Texts
    left_out: dict[str, int]


def read_source(place: str, *, name: str, flag: str, text_field: str, label_field: str | None) -> ReadTexts:
    """Reads the corpus of a finished run, or files of texts.

    Args:
        place: Folder that a run wrote, or comma-separated paths and globs of CSV, JSONL or Parquet.
        name: What tables call it.
        flag: Of the command line, for errors.
        text_field: Column of the texts in files.
        label_field: Column of their labels; None where they are not read. A run's corpus has its labels
            in a column of its own.

    Raises:
        FileNotFoundError: There is nothing of this name.
        ValueError: A folder without a corpus, a column that is missing, a damaged file, or no text.
    """
    folder = pathlib.Path(place)
    if folder.is_dir():
        if not (folder / REPORT).exists():
            raise ValueError(
                f'Expected files of texts or the folder of a finished run for {flag}, got {place!r}, a '
                f'folder without {REPORT}. Name the files, or the --output of a run.'
            )
        place, text_field = str(folder / DATA_FOLDER / '*.parquet'), _TEXT
        label_field = _LABEL if _has_labels(folder) else None
    try:
        rules = read.RecordRules(
            fields=read.RecordFields(text=text_field, label=label_field), any_label=label_field is not None
        )
        files = read.check_input(place, rules.fields)
    except (ValueError, FileNotFoundError) as error:
        raise type(error)(f'Expected texts for {flag}. {error}') from error
    rows: list[Record] = []
    left_out: collections.Counter[str] = collections.Counter()
    for file in files:
        for found in _rows(file.path, rules):
            if isinstance(found, Record):
                rows.append(found)
            else:
                left_out[found] += 1
    if damaged := left_out[read.Reason.UNREADABLE_REST.value]:
        raise ValueError(
            f'Expected whole files for {flag}, got {damaged} in {place!r} whose rest cannot be read. Fetch '
            'them again.'
        )
    if not rows:
        raise ValueError(
            f'Expected texts for {flag}, got none in {place!r}; rows left out: {dict(left_out) or 0}. Check '
            '--text-field and --label-field.'
        )
    labels = tuple(str(row.label) for row in rows) if label_field is not None else None
    return ReadTexts(
        texts=Texts(name=name, texts=tuple(row.text for row in rows), labels=labels),
        left_out=dict(sorted(left_out.items())),
    )


def _has_labels(folder: pathlib.Path) -> bool:
    """Whether a corpus was made with labels: its column is there, and empty, without."""
    from pyarrow import dataset

    shards = dataset.dataset(folder / DATA_FOLDER, format='parquet')
    labels = shards.to_table(columns=[_LABEL]).column(_LABEL)
    return len(labels) > labels.null_count


def _rows(path: str, rules: RecordRules) -> Iterator[Record | str]:
    for piece in read.split_file(path):
        for found in read.read_piece(piece, rules):
            yield found if isinstance(found, Record) else found.reason.value
