"""Tests of reading: every format, every defined treatment of a bad row, and real files."""

import bz2
import csv
import gzip
import io
import json
import lzma
import pathlib

import apache_beam as beam
import hypothesis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from apache_beam import coders
from apache_beam.testing import util
from hypothesis import strategies as st

from models.records import Record
from transforms import read
from transforms.read import Reason, RecordFields, RecordRules, Rejection

DATA = pathlib.Path(__file__).parents[3] / 'shared' / 'data'
TEXT = RecordRules(fields=RecordFields(text='text'))
LABELLED = RecordRules(fields=RecordFields(text='text', label='label'), labels=('1', 'b', 'true', ''))
PACK = {
    '': lambda data: data,
    '.gz': gzip.compress,
    '.bz2': bz2.compress,
    '.xz': lzma.compress,
    '.zst': lambda data: zstandard.ZstdCompressor().compress(data),
}


def read_file(path: pathlib.Path, rules: RecordRules) -> tuple[list[Record], list[Rejection]]:
    found = [one for piece in read.split_file(str(path)) for one in read.read_piece(piece, rules)]
    return [one for one in found if isinstance(one, Record)], [
        one for one in found if isinstance(one, Rejection)
    ]


def read_bytes(
    folder: pathlib.Path, name: str, data: bytes, rules: RecordRules
) -> tuple[list[str], list[tuple]]:
    """(texts, [(reason, ordinal, raw)])."""
    path = folder / name
    path.write_bytes(data)
    records, rejected = read_file(path, rules)
    assert all(one.file == name for one in rejected)
    return [record.text for record in records], [(one.reason, one.ordinal, one.raw) for one in rejected]


# --- Formats ---------------------------------------------------------------------

CONTENT = {
    'jsonl': b'{"text": "one\\nline"}\n\n{"text": "two, \\u00e9"}\r\n{"text": "three"}',
    'json': b'[{"text": "one\\nline"},\n {"text": "two, \xc3\xa9"} , {"text": "three"}]\n',
    'csv': b'id,text\r\n1,"one\nline"\r\n2,"two, \xc3\xa9"\r\n\r\n3,three',
}


@pytest.mark.parametrize('suffix', PACK)
@pytest.mark.parametrize('kind', CONTENT)
@pytest.mark.parametrize('mark', [b'', b'\xef\xbb\xbf'], ids=['plain', 'bom'])
def test_every_format_and_codec(tmp_path: pathlib.Path, kind: str, suffix: str, mark: bytes) -> None:
    texts, rejected = read_bytes(tmp_path, f'a.{kind}{suffix}', PACK[suffix](mark + CONTENT[kind]), TEXT)
    assert texts == ['one\nline', 'two, é', 'three']
    assert rejected == []
    assert read.check_input(str(tmp_path / '*'), TEXT.fields) == [str(tmp_path / f'a.{kind}{suffix}')]


@pytest.mark.parametrize('suffix', [suffix for suffix in PACK if suffix])
def test_members_of_a_concatenated_file_are_all_read(tmp_path: pathlib.Path, suffix: str) -> None:
    data = PACK[suffix](b'{"text": "a"}\n{"te') + PACK[suffix](b'xt": "b"}\n')
    assert read_bytes(tmp_path, 'a.jsonl' + suffix, data, TEXT) == (['a', 'b'], [])


@pytest.mark.parametrize('suffix', ['.gz', '.xz'])
def test_zero_bytes_may_pad_a_compressed_file(tmp_path: pathlib.Path, suffix: str) -> None:
    data = PACK[suffix](b'{"text": "a"}\n') + bytes(70_000)
    assert read_bytes(tmp_path, 'a.jsonl' + suffix, data, TEXT) == (['a'], [])


