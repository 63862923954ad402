"""Answers of the curator, and the settings that they give."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
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


def of_place(dialect: 'Dialect', table: 'Table') -> dict[str, Any]:
    """Settings of a place's format and of the table that is read, as far as they are not the defaults."""
    settings: dict[str, Any] = {
        name: value for name, value in dataclasses.asdict(table).items() if value is not None
    }
    if dialect.delimiter is not None:
        settings['delimiter'] = 'tab' if dialect.delimiter == '\t' else dialect.delimiter
    if dialect.encoding is not None:
        settings['encoding'] = dialect.encoding
    if dialect.quoting != 'double':
        settings['quoting'] = dialect.quoting
    return settings


def of_label(columns: tuple[str, ...], labels: tuple[str, ...]) -> dict[str, Any]:
    """Settings of the label's column, or of those of attributes, and of the declared labels."""
    if not columns:
        return {}
    column: dict[str, Any] = {'attributes': columns} if columns[1:] else {'label_field': columns[0]}
    return {**column, 'labels': labels}


def notes(answered: Mapping[str, Any]) -> dict[str, str]:
    """Meanings of some of the settings that were answered, by name."""
    by_person = 'unit_field' in answered
    who, whom = ('people', 'all records of one person') if by_person else ('records', 'one record')
    return {
        'labels': 'Declared, never read from the records. Records with another label are left out.',
        'records': f'About how many {who} there are: publicly known or roughly rounded, never counted.',
        'typical_words': 'About how many words a typical record has: as publicly known, too.',
        'epsilon': f'How much the corpus may tell of {whom}: 1 is strict, 10 is loose.',
        'examples': 'Texts wanted.',
    }


def names(answered: Mapping[str, Any]) -> dict[str, Follows]:
    """Names of a text and its label in prompts: the columns' names, where these are words."""
    columns = {'text_name': answered['text_field'], 'label_name': answered.get('label_field')}
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
