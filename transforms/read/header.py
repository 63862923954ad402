"""The columns that records have, before anybody has named one; no record is needed to know them."""

import dataclasses
from collections.abc import Sequence

from transforms.read.dialect import Dialect
from transforms.read.errors import naming_only
from transforms.read.files import InputFile, check_formats, file_format, list_input, open_file
from transforms.read.formats import FORMATS
from transforms.read.rules import Table
from transforms.read.sources import source_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """The columns of the first file with any content, or of another place.

    Attributes:
        columns: Those whose name occurs once, in the order of the place; of JSON objects, which have none, by
            name.
        dialect: How files of text are written: what was given, and what a CSV file shows that is no default.
    """

    columns: tuple[str, ...]
    dialect: Dialect


def read_header(pattern: str, dialect: Dialect, table: Table = Table()) -> Header:  # noqa: B008 - immutable
    """The columns of the first place of a list that has any. Errors quote nothing that was read.

    Raises:
        ValueError: The list is empty, an extension is unknown, every file is empty, a place has several
            tables, of which none is named, a database refuses the query, or a header does not name each
            column.
        FileNotFoundError: A pattern matches no file; no database or data set is there.
        ConnectionError: A database or the Hub does not answer.
    """
    files = list_input(pattern)
    check_formats(pattern, files)
    for file in files:
        with naming_only(file.path):
            if (header := _header_of(file, dialect, table)) is not None:
                return header
    raise ValueError(
        f'Expected a file with records, got {len(files)} without any in input={pattern!r}. Check that the '
        'export has finished, and that the path is right.'
    )


def _header_of(file: InputFile, dialect: Dialect, table: Table) -> Header | None:
    """The header of one place; None of a file without any content."""
    if (source := source_of(file.path)) is not None:
        columns = _named_once(file.path, source.header(file.path, table), source.header_remedy)
        return Header(columns=columns, dialect=dialect)
    if not file.size:
        return None
    name, codec = file_format(file.path)
    with open_file(file.path) as content:
        header = FORMATS[name].header(content, codec, file.path, dialect, table)
    if header is None:
        return None
    columns, shown = header
    columns = _named_once(file.path, columns, FORMATS[name].header_remedy)
    # The given dialect stays for other places of the list.
    return Header(columns=columns, dialect=dialect if shown == Dialect() else shown)


def _named_once(path: str, names: Sequence[str], remedy: str) -> tuple[str, ...]:
    """The columns that a setting can name: a run does without those whose name occurs twice."""
    once = tuple(name for name in names if names.count(name) == 1)
    if not once or not all(each.strip() for each in names):
        raise ValueError(
            f'Expected a header that names each column, got path={path!r}, columns={len(names)}, '
            f'unnamed={sum(not each.strip() for each in names)}, named once={len(once)}. {remedy}'
        )
    return once
