"""CSV by RFC 4180, with line breaks inside quotes; columns by the names of a header row, or by position.

Python's reader is used, and not Arrow's: Arrow accepts text after a closing quote and an unclosed quote, and
it does not tell the bytes of a row that is rejected later.
"""

import csv
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from transforms.read import dialect as dialect_lib
from transforms.read import lines as lines_lib
from transforms.read.compression import CorruptStream, decompressed
from transforms.read.dialect import Dialect, Layout
from transforms.read.formats.format import Format, RawRow
from transforms.read.rules import Reason, RecordFields, Table, is_utf8

# Records of a file without a header row that show how many columns it has.
_ROWS_LOOKED_AT = 1000
# Bytes of lines that are read again, at a time.
_PIECE_BYTES = 64 * 2**10
# The values of a row, or why it has none, and its bytes in UTF-8.
CsvRow = tuple[list[str] | Reason, bytes]


class Csv(Format):
    """One record of RFC 4180 is one row."""

    def __init__(self, delimiters: Sequence[str] = dialect_lib.DELIMITERS) -> None:
        self._delimiters = delimiters

    def rows(
        self, file: BinaryIO, codec: str | None, part: int, fields: RecordFields, *, whole: bool = False
    ) -> Iterator[RawRow]:
        return csv_records(decompressed(file, codec), fields, self._delimiters, whole=whole)

    def open(
        self, file: BinaryIO, codec: str | None, fields: RecordFields
    ) -> tuple[Layout, Iterator[CsvRow]]:
        """The form of the file, and its rows with the header row, before columns are chosen."""
        return csv_file(decompressed(file, codec), fields, self._delimiters)

    def columns(self, file: BinaryIO, codec: str | None, path: str, fields: RecordFields) -> set[str] | None:
        """Column names that occur once in the first row; None if there is no row."""
        _, rows = self.open(file, codec, fields)
        try:
            if fields.positional:
                # The widest of many rows counts: a short or bad record is rejected later, and does not stop
                # here.
                head = itertools.islice(rows, _ROWS_LOOKED_AT)
                widths = [len(row) for row, _ in head if not isinstance(row, Reason)]
                return {str(place) for place in range(max(widths))} if widths else None
            row, _ = next(rows, (None, b''))
        except CorruptStream:
            return None
        if row is None:
            return None
        return set() if isinstance(row, Reason) else {name for name in row if row.count(name) == 1}

    def header(
        self, file: BinaryIO, codec: str | None, path: str, dialect: Dialect, table: Table
    ) -> tuple[tuple[str, ...], Dialect] | None:
        try:
            head, _ = dialect_lib.peek(decompressed(file, codec))
        except CorruptStream:
            return None
        likeliest = dialect_lib.likeliest(head, dialect, self._delimiters)
        if likeliest is None:
            return None if not head.strip() else ((), dialect)
        columns, shown = likeliest
        # The index of a pandas table has no name and comes first.
        return tuple(columns[1:] if len(columns) > 1 and not columns[0].strip() else columns), shown

    def remedy(self, file: BinaryIO, codec: str | None, fields: RecordFields) -> str:
        if fields.positional:
            return (
                'Numbers name the columns of CSV without a header row; they count from 0. Give --delimiter '
                'if the delimiter is no comma.'
            )
        head, _ = dialect_lib.peek(decompressed(file, codec))
        dialect = dialect_lib.suggest(head, fields.names, fields.dialect.quoting)
        if dialect is None:
            return super().remedy(file, codec, fields)
        remedy = (
            f"Its header line has them with --delimiter '{_spelt(dialect)}' --encoding {dialect.encoding}"
        )
        if dialect.encoding != dialect_lib.OF_SPREADSHEETS:
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
    """Gives decoded lines to the reader of rows, and keeps the bytes of the current row.

    It is a class and no generator, because it must go on after it has raised.

    Attributes:
        raw: Bytes of the row so far.
        count: Its lines so far.
    """

    def __init__(self, chunks: Iterable[bytes], end: bytes) -> None:
        self._end = end
        # Those that come next stand last: lines that are read again, before the file's.
        self._sources = [lines_lib.split_lines(chunks, end=end)]
        self.raw = bytearray()
        self.count = 0

    def __iter__(self) -> '_CsvLines':
        return self

    def __next__(self) -> str:
        while (next_line := next(self._sources[-1], None)) is None:
            if len(self._sources) == 1:
                raise StopIteration
            self._sources.pop()
        line, is_whole = next_line
        self.raw += line
        self.count += 1
        if not is_whole or len(self.raw) > lines_lib.MAX_ROW_BYTES:
            raise _RowTooLong
        # The reader must not take bad bytes for a quote, a delimiter or a line end, so that they spoil their
        # own row and no other.
        return line.decode(errors='surrogateescape')

    def begin(self) -> None:
        """Begins a row with the next line."""
        self.raw.clear()
        self.count = 0

    def first_line(self) -> bytes:
        """Ends the row with its first line; those after it are read again."""
        if self.count == 1:
            return bytes(self.raw)
        size = self.raw.index(self._end) + 1
        again = bytes(self.raw[size:])
        pieces = (again[place : place + _PIECE_BYTES] for place in range(0, len(again), _PIECE_BYTES))
        self._sources.append(lines_lib.split_lines(pieces, end=self._end, is_begin=False))
        return bytes(self.raw[:size])


