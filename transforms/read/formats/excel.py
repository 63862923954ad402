"""Excel workbooks: one sheet, whose first row that is not empty names the columns.

A cell gives what CSV would: numbers of the text column become text, and dates become ISO dates. A formula
gives the value that the program computed that wrote the file. Where it wrote none, as libraries do, or an
error such as #REF!, a row that needs the cell is rejected.

A cell that cannot be read rejects its row and no other, and only if its column is needed. The whole workbook
is one part, and is held in memory compressed; rows are streamed (`transforms.read.formats.sheet`).
"""

import itertools
import json
import warnings
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from models import spelling
from transforms.read.dialect import Dialect
from transforms.read.errors import RestrictedError, shown
from transforms.read.formats.format import Format, RawRow
from transforms.read.formats.sheet import Row, Sheet, Unread, Workbook
from transforms.read.rules import Reason, RecordFields, Table


class Excel(Format):
    """One row of a sheet is one row; blank rows are none."""

    is_text = False
    header_remedy = (
        'The first row that is not empty names the columns, each once: delete what stands above it.'
    )

    def rows(
        self, file: BinaryIO, codec: str | None, part: int, fields: RecordFields, *, whole: bool = False
    ) -> Iterator[RawRow]:
        data = file.read()
        try:
            rows = _sheet(data, fields.table).rows()
            if isinstance(header := next(rows, {}), Reason):
                yield Reason.UNREADABLE_REST, b''
                return
            names = _names(header)
            wanted = filter(None, names) if whole else fields.names
            places = {name: names.index(name) for name in wanted if name in names}
            for row in rows:
                if isinstance(row, Reason):
                    yield row, b''
                    continue
                values = {name: row.get(place) for name, place in places.items()}
                raw = json.dumps(values, ensure_ascii=False, default=str).encode(errors='replace')
                yield _reason(values, fields) or _with_text(values, fields.text), raw
        except RestrictedError:
            raise
        except Exception:  # noqa: BLE001 - of the zip file, of XML, of what the library expects there
            yield Reason.UNREADABLE_REST, b''

    def columns(self, file: BinaryIO, codec: str | None, path: str, fields: RecordFields) -> set[str] | None:
        """Names that occur once in the header row.

        Raises:
            ValueError: No workbook, or without this sheet.
            RestrictedError: Several sheets, of which none is named.
        """
        rows = _beginning(file.read(), fields.table, path, 1)
        names = _names(rows[0]) if rows else []
        return {name for name in names if names.count(name) == 1}

    def header(
        self, file: BinaryIO, codec: str | None, path: str, dialect: Dialect, table: Table
    ) -> tuple[tuple[str, ...], Dialect] | None:
        """The names of the header row. A name is missing where the next row alone has a cell.

        So a title above the header row is no column. Of the next row nothing else is looked at.
        """
        rows = _beginning(file.read(), table, path, 2)
        names, below = _names(rows[0]) if rows else [], rows[1] if len(rows) > 1 else {}
        used = [] if isinstance(below, Reason) else sorted(below)
        names += [''] * (_width(below) - len(names))
        return tuple(name for place, name in enumerate(names) if name or place in used), Dialect()

    def remedy(self, file: BinaryIO, codec: str | None, fields: RecordFields) -> str:
        return f'{self.header_remedy} Or name the columns as it does.'


def _reason(values: Mapping[str, object], fields: RecordFields) -> Reason | None:
    """Why a row is none that can be read."""
    for name, cell in values.items():
        # A value that is too long is not there as a whole, for a reader of all columns.
        if isinstance(cell, Unread) and (name in fields.names or cell.reason is Reason.TOO_LONG):
            return cell.reason
    return None


def _with_text(values: dict[str, object], text: str) -> dict[str, object]:
    """The row with a text for a number in the column of the text, whatever a spreadsheet takes it for."""
    value = values.get(text)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        values[text] = spelling.spelled(value) or repr(value)
    return values


def _beginning(data: bytes, table: Table, path: str, count: int) -> list[Row]:
    """The first rows of a sheet that are not blank.

    Raises:
        ValueError: No workbook. The error quotes `path` and no content.
        RestrictedError: As of `_sheet`.
    """
    rows = None
    try:
        rows = list(itertools.islice(_sheet(data, table, path).rows(), count))
    except RestrictedError:
        raise
    except Exception:  # noqa: BLE001 - of the zip file, of XML, of what the library expects there
        pass
    if rows is None:
        raise ValueError(
            f'Expected an Excel workbook, got path={path!r}, which is none, is incomplete, has a password, '
            'or has files that are no part of one. Save it again as .xlsx, without a password.'
        )
    return rows


def _sheet(data: bytes, table: Table, path: str = '') -> Sheet:
    """A sheet of a workbook.

    Raises:
        RestrictedError: None is named and several are not empty, or the one that is named is not there.
    """
    with warnings.catch_warnings():
        # Warnings of parts of a workbook beyond values.
        warnings.simplefilter('ignore')
        sheets = Workbook(data).sheets
    if table.sheet is not None:
        chosen = [sheet for sheet in sheets if sheet.title == table.sheet]
    else:
        seen = [sheet for sheet in sheets if sheet.is_visible]
        chosen = [sheet for sheet in seen if next(sheet.rows(), None) is not None] or seen[:1]
    if len(chosen) != 1:
        got = f'sheet={table.sheet!r}' if table.sheet is not None else f'{len(chosen)} sheets with cells'
        raise RestrictedError(
            f'Expected one sheet to read, got {got} in path={path!r}. Name one that is there: --sheet.',
            f'For the curator alone, its sheets: {shown(sheet.title for sheet in sheets)}',
        )
    return chosen[0]


def _width(row: Row) -> int:
    return 0 if isinstance(row, Reason) else max(row, default=-1) + 1


def _names(row: Row) -> list[str]:
    cells = {} if isinstance(row, Reason) else row
    return [str(cells.get(place, '')).strip() for place in range(_width(row))]
