"""Answers of the curator, and the settings that they give."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.methods.follows import Follows

if TYPE_CHECKING:
    from transforms.read import Dialect, Table

# Columns that hold the text where a file has one of them, by their usual names.
TEXT_COLUMNS = (
    'text', 'note', 'body', 'content', 'message', 'description', 'comment', 'review', 'question', 'sentence',
    'document', 'narrative', 'abstract', 'transcript',
)  # fmt: skip
DESCRIPTION = 'A collection of texts, one after another.'
EPSILON, EXAMPLES = 3.0, 200
# Name of a column that may stand in a prompt.
_WORDS = re.compile(r'[^\W\d_][\w \-]{0,30}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers about the records and the corpus. Public, every part of them.

    Attributes:
        records: The files or another place, as `--input` names them.
        dialect: Format of files of text, as far as no default finds it out.
        table: The table of the place that is read.
        text_field: Column of the text.
        label_columns: Column of the label; several are attributes, whose values together are the label.
        labels: The declared labels, VALUE or VALUE=WORDS; of attributes COLUMN:VALUE=WORDS.
        unit_field: Column of the person; None where each record is protected by itself.
        corpus_description: The corpus in a sentence.
        epsilon: Largest cost of the corpus.
        examples: Texts wanted.
        declared: About how many records there are; under a unit field how many people.
        typical_words: Words of a typical record.
    """

    records: str
    dialect: 'Dialect'
    table: 'Table'
    text_field: str
    label_columns: tuple[str, ...]
    labels: tuple[str, ...]
    unit_field: str | None
    corpus_description: str
    epsilon: float
    examples: int
    declared: int
    typical_words: int

    @property
    def label_field(self) -> str | None:
        return self.label_columns[0] if len(self.label_columns) == 1 else None

    @property
    def attributes(self) -> tuple[str, ...]:
        return self.label_columns if len(self.label_columns) > 1 else ()

    def settings(self) -> dict[str, Any]:
        """The answers by the names of settings."""
        values: dict[str, Any] = {'input': self.records}
        of_place = dataclasses.asdict(self.table)
        values |= {name: value for name, value in of_place.items() if value is not None}
        if self.dialect.delimiter is not None:
            values['delimiter'] = 'tab' if self.dialect.delimiter == '\t' else self.dialect.delimiter
        if self.dialect.encoding is not None:
            values['encoding'] = self.dialect.encoding
        if self.dialect.quoting != 'double':
            values['quoting'] = self.dialect.quoting
        values['text_field'] = self.text_field
        if self.label_field is not None:
            values |= {'label_field': self.label_field, 'labels': self.labels}
        if self.attributes:
            values |= {'attributes': self.attributes, 'labels': self.labels}
        if self.unit_field is not None:
            values |= {'unit': 'user', 'unit_field': self.unit_field}
        return values | {
            'records': self.declared,
            'typical_words': self.typical_words,
            'corpus_description': self.corpus_description,
            'epsilon': self.epsilon,
            'examples': self.examples,
        }

    def notes(self) -> dict[str, str]:
        """Meanings of some of `settings`, by name."""
        who = 'people' if self.unit_field is not None else 'records'
        whom = 'all records of one person' if self.unit_field is not None else 'one record'
        return {
            'labels': 'Declared, never read from the records. Records with another label are left out.',
            'records': f'About how many {who} there are: publicly known or roughly rounded, never counted.',
            'typical_words': 'About how many words a typical record has: as publicly known, too.',
            'epsilon': f'How much the corpus may tell of {whom}: 1 is strict, 10 is loose.',
            'examples': 'Texts wanted.',
        }

    def names(self) -> dict[str, Follows]:
        """Names of a text and its label in prompts: the columns' names, where these are words."""
        columns = {'text_name': self.text_field, 'label_name': self.label_field}
        return {
            name: Follows(
                value=_called(column), because=f'As the column is called: prompts say {_called(column)!r}.'
            )
            for name, column in columns.items()
            if column is not None and _WORDS.fullmatch(column)
        }


def likely_text(columns: Sequence[str]) -> str | None:
    """The column that holds the text, where there is no doubt by its name; None where there is.

    >>> likely_text(['id', 'Note', 'ward']), likely_text(['title', 'story'])
    ('Note', None)
    """
    if len(columns) == 1:
        return columns[0]
    by_name = {column.strip().lower(): column for column in reversed(columns)}
    likely = [by_name[name] for name in TEXT_COLUMNS if name in by_name]
    return (
        likely[0] if likely and (len(likely) == 1 or likely[0].strip().lower() == TEXT_COLUMNS[0]) else None
    )


def declared_labels(text: str) -> tuple[str, ...]:
    """Labels of a comma list, VALUE or VALUE=WORDS."""
    labels = tuple(part.strip() for part in text.split(',') if part.strip())
    if not labels or any(not part.partition('=')[0].strip() for part in labels):
        raise ValueError(
            f'Expected declared labels, got labels={text!r}. Give --labels A1=Surgery,B2=Paediatrics, say, '
            'with values as the records write them: they are declared, never read from the records.'
        )
    return labels


def labels_of_columns(
    text: str, column_of: Callable[[str], str | None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Columns, and their declared labels, in the form 'ward: A1=Surgery, B2; mood: calm'.

    Labels of several columns begin with their column. `column_of` gives a column by its typed name.

    Raises:
        ValueError: It has another form, no such column, or a column twice.

    >>> labels_of_columns('ward: A1=Surgery, B2', str)
    (('ward',), ('A1=Surgery', 'B2'))
    >>> labels_of_columns('ward: A1=Surgery, B2; mood: calm', str)
    (('ward', 'mood'), ('ward:A1=Surgery', 'ward:B2', 'mood:calm'))
    """
    by_column: dict[str, tuple[str, ...]] = {}
    for part in text.split(';'):
        name, _, values = part.partition(':')
        column = str(column_of(name.strip()))
        if column in by_column:
            raise ValueError(f'Expected each column once, got column={column!r} twice. Name it once.')
        by_column[column] = declared_labels(values)
    if len(by_column) == 1:
        return tuple(by_column), next(iter(by_column.values()))
    return tuple(by_column), tuple(
        f'{column}:{label}' for column, labels in by_column.items() for label in labels
    )


def _called(column: str) -> str:
    name = column.replace('_', ' ').strip()
    return name[:1].upper() + name[1:]
