"""Excel workbooks: one sheet, whose first row that is not empty names the columns.

A cell gives what CSV would: numbers of the text column become text, and dates become ISO dates. A formula
gives the value that the program computed that wrote the file. Where it wrote none, as libraries do, or an
error such as #REF!, a row that needs the cell is rejected.

The whole workbook is one part, and is held in memory compressed; rows are streamed.
"""

import contextlib
import datetime
import io
import json
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from transforms.read.columns import RestrictedError, shown
from transforms.read.dialect import Dialect
from transforms.read.formats.format import Column, Format, RawRow
from transforms.read.rules import Reason, RecordFields, Table

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

# Rows of a sheet without a header row that show how many columns it has.
_ROWS_LOOKED_AT = 1_000
_MIDNIGHT = datetime.time()


class Excel(Format):
    """One row of a sheet is one row; blank rows are none."""

    is_text = False
    header_remedy = (
        'The first row that is not empty names the columns, each once: delete what stands above it. Without '
        'such a row give numbers from 0 (--text-field 0).'
    )

    def rows(self, file: BinaryIO, codec: str | None, part: int, fields: RecordFields) -> Iterator[RawRow]:
        return excel_rows(file, fields, fields.names)

    def columns(self, file: BinaryIO, codec: str | None, path: str, fields: RecordFields) -> set[str] | None:
        """Names that occur once in the header row.

        Raises:
            ValueError: No workbook, or without this sheet.
            RestrictedError: Several sheets, of which none is named.
        """
        with _readable_sheet(file.read(), fields.table, path) as sheet:
            rows = _filled(sheet)
            if not fields.positional:
                names = _names(next(rows, ()))
                return {name for name in names if names.count(name) == 1}
            head = [len(row) for row, _ in zip(rows, range(_ROWS_LOOKED_AT))]
            return {str(place) for place in range(max(head, default=0))}

    def header(
        self, file: BinaryIO, codec: str | None, path: str, dialect: Dialect, table: Table
    ) -> tuple[tuple[Column, ...], Dialect] | None:
        """The names of the header row. A name is missing where the next row alone has a cell.

        So a title above the header row is no column. Of the next row nothing else is looked at.
        """
        with _readable_sheet(file.read(), table, path) as sheet:
            rows = _filled(sheet)
            names, below = _names(next(rows, ())), next(rows, ())
        used = [place for place, cell in enumerate(below) if cell is not None]
        names += [''] * (max(used, default=-1) + 1 - len(names))
        kept = [name for place, name in enumerate(names) if name or place in used]
        return tuple(Column(name=name) for name in kept), Dialect()

    def remedy(self, file: BinaryIO, codec: str | None, fields: RecordFields) -> str:
        return (
            'The first row that is not empty names the columns, each once: delete what stands above it, or '
            'name the columns as it does. Without such a row give numbers from 0.'
        )


def excel_rows(file: BinaryIO, fields: RecordFields, wanted: Sequence[str] | None = None) -> Iterator[RawRow]:
    """The rows of a sheet, with a header row unless the fields are positions.

    Args:
        file: The open workbook.
        fields: The columns that are needed, and the sheet.
        wanted: Columns of the result; None for all that have a name.
    """
    data = file.read()
    try:
        with _sheet(data, fields.table) as sheet, _Formulas(data, sheet.title) as formulas:
            rows = enumerate(sheet.iter_rows(values_only=True))
            places: dict[str, int] = {name: int(name) for name in fields.names if fields.positional}
            for ordinal, row in rows:
                if all(cell is None for cell in row):
                    continue
                if not places:
                    names = _names(row)
                    places = {
                        name: names.index(name) for name in (wanted or filter(None, names)) if name in names
                    }
                    continue
                values = {name: _plain(row[at]) for name, at in places.items() if at < len(row)}
                empty = [places[name] for name in fields.names if values.get(name) is None and name in places]
                # The text is text, whatever a spreadsheet takes it for.
                if isinstance(text := values.get(fields.text), (int, float)) and not isinstance(text, bool):
                    values[fields.text] = repr(int(text) if float(text).is_integer() else text)
                raw = json.dumps(values, ensure_ascii=False, default=repr).encode(errors='replace')
                yield Reason.NO_VALUE if formulas.among(ordinal, empty) else values, raw
    except (OSError, RestrictedError):
        raise
    except Exception:  # noqa: BLE001 - of the zip file, of XML, of what the library expects there
        yield Reason.UNREADABLE_REST, b''


