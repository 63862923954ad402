"""Sensitive files -> records, and the rows that cannot be records.

Formats, by extension: `.jsonl` and `.json` (one object per line, or for `.json` one
array of objects), `.csv` (RFC 4180, with line breaks inside quotes) and `.parquet`.
The text formats may also end in `.gz`, `.bz2`, `.xz` or `.zst`. Files may lie on any
filesystem that Beam knows.

A bad row never stops a run: success or failure is an output too (METHOD 8). It becomes a
`Rejection`, which is restricted to the curator. In JSON lines and Parquet one row cannot
change how another is read. In CSV a stray quote can swallow rows after it: that is the
format's nature, so let a CSV writer do the quoting.

Columns of a `.csv` file are named by its header row. Where all given names are numbers
('0', '1', ...), they are positions, and the file has no header row.

Labels, unit ids and record ids are compared as strings. JSON numbers and Parquet numbers
become strings first, so 1, 1.0 and '1' are one label; booleans are 'true' and 'false'.
"""

import bz2
import codecs
import csv
import dataclasses
import enum
import itertools
import json
import lzma
import math
import posixpath
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, BinaryIO

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from apache_beam import coders
from apache_beam.io import filesystem
from apache_beam.io.filesystems import FileSystems

from models.privacy.params import Unit
from models.records import Record

MAX_RECORD_BYTES = 100_000
# A longer row is never held in memory whole. Far above any text that a prompt could use.
MAX_ROW_BYTES = 64 * 2**20
REJECTION_BYTES = 1_000
# How much of a file of JSON lines `check_input` looks at.
_PEEK_BYTES = 256 * 2**10
# Small, since a chunk of compressed input can inflate a thousand times.
_CHUNK_BYTES = 64 * 2**10
_PARQUET_ROWS = 1_024

_FORMATS = ('jsonl', 'json', 'csv', 'parquet')
# zlib's window bits plus 16: gzip framing, whose checksum is verified.
_CODECS: dict[str, Callable[[], Any]] = {
    'gz': lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    'bz2': bz2.BZ2Decompressor,
    'xz': lzma.LZMADecompressor,
    'zst': lambda: zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj(),
}
# `bz2` reports a bad stream as a bare OSError.
_CODEC_ERRORS = (zlib.error, OSError, EOFError, lzma.LZMAError, zstandard.ZstdError)


# Records of a file without a header row that show how many columns it has.
_ROWS_LOOKED_AT = 1000


