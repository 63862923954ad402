"""Typed columns as values: whatever they hold, and the same value from any source."""

import contextlib
import datetime
import decimal
import doctest
import pathlib
import uuid
from collections.abc import Callable
from typing import Any

import datasets
import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from models import spelling
from models.records import Record
from tests.transforms.read.samples import read_file
from transforms import read
from transforms.read import Reason, RecordFields, RecordRules, column_types, to_record

FIXED = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.decimal32(9, 2), pa.decimal64(18, -2), pa.decimal128(38, 38),
    pa.decimal256(76, 2), pa.date32(), pa.date64(), pa.time32('s'), pa.time32('ms'), pa.time64('us'),
    pa.time64('ns'), *(pa.timestamp(unit, zone) for unit in ('s', 'ms', 'us', 'ns')
                       for zone in (None, 'UTC', 'Asia/Tokyo', 'No/Zone')),
    *map(pa.duration, ('s', 'ms', 'us', 'ns')), pa.binary(4), pa.binary(16),
)  # fmt: skip
LABELLED = RecordFields(text='text', label='label')
ANY_LABEL = RecordRules(fields=LABELLED, any_label=True)


def test_examples_hold() -> None:
    assert doctest.testmod(column_types).failed == 0


@hypothesis.given(
    kind=st.sampled_from(FIXED), data=st.binary(min_size=32, max_size=256), how=st.integers(0, 2)
)
def test_whatever_the_bytes_of_a_column_each_row_is_a_record_or_a_rejection(
    kind: pa.DataType, data: bytes, how: int
) -> None:
    count = len(data) * 8 // kind.bit_width
    column = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])
    if how == 1:
        column = pa.DictionaryArray.from_arrays(pa.array([*range(count), None]), column)
    elif how == 2:
        with contextlib.suppress(pa.ArrowInvalid):  # Arrow makes runs of valid values alone
            column = pa.RunEndEncodedArray.from_arrays(pa.array(range(1, count + 1), pa.int32()), column)
    column_types.check_schema(pa.schema([('text', pa.string()), ('label', column.type)]), 'a', LABELLED)
    found = column_types.values_of(column)
    assert len(found) == len(column)
    for value in found:
        row = to_record({'text': 'Note.', 'label': value}, ANY_LABEL)
        assert isinstance(row, (Record, Reason))
        written = spelling.spelled(value)
        assert written is None or spelling.spelled(written) == written
        assert spelling.id_of(value) in (None, written)


def values(kind: pa.DataType, *stored: Any) -> list[str | None]:
    return [spelling.spelled(value) for value in column_types.values_of(pa.array(stored, kind))]


@pytest.mark.parametrize(
    ('kind', 'stored'),
    [
        (pa.date32(), (2**31 - 1, -(2**31), -719_528, 2_932_897)),
        (pa.date64(), (2**62, -(2**63))),
        (pa.time32('s'), (86_400, -1)),
        (pa.time64('ns'), (2**62,)),
        (pa.timestamp('s'), (2**53, -(2**53), -62_167_219_200, 253_402_300_800)),
        (pa.timestamp('us'), (2**63 - 1, -(2**63))),
        (pa.timestamp('ms', 'Asia/Tokyo'), (2**63 - 1, -(2**63))),
        (pa.float32(), (float('nan'), float('inf'))),
        (pa.float16(), (float('nan'), float('-inf'))),
    ],
    ids=str,
)
def test_what_python_has_no_value_for_rejects_its_row(
    tmp_path: pathlib.Path, kind: pa.DataType, stored: tuple[Any, ...]
) -> None:
    column = pa.array([None, *stored], kind)
    table = pa.table({'text': ['Note.'] * len(column), 'label': column, 'kept': ['x'] * len(column)})
    pq.write_table(table, tmp_path / 'a.parquet')
    records, rejected = read_file(tmp_path / 'a.parquet', ANY_LABEL)
    assert records == []
    assert [one.reason for one in rejected] == [Reason.MISSING_FIELD] + len(stored) * [Reason.WRONG_TYPE]
    unneeded = RecordRules(fields=RecordFields(text='text', label='kept'), any_label=True)
    assert len(read_file(tmp_path / 'a.parquet', unneeded)[0]) == len(column)


