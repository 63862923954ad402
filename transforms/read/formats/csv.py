"""CSV by RFC 4180, with line breaks inside quotes; columns by the names of a header row, or by position.

Another delimiter than a comma and another encoding than UTF-8 are possible: see `transforms.read.dialect`.

Python's reader is used, and not Arrow's: Arrow accepts text after a closing quote and an unclosed quote, and
it does not tell the bytes of a row that is rejected later.
"""

import csv
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

from transforms.read import dialect as dialect_lib
from transforms.read import lines as lines_lib
from transforms.read.compression import CorruptStream, decompressed
from transforms.read.dialect import Dialect
from transforms.read.formats.format import Column, Format, RawRow
from transforms.read.rules import REJECTION_BYTES, Reason, RecordFields, Table, is_utf8

# Records of a file without a header row that show how many columns it has.
_ROWS_LOOKED_AT = 1000


class Csv(Format):
    """One record of RFC 4180 is one row."""

    def rows(self, file: BinaryIO, codec: str | None, part: int, fields: RecordFields) -> Iterator[RawRow]:
        return csv_records(decompressed(file, codec), fields)

    def columns(self, file: BinaryIO, codec: str | None, path: str, fields: RecordFields) -> set[str] | None:
        return _csv_columns(file, codec, fields)

    def header(
        self, file: BinaryIO, codec: str | None, path: str, dialect: Dialect, table: Table
    ) -> tuple[tuple[Column, ...], Dialect] | None:
        try:
            head, _ = dialect_lib.peek(decompressed(file, codec))
        except CorruptStream:
            return None
        found = dialect_lib.likeliest(head, dialect)
        if found is None:
            return None if not head.strip() else ((), dialect)
        columns, shown = found
        return tuple(Column(name=name) for name in columns), shown

    def remedy(self, file: BinaryIO, codec: str | None, fields: RecordFields) -> str:
        if fields.positional:
            return (
                'Numbers name the columns of CSV without a header row; they count from 0. Give --delimiter '
                'if the delimiter is no comma.'
            )
        head, _ = dialect_lib.peek(decompressed(file, codec))
        found = dialect_lib.suggest(head, fields.names)
        if found is None:
            return super().remedy(file, codec, fields)
        remedy = f"Its header line has them with --delimiter '{_spelt(found)}' --encoding {found.encoding}"
        if found.encoding != 'windows-1252':
            return f'{remedy}: give these.'
        return (
            f'{remedy}, as spreadsheets of western Europe write it: give these, or the encoding that the '
            'writer of the file used.'
        )


def _spelt(dialect: Dialect) -> str:
    assert dialect.delimiter is not None  # `suggest`
    return 'tab' if dialect.delimiter == '\t' else dialect.delimiter


class _RowTooLong(Exception):
    """A CSV row passed `MAX_ROW_BYTES`."""


class _CsvLines:
    """Gives decoded lines to `csv.reader` and keeps the bytes of the current row.

    It is a class and no generator, because it must go on after it has raised.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._lines = lines_lib.split_lines(chunks)
        self.raw = bytearray()
        self.ended = False

    def __iter__(self) -> '_CsvLines':
        return self

    def __next__(self) -> str:
        try:
            line, whole = next(self._lines)
        except StopIteration:
            self.ended = True
            raise
        self.raw += line
        if not whole or len(self.raw) > lines_lib.MAX_ROW_BYTES:
            raise _RowTooLong
        # The reader must not take bad bytes for a quote, a delimiter or a line end, so that they spoil their
        # own row and no other.
        return line.decode(errors='surrogateescape')


def csv_rows(chunks: Iterable[bytes], delimiter: str = ',') -> Iterator[tuple[list[str] | Reason, bytes]]:
    """The rows of a CSV file in UTF-8, with its header row; blank lines are no rows.

    It is strict about RFC 4180: text after a closing quote is malformed, and so is a row with a lone
    carriage return outside of quotes. An unclosed quote makes the rest of the file unreadable.
    """
    # This limit is global to the process. MAX_ROW_BYTES bounds the rows instead.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    lines = _CsvLines(chunks)
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    while True:
        lines.raw.clear()
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            if lines.ended:
                yield Reason.UNREADABLE_REST, bytes(lines.raw[:REJECTION_BYTES])
                return
            yield Reason.MALFORMED, bytes(lines.raw[:REJECTION_BYTES])
            continue
        except _RowTooLong:
            # The end of this row is unknown, and so is the beginning of the next.
            yield Reason.UNREADABLE_REST, bytes(lines.raw[:REJECTION_BYTES])
            return
        if row:
            raw = bytes(lines.raw)
            yield row if is_utf8(raw) else Reason.NOT_TEXT, raw


def csv_content(chunks: Iterable[bytes], fields: RecordFields) -> tuple[Dialect, bytes, Iterator[bytes]]:
    """The dialect of a CSV file, its byte order mark, and its content as UTF-8."""
    head, whole = dialect_lib.peek(chunks)
    # Without a header row the first line is a record.
    found = dialect_lib.detect(head, fields.dialect, () if fields.positional else fields.names)
    assert found.encoding is not None  # `detect`
    return found, dialect_lib.mark(head), dialect_lib.as_utf8(whole, found.encoding)


def _rows_of(chunks: Iterable[bytes], fields: RecordFields) -> Iterator[tuple[list[str] | Reason, bytes]]:
    found, _, content = csv_content(chunks, fields)
    assert found.delimiter is not None  # `detect`
    return csv_rows(content, found.delimiter)


def csv_records(chunks: Iterable[bytes], fields: RecordFields) -> Iterator[RawRow]:
    """The rows of a CSV file by column name, or by position in a file without a header row."""
    rows = _rows_of(chunks, fields)
    positions: Mapping[str, int]
    width = None
    if fields.positional:
        # The width of the first row does not count: one record would decide about all others.
        positions = {name: int(name) for name in fields.names}
    else:
        header, raw = next(rows, ([], b''))
        if isinstance(header, Reason):
            yield Reason.UNREADABLE_REST, raw
            return
        positions = {name: header.index(name) for name in fields.names if name in header}
        width = len(header)
    for row, raw in rows:
        if isinstance(row, Reason):
            yield row, raw
        elif width is not None and len(row) != width:
            # For example an unquoted delimiter in the text: the columns of this row cannot be trusted.
            yield Reason.MALFORMED, raw
        else:
            yield {name: row[place] for name, place in positions.items() if place < len(row)}, raw


def _csv_columns(file: BinaryIO, codec: str | None, fields: RecordFields) -> set[str] | None:
    """Column names that occur once in the first row; None if there is no row."""
    rows = _rows_of(decompressed(file, codec), fields)
    try:
        if fields.positional:
            # The widest of many rows counts: a short or bad record is rejected later, and does not stop here.
            head = [row for row, _ in itertools.islice(rows, _ROWS_LOOKED_AT) if not isinstance(row, Reason)]
            return {str(place) for place in range(max(map(len, head)))} if head else None
        row, _ = next(rows, (None, b''))
    except CorruptStream:
        return None
    if row is None:
        return None
    return set() if isinstance(row, Reason) else {name for name in row if row.count(name) == 1}