class Reason(enum.Enum):
    """Why a row is not a record."""

    NOT_UTF8 = 'not UTF-8'
    MALFORMED = 'not a row of its format'
    MISSING_FIELD = 'no text or label field'
    MISSING_UNIT = 'no unit id'
    MISSING_RECORD_ID = 'no record id'
    WRONG_TYPE = 'a field of the wrong type'
    BLANK_TEXT = 'blank text'
    TOO_LONG = 'too long'
    UNDECLARED_LABEL = 'undeclared label'
    UNREADABLE_REST = 'the rest of the file cannot be read'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rejection:
    """A row that is not a record. Restricted to the curator, its number too.

    Attributes:
        reason: Why.
        file: Base name of the file.
        ordinal: The row's place among the rows of its file (Parquet: of its row group),
            from 0; a header row and blank lines do not count.
        raw: Its first bytes, at most `REJECTION_BYTES`.
    """

    reason: Reason = dataclasses.field(repr=False)
    file: str
    ordinal: int = dataclasses.field(repr=False)
    raw: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordFields:
    """The columns (or top-level JSON keys) that make up a record.

    Attributes:
        text: The sensitive text.
        label: The label; None when the run declares no labels.
        unit: The unit id; None under the `example` unit.
        record_id: The row's own id, unique in the input; None when it has none.
    """

    text: str
    label: str | None = None
    unit: str | None = None
    record_id: str | None = None

    def __post_init__(self) -> None:
        if '' in self.names:
            raise ValueError(
                f'Expected column names, got fields={self!r} with an empty one. Leave the field out.'
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The named columns, each once, in a fixed order."""
        named = (self.text, self.label, self.unit, self.record_id)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def positional(self) -> bool:
        """Whether CSV columns are given by position, in files without a header row."""
        return all(name.isascii() and name.isdigit() for name in self.names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordRules:
    """What makes a row a record. All fields are public.

    Attributes:
        fields: The columns.
        labels: The declared labels; None when the run declares none.
        unit: The unit of privacy.
        max_record_bytes: Longest text, in bytes of UTF-8.
    """

    fields: RecordFields
    labels: tuple[str, ...] | None = None
    unit: Unit = 'example'
    max_record_bytes: int = MAX_RECORD_BYTES

    def __post_init__(self) -> None:
        if (self.labels is None) != (self.fields.label is None):
            raise ValueError(
                'Expected declared labels and a label column together or not at all, got '
                f'labels={self.labels!r}, fields.label={self.fields.label!r}. Give both, or neither.'
            )
        if (self.unit == 'user') != (self.fields.unit is not None):
            raise ValueError(
                "Expected a unit column under unit='user' and none under unit='example', got "
                f'unit={self.unit!r}, fields.unit={self.fields.unit!r}. '
                'Name the column of the unit ids and the user unit, or neither.'
            )
        if self.max_record_bytes < 1:
            raise ValueError(
                f'Expected max_record_bytes >= 1, got max_record_bytes={self.max_record_bytes!r}. '
                f'Leave it out for {MAX_RECORD_BYTES}.'
            )


# --- Rows to records -------------------------------------------------------------


def to_record(values: Mapping[str, object], rules: RecordRules) -> Record | Reason:
    """The record that a row holds, or why it holds none. Total: any values are fine.

    Args:
        values: Column name -> value. A `bytes` value is UTF-8 that nobody has checked; a
            missing column and None are the same.
        rules: What makes a row a record.
    """
    try:
        values = {name: _decoded(values.get(name)) for name in rules.fields.names}
    except UnicodeError:
        return Reason.NOT_UTF8
    fields = rules.fields
    text = values[fields.text]
    if text is None:
        return Reason.MISSING_FIELD
    if not isinstance(text, str):
        return Reason.WRONG_TYPE
    if not text or text.isspace():
        return Reason.BLANK_TEXT
    if len(text) > rules.max_record_bytes or len(text.encode()) > rules.max_record_bytes:
        return Reason.TOO_LONG
    names: list[str | None] = []
    for field, missing in (
        (fields.label, Reason.MISSING_FIELD),
        (fields.unit, Reason.MISSING_UNIT),
        (fields.record_id, Reason.MISSING_RECORD_ID),
    ):
        value = None if field is None else values[field]
        name = _as_name(value)
        # An empty label may be a declared one; an empty id identifies nothing.
        if field is not None and (value is None or (name == '' and missing is not Reason.MISSING_FIELD)):
            return missing
        if value is not None and name is None:
            return Reason.WRONG_TYPE
        names.append(name)
    label, unit, record_id = names
    if rules.labels is not None and label not in rules.labels:
        return Reason.UNDECLARED_LABEL
    return Record(text=text, label=label, unit=unit, record_id=record_id)


def _decoded(value: object) -> object:
    """Strict UTF-8 for `bytes`; refuses strings with lone surrogates, which JSON can spell."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        value.encode()
    return value


def _as_name(value: object) -> str | None:
    """A label or an id as a string; None for what cannot be one."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        # pandas turns a column of whole numbers into floats as soon as one is missing.
        return str(int(value)) if value.is_integer() else repr(value)
    return None


# --- Bytes to rows ---------------------------------------------------------------

# (the row's values, or why it has none; its first bytes)
RawRow = tuple[Mapping[str, object] | Reason, bytes]


class CorruptStream(Exception):
    """The rest of a compressed stream cannot be decoded. Carries no content."""


class _RowTooLong(Exception):
    """A CSV row passed `MAX_ROW_BYTES`."""


def decompressed(file: BinaryIO, codec: str | None) -> Iterator[bytes]:
    """Streams the content of an open file, all members of a concatenated one.

    Beam's and zstandard's own readers end silently at a cut stream; and an error of the
    codec must become a rejection while an error of the filesystem must reach the runner,
    which tries again. So the two are kept apart here.

    Raises:
        CorruptStream: After everything that could be decoded.
    """
    decoder = None
    while chunk := file.read(_CHUNK_BYTES):
        if codec is None:
            yield chunk
            continue
        while chunk:
            # Zero bytes may pad the end of a gzip or xz member.
            if decoder is None and not (chunk := chunk.lstrip(b'\0')):
                break
            decoder = decoder or _CODECS[codec]()
            try:
                data = decoder.decompress(chunk)
            except _CODEC_ERRORS:
                raise CorruptStream from None
            if data:
                yield data
            chunk = b''
            if decoder.eof:
                chunk, decoder = decoder.unused_data, None
    if decoder is not None:
        raise CorruptStream


def split_lines(chunks: Iterable[bytes], limit: int = MAX_ROW_BYTES) -> Iterator[tuple[bytes, bool]]:
    """Yields (line with its line feed, whether it is whole).

    A line of more than `limit` bytes is cut there and its rest skipped, never held. The
    byte order mark of the first line is dropped. A carriage return ends no line.
    """
    held = bytearray()
    whole, first = True, True
    for chunk in chunks:
        *ended, rest = chunk.split(b'\n')
        for line in ended:
            if held or not whole:
                held += line[: max(0, limit - len(held))] if whole else b''
                line = bytes(held)
            yield (line.removeprefix(codecs.BOM_UTF8) if first else line) + b'\n', whole and len(line) < limit
            held.clear()
            whole, first = True, False
        held += rest[: limit - len(held)]
        whole = len(held) < limit
    if held:
        yield bytes(held).removeprefix(codecs.BOM_UTF8) if first else bytes(held), whole


def json_lines(chunks: Iterable[bytes]) -> Iterator[RawRow]:
    """One row for each line that is not blank."""
    for line, whole in split_lines(chunks):
        if not whole:
            yield Reason.TOO_LONG, line
        elif not line.isspace():
            yield _json_object(line), line


def _json_object(data: bytes) -> Mapping[str, object] | Reason:
    """The JSON object in `data`, or why there is none."""
    try:
        return _only_object(json.loads(data.decode()))
    except UnicodeDecodeError:
        return Reason.NOT_UTF8
    except (ValueError, RecursionError):
        # ValueError also stands for a whole number of over 4,300 digits.
        return Reason.MALFORMED


def _only_object(value: object) -> Mapping[str, object] | Reason:
    return value if isinstance(value, dict) else Reason.MALFORMED


def json_file(chunks: Iterable[bytes]) -> Iterator[RawRow]:
    """The rows of a `.json` file: of its one array if it begins with `[`, else of its lines.

    An array is read into memory whole; large inputs belong in lines or Parquet.
    """
    chunks = iter(chunks)
    head = b''
    for chunk in chunks:
        head += chunk
        if begin := head.removeprefix(codecs.BOM_UTF8).lstrip():
            break
    else:
        begin = b''
    chained = _chain(head, chunks)
    yield from json_array(chained) if begin.startswith(b'[') else json_lines(chained)


def _chain(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from chunks


def json_array(chunks: Iterable[bytes]) -> Iterator[RawRow]:
    """One row for each element of the array. What follows a malformed one is unreadable."""
    content, corrupt = bytearray(), False
    try:
        for chunk in chunks:
            content += chunk
    except CorruptStream:
        corrupt = True
    # Bad bytes become lone surrogates, which spoil the element that they are in and no other.
    text = content.decode('utf-8-sig', errors='surrogateescape')
    decoder = json.JSONDecoder()
    place = _skip_space(text, _skip_space(text, 0) + 1)
    if text.startswith(']', place):
        return
    while True:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            break
        raw = text[place:end].encode(errors='surrogateescape')
        after = _skip_space(text, end)
        if not text.startswith((',', ']'), after):
            break
        yield (_only_object(value) if _is_utf8(raw) else Reason.NOT_UTF8), raw
        if text.startswith(']', after):
            return
        place = _skip_space(text, after + 1)
    yield Reason.UNREADABLE_REST, b'' if corrupt else text[place:].encode(errors='surrogateescape')


def _skip_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in ' \t\r\n':
        place += 1
    return place


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


class _CsvLines:
    """Feeds decoded lines to `csv.reader` and keeps the bytes of the row in progress.

    A class and not a generator, since it must go on after it has raised.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._lines = split_lines(chunks)
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
        if not whole or len(self.raw) > MAX_ROW_BYTES:
            raise _RowTooLong
        # Bad bytes must reach the reader as something that is no quote, comma or line
        # end, so that they spoil the row that they are in and no other.
        return line.decode(errors='surrogateescape')


def csv_rows(chunks: Iterable[bytes]) -> Iterator[tuple[list[str] | Reason, bytes]]:
    """The rows of a CSV file, its header row too; blank lines are none.

    Strict RFC 4180: text after a closing quote is malformed, and so is a row with a lone
    carriage return outside quotes. An unclosed quote makes the rest of the file unreadable.
    """
    # The limit is one of the process; rows are bounded by MAX_ROW_BYTES instead.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    lines = _CsvLines(chunks)
    reader = csv.reader(lines, strict=True)
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
            # Where this row ends is not known, so neither is where the next begins.
            yield Reason.UNREADABLE_REST, bytes(lines.raw[:REJECTION_BYTES])
            return
        if row:
            raw = bytes(lines.raw)
            yield row if _is_utf8(raw) else Reason.NOT_UTF8, raw


def csv_records(chunks: Iterable[bytes], fields: RecordFields) -> Iterator[RawRow]:
    """The rows of a CSV file by column name, or by position in a file without a header row."""
    rows = csv_rows(chunks)
    positions: Mapping[str, int]
    width = None
    if fields.positional:
        # No width is taken from the first row: one record would decide over all others.
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
            # An unquoted comma in the text, say: its columns are not to be trusted.
            yield Reason.MALFORMED, raw
        else:
            yield {name: row[place] for name, place in positions.items() if place < len(row)}, raw


def parquet_rows(file: BinaryIO, row_group: int, fields: RecordFields) -> Iterator[RawRow]:
    """The rows of one row group, of the needed columns only."""
    try:
        parquet = pq.ParquetFile(file)
        names = [name for name in fields.names if name in parquet.schema_arrow.names]
        for table in parquet.iter_batches(_PARQUET_ROWS, row_groups=[row_group], columns=names):
            columns = {name: _plain(table.column(name)).to_pylist() for name in names}
            for place in range(table.num_rows):
                values = {name: column[place] for name, column in columns.items()}
                text = values.get(fields.text)
                yield values, text if isinstance(text, bytes) else b''
    except (pa.ArrowException, OSError) as error:
        # Arrow reports broken pages as a bare OSError without a number; those of a
        # filesystem have a number or a class of their own, and the runner tries again.
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise
        yield Reason.UNREADABLE_REST, b''


def _plain(column: pa.Array) -> pa.Array:
    """Strings as unchecked bytes (Parquet promises UTF-8, writers break it), categories as values."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_binary()) if _is_text(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(kind) for is_kind in (*strings, pa.types.is_binary, pa.types.is_large_binary))


# --- Files -----------------------------------------------------------------------


def file_format(path: str) -> tuple[str, str | None]:
    """Format and codec of a file, from its extension.

    Raises:
        ValueError: No known extension.
    """
    stem, _, last = path.lower().rpartition('.')
    codec = last if last in _CODECS else None
    name = stem.rpartition('.')[2] if codec else last
    if name not in _FORMATS or (codec and name == 'parquet'):
        raise ValueError(
            f'Expected a file ending in .{", .".join(_FORMATS)}, the text formats also in '
            f'.{", .".join(_CODECS)} after that, got path={path!r}. Rename the file or narrow the pattern.'
        )
    return name, codec


def split_patterns(pattern: str) -> list[str]:
    """The paths and globs of a comma list."""
    return [part.strip() for part in pattern.split(',') if part.strip()]


def list_files(pattern: str) -> list[str]:
    """Paths of `list_metadata`."""
    return [metadata.path for metadata in list_metadata(pattern)]


def list_metadata(pattern: str) -> list[filesystem.FileMetadata]:
    """The files that a comma-separated list of paths and globs names, each once, by path.

    Each once, since a file that is read twice would count its units twice. A comma inside
    a file name cannot be spelt: use a `?` for it. What is found are paths and no patterns:
    a name may hold `[`, and matched again it would name another file or none.

    Raises:
        ValueError: The list is empty.
        FileNotFoundError: One of its patterns matches no file.
    """
    patterns = split_patterns(pattern)
    if not patterns:
        raise ValueError(
            f'Expected paths or globs of input files, got pattern={pattern!r}. Name at least one file.'
        )
    found: dict[str, filesystem.FileMetadata] = {}
    for part in patterns:
        # One at a time: Beam takes the filesystem of the first for all.
        (match,) = FileSystems.match([part])
        if not match.metadata_list:
            raise FileNotFoundError(
                f'Expected files for each pattern, got none for pattern={part!r}. '
                'Check the path, and that this machine may list it.'
            )
        found |= {metadata.path: metadata for metadata in match.metadata_list}
    return [found[path] for path in sorted(found)]


def check_input(pattern: str, fields: RecordFields) -> list[str]:
    """The input files, after a look at the schema of each.

    Messages quote file names and the asked-for columns, never anything read: what seems
    to be a header row can be a record.

    Args:
        pattern: Comma-separated paths and globs.
        fields: The columns that every file must have. A file of JSON objects has those
            that occur in any object near its beginning.

    Raises:
        ValueError: An empty list, an unknown extension, a missing column, or a Parquet
            file that is none or has a column of an unfit type.
        FileNotFoundError: A pattern matches no file.
    """
    paths = list_files(pattern)
    for path in paths:
        file_format(path)
    with futures.ThreadPoolExecutor(16) as threads:
        # `list` so that the first error, by file name, is raised here.
        list(threads.map(lambda path: _check_file(path, fields), paths))
    return paths


def check_same(known: Sequence[str], found: Sequence[str]) -> None:
    """Refuses to read other files than those that a run's digest of its input is of.

    Raises:
        ValueError: Files came or went in between.
    """
    came, went = sorted(set(found) - set(known)), sorted(set(known) - set(found))
    if came or went:
        raise ValueError(
            f'Expected the same input files from start to end of the preparations, got new={came}, '
            f'missing={went}. Repeat the command once nobody writes there.'
        )


def _check_file(path: str, fields: RecordFields) -> None:
    kind, codec = file_format(path)
    with _open(path) as file:
        if kind == 'parquet':
            columns: set[str] | None = _parquet_columns(file, path, fields)
        elif kind == 'csv':
            columns = _csv_columns(file, codec, fields)
        else:
            columns = _json_columns(file, codec, kind)
    missing = [name for name in fields.names if columns is not None and name not in columns]
    if missing:
        remedy = 'Name the columns as the file does; for CSV without a header row, by their numbers from 0.'
        if kind == 'csv' and fields.positional:
            remedy = 'Numbers name columns of CSV without a header row, and count from 0.'
        raise ValueError(
            f'Expected every input file to have the columns {fields.names}, got path={path!r} '
            f'without missing={missing}. {remedy}'
        )


def _parquet_columns(file: BinaryIO, path: str, fields: RecordFields) -> set[str]:
    try:
        schema = pq.read_schema(file)
    except pa.ArrowInvalid:
        raise ValueError(
            f'Expected a Parquet file, got path={path!r}, which is none or is cut. Write it again.'
        ) from None
    for name in set(fields.names) & set(schema.names):
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        if not (_is_text(kind) or (number and name != fields.text)):
            raise ValueError(
                'Expected text in the text column and text, numbers or booleans in the others, got '
                f'path={path!r}, column={name!r}, type={str(kind)!r}. Convert the column.'
            )
    return set(schema.names)


def _csv_columns(file: BinaryIO, codec: str | None, fields: RecordFields) -> set[str] | None:
    """Column names that occur once in the first row; None where no row can be looked at."""
    rows = csv_rows(decompressed(file, codec))
    try:
        if fields.positional:
            # The widest of many: one short or bad record is a rejection later on, and
            # no reason to stop.
            head = [row for row, _ in itertools.islice(rows, _ROWS_LOOKED_AT) if not isinstance(row, Reason)]
            return {str(place) for place in range(max(map(len, head)))} if head else None
        row, _ = next(rows, (None, b''))
    except CorruptStream:
        return None
    if row is None:
        return None
    return set() if isinstance(row, Reason) else {name for name in row if row.count(name) == 1}


def _json_columns(file: BinaryIO, codec: str | None, kind: str) -> set[str] | None:
    """Keys of the objects near the beginning; None where there is no object."""
    columns: set[str] | None = None
    chunks = _head(decompressed(file, codec))
    try:
        for values, _ in json_file(chunks) if kind == 'json' else json_lines(chunks):
            if not isinstance(values, Reason):
                columns = (columns or set()) | set(values)
    except CorruptStream:
        pass  # What was read until here decides; the rest becomes a rejection.
    return columns


def _head(chunks: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        yield chunk
        size += len(chunk)
        if size >= _PEEK_BYTES:
            return


def _open(path: str) -> BinaryIO:
    # Uncompressed: `decompressed` undoes the codec, see there.
    return FileSystems.open(path, compression_type=filesystem.CompressionTypes.UNCOMPRESSED)


# (path, row group; -1 for a whole text file): what one worker reads at a time.
Piece = tuple[str, int]


def split_file(path: str) -> Iterator[Piece]:
    """The row groups of a Parquet file; a text file whole, as it has no place to cut it."""
    if file_format(path)[0] != 'parquet':
        yield path, -1
        return
    with _open(path) as file:
        for row_group in range(pq.read_metadata(file).num_row_groups):
            yield path, row_group


def read_piece(piece: Piece, rules: RecordRules) -> Iterator[Record | Rejection]:
    """The records and rejections of one piece, streamed, in the file's order."""
    path, row_group = piece
    kind, codec = file_format(path)
    with _open(path) as file:
        ordinal = -1
        rows = _rows(file, kind, codec, row_group, rules.fields)
        try:
            for ordinal, (values, raw) in enumerate(rows):
                found = values if isinstance(values, Reason) else to_record(values, rules)
                yield found if isinstance(found, Record) else _rejection(found, path, ordinal, raw)
        except CorruptStream:
            yield _rejection(Reason.UNREADABLE_REST, path, ordinal + 1, b'')


def _rows(
    file: BinaryIO, kind: str, codec: str | None, row_group: int, fields: RecordFields
) -> Iterator[RawRow]:
    if kind == 'parquet':
        return parquet_rows(file, row_group, fields)
    chunks = decompressed(file, codec)
    if kind == 'csv':
        return csv_records(chunks, fields)
    return json_file(chunks) if kind == 'json' else json_lines(chunks)


def _rejection(reason: Reason, path: str, ordinal: int, raw: bytes) -> Rejection:
    return Rejection(reason=reason, file=posixpath.basename(path), ordinal=ordinal, raw=raw[:REJECTION_BYTES])


# --- Beam ------------------------------------------------------------------------


class RecordCoder(coders.Coder):
    """Encodes a `Record` as a tuple of its fields: a third of what pickle takes, and deterministic."""

    _tuple = coders.TupleCoder(
        [
            coders.StrUtf8Coder(),
            *3 * [coders.NullableCoder(coders.StrUtf8Coder())],
            coders.NullableCoder(coders.BytesCoder()),
            coders.NullableCoder(coders.VarIntCoder()),
        ]
    )

    def encode(self, value: Record) -> bytes:
        return self._tuple.encode(
            (value.text, value.label, value.unit, value.record_id, value.embedding, value.cluster)
        )

    def decode(self, encoded: bytes) -> Record:
        text, label, unit, record_id, embedding, cluster = self._tuple.decode(encoded)
        return Record(
            text=text, label=label, unit=unit, record_id=record_id, embedding=embedding, cluster=cluster
        )

    def is_deterministic(self) -> bool:
        return True


coders.registry.register_coder(Record, RecordCoder)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class ReadRecords(beam.PTransform):
    """Input files -> (records, rejections), two PCollections.

    The files are listed and checked when the pipeline is built (`check_input`, whose
    errors it raises). Nothing here counts: a runner's UI shows counters.

    Attributes:
        pattern: Comma-separated paths and globs.
        rules: What makes a row a record.
        known: The files that the run's digest of its input is of. None where a run keeps none.
    """

    pattern: str
    rules: RecordRules
    known: Sequence[str] | None = None

    # Beam has no type hint for two outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, pbegin: beam.pvalue.PBegin
    ) -> tuple[beam.PCollection[Record], beam.PCollection[Rejection]]:
        paths = check_input(self.pattern, self.rules.fields)
        if self.known is not None:
            check_same(self.known, paths)
        found = (
            pbegin
            | 'Files' >> beam.Create(paths, reshuffle=False)
            | 'SplitFiles' >> beam.FlatMap(split_file).with_output_types(Piece)
            | 'Spread' >> beam.Reshuffle()
            | 'ReadPieces' >> beam.FlatMap(read_piece, self.rules)
        )
        # Filters and not tagged outputs, since those have no types, and so no `RecordCoder`.
        records = found | 'Records' >> beam.Filter(isinstance, Record).with_output_types(Record)
        rejected = found | 'Rejected' >> beam.Filter(isinstance, Rejection).with_output_types(Rejection)
        return records, rejected