def csv_rows(
    chunks: Iterable[bytes],
    delimiter: str = ',',
    quoting: str = dialect_lib.DOUBLE,
    line_end: bytes = b'\n',
) -> Iterator[CsvRow]:
    """The rows of a CSV file in UTF-8, with its header row; blank lines are no rows.

    A row ends where its quotes are closed and its line ends. One that never comes there is no row: where
    something else than a delimiter or a line end follows a closing quote, where the file ends within quotes,
    or after `MAX_ROW_BYTES`. Then its first line alone is rejected, and the next line begins a row. A row of
    more than `MAX_ROW_LINES` lines is one rejected row: to read the lines of a quoted text as rows would let
    one person write many.

    A line is read again once at most. Within quotes it has them in pairs, and read anew it closes what it
    opens. So the work grows with the file as memory does with its longest row.
    """
    # This limit is global to the process. MAX_ROW_BYTES bounds the rows instead.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    lines = _CsvLines(chunks, line_end)
    reader = dialect_lib.reader(lines, delimiter, quoting)
    while True:
        lines.begin()
        try:
            row = next(reader)
        except StopIteration:
            return
        except _RowTooLong:
            yield (Reason.TOO_LONG if lines.count == 1 else Reason.MALFORMED), lines.first_line()
            continue
        except csv.Error:
            yield Reason.MALFORMED, lines.first_line()
            continue
        if row:
            raw = bytes(lines.raw)
            if lines.count > lines_lib.MAX_ROW_LINES:
                yield Reason.TOO_LONG, raw
            else:
                yield row if is_utf8(raw) else Reason.NOT_TEXT, raw


def csv_file(
    chunks: Iterable[bytes], fields: RecordFields, delimiters: Sequence[str] = dialect_lib.DELIMITERS
) -> tuple[Layout, Iterator[CsvRow]]:
    """The form of a CSV file, and its rows, streamed, the header row first if it has one.

    Raises:
        CorruptStream: The damage is in the first line.
    """
    head, whole = dialect_lib.peek(chunks)
    # Without a header row the first line is a record.
    names = () if fields.positional else fields.names
    layout = dialect_lib.detect(head, fields.dialect, names, delimiters)
    content = dialect_lib.as_utf8(whole, layout.encoding)
    rows = csv_rows(content, layout.delimiter, fields.dialect.quoting, layout.line_end)
    if layout.is_declared:
        next(rows, None)
    return layout, rows


def csv_records(
    chunks: Iterable[bytes],
    fields: RecordFields,
    delimiters: Sequence[str] = dialect_lib.DELIMITERS,
    *,
    whole: bool = False,
) -> Iterator[RawRow]:
    """The rows of a CSV file by column name, or by position in a file without a header row."""
    _, rows = csv_file(chunks, fields, delimiters)
    if fields.positional:
        # The width of the first row does not count: one record would decide about all others.
        for row, raw in rows:
            if isinstance(row, Reason):
                yield row, raw
            else:
                names = [str(place) for place, _ in enumerate(row)] if whole else fields.names
                yield {name: row[int(name)] for name in names if int(name) < len(row)}, raw
        return
    header, raw = next(rows, ([], b''))
    if isinstance(header, Reason):
        yield Reason.UNREADABLE_REST, raw
        return
    positions = {
        name: header.index(name) for name in (header if whole else fields.names) if name and name in header
    }
    for row, raw in rows:
        if isinstance(row, Reason):
            yield row, raw
        elif not has_width(row, header):
            # For example an unquoted delimiter in the text: the columns of this row cannot be trusted.
            yield Reason.MALFORMED, raw
        else:
            yield {name: row[place] for name, place in positions.items() if place < len(row)}, raw


def has_width(row: Sequence[str], header: Sequence[str]) -> bool:
    """True if a row has the columns of the header; empty fields after them are of no column."""
    if len(row) == len(header):  # as almost all rows
        return True
    return len(row) >= len(dialect_lib.named(header)) and not any(row[len(header) :])
