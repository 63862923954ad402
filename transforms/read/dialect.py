"""How a CSV file is written: its delimiter and its encoding.

If they are not given, they are found in the header line and the byte order mark, and nowhere else. So no
record decides how other records are read, and all workers find the same.
"""

import codecs
import csv
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from transforms.read.compression import CorruptStream

DELIMITERS = (',', ';', '\t', '|')
ENCODINGS = ('utf-8', 'utf-16-le', 'utf-16-be')
# A header line that does not end within these bytes is ignored.
HEAD_BYTES = 64 * 2**10

_MARKS = {
    codecs.BOM_UTF8: 'utf-8',
    codecs.BOM_UTF16_LE: 'utf-16-le',
    codecs.BOM_UTF16_BE: 'utf-16-be',
}
# As spreadsheets of western Europe write it, without saying so.
_OF_SPREADSHEETS = 'windows-1252'
_SPOILT = 'transforms.read.dialect.spoilt'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dialect:
    """How CSV files are written. Public.

    Attributes:
        delimiter: One character; None: the one of `DELIMITERS` that the header line shows.
        encoding: Python's name of the encoding; 'utf-16' is either byte order. None: the one of `ENCODINGS`
            that the byte order mark or the header line shows.
    """

    delimiter: str | None = None
    encoding: str | None = None


def peek(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The beginning of a stream, at most `HEAD_BYTES`, and the whole stream.

    If the beginning is damaged, the error comes from the stream, at the place of the damage.
    """
    stream, held, size, damage = iter(chunks), list[bytes](), 0, None
    try:
        for chunk in stream:
            held.append(chunk)
            size += len(chunk)
            if size >= HEAD_BYTES:
                break
    except CorruptStream as error:
        damage = error

    def whole() -> Iterator[bytes]:
        yield from held
        if damage is not None:
            raise damage
        yield from stream

    return b''.join(held)[:HEAD_BYTES], whole()


def detect(head: bytes, dialect: Dialect, names: Sequence[str]) -> Dialect:
    """The delimiter and the encoding of a file: those that are given, else those that its header line shows.

    These are the first pair with which the line has each of the columns once. If no pair does, the
    delimiter is a comma, and the encoding is that of the byte order mark or else UTF-8.

    Args:
        head: The first `HEAD_BYTES` of the file, or all of it.
        dialect: The parts that are given.
        names: The columns that are needed; empty if the file has no header line.
    """
    encodings, delimiters = _candidates(head, dialect)
    for encoding in encodings if names else ():
        for delimiter in delimiters:
            if _has(header(head, encoding, delimiter), names):
                return Dialect(delimiter=delimiter, encoding=encoding)
    return Dialect(delimiter=delimiters[0], encoding=encodings[0])


def suggest(head: bytes, names: Sequence[str]) -> Dialect | None:
    """The dialect with which the header line has the columns; None if no known dialect has them."""
    for encoding in (*_candidates(head, Dialect())[0], _OF_SPREADSHEETS):
        for delimiter in DELIMITERS:
            if _has(header(head, encoding, delimiter), names):
                return Dialect(delimiter=delimiter, encoding=encoding)
    return None


def likeliest(head: bytes, dialect: Dialect) -> tuple[list[str], Dialect] | None:
    """The columns of a header line of which nobody has named one, and its dialect; None if it is no line.

    The delimiter is the one that makes the most columns. Of the dialect it says what a reader could not find
    out by the names of the columns (`detect`).

    Args:
        head: The first `HEAD_BYTES` of the file, or all of it.
        dialect: The parts that are given.
    """
    encodings, delimiters = _candidates(head, dialect)
    if dialect.encoding is None and not mark(head):
        # A null byte is of UTF-16; a spreadsheet of western Europe writes none.
        encodings = encodings[1:] if b'\0' in head else (encodings[0], _OF_SPREADSHEETS)
    for encoding in encodings:
        rows = [(row, delimiter) for delimiter in delimiters if (row := header(head, encoding, delimiter))]
        if rows and not any('\0' in name for name in rows[0][0]):
            row, delimiter = max(rows, key=lambda found: len(found[0]))
            is_shown = len(row) == 1 or delimiter == DELIMITERS[0]
            return row, Dialect(
                delimiter=dialect.delimiter or (None if is_shown else delimiter),
                encoding=dialect.encoding or (None if encoding in ENCODINGS else encoding),
            )
    return None


def mark(head: bytes) -> bytes:
    """The byte order mark that a file begins with, or nothing."""
    return next((mark for mark in _MARKS if head.startswith(mark)), b'')


def header(head: bytes, encoding: str, delimiter: str) -> list[str] | None:
    """The columns of a file's first line; None where it is no row of this dialect."""
    # The records after the line may be decoded wrongly: they are cut off.
    line, end, _ = head.decode(encoding, errors='replace').removeprefix('\ufeff').partition('\n')
    if '\ufffd' in line or (not end and len(head) >= HEAD_BYTES):
        return None
    try:
        return next(csv.reader([line + end], strict=True, delimiter=delimiter), None)
    except csv.Error:
        return None


def as_utf8(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Text of any encoding as UTF-8. Bytes that cannot be decoded become bytes that are not UTF-8.

    So they spoil their own row and no other, as in a file that claims to be UTF-8.
    """
    if encoding == 'utf-8':
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)(_SPOILT)
    for chunk in chunks:
        yield decoder.decode(chunk).encode(errors='surrogatepass')
    yield decoder.decode(b'', final=True).encode(errors='surrogatepass')


def _candidates(head: bytes, dialect: Dialect) -> tuple[Sequence[str], Sequence[str]]:
    """Possible encodings and delimiters of the file; the first of each is the default."""
    delimiters = DELIMITERS if dialect.delimiter is None else (dialect.delimiter,)
    marked = _MARKS.get(mark(head))
    if dialect.encoding is None:
        return (ENCODINGS if marked is None else (marked,)), delimiters
    if dialect.encoding == 'utf-16':
        # Without a mark, the byte order of the programs that write such files.
        return (('utf-16-be' if marked == 'utf-16-be' else 'utf-16-le'),), delimiters
    return (dialect.encoding,), delimiters


def _has(columns: Sequence[str] | None, names: Sequence[str]) -> bool:
    return columns is not None and all(columns.count(name) == 1 for name in names)


def _spoilt(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    # A lone surrogate, which no text has.
    return '\udcff', error.end


codecs.register_error(_SPOILT, _spoilt)
