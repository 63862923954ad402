"""The cells of a workbook's sheets, row by row, whatever its files hold.

openpyxl says which sheets there are and which formats are dates, and converts dates. Its readers of cells and
of shared texts are not used: a cell that they cannot convert ends the sheet, and they hold a row of any size.
Here such a cell is an `Unread`, and memory is bounded by the limits below, although a zip file can unpack to
a thousand times its size.
"""

import functools
import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any
from xml.parsers import expat

from models import spelling
from transforms.read import lines
from transforms.read.rules import REJECTION_BYTES, Reason

# Characters of the longest cell; Excel itself takes 32,767.
MAX_CELL_CHARACTERS = 2**20
# Bytes of all texts that the cells of a workbook share; those beyond it are too long.
MAX_SHARED_BYTES = 512 * 2**20
# Bytes of the files that say how a workbook is made up, which are held whole.
_MAX_PART_BYTES = 8 * 2**20
# Bytes of XML from one event of the parser to the next: a tag with its attributes, a comment.
_MAX_TOKEN_BYTES = 2**20
_MAX_DEPTH = 100
_CHUNK_BYTES = 64 * 2**10
# Memory of a cell or a text beside its characters.
_OVERHEAD_BYTES = 64
_NAMESPACE = 'http://schemas.openxmlformats.org/spreadsheetml/2006/main '
_COLUMN = re.compile(r'([A-Za-z]{1,3})[0-9]*')


class Unread:
    """A cell without a value.

    Attributes:
        reason: Why it has none.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        self.reason, self._text = reason, text[:REJECTION_BYTES]

    def __str__(self) -> str:
        """The beginning of what stands in the cell."""
        return self._text


# The cells that are not empty by their column, from 0; or why the row has none that can be told apart.
Row = Mapping[int, object] | Reason


class Sheet:
    """A sheet of a workbook.

    Attributes:
        is_visible: Whether it is shown.
    """

    def __init__(self, title: str, is_visible: bool, workbook: 'Workbook', path: str) -> None:
        self.title, self.is_visible, self._workbook, self._path = title, is_visible, workbook, path

    def rows(self) -> Iterator[Row]:
        """The rows that are not blank, in the file's order, streamed.

        Raises:
            Exception: The file is damaged, after all rows before the damage.
        """
        with self._workbook.archive.open(self._path) as file:
            for row in _events(file, _Rows(self._workbook)):
                # A formula that nobody has computed is nothing.
                if isinstance(row, Reason) or any(
                    not isinstance(cell, Unread) or str(cell) for cell in row.values()
                ):
                    yield row


class Workbook:
    """An open workbook.

    Attributes:
        sheets: Its sheets, without those that are charts.

    Raises:
        Exception: Its files are damaged or too large, or it is none.
    """

    def __init__(self, data: bytes) -> None:
        from openpyxl.reader.excel import ExcelReader
        from openpyxl.styles.stylesheet import apply_stylesheet

        reader = ExcelReader(io.BytesIO(data), read_only=True, keep_links=False)
        # The archive that it has opened has no limits.
        reader.archive.close()
        self.archive = reader.archive = _Archive(io.BytesIO(data))
        reader.read_manifest()
        reader.read_workbook()
        apply_stylesheet(self.archive, reader.wb)
        self.dates, self.durations = reader.wb._date_formats, reader.wb._timedelta_formats
        self.epoch = reader.wb.epoch
        shared = reader.package.find(_SHARED_TYPE)
        self._shared_path = None if shared is None else shared.PartName[1:]
        self.sheets = [
            Sheet(sheet.name, sheet.state == 'visible', self, relation.target)
            for sheet, relation in reader.parser.find_sheets()
            if 'chartsheet' not in relation.Type and relation.target in reader.valid_files
        ]

    @functools.cached_property
    def shared(self) -> tuple[list[bytes | None], bool]:
        """The texts that cells share, None for one that is too long, and whether these are all."""
        texts: list[bytes | None] = []
        if self._shared_path is not None:
            size = 0
            with self.archive.open(self._shared_path) as file:
                for data in _events(file, _SharedTexts()):
                    size += len(data or b'') + _OVERHEAD_BYTES
                    if size > MAX_SHARED_BYTES:
                        return texts, False
                    texts.append(data)
        return texts, True


_SHARED_TYPE = 'application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml'


class _Archive(zipfile.ZipFile):
    """A zip file whose files are streamed, or are small."""

    def open(self, name: Any, mode: Any = 'r', *args: Any, **options: Any) -> IO[bytes]:
        # These two alone bound what one read gives; Excel writes no other.
        if self.getinfo(str(name)).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError('Expected files of a workbook that are deflated or stored. Save it again.')
        return super().open(name, mode, *args, **options)

    def read(self, name: Any, pwd: bytes | None = None) -> bytes:
        content = bytearray()
        with self.open(name) as file:
            # The size in the directory may be wrong.
            while chunk := file.read(_CHUNK_BYTES):
                content += chunk
                if len(content) > _MAX_PART_BYTES:
                    raise ValueError(
                        'Expected files of a workbook that are no longer than any that is known.'
                    )
        if str(name).endswith(('.xml', '.rels')):
            for _ in _events(io.BytesIO(content), _Texts()):
                pass
        return bytes(content)


def _events(file: IO[bytes], handler: '_Texts') -> Iterator[Any]:
    """Yields what a handler finds in XML, as it comes up.

    Raises:
        Exception: No XML; a declaration of a document type, since what it declares can stand for any length
            of text; tags that are too long or too deep.
    """
    parser, depth, size = expat.ParserCreate(namespace_separator=' '), 0, 0

    def start(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise ValueError('Expected XML that is less deep.')
        handler.start(name.removeprefix(_NAMESPACE), attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        handler.end(name.removeprefix(_NAMESPACE))

    def refuse(*_: object) -> None:
        raise ValueError('Expected XML without a declaration of its type.')

    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = handler.text, refuse
    while True:
        chunk, error = b'', None
        try:
            chunk = file.read(_CHUNK_BYTES)
            parser.Parse(chunk, not chunk)
        except Exception as caught:  # noqa: BLE001 - raised below
            error = caught
        yield from handler.found
        handler.found.clear()
        if error is not None:
            raise error
        if not chunk:
            return
        size += len(chunk)
        if size - parser.CurrentByteIndex > _MAX_TOKEN_BYTES:
            raise ValueError('Expected shorter tags in XML.')


class _Text:
    """The characters of one text, up to a limit."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.size = 0

    def add(self, data: str) -> None:
        self.size += len(data)
        if not self.is_too_long:
            self._parts.append(data)
        elif self._parts:
            self._parts = [''.join(self._parts)[:REJECTION_BYTES]]

    @property
    def is_too_long(self) -> bool:
        return self.size > MAX_CELL_CHARACTERS

    def __str__(self) -> str:
        return ''.join(self._parts)