# --- The same value from any source ---------------------------------------------------


@hypothesis.given(value=st.datetimes(), unit=st.sampled_from(['us', 'ns']))
def test_a_time_is_one_in_every_source(value: datetime.datetime, unit: str) -> None:
    if unit == 'ns':
        value = value.replace(year=1700 + value.year % 500, day=1)
    (written,) = values(pa.timestamp(unit), value)
    assert {spelling.spelled(each) for each in (value, str(value), value.isoformat())} == {written}
    (day,) = values(pa.date32(), value.date())
    assert day == str(value.date()) == spelling.spelled(value.date())
    (hour,) = values(pa.time64(unit), value.time())
    assert hour == spelling.spelled(value.time()) == spelling.spelled(value.isoformat()[11:])


@hypothesis.given(
    value=st.datetimes(min_value=datetime.datetime(2, 1, 1), max_value=datetime.datetime(9998, 1, 1)),
    minutes=st.integers(-1_439, 1_439),
)
def test_a_time_with_a_zone_is_one_in_every_source(value: datetime.datetime, minutes: int) -> None:
    there = value.replace(tzinfo=datetime.timezone(datetime.timedelta(minutes=minutes)))
    (written,) = values(pa.timestamp('us', 'Asia/Tokyo'), there)
    assert {spelling.spelled(each) for each in (there, str(there), there.isoformat())} == {written}


@hypothesis.given(
    value=st.timedeltas(min_value=datetime.timedelta(-(10**5)), max_value=datetime.timedelta(10**5))
)
def test_time_that_passed_is_one_in_every_source(value: datetime.timedelta) -> None:
    assert values(pa.duration('us'), value) == [spelling.spelled(value)]


@hypothesis.given(value=st.decimals(-(10**20), 10**20, places=9))
def test_a_decimal_is_one_in_every_source(value: decimal.Decimal) -> None:
    assert (
        values(pa.decimal128(38, 9), value) == [spelling.spelled(value)] == [spelling.spelled(f'{value:f}')]
    )