@pytest.mark.parametrize('suffix', [suffix for suffix in PACK if suffix])
@pytest.mark.parametrize('damage', ['cut', 'garbage after', 'no such stream'])
def test_a_broken_stream_rejects_its_rest_once(tmp_path: pathlib.Path, suffix: str, damage: str) -> None:
    lines = [f'{{"text": "text {number} {hash(str(number))}"}}\n' for number in range(20_000)]
    data = PACK[suffix](''.join(lines).encode())
    data = {'cut': data[: len(data) // 2], 'garbage after': data + b'garbage', 'no such stream': b'garbage'}[
        damage
    ]
    texts, rejected = read_bytes(tmp_path, 'a.jsonl' + suffix, data, TEXT)
    assert rejected == [(Reason.UNREADABLE_REST, len(texts), b'')]
    assert texts == [json.loads(line)['text'] for line in lines[: len(texts)]]
    if damage == 'garbage after':
        assert len(texts) == 20_000
    if damage == 'cut' and suffix != '.bz2':  # Its blocks of 900 kB come whole or not at all.
        assert len(texts) > 1_000


def test_an_error_of_the_filesystem_reaches_the_runner(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, 'Input/output error')

    monkeypatch.setattr(read, '_open', lambda path: Failing(bytes(1_000)))
    for name in ('a.jsonl.bz2', 'a.csv', 'a.parquet'):
        with pytest.raises(OSError, match='Input/output error'):
            list(read.read_piece((name, 0), TEXT))


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], deadline=None)
@hypothesis.given(
    rows=st.lists(
        st.tuples(
            *2
            * [st.text(st.characters(exclude_categories=['Cs']) | st.sampled_from(',"\r\n\0é'), min_size=1)]
        )
    ),
    size=st.integers(1, 9),
)
def test_csv_reads_what_the_csv_writer_wrote(rows: list[tuple[str, str]], size: int) -> None:
    # The writer of 3.12 and later quotes line ends and NULs only on request.
    file = io.StringIO(newline='')
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows([('text', 'other'), *rows])
    data = file.getvalue().encode()
    chunks = [data[place : place + size] for place in range(0, len(data), size)]
    values = [values for values, _ in read.csv_records(chunks, TEXT.fields)]
    assert values == [{'text': text} for text, _ in rows]


@hypothesis.given(data=st.text('ab\n\r').map(str.encode), size=st.integers(1, 5), limit=st.integers(4, 20))
def test_lines_do_not_hang_on_the_chunks(data: bytes, size: int, limit: int) -> None:
    chunks = [data[place : place + size] for place in range(0, len(data), size)]
    lines = list(read.split_lines(chunks, limit))
    slow = [line + b'\n' for line in data.split(b'\n')]
    slow[-1] = slow[-1][:-1]
    expected = [line for line in slow if line]
    assert len(lines) == len(expected)
    for (line, whole), full in zip(lines, expected, strict=True):
        body = full.removesuffix(b'\n')
        assert whole == (len(body) < limit)
        assert line == full if whole else line[:limit] == body[:limit]


def test_json_lines_without_an_array_may_be_called_json(tmp_path: pathlib.Path) -> None:
    data = b' \n{"text": "a"}\n["b"]\n'
    assert read_bytes(tmp_path, 'a.json', data, TEXT) == (['a'], [(Reason.MALFORMED, 1, b'["b"]\n')])


@pytest.mark.parametrize('data', [b'', b'\n', b'[]', b' [ ] '])
def test_an_empty_file_holds_no_record(tmp_path: pathlib.Path, data: bytes) -> None:
    assert read_bytes(tmp_path, 'a.json', data, TEXT) == ([], [])
    read.check_input(str(tmp_path / 'a.json'), TEXT.fields)


@pytest.mark.parametrize('rest', ['{"text": "b"', '{"text": "b"} {', 'nonsense]', ''])
def test_a_broken_array_keeps_what_came_before(tmp_path: pathlib.Path, rest: str) -> None:
    texts, rejected = read_bytes(tmp_path, 'a.json', f'[{{"text": "a"}}, 7, {rest}'.encode(), TEXT)
    assert texts == ['a']
    assert rejected == [(Reason.MALFORMED, 1, b'7'), (Reason.UNREADABLE_REST, 2, rest.encode())]


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
    assert [one.reason for one in rejected] == [Reason.NOT_UTF8, Reason.MISSING_FIELD]


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


