"""Behind `dp-corpus split`: sets real texts apart before any run reads them, by keyed hash.

Texts that were set apart tell how good a corpus is and whether it repeats records. The records themselves
cannot tell that: a corpus that quotes a record is close to it for that reason alone. The id of its unit and
the key decide the side of a row, so all rows of a unit are on one side, and stay there as the files grow.
"""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

import pyarrow as pa
from pyarrow import parquet

from models.privacy.randomness import RunKey
from models.spelling import id_of, spelled
from transforms.places import is_database, is_workbook
from transforms.read import (
    CorruptStream,
    Reason,
    RecordFields,
    check_input,
    decompressed,
    dialect,
    file_format,
)
from transforms.read.errors import naming_only
from transforms.read.files import open_file
from transforms.read.formats import FORMATS, WHOLE
from transforms.read.formats.csv import Csv, CsvFile
from transforms.read.formats.excel import excel_rows
from transforms.read.sources import source_of

KEY = 'split.key'
RECORDS, TEST = 'records', 'test'
# Bytes of the hash that decides: shares are resolved to 2**-64.
_BYTES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """Numbers of rows that were written. Restricted to the curator: true counts.

    Attributes:
        records: Rows for the run.
        test: Rows set apart.
        without_unit: Rows of neither: no unit id, or no row of their format.
    """

    records: int = dataclasses.field(repr=False)
    test: int = dataclasses.field(repr=False)
    without_unit: int = dataclasses.field(repr=False)


def split(
    pattern: str, folder: pathlib.Path, *, fields: RecordFields, test_share: float, key: RunKey
) -> Split:
    """Writes the rows of each file, whole and in their order, to `records` or `test` in a folder.

    Args:
        pattern: Comma-separated paths and globs of files, or another place. Rows of a workbook and of what
            is no file come out as JSON lines.
        folder: A new folder, for the curator alone; nothing is left of it after an error.
        fields: Columns of the text and of the unit's id. Rows of one id stay together, ids compared as a
            run compares them; without a column of ids, rows of one text.
        test_share: Probability with which a unit is set apart.
        key: Key of the hash.

    Raises:
        ValueError: A share outside (0, 1), a missing column, two files of one name, a damaged file.
        FileExistsError: The folder is there.
        FileNotFoundError: A pattern names no file.
    """
    if not 0 < test_share < 1:
        raise ValueError(
            f'Expected a share of units to set apart between 0 and 1, got test_share={test_share!r}. Give '
            '0.1 for a tenth.'
        )
    files = check_input(pattern, fields)
    names = [_written_name(file.path) for file in files]
    if len(set(names)) < len(names):
        raise ValueError(
            f'Expected files with names of their own, got input={pattern!r} with two of one name. '
            'Rename one, or split them apart.'
        )
    chooser = _Chooser(fields, key, test_share)
    folder.mkdir(mode=0o700)
    try:
        key.write(folder / KEY)
        for side in (RECORDS, TEST):
            (folder / side).mkdir(mode=0o700)
        for file in files:
            if (source := source_of(file.path)) is not None:
                with naming_only(file.path):
                    _split_rows(file.path, source.whole_rows(file.path, fields), folder, chooser)
                continue
            name, codec = file_format(file.path)
            if name == 'xlsx':
                _split_excel(file.path, folder, fields, chooser)
            elif name == 'parquet':
                _split_parquet(file.path, folder, fields, chooser)
            else:
                _split_text(file.path, name, codec, folder, fields, chooser)
    except BaseException:
        shutil.rmtree(folder)
        raise
    return Split(records=chooser.records, test=chooser.test, without_unit=chooser.without_unit)


class _Chooser:
    """Chooses the side of each row, and counts."""

    def __init__(self, fields: RecordFields, key: RunKey, test_share: float) -> None:
        self._fields, self._key, self._below = fields, key, int(test_share * 256**_BYTES)
        self.records = self.test = self.without_unit = 0

    def side(self, values: Mapping[str, object] | Reason) -> str | None:
        """'records' or 'test'; None for a row without a unit id."""
        if isinstance(values, Reason):
            name = None
        elif self._fields.unit is None:
            name = spelled(values.get(self._fields.text))
        else:
            name = id_of(values.get(self._fields.unit))
        if not name:
            self.without_unit += 1
            return None
        digest = self._key.hash('split', name.encode(), size=_BYTES)
        if int.from_bytes(digest, 'little') < self._below:
            self.test += 1
            return TEST
        self.records += 1
        return RECORDS


