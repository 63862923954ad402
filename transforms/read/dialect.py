"""The form of a file of text: its encoding, and of a CSV file its delimiter, quotes and line ends.

If they are not given, they are found in the header line and the byte order mark, and nowhere else. So no
record decides how other records are read, and all workers find the same. Quotes are never found out: they are
of RFC 4180 unless something else is given.
"""

import codecs
import csv
import dataclasses
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

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
OF_SPREADSHEETS = 'windows-1252'
_SPOILT = 'transforms.read.dialect.spoilt'

QUOTINGS = DOUBLE, BACKSLASH, NONE = 'double', 'backslash', 'none'
# Marks that count while the end of a header is looked for: quotes, and line ends outside them.
_COUNTED = {
    DOUBLE: re.compile(r'"|\r\n?|\n'),
    BACKSLASH: re.compile(r'\\["\\]|"|\r\n?|\n'),
    NONE: re.compile(r'\r\n?|\n'),
}
# A backslash, and what it stands before if it means anything there.
_ESCAPE = re.compile(r'\\(["\\]?)')
# A first line that spreadsheets take for no row: it says what the delimiter is.
_DECLARATION = re.compile(r'("?)sep=([^ "\\\r\n\0])\1(?:\r\n?|\n)', re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dialect:
    """The form of files of text, as it is given. Public.

    Attributes:
        delimiter: Of CSV: one character; None: the one that a line `sep=;` declares, or the one of
            `DELIMITERS` that the header line shows.
        encoding: Python's name of the encoding; 'utf-16' is either byte order. None: the one of `ENCODINGS`
            that the byte order mark or the header line of CSV shows.
        quoting: Of CSV: DOUBLE for RFC 4180, where two quotes within quotes are one; BACKSLASH where a
            backslash before a quote or a backslash stands for what follows, too; NONE where no character
            quotes, and every line is a row.
    """

    delimiter: str | None = None
    encoding: str | None = None
    quoting: str = DOUBLE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The form of one file.

    Attributes:
        encoding: Of `Dialect`, with its byte order.
        delimiter: One character.
        line_end: What ends its lines: a line feed, whatever is before it, or a carriage return alone.
        is_declared: Whether the first line declares the delimiter, and is no row.
    """

    encoding: str
    delimiter: str
    line_end: bytes = b'\n'
    is_declared: bool = False


def reader(lines: Iterable[str], delimiter: str, quoting: str) -> Iterator[list[str]]:
    """Python's reader of rows, strict about what follows a closing quote.

    It takes no more lines than a row has, and after an error begins a row with the next line.
    """
    if quoting == BACKSLASH:
        # Python drops each backslash: one that means nothing is doubled.
        return csv.reader(map(_escaped, lines), strict=True, delimiter=delimiter, escapechar='\\')
    styles: dict[str, Any] = {DOUBLE: {}, NONE: {'quoting': csv.QUOTE_NONE}}
    return csv.reader(lines, strict=True, delimiter=delimiter, **styles[quoting])


def _escaped(line: str) -> str:
    return _ESCAPE.sub(_meant, line) if '\\' in line else line


def _meant(match: re.Match[str]) -> str:
    return match[0] if match[1] else '\\\\'


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


def detect(
    head: bytes, dialect: Dialect, names: Sequence[str], delimiters: Sequence[str] = DELIMITERS
) -> Layout:
    """The form of a file: as it is given, else as its header line shows.

    Encoding and delimiter are the first pair with which the line has each of the columns once. If no pair
    does, the delimiter is the first one, and the encoding is that of the byte order mark or else UTF-8. Lines
    end in a carriage return if that is what ends the header line, and no line feed follows.
    """
    encodings = _encodings(head, dialect)
    default = dialect.delimiter or delimiters[0]
    if not names:
        return Layout(encoding=encodings[0], delimiter=default)
    for encoding in encodings:
        if (first := _beginning(head, encoding, dialect.quoting)) is not None:
            for delimiter in first.delimiters(dialect, delimiters):
                if _has(first.columns(delimiter), names):
                    return first.layout(encoding, delimiter)
    if (first := _beginning(head, encodings[0], dialect.quoting)) is None:
        return Layout(encoding=encodings[0], delimiter=default)
    return first.layout(encodings[0], first.delimiters(dialect, delimiters)[0])


def suggest(head: bytes, names: Sequence[str], quoting: str = DOUBLE) -> Dialect | None:
    """The dialect with which the header line has the columns; None if no known dialect has them."""
    for encoding in (*_encodings(head, Dialect()), OF_SPREADSHEETS):
        if (first := _beginning(head, encoding, quoting)) is not None:
            for delimiter in first.delimiters(Dialect(), DELIMITERS):
                if _has(first.columns(delimiter), names):
                    return Dialect(delimiter=delimiter, encoding=encoding, quoting=quoting)
    return None


def likeliest(
    head: bytes, dialect: Dialect, delimiters: Sequence[str] = DELIMITERS
) -> tuple[list[str], Dialect] | None:
    """The columns of a header line of which nobody has named one, and its dialect; None if it is no line.

    The delimiter is the one that makes the most columns of the whole line. Of the dialect it says what a
    reader could not find out by the names of the columns (`detect`, whose arguments these are).
    """
    encodings = _encodings(head, dialect)
    if dialect.encoding is None and not mark(head):
        encodings = (encodings[0], OF_SPREADSHEETS, *encodings[1:])
    best = None
    for place, encoding in enumerate(encodings):
        first = _beginning(head, encoding, dialect.quoting)
        # Null bytes are of UTF-16, read as something else.
        if first is None or '\0' in first.line:
            continue
        for delimiter in first.delimiters(dialect, delimiters):
            if row := first.columns(delimiter):
                # Bytes read as UTF-16 that are none have no line end, and a row that ends before the header
                # is cut in a name.
                rank = (first.has_end, first.is_whole(delimiter), -place, len(row))
                if best is None or rank > best[0]:
                    best = rank, row, encoding, delimiter, first.declared
    if best is None:
        return None
    _, row, encoding, delimiter, declared = best
    is_shown = declared is not None or len(row) == 1 or delimiter == delimiters[0]
    return named(row), dataclasses.replace(
        dialect,
        delimiter=dialect.delimiter or (None if is_shown else delimiter),
        encoding=dialect.encoding or (None if encoding in ENCODINGS else encoding),
    )


def named(columns: Sequence[str]) -> list[str]:
    """The columns without nameless ones at the end, which spreadsheets write for cells that are empty."""
    names = list(columns)
    while len(names) > 1 and not names[-1].strip():
        names.pop()
    return names


def mark(head: bytes) -> bytes:
    """The byte order mark that a file begins with, or nothing."""
    return next((mark for mark in _MARKS if head.startswith(mark)), b'')


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Beginning:
    """The first lines of a file in one encoding, up to the end of its header.

    Attributes:
        declared: The delimiter that a line before the header declares.
        line: The first line of the header, with its line end.
        row: The header with its line end.
        quoting: As of `Dialect`.
    """

    declared: str | None
    line: str
    row: str
    quoting: str

    def delimiters(self, dialect: Dialect, delimiters: Sequence[str]) -> Sequence[str]:
        known = dialect.delimiter or self.declared
        return delimiters if known is None else (known,)

    def columns(self, delimiter: str) -> list[str] | None:
        """The columns; None where this is no row."""
        return self._read(delimiter)[0]

    def is_whole(self, delimiter: str) -> bool:
        """True if the columns go as far as the header."""
        return self._read(delimiter)[1] == self.row

    @property
    def has_end(self) -> bool:
        """True if a line end follows the columns."""
        return self.row.endswith(('\n', '\r'))

    def layout(self, encoding: str, delimiter: str) -> Layout:
        return Layout(
            encoding=encoding,
            delimiter=delimiter,
            line_end=b'\r' if self._read(delimiter)[1].endswith('\r') else b'\n',
            is_declared=self.declared is not None,
        )

    def _read(self, delimiter: str) -> tuple[list[str] | None, str]:
        """The columns, and what they were read of: the first line, unless a quote is open at its end."""
        for text in (self.line, self.row):
            if '\ufffd' in text:
                break
            lines = io.StringIO(text, newline='')
            try:
                return next(reader(lines, delimiter, self.quoting), None), text
            except csv.Error:
                continue
        return None, self.row


def _beginning(head: bytes, encoding: str, quoting: str) -> _Beginning | None:
    """The header of a file in an encoding; None where it has no end in sight.

    The header ends with the first line that closes all quotes of the lines so far, whatever the delimiter is:
    no record is needed to know it.
    """
    text = head.decode(encoding, errors='replace').removeprefix('\ufeff')
    declaration = _DECLARATION.match(text)
    begin = declaration.end() if declaration else 0
    is_open, first_end, end = False, None, None
    for match in _COUNTED[quoting].finditer(text, begin):
        if match[0] == '"':
            is_open = not is_open
        elif match[0][0] != '\\':
            first_end = first_end or match.end()
            if not is_open:
                end = match.end()
                break
    first_end = first_end or len(text)
    end = end or first_end
    # The records after the header may be decoded wrongly: they are cut off.
    line, row = text[begin:first_end], text[begin:end]
    if end == len(text) and len(head) >= HEAD_BYTES:
        return None
    declared = declaration[2] if declaration else None
    return _Beginning(declared=declared, line=line, row=row, quoting=quoting)


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


def text_of(chunks: Iterable[bytes], dialect: Dialect) -> Iterator[bytes]:
    """The content of a file without a header line as UTF-8, by the given encoding or the byte order mark."""
    head, whole = peek(chunks)
    yield from as_utf8(whole, detect(head, dialect, ()).encoding)


def _encodings(head: bytes, dialect: Dialect) -> Sequence[str]:
    """Possible encodings of the file; the first is the default."""
    marked = _MARKS.get(mark(head))
    if dialect.encoding is None:
        return ENCODINGS if marked is None else (marked,)
    if dialect.encoding == 'utf-16':
        # Without a mark, the byte order of the programs that write such files.
        return ('utf-16-be' if marked == 'utf-16-be' else 'utf-16-le',)
    return (dialect.encoding,)


def _has(columns: Sequence[str] | None, names: Sequence[str]) -> bool:
    return columns is not None and all(columns.count(name) == 1 for name in names)


def _spoilt(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    # A lone surrogate, which no text has.
    return '\udcff', error.end


codecs.register_error(_SPOILT, _spoilt)