# --- Bad rows --------------------------------------------------------------------


@pytest.mark.parametrize(
    ('line', 'reason'),
    [
        (b'{"text": "caf\xe9"}', Reason.NOT_UTF8),
        (b'{"text": "\\ud800"}', Reason.NOT_UTF8),
        (b'{"text": "x"', Reason.MALFORMED),
        (b'"text"', Reason.MALFORMED),
        (b'[' * 100_000, Reason.MALFORMED),
        (b'{"text": "x", "n": ' + b'9' * 5_000 + b'}', Reason.MALFORMED),
        (b'{}', Reason.MISSING_FIELD),
        (b'{"text": null}', Reason.MISSING_FIELD),
        (b'{"text": 5}', Reason.WRONG_TYPE),
        (b'{"text": ["x"]}', Reason.WRONG_TYPE),
        (b'{"text": ""}', Reason.BLANK_TEXT),
        (b'{"text": " \\n\\u3000"}', Reason.BLANK_TEXT),
        (b'{"text": "' + b'x' * 100_001 + b'"}', Reason.TOO_LONG),
        (b'{"text": "' + 'é'.encode() * 50_001 + b'"}', Reason.TOO_LONG),
    ],
    ids=lambda value: value.name if isinstance(value, Reason) else '',
)
def test_a_bad_json_line_is_rejected_alone(tmp_path: pathlib.Path, line: bytes, reason: Reason) -> None:
    data = b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n'
    texts, rejected = read_bytes(tmp_path, 'a.jsonl', data, TEXT)
    assert texts == ['before', 'after']
    assert rejected == [(reason, 1, (line + b'\n')[: read.REJECTION_BYTES])]


def test_a_text_of_the_longest_length_is_kept(tmp_path: pathlib.Path) -> None:
    texts, rejected = read_bytes(tmp_path, 'a.jsonl', b'{"text": "' + b'x' * 100_000 + b'"}', TEXT)
    assert (len(texts[0]), rejected) == (100_000, [])


@pytest.mark.parametrize(
    ('row', 'reason'),
    [
        (b'1,caf\xe9', Reason.NOT_UTF8),
        (b'\xff"x,"two\nlines"', Reason.NOT_UTF8),
        (b'1,"x"y', Reason.MALFORMED),
        (b'1,one\rtwo', Reason.MALFORMED),
        (b'1,x,y', Reason.MALFORMED),
        (b'1', Reason.MALFORMED),
        (b'1,', Reason.BLANK_TEXT),
        (b'1,"' + b'x' * 200_000 + b'"', Reason.TOO_LONG),
    ],
)
def test_a_bad_csv_row_is_rejected_alone(tmp_path: pathlib.Path, row: bytes, reason: Reason) -> None:
    data = b'id,text\n0,before\n' + row + b'\n2,"after\n"\n'
    texts, rejected = read_bytes(tmp_path, 'a.csv', data, TEXT)
    assert texts == ['before', 'after\n']
    assert rejected == [(reason, 1, (row + b'\n')[: read.REJECTION_BYTES])]


def test_an_unclosed_quote_rejects_the_rest_once(tmp_path: pathlib.Path) -> None:
    data = b'text\nbefore\n"open\nnext\nlast\n'
    assert read_bytes(tmp_path, 'a.csv', data, TEXT) == (
        ['before'],
        [(Reason.UNREADABLE_REST, 1, b'"open\nnext\nlast\n')],
    )


def test_rows_beyond_any_use_are_never_held_whole(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, 'split_lines', lambda chunks, split=read.split_lines: split(chunks, 1_000))
    monkeypatch.setattr(read, 'MAX_ROW_BYTES', 1_000)
    long = b'{"text": "' + b'x' * 200_000 + b'"}\n'
    texts, rejected = read_bytes(tmp_path, 'a.jsonl', b'{"text": "a"}\n' + long + b'{"text": "b"}\n', TEXT)
    assert texts == ['a', 'b']
    assert rejected == [(Reason.TOO_LONG, 1, long[:1_000])]
    texts, rejected = read_bytes(tmp_path, 'a.csv', b'text\na\n"' + b'line\n' * 1_000 + b'"\nb\n', TEXT)
    assert texts == ['a']
    assert [row[:2] for row in rejected] == [(Reason.UNREADABLE_REST, 1)]


