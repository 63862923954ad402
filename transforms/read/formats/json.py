"""JSON: one object per line, or one array of objects.

Python's decoder is used, and not Arrow's, which refuses a whole file for one bad row, and for a key whose
values have different types.
"""

import codecs
import contextlib
import decimal
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

from models import spelling
from transforms.read import lines
from transforms.read.compression import CorruptStream, decompressed
from transforms.read.dialect import text_of
from transforms.read.formats.format import Format, RawRow
from transforms.read.rules import Reason, RecordFields, is_utf8

# Bytes of a file that are read to find its columns.
_PEEK_BYTES = 256 * 2**10
# Brackets, and strings, which may hold some; one without an end goes as far as the text.
_MARKS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[][{}]', re.DOTALL)


def _whole_number(digits: str) -> int | decimal.Decimal:
    """A whole number of any length; Python makes an error of an int of more than 4,300 digits."""
    return int(digits) if len(digits) <= spelling.MOST_DIGITS else decimal.Decimal(digits)


_DECODER = json.JSONDecoder(parse_int=_whole_number)


class Json(Format):
    """One row for each line that is not blank; or for each element of an array, where arrays are read."""

    def __init__(self, *, reads_arrays: bool) -> None:
        self._reads_arrays = reads_arrays

    def rows(
        self, file: BinaryIO, codec: str | None, part: int, fields: RecordFields, *, whole: bool = False
    ) -> Iterator[RawRow]:
        return self._rows_of(text_of(decompressed(file, codec), fields.dialect))

    def _rows_of(self, chunks: Iterable[bytes]) -> Iterator[RawRow]:
        return json_file(chunks) if self._reads_arrays else json_lines(chunks)

    def columns(self, file: BinaryIO, codec: str | None, path: str, fields: RecordFields) -> set[str] | None:
        """Keys of the objects near the beginning; None if there is no object.

        Raises:
            ValueError: The file begins with values over several lines, of which no line is a row.
        """
        head, is_cut = bytearray(), False
        try:
            for chunk in _head(text_of(decompressed(file, codec), fields.dialect)):
                head += chunk
        except CorruptStream:
            is_cut = True  # the rows before the damage decide; the rest is read or rejected later
        self._check_lines(bytes(head), is_cut, path)
        columns: set[str] | None = None
        with contextlib.suppress(CorruptStream):
            for values, _ in self._rows_of(_as_read(head, is_cut)):
                if not isinstance(values, Reason):
                    columns = (columns or set()) | set(values)
        return columns

    def remedy(self, file: BinaryIO, codec: str | None, fields: RecordFields) -> str:
        return (
            'Its columns are the keys of its objects, one object for each record. Of an object around an '
            "array of records the array is what is needed: jq -c '.data[]' FILE > FILE.jsonl."
        )

    def _check_lines(self, head: bytes, is_cut: bool, path: str) -> None:
        """Refuses a file whose rows are no lines, which would all be bad rows."""
        text = b''.join(_from_first_row([head])).decode(errors='surrogateescape')
        is_array = text.startswith('[')
        if (is_array and self._reads_arrays) or not _spans_lines(text, is_cut):
            return
        got = 'objects over several lines, such as one around an array'
        remedy = (
            "Write each record into one line: jq -c '.data[]' FILE > FILE.jsonl where the key data has them "
            'all, jq -c . FILE > FILE.jsonl where each is an object by itself.'
        )
        if is_array:
            got, remedy = 'one array over several lines', 'Let its name end in .json.'
        raise ValueError(f'Expected one JSON object in each line, got path={path!r} with {got}. {remedy}')


def json_lines(chunks: Iterable[bytes]) -> Iterator[RawRow]:
    """One row for each line that is not blank."""
    for line, whole in lines.split_lines(chunks):
        if not whole:
            yield Reason.TOO_LONG, line
        elif not line.isspace():
            yield _json_object(line), line


