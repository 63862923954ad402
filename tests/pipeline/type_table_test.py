"""The table of types in docs/settings.md says what each source gives."""

import datetime
import decimal
import pathlib
import re
import sqlite3
import uuid
from collections.abc import Callable
from typing import Any

import openpyxl
import pyarrow as pa
import pytest
import sqlalchemy as sa

from models import spelling
from models.records import Record
from tests.samples import ROOT
from transforms import read
from transforms.read import RecordFields, RecordRules, Table, column_types

HEADING = '**Types of columns.**'
UTC = datetime.UTC
DAY, TIME = datetime.datetime(2024, 5, 6), datetime.time(7, 8, 9)
LATER, PASSED = datetime.datetime(2024, 5, 6, 7, 8, 9, 500_000), datetime.timedelta(days=1, seconds=7_384)
UUID = uuid.UUID('6f2b3c1e-0d4a-4b6f-9a51-3f0f6c1d2e77')
# Values that are stored where the table says how they are spelled.
VALUES: dict[str, tuple[Any, ...]] = {
    'note': ('note', b'note'), '{"n": 1}': ('{"n": 1}',), '7': (7,), '1.50': (decimal.Decimal('1.50'),),
    '2': (2.0, decimal.Decimal('2.00')), '0.1': (0.1,), 'true': (True,), '2024-05-06': (DAY, DAY.date()),
    '2024-05-06 07:08:09.5': (LATER,), '2024-05-06 00:00:00+00': (DAY.replace(tzinfo=UTC),),
    '07:08:09': (TIME,), '1 day 02:03:04': (PASSED,), str(UUID): (UUID.bytes,),
}  # fmt: skip
KINDS = {
    str(kind): kind
    for kind in (
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
        pa.binary(4), pa.json_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
        pa.uint32(), pa.uint64(), pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 2),
        pa.decimal256(76, 2), pa.float64(), pa.float32(), pa.float16(), pa.bool_(), pa.bool8(), pa.date32(),
        pa.date64(), *map(pa.timestamp, ('s', 'ms', 'us', 'ns')), pa.timestamp('s', 'Europe/Paris'),
        pa.timestamp('ms', 'UTC'), pa.timestamp('us', '-05:00'), pa.timestamp('ns', 'UTC'), pa.time32('s'),
        pa.time32('ms'), pa.time64('us'), pa.time64('ns'), *map(pa.duration, ('s', 'ms', 'us', 'ns')),
        pa.uuid(),
    )
}  # fmt: skip


