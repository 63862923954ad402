"""Rows go whole to one side, by their unit and a key; nothing is lost and nothing is in both."""

import contextlib
import csv
import gzip
import io
import json
import pathlib
import sqlite3
import stat

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
SIDES = ('records', 'test')
ROWS = [
    {'who': f'user {index % 60}', 'text': f'Line {index},\nwith "quotes" and ünïcode.', 'n': index}
    for index in range(300)
]


def write(folder: pathlib.Path, kind: str) -> pathlib.Path:
    path = folder / f'rows.{kind}'
    if kind.startswith('csv'):
        with (gzip.open if kind.endswith('gz') else open)(path, 'wt', newline='') as file:
            writer = csv.DictWriter(file, list(ROWS[0]))
            writer.writeheader()
            writer.writerows(ROWS)
    elif kind == 'jsonl':
        path.write_text(''.join(json.dumps(row) + '\n\n' for row in ROWS))
    else:
        parquet.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=70)
    return path


def read(path: pathlib.Path) -> list[dict[str, object]]:
    if path.suffix == '.csv':
        with open(path, newline='') as file:
            return [row | ({'n': int(row['n'])} if 'n' in row else {}) for row in csv.DictReader(file)]
    if path.suffix == '.jsonl':
        return [json.loads(line) for line in path.read_text().splitlines()]
    return parquet.read_table(path).to_pylist()


@pytest.mark.parametrize('kind', ['csv', 'csv.gz', 'jsonl', 'parquet'])
def test_every_row_is_whole_on_one_side(tmp_path: pathlib.Path, kind: str) -> None:
    path, folder = write(tmp_path, kind), tmp_path / 'split'
    made = split.split(str(path), folder, fields=FIELDS, test_share=0.3, key=KEY)
    name = path.name.removesuffix('.gz')
    records, test = read(folder / 'records' / name), read(folder / 'test' / name)
    assert sorted(records + test, key=lambda row: row['n']) == ROWS
    assert [row['n'] for row in records] == sorted(row['n'] for row in records)
    assert {row['who'] for row in records}.isdisjoint(row['who'] for row in test)
    assert (made.records, made.test, made.without_unit) == (len(records), len(test), 0)
    # 60 users at 0.3: six standard deviations, a false alarm in 10**8.
    assert abs(len({row['who'] for row in test}) - 18) < 6 * (60 * 0.3 * 0.7) ** 0.5
    for place in (folder, folder / 'records', folder / 'test', folder / split.KEY):
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize(
    ('delimiter', 'encoding', 'given'),
    [
        (';', 'utf-8-sig', Dialect()),
        ('\t', 'utf-16', Dialect()),
        ('|', 'utf-16-be', Dialect()),
        (';', 'windows-1252', Dialect(encoding='windows-1252')),
        ('~', 'utf-8', Dialect(delimiter='~')),
    ],
)
@pytest.mark.parametrize('positional', [False, True])
def test_parts_are_written_as_the_file_was_and_read_with_the_same_flags(
    tmp_path: pathlib.Path, delimiter: str, encoding: str, given: Dialect, positional: bool
) -> None:
    names = ['who', 'text', 'n']
    rows = [names, *([str(row[name]) for name in names] for row in ROWS)]
    file = io.StringIO(newline='')
    csv.writer(file, delimiter=delimiter).writerows(rows[1:] if positional else rows)
    data = file.getvalue().encode(encoding)
    (tmp_path / 'rows.csv').write_bytes(data)
    if positional:
        # Nothing but a mark tells, where the first line is a record.
        given = Dialect(delimiter=delimiter, encoding=None if encoding.endswith(('sig', '16')) else encoding)
    text, unit = ('1', '0') if positional else ('text', 'who')
    fields = RecordFields(text=text, unit=unit, dialect=given)
    made = split.split(str(tmp_path / 'rows.csv'), tmp_path / 'split', fields=fields, test_share=0.3, key=KEY)
    found, rules = [], RecordRules(fields=fields, unit='user')
    for side in SIDES:
        path = tmp_path / 'split' / side / 'rows.csv'
        records, rejected = read_file(path, rules)
        assert rejected == []
        found += [(record.unit, record.text) for record in records]
        # Byte by byte what any reader of that encoding takes, a mark at the beginning alone.
        shown = list(
            csv.reader(io.StringIO(path.read_bytes().decode(encoding), newline=''), delimiter=delimiter)
        )
        assert all(row in rows for row in shown)
        assert len(shown) == len(records) + (not positional)
    assert sorted(found) == sorted((row['who'], row['text']) for row in ROWS)
    assert made.records + made.test == len(ROWS)