def _json_object(data: bytes) -> Mapping[str, object] | Reason:
    """The JSON object in `data`, or why there is none."""
    try:
        return _only_object(_DECODER.decode(data.decode()))
    except UnicodeDecodeError:
        return Reason.NOT_TEXT
    except (ValueError, RecursionError):
        return Reason.MALFORMED


def _only_object(value: object) -> Mapping[str, object] | Reason:
    return value if isinstance(value, dict) else Reason.MALFORMED


def json_file(chunks: Iterable[bytes]) -> Iterator[RawRow]:
    """The rows of a `.json` file: those of one array if the file begins with `[`, else those of its lines.

    The first of several lines may be a bad row that begins with `[`. It must not change how the other lines
    are read. So a file is also read as lines if its first line is complete JSON and others follow; and
    where an array breaks off, its rest is read as lines. Memory is bounded by `MAX_ROW_BYTES`.
    """
    chunks = _from_first_row(chunks)
    head, line_end, is_cut, more_follow = bytearray(), -1, False, False
    try:
        for chunk in chunks:
            begin = len(head)
            head += chunk
            if line_end < 0:
                line_end = begin = head.find(b'\n', begin)
            more_follow = line_end >= 0 and not head[begin:].isspace()
            if more_follow or not head.startswith(b'[') or len(head) > lines.MAX_ROW_BYTES:
                break
    except CorruptStream:
        is_cut = True

    is_array = head.startswith(b'[') and not (more_follow and _is_json(head[:line_end]))
    again = _as_read(head, is_cut, chunks)
    yield from json_array(again) if is_array else json_lines(again)


def _as_read(head: bytes | bytearray, is_cut: bool, chunks: Iterable[bytes] = ()) -> Iterator[bytes]:
    """A stream once more from its beginning, which was read; its damage if it came there."""
    yield bytes(head)
    if is_cut:
        raise CorruptStream
    yield from chunks


