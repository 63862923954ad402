"""Rows go whole to one side, by their unit and a key; nothing is lost and nothing is in both."""

import contextlib
import csv
import gzip
import io
import json
import pathlib
import sqlite3
import stat
from typing import Any

import datasets
import openpyxl
import pyarrow as pa
import pytest
from pyarrow import parquet

from models.privacy.randomness import KEY_BYTES, RunKey
from pipeline.prepare import split
from tests.transforms.read.samples import read_file
from transforms.read import Dialect, RecordFields, RecordRules, Table

FIELDS = RecordFields(text='text', unit='who')
KEY = RunKey(bytes(range(KEY_BYTES)))
ROWS = [
    {'who': f'user {index % 60}', 'text': f'Line {index},\nwith "quotes" and ünïcode.', 'n': index}
    for index in range(300)
]
Rows = list[dict[str, Any]]


def apart(
    place: object, folder: pathlib.Path, fields: RecordFields = FIELDS, share: float = 0.3, key: RunKey = KEY
) -> tuple[split.Split, Rows, Rows]:
    """The numbers of rows, and the rows of both sides."""
    made = split.split(str(place), folder, fields=fields, test_share=share, key=key)
    records, test = (
        [json.loads(line) for path in sorted((folder / side).iterdir()) for line in path.open()]
        for side in (split.RECORDS, split.TEST)
    )
    assert (made.records, made.test) == (len(records), len(test))
    return made, records, test


def write(folder: pathlib.Path, kind: str) -> pathlib.Path:
    path = folder / f'rows.{kind}'
    if kind.startswith('csv'):
        with (gzip.open if kind.endswith('gz') else open)(path, 'wt', newline='') as file:
            writer = csv.DictWriter(file, ['', *ROWS[0]])  # the first column has no name
            writer.writeheader()
            writer.writerows(ROWS)
    elif kind == 'jsonl':
        path.write_text(''.join(json.dumps(row) + '\n\n' for row in ROWS))
    elif kind == 'json':
        path.write_text(json.dumps(ROWS, indent=1))
    else:
        parquet.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=70)
    return path


@pytest.mark.parametrize('kind', ['csv', 'csv.gz', 'jsonl', 'json', 'parquet'])
def test_every_row_is_whole_on_one_side(tmp_path: pathlib.Path, kind: str) -> None:
    folder = tmp_path / 'split'
    made, records, test = apart(write(tmp_path, kind), folder)
    assert [path.name for path in (folder / 'records').iterdir()] == ['rows.jsonl']
    for side in (records, test):
        for row in side:
            row['n'] = int(row['n'])
        assert [row['n'] for row in side] == sorted(row['n'] for row in side)
    assert sorted(records + test, key=lambda row: row['n']) == ROWS
    assert {row['who'] for row in records}.isdisjoint(row['who'] for row in test)
    assert made.without_unit == 0
    # 60 users at 0.3: six standard deviations, a false alarm in 10**8.
    assert abs(len({row['who'] for row in test}) - 18) < 6 * (60 * 0.3 * 0.7) ** 0.5
    for place in (folder, folder / 'records', folder / 'test', folder / split.KEY):
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize(
    ('delimiter', 'encoding', 'given'),
    [
        ('\t', 'utf-16', Dialect()),
        (';', 'windows-1252', Dialect(encoding='windows-1252')),
        ('~', 'utf-8', Dialect(delimiter='~')),
    ],
)
@pytest.mark.parametrize('header', [True, False])
def test_a_run_reads_the_parts_of_any_file_as_its_records(
    tmp_path: pathlib.Path, delimiter: str, encoding: str, given: Dialect, header: bool
) -> None:
    file = io.StringIO(newline='')
    rows = [list(map(str, row.values())) for row in ROWS]
    csv.writer(file, delimiter=delimiter).writerows([list(ROWS[0]), *rows] if header else rows)
    (tmp_path / 'rows.csv').write_bytes(file.getvalue().encode(encoding))
    if not header:
        given = Dialect(delimiter=delimiter, encoding=encoding)
    text, unit = ('text', 'who') if header else ('1', '0')
    fields = RecordFields(text=text, unit=unit, dialect=given)
    apart(tmp_path / 'rows.csv', tmp_path / 'split', fields)
    rules = RecordRules(fields=RecordFields(text=text, unit=unit), unit='user')
    parts = [read_file(path, rules) for path in (tmp_path / 'split').glob('*/rows.jsonl')]
    assert [rejected for _, rejected in parts] == [[], []]
    found = sorted((record.unit, record.text) for records, _ in parts for record in records)
    assert found == sorted((row['who'], row['text']) for row in ROWS)


def test_units_stay_where_they_were_with_the_same_key_and_move_with_another(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, 'csv')
    sides = [apart(path, tmp_path / 'a')[2]]
    kept = RunKey.read(tmp_path / 'a' / split.KEY)
    # The file has grown.
    path.write_text(path.read_text() + ',user new,Text,300\n')
    sides += [
        apart(path, tmp_path / name, key=key)[2]
        for name, key in (('b', kept), ('c', RunKey(bytes(KEY_BYTES))))
    ]
    units = [{row['who'] for row in side} - {'user new'} for side in sides]
    assert units[0] == units[1] != units[2]


