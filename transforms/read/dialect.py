"""How a CSV file is written: what stands between its columns, and its encoding.

What nobody says is looked for in the file's header line and its byte order mark, and nowhere else:
no record decides how others are read, and every worker finds the same.
"""

import codecs
import csv
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from transforms.read.compression import CorruptStream

DELIMITERS = (',', ';', '\t', '|')
ENCODINGS = ('utf-8', 'utf-16-le', 'utf-16-be')
# A header line ends within these bytes, or is not looked at.
HEAD_BYTES = 64 * 2**10

_MARKS = {
    codecs.BOM_UTF8: 'utf-8',
    codecs.BOM_UTF16_LE: 'utf-16-le',
    codecs.BOM_UTF16_BE: 'utf-16-be',
}
_SPOILT = 'transforms.read.dialect.spoilt'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dialect:
    """How CSV files are written. Public.

    Attributes:
        delimiter: One character; None for that of `DELIMITERS` which a header line shows.
        encoding: Python's name of it, 'utf-16' being of either byte order; None for that of `ENCODINGS`
            which a byte order mark or a header line shows.
    """

    delimiter: str | None = None
    encoding: str | None = None


def peek(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The beginning of a stream, at most `HEAD_BYTES`, and the whole stream.

    Damage in the beginning comes where it is in the stream, not here.
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
    """The dialect of a file, both parts known: as given, else what its header line shows.

    That is the first under which the line has each of the columns once. Where none has, the delimiter
    is a comma, and the encoding that of the byte order mark, else UTF-8.

    Args:
        head: The first `HEAD_BYTES` of the file, or all of it.
        dialect: What is given.
        names: The columns that are needed; none where the file has no header line.
    """
    encodings, delimiters = _candidates(head, dialect)
    for encoding in encodings if names else ():
        for delimiter in delimiters:
            if _has(header(head, encoding, delimiter), names):
                return Dialect(delimiter=delimiter, encoding=encoding)
    return Dialect(delimiter=delimiters[0], encoding=encodings[0])


def suggest(head: bytes, names: Sequence[str]) -> Dialect | None:
    """What to give so that a header line has the columns; None where nothing known helps."""
    for encoding in (*_candidates(head, Dialect())[0], 'windows-1252'):
        for delimiter in DELIMITERS:
            if _has(header(head, encoding, delimiter), names):
                return Dialect(delimiter=delimiter, encoding=encoding)
    return None


def mark(head: bytes) -> bytes:
    """The byte order mark that a file begins with, or nothing."""
    return next((mark for mark in _MARKS if head.startswith(mark)), b'')


def header(head: bytes, encoding: str, delimiter: str) -> list[str] | None:
    """The columns of a file's first line; None where it is no row of this dialect."""
    # Whatever follows the line, records, may be decoded wrongly: it is cut off.
    line, end, _ = head.decode(encoding, errors='replace').removeprefix('\ufeff').partition('\n')
    if '\ufffd' in line or (not end and len(head) >= HEAD_BYTES):
        return None
    try:
        return next(csv.reader([line + end], strict=True, delimiter=delimiter), None)
    except csv.Error:
        return None


def as_utf8(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Text of any encoding as UTF-8. What cannot be decoded becomes bytes that are not UTF-8.

    So it spoils the row that it is in and no other, as bad bytes of a file in UTF-8 do.
    """
    if encoding == 'utf-8':
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)(_SPOILT)
    for chunk in chunks:
        yield decoder.decode(chunk).encode(errors='surrogatepass')
    yield decoder.decode(b'', final=True).encode(errors='surrogatepass')


def _candidates(head: bytes, dialect: Dialect) -> tuple[Sequence[str], Sequence[str]]:
    """Encodings and delimiters that may be the file's, the first where nothing tells."""
    delimiters = DELIMITERS if dialect.delimiter is None else (dialect.delimiter,)
    marked = _MARKS.get(mark(head))
    if dialect.encoding is None:
        return (ENCODINGS if marked is None else (marked,)), delimiters
    if dialect.encoding == 'utf-16':
        # Without a mark, the byte order of what writes such files.
        return (('utf-16-be' if marked == 'utf-16-be' else 'utf-16-le'),), delimiters
    return (dialect.encoding,), delimiters


def _has(columns: Sequence[str] | None, names: Sequence[str]) -> bool:
    return columns is not None and all(columns.count(name) == 1 for name in names)


def _spoilt(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    # A lone surrogate, which no text has.
    return '\udcff', error.end


codecs.register_error(_SPOILT, _spoilt)