def test_a_long_field_and_nul_bytes_are_no_error(tmp_path: pathlib.Path) -> None:
    rules = RecordRules(fields=RecordFields(text='text'), max_record_bytes=10**6)
    data = b'text\n"' + b'x' * 500_000 + b'"\na\0b\n'
    assert read_bytes(tmp_path, 'a.csv', data, rules) == (['x' * 500_000, 'a\0b'], [])


@pytest.mark.parametrize(
    ('label', 'expected'),
    [
        ('1', '1'), ('1.0', '1'), ('"1"', '1'), ('"b"', 'b'), ('true', 'true'), ('""', ''),
        ('"1.0"', Reason.UNDECLARED_LABEL), ('2', Reason.UNDECLARED_LABEL),
        ('"B"', Reason.UNDECLARED_LABEL), ('" b"', Reason.UNDECLARED_LABEL),
        ('1.5', Reason.UNDECLARED_LABEL), ('false', Reason.UNDECLARED_LABEL),
        ('null', Reason.MISSING_FIELD), ('["b"]', Reason.WRONG_TYPE),
        ('1e999', Reason.WRONG_TYPE), ('NaN', Reason.WRONG_TYPE),
    ],
)  # fmt: skip
def test_labels_are_compared_as_strings(label: str, expected: str | Reason) -> None:
    found = read.to_record(json.loads(f'{{"text": "x", "label": {label}}}'), LABELLED)
    assert (found.label if isinstance(found, Record) else found) == expected


def test_ids_are_needed_where_they_are_named() -> None:
    fields = RecordFields(text='text', unit='user', record_id='id')
    rules = RecordRules(fields=fields, unit='user')
    whole = {'text': 'x', 'user': 7, 'id': 'r'}
    assert read.to_record(whole, rules) == Record(text='x', unit='7', record_id='r')
    for absent in (None, ''):
        assert read.to_record(whole | {'user': absent}, rules) is Reason.MISSING_UNIT
        assert read.to_record(whole | {'id': absent}, rules) is Reason.MISSING_RECORD_ID
    assert read.to_record(whole | {'user': {}}, rules) is Reason.WRONG_TYPE
    assert read.to_record(whole | {'user': b'\xff'}, rules) is Reason.NOT_UTF8


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner),
    max_leaves=3,
)


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.too_slow], deadline=None)
@hypothesis.given(values=st.dictionaries(st.sampled_from(['text', 'label', 'unit', 'id']), VALUES))
def test_any_values_are_a_record_or_a_reason(values: dict[str, object]) -> None:
    fields = RecordFields(text='text', label='label', unit='unit', record_id='id')
    found = read.to_record(
        values, RecordRules(fields=fields, labels=('0', ''), unit='user', max_record_bytes=3)
    )
    if isinstance(found, Record):
        assert found.text.strip()
        assert len(found.text.encode()) <= 3
        assert found.label in ('0', '')
        assert found.unit
        assert found.record_id
    else:
        assert isinstance(found, Reason)


def test_a_rejection_shows_nothing_of_its_row() -> None:
    rejection = Rejection(reason=Reason.BLANK_TEXT, file='a.csv', ordinal=123, raw=b'secret')
    assert repr(rejection) == "Rejection(file='a.csv')"


def test_columns_may_be_positions(tmp_path: pathlib.Path) -> None:
    rules = RecordRules(fields=RecordFields(text='2', label='0'), labels=('1',))
    texts, rejected = read_bytes(tmp_path, 'a.csv', b'1,x,first\n1,short\n1,x,third,more\n', rules)
    assert texts == ['first', 'third']
    assert rejected == [(Reason.MISSING_FIELD, 1, b'1,short\n')]


# --- Checks before any work ------------------------------------------------------