class _Formulas:
    """The formulas of a sheet, read for a second time, and only as far as an empty cell asks for."""

    def __init__(self, data: bytes, title: str) -> None:
        self._data, self._title = data, title
        self._stack = contextlib.ExitStack()
        self._rows: Iterator[tuple[int, Sequence[Any]]] | None = None

    def __enter__(self) -> '_Formulas':
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def among(self, ordinal: int, places: Sequence[int]) -> bool:
        """Whether a cell of a row holds a formula; rows are asked for in their order."""
        if not places:
            return False
        if self._rows is None:
            sheet = self._stack.enter_context(_sheet(self._data, Table(sheet=self._title), values=False))
            self._rows = enumerate(sheet.iter_rows(values_only=True))
        row = next(row for place, row in self._rows if place == ordinal)
        return any(at < len(row) and row[at] is not None for at in places)


@contextlib.contextmanager
def _readable_sheet(data: bytes, table: Table, path: str) -> Iterator['Worksheet']:
    """As `_sheet`, for the beginning of a sheet.

    Raises:
        ValueError: No workbook. The error quotes `path` and no content.
        RestrictedError: As of `_sheet`.
    """
    is_workbook = True
    try:
        with _sheet(data, table, path) as sheet:
            yield sheet
    except (RestrictedError, OSError):
        raise
    except Exception:  # noqa: BLE001 - of the zip file, of XML, of what the library expects there
        is_workbook = False
    if not is_workbook:
        raise ValueError(
            f'Expected an Excel workbook, got path={path!r}, which is none, is incomplete, or has a '
            'password. Save it again as .xlsx, without a password.'
        )


@contextlib.contextmanager
def _sheet(data: bytes, table: Table, path: str = '', *, values: bool = True) -> Iterator['Worksheet']:
    """A sheet of a workbook, with the values of its formulas or with the formulas.

    Raises:
        RestrictedError: None is named and several are not empty, or the one that is named is not there.
    """
    import openpyxl

    with warnings.catch_warnings():
        # Of what a workbook has beyond values.
        warnings.simplefilter('ignore')
        workbook = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=values)
    with contextlib.closing(workbook):
        sheets = workbook.worksheets
        for sheet in sheets:
            # What a file says of the size of its sheets may be wrong.
            sheet.reset_dimensions()
        names = [sheet.title for sheet in sheets]
        if table.sheet is not None:
            chosen = [sheet for sheet in sheets if sheet.title == table.sheet]
        else:
            seen = [sheet for sheet in sheets if sheet.sheet_state == 'visible']
            chosen = [sheet for sheet in seen if next(_filled(sheet), None) is not None] or seen[:1]
        if len(chosen) != 1:
            got = f'sheet={table.sheet!r}' if table.sheet is not None else f'{len(chosen)} sheets with cells'
            raise RestrictedError(
                f'Expected one sheet to read, got {got} in path={path!r}. Name one that is there: --sheet.',
                f'For the curator alone, its sheets: {shown(names)}',
            )
        yield chosen[0]


def _filled(sheet: 'Worksheet') -> Iterator[tuple[Any, ...]]:
    """The rows that are not blank."""
    return (row for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row))


def _names(row: Sequence[Any]) -> list[str]:
    return ['' if cell is None else str(_plain(cell)).strip() for cell in row]


def _plain(cell: Any) -> object:
    """A value as JSON or Parquet would have it; None for an empty cell and an error."""
    from openpyxl.cell.cell import ERROR_CODES
    from openpyxl.utils.escape import unescape

    if isinstance(cell, str):
        return None if cell in ERROR_CODES else unescape(cell)
    if isinstance(cell, datetime.datetime) and cell.time() == _MIDNIGHT:
        return str(cell.date())
    if isinstance(cell, (datetime.date, datetime.time, datetime.timedelta)):
        return str(cell)
    return cell