def table() -> list[dict[str, str]]:
    """The rows of the table by the names of its columns; empty where there is none."""
    _, _, after = (ROOT / 'docs' / 'settings.md').read_text().partition(HEADING)
    lines = [line for line in after.partition('\n**')[0].splitlines() if line.startswith('|')]
    cells = [[cell.strip() for cell in line.strip('|').split('|')] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def named(cell: str) -> list[str]:
    return re.findall('`([^`]+)`', cell)


def array(kind: pa.DataType, written: str) -> pa.Array:
    for value in VALUES[written]:
        try:
            if isinstance(kind, pa.BaseExtensionType):
                return pa.ExtensionArray.from_storage(kind, pa.array([value]).cast(kind.storage_type))
            return pa.array([value], kind)
        except (pa.ArrowException, TypeError):
            pass
    raise AssertionError(f'{kind} holds none of {VALUES[written]}')


def test_the_table_names_every_type_that_is_read() -> None:
    assert {each for row in table() for each in named(row['Parquet, data sets (Arrow)'])} == set(KINDS)


def test_columns_of_arrow_are_spelled_as_the_table_says() -> None:
    for row in table():
        (written,) = named(row['is spelled'])
        for name in named(row['Parquet, data sets (Arrow)']):
            column = array(KINDS[name], written)
            for stored in (column, pa.RunEndEncodedArray.from_arrays([1], column),
                           pa.DictionaryArray.from_arrays(pa.array([0]), column)):  # fmt: skip
                (value,) = column_types.values_of(stored)
                assert (spelling.spelled(value), row['label']) == (written, 'yes'), name
                assert spelling.id_of(value) == (written if row['id'] == 'yes' else None), name
                schema = pa.schema([('text', stored.type), ('label', stored.type)])
                column_types.check_schema(schema, 'a', RecordFields(text='absent', label='label'))
                if row['text'].startswith('yes'):
                    column_types.check_schema(schema, 'a', RecordFields(text='text'))
                else:
                    with pytest.raises(ValueError, match="column='text', type='"):
                        column_types.check_schema(schema, 'a', RecordFields(text='text'))


def test_cells_of_a_workbook_are_spelled_as_the_table_says(tmp_path: pathlib.Path) -> None:
    cells: list[tuple[str, Any]] = [
        (written, next(value for value in VALUES[written] if not isinstance(value, (bytes, decimal.Decimal))))
        for row in table()
        for written in named(row['is spelled'])
        if named(row['Excel'])
    ]
    assert len(cells) == 9
    workbook = openpyxl.Workbook()
    for each in [('text', 'who'), *(('Note.', value) for _, value in cells)]:
        workbook.worksheets[0].append(each)
    workbook.save(tmp_path / 'a.xlsx')
    assert labels(str(tmp_path / 'a.xlsx')) == [written for written, _ in cells]
    found = read.read_place(str(tmp_path / 'a.xlsx'), RecordRules(fields=RecordFields(text='who')))
    texts = [one.text if isinstance(one, Record) else one.reason for one in found]
    assert texts == [read.Reason.WRONG_TYPE if text == 'true' else text for text, _ in cells]


def test_texts_of_sqlite_are_spelled_as_the_table_says(tmp_path: pathlib.Path) -> None:
    """Python writes dates so, as the adapters of its driver do."""
    written = [(spelt, str(value)) for spelt, (value, *_) in VALUES.items() if spelt.startswith('20')]
    with sqlite3.connect(tmp_path / 'a.db') as connection:
        connection.execute('CREATE TABLE notes (text, who)')
        connection.executemany('INSERT INTO notes VALUES (?, ?)', [('Note.', text) for _, text in written])
    assert labels(f'sqlite:///{tmp_path}/a.db', query='SELECT * FROM notes') == [
        spelt for spelt, _ in written
    ]


@pytest.mark.run
def test_types_of_postgresql_are_spelled_as_the_table_says(postgresql: Callable[[], str]) -> None:
    place = postgresql()
    url = sa.make_url(place).set(drivername='postgresql+psycopg')
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        for setting in ("datestyle = 'German'", "intervalstyle = 'iso_8601'", "timezone = 'Asia/Tokyo'",
                        'extra_float_digits = 0'):  # fmt: skip
            connection.exec_driver_sql(f'ALTER DATABASE "{url.database}" SET {setting}')
    for row in table():
        (written,) = named(row['is spelled'])
        for kind in named(row['PostgreSQL']):
            stored = '2.00' if (kind, written) == ('numeric', '2') else written
            query = f"SELECT 'Note.' AS text, CAST('{stored}' AS {kind}) AS who"
            assert labels(place, query=query) == [written], kind
            ids = RecordFields(text='text', record_id='who', table=Table(query=query))
            (found,) = read.read_place(place, RecordRules(fields=ids))
            assert isinstance(found, Record) is (row['id'] == 'yes'), kind
            as_text = RecordFields(text='who', table=Table(query=query))
            if row['text'] == 'yes':
                read.check_input(place, as_text)
            else:
                with pytest.raises(ValueError, match='who::text AS who'):
                    read.check_input(place, as_text)


def labels(place: str, **table: str) -> list[str | None]:
    fields = RecordFields(text='text', label='who', table=Table(**table))
    read.check_input(place, fields)
    found = read.read_place(place, RecordRules(fields=fields, any_label=True))
    return [one.label if isinstance(one, Record) else one.reason.value for one in found]