class _Texts:
    """Collects what is in tags `t`, as a text is written; how it is pronounced is left out.

    Attributes:
        found: Values, emptied by who takes them.
    """

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._own: _Text | None = None
        self._is_phonetic = self._is_text = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == 'rPh':
            self._is_phonetic = True
        elif name == 't':
            self._is_text = not self._is_phonetic

    def end(self, name: str) -> None:
        if name == 'rPh':
            self._is_phonetic = False
        elif name == 't':
            self._is_text = False

    def text(self, data: str) -> None:
        if self._is_text and self._own is not None:
            self._own.add(data)


class _SharedTexts(_Texts):
    """The texts that cells share, as UTF-8; None for one that is too long."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == 'si':
            self._own = _Text()
        super().start(name, attributes)

    def end(self, name: str) -> None:
        super().end(name)
        if name == 'si' and self._own is not None:
            self.found.append(None if self._own.is_too_long else str(self._own).encode())
            self._own = None


class _Rows(_Texts):
    """The rows of a sheet."""

    def __init__(self, workbook: Workbook) -> None:
        super().__init__()
        self._workbook = workbook
        self._row: dict[int, object] | Reason | None = None
        self._size = self._column = 0
        self._attributes: Mapping[str, str] = {}
        self._is_value = self._is_formula = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        super().start(name, attributes)
        if name == 'row':
            self._row, self._column, self._size = {}, -1, 0
        elif name == 'c' and self._row is not None:
            self._own, self._attributes, self._is_formula = _Text(), attributes, False
        elif name == 'v':
            self._is_value = True
        elif name == 'f':
            self._is_formula = True

    def text(self, data: str) -> None:
        is_inline = self._attributes.get('t') == 'inlineStr'
        if self._own is not None and (self._is_text if is_inline else self._is_value):
            self._own.add(data)

    def end(self, name: str) -> None:
        super().end(name)
        if name == 'v':
            self._is_value = False
        elif name == 'c' and self._own is not None:
            self._end_cell(self._own)
            self._own = None
        elif name == 'row' and self._row is not None:
            self.found.append(self._row)
            self._row = None

    def _end_cell(self, text: _Text) -> None:
        from openpyxl.utils.cell import column_index_from_string

        place = self._attributes.get('r')
        match = None if place is None else _COLUMN.fullmatch(place)
        if place is None:
            self._column += 1
        elif match is not None:
            self._column = column_index_from_string(match[1]) - 1
        else:
            self._row = Reason.MALFORMED
        if not isinstance(self._row, dict):
            return
        if (value := self._value(text)) is not None:
            self._row[self._column] = value
        self._size += _OVERHEAD_BYTES + (0 if text.is_too_long else text.size)
        if self._size > lines.MAX_ROW_BYTES:
            self._row = Reason.TOO_LONG

    def _value(self, text: _Text) -> object:
        """The value as JSON or Parquet would have it; None for an empty cell."""
        written, kind = str(text), self._attributes.get('t', 'n')
        if text.is_too_long:
            return Unread(Reason.TOO_LONG, written)
        if kind == 'e' or (self._is_formula and not written):
            return Unread(Reason.NO_VALUE, written)
        if not written:
            return None
        # Outside of the handler: damage of these texts is damage of the file, and not of a cell.
        shared = self._workbook.shared if kind == 's' else ([], True)
        try:
            return self._converted(kind, written, *shared)
        except Exception:  # noqa: BLE001 - of any conversion; it is of this cell alone
            return Unread(Reason.MALFORMED, written)

    def _converted(self, kind: str, written: str, texts: list[bytes | None], is_whole: bool) -> object:
        from openpyxl.utils import datetime as dates
        from openpyxl.utils.escape import unescape

        if kind == 'n':
            value = float(written) if set(written) & set('.eE') else int(written)
            style = int(self._attributes.get('s', 0))
            if style not in self._workbook.dates:
                return value
            is_duration = style in self._workbook.durations
            return spelling.spelled(dates.from_excel(value, self._workbook.epoch, timedelta=is_duration))
        if kind == 'b':
            return bool(int(written))
        if kind == 'd':
            return spelling.spelled(dates.from_ISO8601(written))
        if kind != 's':
            return unescape(written) or None
        if (number := int(written)) < 0:
            raise IndexError
        text = texts[number] if number < len(texts) or is_whole else None
        return Unread(Reason.TOO_LONG, '…') if text is None else unescape(text.decode()) or None