def test_units_stay_where_they_were_with_the_same_key_and_move_with_another(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, 'csv')
    sides = []
    split.split(str(path), tmp_path / 'a', fields=FIELDS, test_share=0.3, key=KEY)
    kept = RunKey.read(tmp_path / 'a' / split.KEY)
    # The file has grown.
    path.write_text(path.read_text() + 'user new,Text,300\n')
    for name, key in (('b', kept), ('c', RunKey(bytes(KEY_BYTES)))):
        split.split(str(path), tmp_path / name, fields=FIELDS, test_share=0.3, key=key)
    for name in 'abc':
        sides.append({row['who'] for row in read(tmp_path / name / 'test' / 'rows.csv')} - {'user new'})
    assert sides[0] == sides[1] != sides[2]


def test_rows_without_a_unit_are_counted_and_on_no_side(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'rows.jsonl'
    rows = ['{"text": "x", "who": "a"}', '{"who": null}', 'not JSON', '{"who": ""}', '[1]', '{"who": "b"}']
    path.write_text('\n'.join(rows))
    made = split.split(str(path), tmp_path / 'split', fields=FIELDS, test_share=0.5, key=KEY)
    assert (made.records + made.test, made.without_unit) == (2, 4)


@pytest.mark.parametrize('share', [0.0, 1.0, -1.0, float('nan')])
def test_a_share_that_is_none_is_refused(tmp_path: pathlib.Path, share: float) -> None:
    path = write(tmp_path, 'csv')
    with pytest.raises(ValueError, match='test_share='):
        split.split(str(path), tmp_path / 'split', fields=FIELDS, test_share=share, key=KEY)
    assert not (tmp_path / 'split').exists()


def test_two_files_of_one_name_and_a_folder_that_is_there_are_refused(tmp_path: pathlib.Path) -> None:
    for name in ('a', 'b'):
        (tmp_path / name).mkdir()
        write(tmp_path / name, 'csv')
    with pytest.raises(ValueError, match='two of one name'):
        split.split(f'{tmp_path}/*/rows.csv', tmp_path / 'x', fields=FIELDS, test_share=0.5, key=KEY)
    with pytest.raises(FileExistsError, match='File exists'):
        split.split(f'{tmp_path}/a/rows.csv', tmp_path / 'a', fields=FIELDS, test_share=0.5, key=KEY)
    with pytest.raises(ValueError, match='nobody'):
        split.split(
            f'{tmp_path}/a/rows.csv',
            tmp_path / 'x',
            fields=RecordFields(text='text', unit='nobody'),
            test_share=0.5,
            key=KEY,
        )


def test_a_file_and_its_compressed_namesake_are_refused(tmp_path: pathlib.Path) -> None:
    write(tmp_path, 'csv')
    write(tmp_path, 'csv.gz')
    with pytest.raises(ValueError, match='two of one name'):
        split.split(f'{tmp_path}/rows.*', tmp_path / 'x', fields=FIELDS, test_share=0.5, key=KEY)


def test_ids_are_one_unit_as_a_run_compares_them(tmp_path: pathlib.Path) -> None:
    """1, 1.0 and '1' are one; numbers are read from Parquet, too."""
    lines = [json.dumps({'text': 'x', 'who': who}) for n in range(200) for who in (n, float(n), str(n))]
    (tmp_path / 'rows.jsonl').write_text('\n'.join(lines))
    table = pa.table({'text': ['x'] * 200, 'who': list(range(200))})
    parquet.write_table(table, tmp_path / 'numbers.parquet')
    split.split(f'{tmp_path}/*.*', tmp_path / 'x', fields=FIELDS, test_share=0.5, key=KEY)
    sides = []
    for side in ('records', 'test'):
        found = read(tmp_path / 'x' / side / 'rows.jsonl') + read(tmp_path / 'x' / side / 'numbers.parquet')
        sides.append({int(row['who']) for row in found})
    assert sides[0].isdisjoint(sides[1]) and sides[0] | sides[1] == set(range(200))


def test_without_ids_equal_texts_stay_together(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'rows.csv'
    path.write_text('text\n' + ''.join(f'Text {n % 40}\n' for n in range(120)))
    split.split(str(path), tmp_path / 'x', fields=RecordFields(text='text'), test_share=0.5, key=KEY)
    texts = [[row['text'] for row in read(tmp_path / 'x' / side / 'rows.csv')] for side in SIDES]
    assert set(texts[0]).isdisjoint(texts[1]) and len(texts[0]) + len(texts[1]) == 120


def test_a_damaged_file_leaves_nothing(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, 'csv.gz')
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match='Fetch it again'):
        split.split(str(path), tmp_path / 'x', fields=FIELDS, test_share=0.5, key=KEY)
    assert not (tmp_path / 'x').exists()


def test_an_array_comes_out_as_lines(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'rows.json').write_text(json.dumps(ROWS, indent=1))
    split.split(str(tmp_path / 'rows.json'), tmp_path / 'x', fields=FIELDS, test_share=0.3, key=KEY)
    found = [json.loads(line) for side in SIDES for line in (tmp_path / 'x' / side / 'rows.json').open()]
    assert sorted(found, key=lambda row: row['n']) == ROWS


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
    made = split.split(place, tmp_path / 'sets', fields=fields, test_share=0.5, key=KEY)
    sides = [
        [json.loads(line) for line in (tmp_path / 'sets' / side / name).read_text().splitlines()]
        for side in ('records', 'test')
    ]
    assert [len(side) for side in sides] == [made.records, made.test] and min(map(len, sides)) > 0
    if kind == 'folder':
        expected = [{'text': row['text'], 'label': str(row['ward']), 'id': f'{row["ward"]}/{row["text"]}txt'}
                    for row in NOTES]  # fmt: skip
    else:
        expected = NOTES
        assert not {row['id'] for row in sides[0]} & {row['id'] for row in sides[1]}
    assert sorted([*sides[0], *sides[1]], key=str) == sorted(expected, key=str)
    assert made.without_unit == (1 if kind == 'xlsx' else 0)


OBJECT = '{{"who": "{0}", "text": "é {0}"}}'


@pytest.mark.parametrize(
    ('name', 'encoding', 'header', 'row', 'line_end', 'given'),
    [
        ('a.csv', 'utf-16', 'sep=;\r\n"who";"the\nname";text', '{0};x;"é\n{0}"', '\r\n', Dialect()),
        ('a.csv', 'utf-8', 'who;text', '{0};"é\n{0}"', '\r', Dialect()),
        ('a.tsv', 'utf-8', 'who\ttext', '{0}\t"é {0}', '\n', Dialect(quoting='none')),
        ('a.csv', 'utf-8', 'who,text', '{0},"é, \\"{0}\\""', '\n', Dialect(quoting='backslash')),
        ('a.jsonl', 'utf-16', OBJECT, OBJECT, '\n', Dialect()),
        ('a.ndjson', 'utf-16-le', OBJECT, OBJECT, '\n', Dialect(encoding='utf-16-le')),
    ],
)
def test_a_part_is_written_as_its_file_is(
    tmp_path: pathlib.Path, name: str, encoding: str, header: str, row: str, line_end: str, given: Dialect
) -> None:
    rows = [header if header != row else row.format('first'), *(row.format(n) for n in range(40))]
    (tmp_path / name).write_bytes(line_end.join(rows).encode(encoding))
    fields = RecordFields(text='text', unit='who', dialect=given)
    rules = RecordRules(fields=fields, unit='user')
    before, rejected = read_file(tmp_path / name, rules)
    assert (len(before), rejected) == (40 + (header == row), [])
    split.split(str(tmp_path / name), tmp_path / 'split', fields=fields, test_share=0.3, key=KEY)
    after = []
    for side in SIDES:
        records, rejected = read_file(tmp_path / 'split' / side / name, rules)
        assert records and rejected == []
        after += records
    assert sorted(record.text for record in after) == sorted(record.text for record in before)