@pytest.mark.parametrize('pattern', ['', ' , '])
def test_an_empty_list_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match='paths or globs'):
        read.check_input(pattern, TEXT.fields)


def test_a_pattern_without_a_match_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.csv').write_text('text\nx\n')
    with pytest.raises(FileNotFoundError, match='nothing'):
        read.check_input(f'{tmp_path}/a.csv,{tmp_path}/nothing*.csv', TEXT.fields)


@pytest.mark.parametrize('name', ['a.txt', 'a', 'csv', 'a.csv.zip', 'a.parquet.gz', 'a.gz', '_SUCCESS'])
def test_an_unknown_extension_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / name).write_text('text\nx\n')
    with pytest.raises(ValueError, match='Expected a file ending in'):
        read.check_input(str(tmp_path / name), TEXT.fields)


def test_a_file_that_two_patterns_match_is_read_once(tmp_path: pathlib.Path) -> None:
    for name in ('b.csv', 'a.CSV', 'c.csv'):
        (tmp_path / name).write_text('text\nx\n')
    paths = read.check_input(f'{tmp_path}/*.csv, {tmp_path}/c.csv,{tmp_path}/a.*', TEXT.fields)
    assert [pathlib.Path(path).name for path in paths] == ['a.CSV', 'b.csv', 'c.csv']


@pytest.mark.parametrize(
    ('name', 'data'),
    [
        ('bad.csv', b'secret,label\nx,1\n'),
        ('bad.csv', b'text,text\nsecret,x\n'),
        ('bad.csv.gz', gzip.compress(b'secret,label\nx,1\n')),
        ('bad.jsonl', b'secret\n{"secret": "text"}\n{"secret": 1}\n'),
        ('bad.json', b'[{"secret": "text"}]'),
    ],
)
def test_a_missing_column_is_refused_without_content(tmp_path: pathlib.Path, name: str, data: bytes) -> None:
    (tmp_path / 'a.csv').write_text('text\nx\n')
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match='columns') as caught:
        read.check_input(str(tmp_path / '*'), TEXT.fields)
    assert name in str(caught.value)
    assert "missing=['text']" in str(caught.value)
    assert 'secret' not in str(caught.value)


def test_a_missing_position_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.csv').write_text('secret,x\n')
    with pytest.raises(ValueError, match='count from 0') as caught:
        read.check_input(str(tmp_path / 'a.csv'), RecordFields(text='2'))
    assert 'secret' not in str(caught.value)
    read.check_input(str(tmp_path / 'a.csv'), RecordFields(text='1'))


