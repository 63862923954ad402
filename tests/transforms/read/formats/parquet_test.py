"""Parquet: row groups, columns, and broken strings and pages."""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.records import Record
from tests.transforms.read.samples import TEXT, read_file
from transforms import read
from transforms.read import Reason, RecordFields, RecordRules


def test_parquet_is_read_by_row_group_and_column(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'a.parquet'
    table = pa.table(
        {
            'text': [f'text {number}' for number in range(10)],
            'label': pa.array(['b', None] * 5).dictionary_encode(),
            'unit': list(range(10)),
            'unused': [[1]] * 10,
        }
    )
    pq.write_table(table, path, row_group_size=4)
    assert list(read.split_file(str(path))) == [(str(path), 0), (str(path), 1), (str(path), 2)]
    rules = RecordRules(
        fields=RecordFields(text='text', label='label', unit='unit'), labels=('b',), unit='user'
    )
    records, rejected = read_file(path, rules)
    assert records == [Record(text=f'text {n}', label='b', unit=str(n)) for n in range(0, 10, 2)]
    assert {one.reason for one in rejected} == {Reason.MISSING_FIELD}
    assert [one.raw for one in rejected] == [f'text {n}'.encode() for n in range(1, 10, 2)]


@pytest.mark.parametrize('kind', [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_parquet_strings_that_are_not_utf8_spoil_their_own_row(
    tmp_path: pathlib.Path, kind: pa.DataType
) -> None:
    path = tmp_path / 'a.parquet'
    column = unchecked([b'a', b'\xff\xfe bad', 'é'.encode(), None], kind)
    pq.write_table(pa.table({'text': column}), path)
    read.check_input(str(path), TEXT.fields)
    records, rejected = read_file(path, TEXT)
    assert [record.text for record in records] == ['a', 'é']
    assert [one.reason for one in rejected] == [Reason.NOT_TEXT, Reason.MISSING_FIELD]


def unchecked(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """A column of strings whose bytes nobody has checked, as careless writers make them."""
    large = kind == pa.large_string()
    array = pa.array(values, pa.large_binary() if large else pa.binary())
    if kind == pa.binary():
        return array
    plain = pa.large_string() if large else pa.string()
    array = pa.Array.from_buffers(plain, len(array), array.buffers(), array.null_count)
    return array.cast(kind, safe=False)


def test_a_broken_parquet_page_rejects_its_row_group(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'a.parquet'
    pq.write_table(
        pa.table({'text': [f'text {n} ' * 50 for n in range(2_000)]}),
        path,
        row_group_size=1_000,
        compression='zstd',
    )
    data = bytearray(path.read_bytes())
    data[8 : len(data) // 4] = bytes(len(data) // 4 - 8)
    path.write_bytes(data)
    records, rejected = read_file(path, TEXT)
    assert [one.reason for one in rejected] == [Reason.UNREADABLE_REST]
    assert [record.text for record in records] == [f'text {n} ' * 50 for n in range(1_000, 2_000)]
