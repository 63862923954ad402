"""A finished corpus in other forms: every example, with all that its columns say."""

import contextlib
import csv
import json
import pathlib
import sqlite3

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyarrow import parquet

from pipeline.release import export
from tests.pipeline.database_input_test import engine_of
from transforms.run_files import DATA_FOLDER, REPORT

ROWS = [
    {'text': '=HYPERLINK("x")', 'label': 'a', 'tokens': 3, 'truncated': True, 'parents': [1, 2]},
    {'text': '- Zeile\n"zwei", ä', 'label': None, 'tokens': 2**40, 'truncated': False, 'parents': []},
    {'text': 'Plain.', 'label': '+1', 'tokens': 1, 'truncated': False, 'parents': [7]},
]


@pytest.fixture
def corpus(tmp_path: pathlib.Path) -> str:
    """Two shards of a finished run."""
    folder = tmp_path / 'corpus'
    (folder / DATA_FOLDER).mkdir(parents=True)
    (folder / REPORT).write_text('{}')
    schema = pa.Table.from_pylist(ROWS).schema
    for number, rows in enumerate((ROWS[:2], ROWS[2:])):
        path = folder / DATA_FOLDER / f'train-{number:05}-of-00002.parquet'
        parquet.write_table(pa.Table.from_pylist(rows, schema), path)
    return str(folder)


def test_json_lines_hold_every_example_as_it_is(corpus: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'a.jsonl'
    assert export.export(corpus, str(path)) == 3
    assert [json.loads(line) for line in path.read_text(encoding='utf-8').splitlines()] == ROWS


def test_no_cell_of_csv_is_a_formula(corpus: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'a.csv'
    assert export.export(corpus, str(path)) == 3
    with path.open(encoding='utf-8', newline='') as file:
        header, *rows = csv.reader(file)
    assert header == list(ROWS[0])
    assert rows == [
        ['\'=HYPERLINK("x")', 'a', '3', 'True', '[1, 2]'],
        ['\'- Zeile\n"zwei", ä', '', str(2**40), 'False', '[]'],
        ['Plain.', "'+1", '1', 'False', '[7]'],
    ]


def test_a_table_holds_every_example(corpus: str, where: str) -> None:
    place = where if '://' in where else f'sqlite:///{where}'
    assert export.export(corpus, place, 'Made up') == 3
    expected = [{**row, 'parents': json.dumps(row['parents'])} for row in ROWS]
    with engine_of(place).connect() as connection:
        table = sa.Table('Made up', sa.MetaData(), autoload_with=connection)
        found = [dict(row._mapping) for row in connection.execute(sa.select(table))]
    assert found == expected
    with pytest.raises(ValueError, match="table='Made up', which is there"):
        export.export(corpus, place, 'Made up')


def test_of_a_table_that_cannot_be_filled_nothing_is_left(corpus: str, tmp_path: pathlib.Path) -> None:
    sorted((pathlib.Path(corpus) / DATA_FOLDER).iterdir())[1].write_bytes(b'no shard')
    place = f'sqlite:///{tmp_path}/a.db'
    with pytest.raises(pa.ArrowInvalid):
        export.export(corpus, place, 'notes')
    with contextlib.closing(sqlite3.connect(tmp_path / 'a.db')) as database:
        assert database.execute('SELECT count(*) FROM sqlite_master').fetchone() == (0,)


def test_what_cannot_be_written_is_refused(corpus: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'there.csv').write_text('mine')
    with pytest.raises(FileExistsError, match='Expected a new file'):
        export.export(corpus, str(tmp_path / 'there.csv'))
    assert (tmp_path / 'there.csv').read_text() == 'mine'
    with pytest.raises(ValueError, match='ending in .jsonl or .csv'):
        export.export(corpus, str(tmp_path / 'a.xlsx'))
    with pytest.raises(ValueError, match='Give --table corpus'):
        export.export(corpus, f'sqlite:///{tmp_path}/a.db')
    with pytest.raises(ValueError, match='Expected a table of a database'):
        export.export(corpus, str(tmp_path / 'a.csv'), 'notes')
    with pytest.raises(ValueError, match='folder of a finished release'):
        export.export(str(tmp_path), str(tmp_path / 'a.csv'))
    # As a full disk would break it off.
    sorted((pathlib.Path(corpus) / DATA_FOLDER).iterdir())[1].write_bytes(b'no shard')
    with pytest.raises(pa.ArrowInvalid):
        export.export(corpus, str(tmp_path / 'a.jsonl'))
    assert not (tmp_path / 'a.jsonl').exists()