def test_a_field_that_the_first_object_lacks_is_no_missing_column(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.jsonl').write_text('bad\n{"label": "b"}\n{"text": "x"}\n')
    read.check_input(str(tmp_path / 'a.jsonl'), LABELLED.fields)


@pytest.mark.parametrize(
    ('table', 'message'),
    [
        ({'other': ['x']}, "missing=\\['text'\\]"),
        ({'text': [1]}, "column='text', type='int64'"),
        ({'text': ['x'], 'label': [['b']]}, "column='label', type='list"),
    ],
)
def test_an_unfit_parquet_schema_is_refused(tmp_path: pathlib.Path, table: dict, message: str) -> None:
    pq.write_table(pa.table(table), tmp_path / 'a.parquet')
    fields = LABELLED.fields if 'label' in table else TEXT.fields
    with pytest.raises(ValueError, match=message):
        read.check_input(str(tmp_path / 'a.parquet'), fields)


def test_what_is_no_parquet_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.parquet').write_text('secret')
    with pytest.raises(ValueError, match='Expected a Parquet file') as caught:
        read.check_input(str(tmp_path / 'a.parquet'), TEXT.fields)
    assert 'secret' not in str(caught.value)


@pytest.mark.parametrize(
    'arguments',
    [
        {'fields': RecordFields(text='t', label='l')},
        {'fields': RecordFields(text='t'), 'labels': ('a',)},
        {'fields': RecordFields(text='t'), 'unit': 'user'},
        {'fields': RecordFields(text='t', unit='u')},
        {'fields': RecordFields(text='t'), 'max_record_bytes': 0},
    ],
)
def test_rules_that_contradict_each_other_are_refused(arguments: dict) -> None:
    with pytest.raises(ValueError, match='Expected'):
        RecordRules(**arguments)


def test_an_empty_column_name_is_refused() -> None:
    with pytest.raises(ValueError, match='column names'):
        RecordFields(text='')


# --- Beam ------------------------------------------------------------------------


@hypothesis.given(
    st.builds(
        Record,
        text=st.text(min_size=1),
        label=st.none() | st.text(),
        unit=st.none() | st.text(),
        record_id=st.none() | st.text(),
    )
)
def test_the_record_coder_returns_the_record(record: Record) -> None:
    coder = coders.registry.get_coder(Record)
    assert isinstance(coder, read.RecordCoder)
    assert coder.decode(coder.encode(record)) == record
    assert coder.is_deterministic()


@pytest.mark.run
def test_the_transform_reads_all_files_into_records_and_rejections(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.csv').write_bytes(b'label,text\nb,from csv\nc,x\n')
    (tmp_path / 'b.jsonl.zst').write_bytes(PACK['.zst'](b'{"text": "from json", "label": 1}\n{"text": ""}\n'))
    pq.write_table(
        pa.table({'text': ['from parquet', None], 'label': [True, True]}),
        tmp_path / 'c.parquet',
        row_group_size=1,
    )
    with beam.Pipeline('FnApiRunner') as pipeline:
        records, rejected = pipeline | read.ReadRecords(str(tmp_path / '*'), LABELLED)
        assert records.element_type is Record
        util.assert_that(
            records,
            util.equal_to(
                [
                    Record(text='from csv', label='b'),
                    Record(text='from json', label='1'),
                    Record(text='from parquet', label='true'),
                ]
            ),
        )
        where = rejected | beam.Map(lambda one: (one.reason, one.file, one.ordinal))
        expected = [
            (Reason.UNDECLARED_LABEL, 'a.csv', 1),
            (Reason.BLANK_TEXT, 'b.jsonl.zst', 1),
            (Reason.MISSING_FIELD, 'c.parquet', 0),
        ]
        util.assert_that(where, util.equal_to(expected), label='Rejected')


def test_the_transform_checks_the_input_when_the_pipeline_is_built() -> None:
    with pytest.raises(FileNotFoundError):
        beam.Pipeline('FnApiRunner') | read.ReadRecords('no/such/*.csv', TEXT)


# --- Real files ------------------------------------------------------------------


def real(name: str) -> pathlib.Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f'the data set is not there: {name}')
    return path


@pytest.mark.parametrize(
    ('name', 'rows'),
    [
        ('MTS-Dialog-TrainingSet.csv', 1_201),
        ('MTS-Dialog-ValidationSet.csv', 100),
        ('MTS-Dialog-TestSet-1-MEDIQA-Chat-2023.csv', 200),
        ('MTS-Dialog-TestSet-2-MEDIQA-Sum-2023.csv', 200),
    ],
)
def test_dialogues_with_line_breaks_are_whole(name: str, rows: int) -> None:
    path = real(f'mts_dialog/{name}')
    rules = RecordRules(fields=RecordFields(text='dialogue', record_id='ID'))
    read.check_input(str(path), rules.fields)
    records, rejected = read_file(path, rules)
    assert (len(records), rejected) == (rows, [])
    with open(path, encoding='utf-8', newline='') as file:
        assert [record.text for record in records] == [row['dialogue'] for row in csv.DictReader(file)]
    assert sum('\n' in record.text for record in records) > rows / 2


def test_news_without_a_header_row_are_read_by_position() -> None:
    path = real('agnews/test.csv')
    rules = RecordRules(fields=RecordFields(text='2', label='0'), labels=('1', '2', '3', '4'))
    read.check_input(str(path), rules.fields)
    records, rejected = read_file(path, rules)
    assert (len(records), rejected) == (7_600, [])
    assert {record.label for record in records} == {'1', '2', '3', '4'}
