"""The columns that files have, before anybody has named one; no record is needed to know them."""

import dataclasses

from transforms.read.dialect import Dialect
from transforms.read.files import file_format, list_input, open_file
from transforms.read.formats import FORMATS
from transforms.read.formats.format import Column


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """What the first file with any content says of its columns.

    Attributes:
        columns: In the file's order; of JSON objects, which have none, by name.
        dialect: How a CSV file is written, as far as it is no default; empty for another format.
    """

    columns: tuple[Column, ...]
    dialect: Dialect


def read_header(pattern: str, dialect: Dialect) -> Header:
    """The columns of the first file of a list that has any. Errors quote nothing that was read.

    Args:
        pattern: Comma-separated paths and globs.
        dialect: What is given of how CSV files are written.

    Raises:
        ValueError: The list is empty, an extension is unknown, every file is empty, or a header line does
            not name each column once.
        FileNotFoundError: A pattern matches no file.
    """
    files = list_input(pattern)
    for file in files:
        file_format(file.path)
    for path in (file.path for file in files if file.size):
        name, codec = file_format(path)
        with open_file(path) as content:
            found = FORMATS[name].header(content, codec, path, dialect)
        if found is None:
            continue
        columns, shown = found
        names = [column.name for column in columns]
        if not names or len(set(names)) < len(names) or not all(each.strip() for each in names):
            raise ValueError(
                f'Expected a header that names each column once, got path={path!r}, columns={len(names)}, '
                f'unnamed={sum(not each.strip() for each in names)}. Give the file a header line with a name '
                'for each column, or give --delimiter and --encoding if it has one.'
            )
        return Header(columns=columns, dialect=shown)
    raise ValueError(
        f'Expected a file with records, got {len(files)} without any in input={pattern!r}. Check that the '
        'export has finished, and that the path is right.'
    )