@hypothesis.given(value=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_of_fewer_bits_has_the_digits_that_a_text_of_it_has(value: float) -> None:
    for kind, own in ((pa.float32(), np.float32), (pa.float16(), np.float16)):
        with np.errstate(over='ignore'):
            held = own(value)
        if np.isfinite(held):
            assert values(kind, held) == [spelling.spelled(float(str(held)))]


@hypothesis.given(value=st.uuids())
def test_a_uuid_is_one_in_every_source(value: uuid.UUID) -> None:
    column = pa.array([value.bytes], pa.uuid())
    assert column_types.values_of(column) == [str(value)] == [spelling.spelled(value)]


# --- Files ----------------------------------------------------------------------------


@pytest.mark.parametrize('column', ['text', 'label', 'who', 'id'])
def test_a_column_without_any_value_rejects_its_rows_as_missing(tmp_path: pathlib.Path, column: str) -> None:
    reasons = {'who': Reason.MISSING_UNIT, 'id': Reason.MISSING_RECORD_ID}
    fields = RecordFields(text='text', label='label', unit='who', record_id='id')
    rules = RecordRules(fields=fields, labels=('x',), unit='user')
    stored: dict[str, Any] = {name: ['x', 'x'] for name in fields.names} | {column: pa.nulls(2)}
    pq.write_table(pa.table(stored), tmp_path / 'a.parquet')
    written = ','.join('' if name == column else 'x' for name in fields.names)
    (tmp_path / 'a.csv').write_text(f'{",".join(fields.names)}\n{written}\n{written}\n')
    read.check_input(f'{tmp_path}/a.*', fields)
    records, rejected = read_file(tmp_path / 'a.parquet', rules)
    assert (records, len(rejected)) == ([], 2)
    assert {one.reason for one in rejected} == {reasons.get(column, Reason.MISSING_FIELD)}
    # The same table as CSV, where a text or a label that is missing is an empty one.
    records, rejected = read_file(tmp_path / 'a.csv', rules)
    assert (records, len(rejected)) == ([], 2)


@pytest.mark.parametrize('needed', [LABELLED, RecordFields(text='label', unit='text')])
@pytest.mark.parametrize('write', ['parquet', 'dataset'])
def test_two_needed_columns_of_one_name_are_refused_by_file_and_column(
    tmp_path: pathlib.Path, needed: RecordFields, write: str
) -> None:
    table = pa.Table.from_arrays(
        [pa.array(['a']), pa.array(['b']), pa.array(['c'])], ['text', 'label', 'text']
    )
    place = str(tmp_path / 'a.parquet')
    if write == 'parquet':
        pq.write_table(table, place)
    else:
        datasets.Dataset.from_dict({'text': ['a'], 'label': ['b']}).save_to_disk(str(tmp_path / 'saved'))
        (file,) = (tmp_path / 'saved').glob('*.arrow')
        with pa.ipc.new_stream(str(file), table.schema) as stream:
            stream.write_table(table)
        place = f'hf://{tmp_path}/saved'
    with pytest.raises(ValueError, match=f"got path='{place}', column='text' 2 times. Give"):
        read.check_input(place, needed)
    alone = RecordRules(fields=RecordFields(text='label'))
    read.check_input(place, alone.fields)
    assert [one.text for one in read.read_place(place, alone) if isinstance(one, Record)] == ['b']


@pytest.mark.parametrize(
    'kind',
    [
        pa.list_(pa.string()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2),
        pa.struct([('a', pa.int8())]), pa.map_(pa.string(), pa.int8()), pa.month_day_nano_interval(),
        pa.dictionary(pa.int8(), pa.list_(pa.string())),
    ],
    ids=str,
)  # fmt: skip
def test_a_column_of_a_type_that_is_no_value_is_refused(kind: pa.DataType) -> None:
    schema = pa.schema([('text', pa.string()), ('label', kind)])
    with pytest.raises(ValueError, match="got path='a', column='label', type='.*Convert the column"):
        column_types.check_schema(schema, 'a', LABELLED)
    column_types.check_schema(schema, 'a', RecordFields(text='text'))


@pytest.mark.parametrize('make', [pa.string_view, pa.binary_view, pa.string], ids=lambda make: make.__name__)
def test_runs_and_categories_of_texts_are_texts(make: Callable[[], pa.DataType]) -> None:
    texts = pa.array(['a', None, 'b'], make())
    categories = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 1]), texts)
    assert column_types.values_of(categories) == [b'b', None, b'a', None]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], pa.int32()), texts)
    assert column_types.values_of(runs) == [b'a', b'a', None, b'b', b'b']
    assert column_types.values_of(runs.slice(1, 3)) == [b'a', None, b'b']


def test_a_damaged_category_rejects_the_rest_of_its_file(tmp_path: pathlib.Path) -> None:
    datasets.Dataset.from_dict({'text': ['x']}).save_to_disk(str(tmp_path))
    (file,) = tmp_path.glob('*.arrow')
    column = pa.DictionaryArray.from_arrays(pa.array([7]), pa.array(['x']), safe=False)
    with pa.ipc.new_stream(str(file), pa.schema([('text', column.type)])) as stream:
        stream.write_batch(pa.record_batch([column], ['text']))
    (found,) = read.read_place(f'hf://{tmp_path}', RecordRules(fields=RecordFields(text='text')))
    assert not isinstance(found, Record) and found.reason is Reason.UNREADABLE_REST
