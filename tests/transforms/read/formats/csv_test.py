"""CSV: what a writer wrote, bad rows alone, and real files."""

import csv
import pathlib

import pytest

from tests.transforms.read.samples import TEXT, read_bytes, read_file
from transforms import read
from transforms.read import Reason, RecordFields, RecordRules
from transforms.read.rules import REJECTION_BYTES

DATA = pathlib.Path(__file__).parents[5] / 'shared' / 'data'


@pytest.mark.parametrize(
    ('row', 'reason'),
    [
        (b'1,caf\xe9', Reason.NOT_TEXT),
        (b'\xff"x,"two\nlines"', Reason.NOT_TEXT),
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
    assert rejected == [(reason, 1, (row + b'\n')[:REJECTION_BYTES])]


@pytest.mark.parametrize(
    ('header', 'row', 'text'),
    [
        ('id,text,label', '1,x,a,,', 'x'),
        ('id,text,label,,', '1,x,a', 'x'),
        ('id,text,label,,', '1,x,a,,', 'x'),
        ('id,text,label,', '1,x,a,nameless', 'x'),
        ('id,text,label,', '1,x,a,,', 'x'),
        ('id,text,label', '1,x,a,,b', None),
        ('id,text,label,', '1,x,a,,b', None),
        ('id,text,label,', '1,x', None),
    ],
)
def test_empty_fields_at_the_end_are_of_no_column(
    tmp_path: pathlib.Path, header: str, row: str, text: str | None
) -> None:
    texts, rejected = read_bytes(tmp_path, 'a.csv', f'{header}\n{row}\n2,y,b\n'.encode(), TEXT)
    assert texts == ([] if text is None else [text]) + ['y']
    assert [reason for reason, _, _ in rejected] == ([Reason.MALFORMED] if text is None else [])


def test_a_long_field_and_nul_bytes_are_no_error(tmp_path: pathlib.Path) -> None:
    rules = RecordRules(fields=RecordFields(text='text'), max_record_bytes=10**6)
    data = b'text\n"' + b'x' * 500_000 + b'"\na\0b\n'
    assert read_bytes(tmp_path, 'a.csv', data, rules) == (['x' * 500_000, 'a\0b'], [])


def test_columns_may_be_positions(tmp_path: pathlib.Path) -> None:
    rules = RecordRules(fields=RecordFields(text='2', label='0'), labels=('1',))
    texts, rejected = read_bytes(tmp_path, 'a.csv', b'1,x,first\n1,short\n1,x,third,more\n', rules)
    assert texts == ['first', 'third']
    assert rejected == [(Reason.MISSING_FIELD, 1, b'1,short\n')]


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
