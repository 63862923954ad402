"""Which files are read, and what is refused before any work."""

import gzip
import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.transforms.read.samples import LABELLED, TEXT
from transforms import read
from transforms.read import RecordFields


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
    files = read.check_input(f'{tmp_path}/*.csv, {tmp_path}/c.csv,{tmp_path}/a.*', TEXT.fields)
    assert [pathlib.Path(file.path).name for file in files] == ['a.CSV', 'b.csv', 'c.csv']


@pytest.mark.parametrize(
    ('name', 'data'),
    [
        ('bad.csv', b'secret,label\nx,1\n'),
        ('bad.csv', b'text,text\nsecret,x\n'),
        ('bad.csv.gz', gzip.compress(b'secret,label\nx,1\n', mtime=0)),
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


def test_an_input_of_nothing_is_refused_where_a_header_row_is_due(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.csv').write_text('')
    with pytest.raises(ValueError, match='Expected a header row.*0 bytes'):
        read.check_input(str(tmp_path / '*.csv'), TEXT.fields)
    # A writer of many parts leaves some empty.
    (tmp_path / 'b.csv').write_text('text\nx\n')
    read.check_input(str(tmp_path / '*.csv'), TEXT.fields)
    (tmp_path / 'a.jsonl').write_text('')
    read.check_input(str(tmp_path / 'a.jsonl'), TEXT.fields)


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


@pytest.mark.parametrize('name', ['visits [2024].csv', 'what?.csv', 'a*.csv', '[!a].csv', '[2024]/in.csv'])
def test_a_file_is_found_by_its_own_name_whatever_it_holds(tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('text\nx\n')
    for decoy in ('visits 2.csv', 'whats.csv', 'ab.csv', 'b.csv'):
        (tmp_path / decoy).write_text('text\ny\ny\n')
    (file,) = read.list_input(str(path))
    assert (file.path, file.size) == (str(path), 7)
    assert file.updated == pytest.approx(path.stat().st_mtime)
    assert file.checksum() == '7'
    (piece,) = read.split_file(file.path)
    assert [row.text for row in read.read_piece(piece, TEXT)] == ['x']


def test_a_pattern_names_the_files_that_it_matches_where_none_is_called_so(tmp_path: pathlib.Path) -> None:
    for name in ('a.csv', 'b.csv', 'c.csv', 'visits [2024].csv'):
        (tmp_path / name).write_text('text\nx\n')
    found = read.list_input(f'{tmp_path}/[ab].csv,{tmp_path}/*2024*')
    assert [pathlib.Path(file.path).name for file in found] == ['a.csv', 'b.csv', 'visits [2024].csv']
    (tmp_path / '[ab].csv').write_text('text\nx\n')
    assert [file.path for file in read.list_input(f'{tmp_path}/[ab].csv')] == [f'{tmp_path}/[ab].csv']


def test_a_missing_column_of_a_long_array_is_refused(tmp_path: pathlib.Path) -> None:
    rows = [{'secret': 'x' * 1_000}] * 1_000
    (tmp_path / 'a.json').write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=r"missing=\['text'\]"):
        read.check_input(str(tmp_path / 'a.json'), TEXT.fields)


def test_a_bad_first_row_hides_no_column(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.json').write_text('[1]\n{"text": "x"}\n')
    read.check_input(str(tmp_path / 'a.json'), TEXT.fields)
    (tmp_path / 'a.json').write_text('[1]\n{"secret": "x"}\n')
    with pytest.raises(ValueError, match=r"missing=\['text'\]"):
        read.check_input(str(tmp_path / 'a.json'), TEXT.fields)
