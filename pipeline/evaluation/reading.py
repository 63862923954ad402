"""Reads the texts of an evaluation: from the corpus of a finished run, or from files."""

from __future__ import annotations

import collections
import dataclasses

from etils import epy

from models.records import Record
from pipeline.evaluation.settings import EvaluationSettings
from pipeline.evaluation.sources import Texts
from transforms.text_files import delimiter_of

with epy.lazy_imports():
    from pipeline.release import released_corpus
    from transforms import read


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadTexts:
    """Texts that were read from one source.

    Attributes:
        left_out: Rows that gave none, by reason, without the rows.
    """

    texts: Texts
    left_out: dict[str, int]


def read_source(
    place: str, settings: EvaluationSettings, *, name: str, flag: str, has_units: bool = False
) -> ReadTexts:
    """Reads the corpus of a finished run, or files of texts.

    Args:
        place: Folder that a run wrote, or comma-separated paths and globs of CSV, JSONL or Parquet.
        settings: How files are written, and their columns. A run's corpus has its labels in a column of its
            own, unless the columns of the label are among its attributes; it has no units.
        name: Its name in tables.
        flag: The flag that names it, for errors.
        has_units: Whether the column of the unit of privacy is read of files.

    Raises:
        FileNotFoundError: There is nothing of this name.
        ValueError: A folder without a corpus, a column that is missing, a damaged file, or no text.
    """
    unit_field = settings.unit_field if has_units else None
    fields = read.RecordFields(
        text=settings.text_field,
        label=settings.label_field,
        attributes=settings.attributes,
        unit=unit_field,
        dialect=read.Dialect(
            delimiter=delimiter_of(settings.delimiter), encoding=settings.encoding, quoting=settings.quoting
        ),
    )
    if released_corpus.is_release(place):
        return _of_release(place, name, flag.removeprefix('--'), fields.of_label)
    has_labels = bool(fields.of_label)
    rules = read.RecordRules(
        fields=fields, any_label=has_labels, unit='example' if unit_field is None else 'user'
    )
    try:
        files = read.check_input(place, fields)
    except FileNotFoundError as error:
        raise FileNotFoundError(f'Expected texts for {flag}. {error}') from error
    except ValueError as error:
        raise ValueError(f'Expected texts for {flag}. {error}') from error
    rows: list[Record] = []
    left_out: collections.Counter[str] = collections.Counter()
    for file in files:
        for row in read.read_place(file.path, rules):
            if isinstance(row, Record):
                rows.append(row)
            else:
                left_out[row.reason.value] += 1
    # The number of other rows is for the page, and not for an error's text.
    if left_out[read.Reason.UNREADABLE_REST.value]:
        raise ValueError(
            f'Expected whole files for {flag}, got {place!r} with one whose rest cannot be read. Fetch it '
            'again.'
        )
    if not rows:
        raise ValueError(
            f'Expected texts for {flag}, got none in {place!r}. Check --text-field, --label-field or '
            '--attributes, and --unit-field.'
        )
    labels = tuple(str(row.label) for row in rows) if has_labels else None
    units = tuple(str(row.unit) for row in rows) if unit_field is not None else None
    return ReadTexts(
        texts=Texts(name=name, texts=tuple(row.text for row in rows), labels=labels, units=units),
        left_out=dict(sorted(left_out.items())),
    )


def _of_release(folder: str, name: str, flag: str, of_label: tuple[str, ...]) -> ReadTexts:
    """The corpus of a run, which has labels where its run had."""
    shards = released_corpus.list_shards(folder, flag)
    examples = [one for shard in shards for one in released_corpus.read_examples(shard.path, flag, of_label)]
    rows = [one for one in examples if one.text.strip()]
    if not rows:
        raise ValueError(f'Expected a corpus with texts, got {flag}={folder!r} without any. Name another.')
    has_labels = any(one.label is not None for one in rows)
    blank = len(examples) - len(rows)
    return ReadTexts(
        texts=Texts(
            name=name,
            texts=tuple(one.text for one in rows),
            labels=tuple(str(one.label) for one in rows) if has_labels else None,
        ),
        left_out={read.Reason.BLANK_TEXT.value: blank} if blank else {},
    )