def _from_first_row(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content from its first character that is not blank, without a byte order mark."""
    chunks, first, has_begun = iter(chunks), b'', False
    for chunk in chunks:
        first += chunk
        if not has_begun and len(first) >= len(codecs.BOM_UTF8):
            first, has_begun = first.removeprefix(codecs.BOM_UTF8), True
        if has_begun and (first := first.lstrip()):
            break
    yield first.lstrip()
    yield from chunks


def _spans_lines(text: str, is_cut: bool) -> bool:
    """True if a file begins with JSON values over several lines, and nothing there is a row of one line.

    A bad row may look like the first line of such a value. Good rows after it tell: one object after another
    is within no value, and by itself a value of one line. The text begins with a character that is not blank;
    `is_cut` says whether the file goes on.
    """
    # The last line may be cut off within a string or a number.
    text = text[: text.rfind('\n') + 1].rstrip() if is_cut else text.rstrip()
    place, has_one = 0, False
    while place < len(text):
        try:
            _, end = _DECODER.raw_decode(text, place)
        except RecursionError:
            return False
        except json.JSONDecodeError as error:
            if is_cut and error.pos >= len(text):
                return has_one or text.count('\n') > 1
            if not has_one:
                return False
            line_end = text.find('\n', place)
            end = len(text) if line_end < 0 else line_end
        else:
            if '\n' not in text[place:end]:
                return False
            has_one = True
        place = _skip_space(text, end)
    return has_one


def _is_json(line: bytes) -> bool:
    try:
        _DECODER.decode(line.decode(errors='surrogateescape'))
    except (ValueError, RecursionError):
        return False
    return True


def json_array(chunks: Iterable[bytes]) -> Iterator[RawRow]:
    """One row for each element of the array, and for each line after the last good element."""
    buffer = _Buffer(chunks)
    buffer.skip()  # the bracket
    is_broken = False
    if buffer.following() == ']':
        buffer.skip()
    else:
        while (element := buffer.element()) is not None:
            yield element
            if buffer.skip() == ']':
                break
        else:
            is_broken = True
    rest = json_lines(buffer.rest())
    yield from _after_break(rest) if is_broken else rest


def _after_break(rows: Iterator[RawRow]) -> Iterator[RawRow]:
    """The lines from where an array breaks off; at least one bad row tells that it broke off."""
    first = next(rows, (Reason.UNREADABLE_REST, b''))
    if not isinstance(first[0], Reason):
        yield Reason.MALFORMED, b''
        yield first
        yield from rows
        return
    try:
        second = next(rows, None)
    except CorruptStream:
        yield first
        raise
    if second is None:
        yield Reason.UNREADABLE_REST, first[1]
    else:
        yield first
        yield second
        yield from rows


class _Buffer:
    """The text of a stream; text that was read is dropped from memory.

    Bad bytes become lone surrogates, which spoil their own element and no other.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._utf8 = codecs.getincrementaldecoder('utf-8')(errors='surrogateescape')
        self._text = ''
        self._place = 0

    def following(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            self._place = _skip_space(self._text, self._place)
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._fetch():
                return ''

    def skip(self) -> str:
        """Goes past the next character that is not blank, and returns it."""
        character = self.following()
        self._place += len(character)
        return character

    def element(self) -> tuple[Mapping[str, object] | Reason, bytes] | None:
        """The row of the next value and its bytes; None without a value, or a comma or bracket after it.

        A value that is broken within its own brackets, or nested too deeply, is a bad row and ends there.
        """
        while self.following():
            try:
                value, end = _DECODER.raw_decode(self._text, self._place)
                row = _only_object(value)
            except (ValueError, RecursionError):
                row, end = Reason.MALFORMED, _end_of_value(self._text, self._place)
            after = _skip_space(self._text, end)
            # The text may end within a value, or within a longer number.
            if after < len(self._text) and self._text[after] not in '.eE':
                if self._text[after] not in ',]':
                    return None
                raw = self._text[self._place : end].encode(errors='surrogateescape')
                self._place = after
                return (row if is_utf8(raw) else Reason.NOT_TEXT), raw
            if not self._fetch():
                return None
        return None

    def rest(self) -> Iterator[bytes]:
        """The rest of the stream."""
        held, _ = self._utf8.getstate()
        yield self._text[self._place :].encode(errors='surrogateescape') + held
        yield from self._chunks

    def _fetch(self) -> bool:
        """Reads as much as is held already, so that long values are decoded few times; False at the end."""
        held = len(self._text) - self._place
        if held > lines.MAX_ROW_BYTES:
            return False
        parts, new = [self._text[self._place :]], 0
        for chunk in self._chunks:
            parts.append(self._utf8.decode(chunk))
            new += len(parts[-1])
            if new > held:
                break
        else:
            parts.append(self._utf8.decode(b'', final=True))
            new += len(parts[-1])
        self._text, self._place = ''.join(parts), 0
        return new > 0


def _skip_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in ' \t\r\n':
        place += 1
    return place


def _end_of_value(text: str, place: int) -> int:
    """The place where the first brackets of a value are closed; the end of the text where they are not."""
    if text[place] in '{[':
        depth = 0
        for mark in _MARKS.finditer(text, place):
            if mark[0] in '{[':
                depth += 1
            elif mark[0] in '}]':
                depth -= 1
                if not depth:
                    return mark.end()
    return len(text)


def _head(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The beginning of a stream; it ends like a stream whose rest is damaged.

    A first line that begins an object is all of it: it may be an object around the records, and what follows
    tells whether it is one bad row.
    """
    size, is_open, total = 0, None, 0
    for chunk in chunks:
        yield chunk
        total += len(chunk)
        if is_open is None and (begin := chunk.removeprefix(codecs.BOM_UTF8).lstrip()):
            is_open = begin.startswith(b'{')
        if is_open and b'\n' in chunk.lstrip():
            is_open, size = False, 0
        size += len(chunk)
        if (size >= _PEEK_BYTES and not is_open) or total > lines.MAX_ROW_BYTES:
            raise CorruptStream