def _written_name(path: str) -> str:
    """The name of what is written: compressed files come out plain, other places as JSON lines."""
    if is_database(path):
        return 'query.jsonl'
    name = pathlib.Path(path).name
    if source_of(path) is not None:
        return f'{name}.jsonl'
    if is_workbook(path):
        return f'{name[: -len(".xlsx")]}.jsonl'
    return name if file_format(path)[1] is None else name.rpartition('.')[0]


def _damaged(path: str) -> ValueError:
    name = pathlib.Path(path).name
    return ValueError(f'Expected whole files, got file={name!r}, whose rest cannot be read. Fetch it again.')


@contextlib.contextmanager
def _sides(folder: pathlib.Path, path: str) -> Iterator[dict[str, BinaryIO]]:
    name = _written_name(path)
    with open(folder / RECORDS / name, 'wb') as records, open(folder / TEST / name, 'wb') as test:
        yield {RECORDS: records, TEST: test}


def _split_text(
    path: str, name: str, codec: str | None, folder: pathlib.Path, fields: RecordFields, chooser: _Chooser
) -> None:
    """Rows of CSV and of JSON lines as they are, in the file's encoding; those of a JSON array as lines."""
    form = FORMATS[name]
    with _sides(folder, path) as sides, open_file(path) as file:
        try:
            with open_file(path) as beginning:
                if isinstance(form, Csv):
                    layout, head = _csv_head(form.open(beginning, codec, fields), fields)
                else:
                    first, _ = dialect.peek(decompressed(beginning, codec))
                    layout, head = dialect.detect(first, fields.dialect, ()), dialect.mark(first)
            for side in sides.values():
                side.write(head)
            for values, raw in form.rows(file, codec, WHOLE, fields):
                if values is Reason.UNREADABLE_REST:
                    raise _damaged(path)
                side_name = chooser.side(values)
                if side_name is not None:
                    whole = raw if name != 'json' else json.dumps(values, default=_as_text).encode()
                    sides[side_name].write(_encoded(whole, layout))
        except CorruptStream:
            raise _damaged(path) from None


def _csv_head(file: CsvFile, fields: RecordFields) -> tuple[dialect.Layout, bytes]:
    """The layout of a CSV file, and the beginning of each part: mark, declaration and header row."""
    first = [file.declaration] if file.declaration else []
    if not fields.positional:
        first += [raw for _, raw in itertools.islice(file.rows, 1)]
    return file.layout, file.mark + b''.join(_encoded(row, file.layout) for row in first)


def _encoded(row: bytes, layout: dialect.Layout) -> bytes:
    """A row that was read as UTF-8, in the encoding of its file and with the line end that it may lack."""
    row = row if row.endswith(layout.line_end) else row + layout.line_end
    return row if layout.encoding == 'utf-8' else row.decode().encode(layout.encoding)


def _split_rows(
    path: str,
    rows: Iterable[Mapping[str, object]],
    folder: pathlib.Path,
    chooser: _Chooser,
) -> None:
    """Whole rows as JSON lines."""
    with _sides(folder, path) as sides:
        try:
            for values in rows:
                side_name = chooser.side(values)
                if side_name is not None:
                    sides[side_name].write(json.dumps(values, default=_as_text).encode() + b'\n')
        except CorruptStream:
            raise _damaged(path) from None


def _as_text(value: object) -> str:
    # A byte that is not UTF-8 spoils its row there as it does here.
    return value.decode(errors='surrogateescape') if isinstance(value, bytes) else str(value)


def _split_excel(path: str, folder: pathlib.Path, fields: RecordFields, chooser: _Chooser) -> None:
    def rows() -> Iterator[Mapping[str, object]]:
        with open_file(path) as file:
            for values, _ in excel_rows(file, fields):
                if values is Reason.UNREADABLE_REST:
                    raise CorruptStream
                # A formula without a value gives nothing to write, and no unit to hold together.
                yield {} if isinstance(values, Reason) else values

    _split_rows(path, rows(), folder, chooser)


def _split_parquet(path: str, folder: pathlib.Path, fields: RecordFields, chooser: _Chooser) -> None:
    """Row group by row group; ids are read as a run reads them."""
    with _sides(folder, path) as sides, open_file(path) as file:
        source = parquet.ParquetFile(file)
        writers = {name: parquet.ParquetWriter(side, source.schema_arrow) for name, side in sides.items()}
        for part in range(source.num_row_groups):
            with open_file(path) as again:
                rows = list(FORMATS['parquet'].rows(again, None, part, fields))
            if any(values is Reason.UNREADABLE_REST for values, _ in rows):
                raise _damaged(path)
            chosen = [chooser.side(values) for values, _ in rows]
            table = source.read_row_group(part)
            for name, writer in writers.items():
                writer.write_table(table.filter(pa.array([side == name for side in chosen])))
        for writer in writers.values():
            writer.close()