def test_rows_without_a_unit_are_counted_and_on_no_side(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'rows.jsonl'
    rows = ['{"text": "x", "who": "a"}', '{"who": null}', 'not JSON', '{"who": ""}', '[1]', '{"who": "b"}']
    path.write_text('\n'.join(rows))
    made, records, test = apart(path, tmp_path / 'split')
    assert (len(records + test), made.without_unit) == (2, 4)


@pytest.mark.parametrize('share', [0.0, 1.0, -1.0, float('nan')])
def test_a_share_that_is_none_is_refused(tmp_path: pathlib.Path, share: float) -> None:
    with pytest.raises(ValueError, match='test_share='):
        apart(write(tmp_path, 'csv'), tmp_path / 'split', share=share)
    assert not (tmp_path / 'split').exists()


def test_two_files_of_one_name_and_a_folder_that_is_there_are_refused(tmp_path: pathlib.Path) -> None:
    for name in ('a', 'b'):
        (tmp_path / name).mkdir()
        write(tmp_path / name, 'csv')
    write(tmp_path / 'b', 'csv.gz')
    for pattern in ('*/rows.csv', 'b/rows.*'):
        with pytest.raises(ValueError, match='two of one name'):
            apart(f'{tmp_path}/{pattern}', tmp_path / 'x')
    with pytest.raises(FileExistsError, match='File exists'):
        apart(f'{tmp_path}/a/rows.csv', tmp_path / 'a')
    with pytest.raises(ValueError, match='nobody'):
        apart(f'{tmp_path}/a/rows.csv', tmp_path / 'x', RecordFields(text='text', unit='nobody'))


def test_ids_are_one_unit_as_a_run_compares_them(tmp_path: pathlib.Path) -> None:
    """1, 1.0 and '1' are one; numbers are read from Parquet, too."""
    lines = [json.dumps({'text': 'x', 'who': who}) for n in range(200) for who in (n, float(n), str(n))]
    (tmp_path / 'rows.jsonl').write_text('\n'.join(lines))
    table = pa.table({'text': ['x'] * 200, 'who': list(range(200))})
    parquet.write_table(table, tmp_path / 'numbers.parquet')
    _, *sides = apart(f'{tmp_path}/*.*', tmp_path / 'x')
    records, test = ({float(row['who']) for row in side} for side in sides)
    assert records.isdisjoint(test) and records | test == set(range(200))


def test_without_ids_equal_texts_stay_together(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'rows.csv'
    path.write_text('text\n' + ''.join(f'Text {n % 40}\n' for n in range(120)))
    _, *sides = apart(path, tmp_path / 'x', RecordFields(text='text'))
    texts = [[row['text'] for row in side] for side in sides]
    assert set(texts[0]).isdisjoint(texts[1]) and len(texts[0]) + len(texts[1]) == 120


def test_a_damaged_file_leaves_nothing(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, 'csv.gz')
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match='Fetch it again'):
        apart(path, tmp_path / 'x')
    assert not (tmp_path / 'x').exists()


NOTES = [{'id': f'u{n % 7}', 'text': f'Text {n}.', 'ward': n % 2} for n in range(40)]


def place_of(kind: str, folder: pathlib.Path) -> tuple[str, Table, str]:
    """(place, table, name of what is written) of the rows."""
    if kind == 'xlsx':
        workbook = openpyxl.Workbook()
        for row in [tuple(NOTES[0]), *(tuple(row.values()) for row in NOTES), ('u0', '=B2', 0)]:
            workbook.worksheets[0].append(row)
        workbook.save(folder / 'notes.xlsx')
        return f'{folder}/notes.xlsx', Table(), 'notes.jsonl'
    if kind == 'sqlite':
        with contextlib.closing(sqlite3.connect(folder / 'notes.db')) as database, database:
            database.execute('CREATE TABLE notes (id TEXT, text TEXT, ward INT)')
            database.executemany('INSERT INTO notes VALUES (:id, :text, :ward)', NOTES)
        return f'sqlite:///{folder}/notes.db', Table(query='SELECT * FROM notes'), 'query.jsonl'
    if kind == 'data set':
        datasets.Dataset.from_list(NOTES).save_to_disk(str(folder / 'notes'))
        return f'hf://{folder}/notes', Table(), 'notes.jsonl'
    for row in NOTES:
        (folder / 'notes' / str(row['ward'])).mkdir(parents=True, exist_ok=True)
        (folder / 'notes' / str(row['ward']) / f'{row["text"]}txt').write_text(str(row['text']))
    return f'{folder}/notes/', Table(), 'notes.jsonl'


@pytest.mark.parametrize('kind', ['xlsx', 'sqlite', 'data set', 'folder'])
def test_rows_of_other_places_come_out_as_lines(tmp_path: pathlib.Path, kind: str) -> None:
    place, table, name = place_of(kind, tmp_path)
    fields = RecordFields(text='text', unit=None if kind == 'folder' else 'id', table=table)
    made, *sides = apart(place, tmp_path / 'sets', fields, 0.5)
    assert (tmp_path / 'sets' / 'test' / name).is_file() and min(map(len, sides)) > 0
    if kind == 'folder':
        expected = [{'text': row['text'], 'label': str(row['ward']), 'id': f'{row["ward"]}/{row["text"]}txt'}
                    for row in NOTES]  # fmt: skip
    else:
        expected = NOTES
        assert not {row['id'] for row in sides[0]} & {row['id'] for row in sides[1]}
    assert sorted([*sides[0], *sides[1]], key=str) == sorted(expected, key=str)
    assert made.without_unit == (1 if kind == 'xlsx' else 0)
