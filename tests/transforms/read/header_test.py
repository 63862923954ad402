"""The columns of files and other places, before anybody has named one."""

import contextlib
import pathlib
import sqlite3

import datasets
import openpyxl
import pyarrow as pa
import pytest
from pyarrow import parquet

from transforms.read import Dialect, RecordFields, Table, check_input, read_header
from transforms.read.errors import RestrictedError


def names_of(path: pathlib.Path, dialect: Dialect = Dialect()) -> list[str]:  # noqa: B008 - immutable
    return list(read_header(str(path), dialect).columns)


def test_an_index_without_a_name_is_no_column(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.csv').write_text(',note,ward\n0,x,y\n')
    assert names_of(tmp_path / 'a.csv') == ['note', 'ward']
    assert check_input(str(tmp_path / 'a.csv'), RecordFields(text='note', label='ward'))


def test_a_given_dialect_is_kept(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.csv').write_text('note;ward, with a comma\n')
    given = Dialect(delimiter=';', encoding='utf-8')
    header = read_header(str(tmp_path / 'a.csv'), given)
    assert header.columns == ('note', 'ward, with a comma')
    assert header.dialect == given


def test_other_formats_name_their_columns(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.jsonl').write_text('{"text": "x", "b": 1}\n{"a": 2}\n')
    (tmp_path / 'b.json').write_text('[{"text": "x"}]')
    parquet.write_table(pa.table({'z': ['x'], 'stars': [4.5], 'n': [1]}), tmp_path / 'c.parquet')
    assert names_of(tmp_path / 'a.jsonl') == ['a', 'b', 'text']
    assert names_of(tmp_path / 'b.json') == ['text']
    assert names_of(tmp_path / 'c.parquet') == ['z', 'stars', 'n']


def test_what_is_given_stays_for_other_places_of_a_list(tmp_path: pathlib.Path) -> None:
    parquet.write_table(pa.table({'text': ['x']}), tmp_path / 'a.parquet')
    (tmp_path / 'b.csv').write_text('text\nx\n')
    given = Dialect(delimiter=';', encoding='utf-16', quoting='none')
    assert read_header(f'{tmp_path}/a.parquet,{tmp_path}/b.csv', given).dialect == given


def test_an_empty_file_is_passed_over_and_only_empty_ones_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.csv').touch()
    (tmp_path / 'b.csv').write_text('note\nx\n')
    assert names_of(tmp_path / '*.csv') == ['note']
    with pytest.raises(ValueError, match='Expected a file with records, got 1 without any'):
        names_of(tmp_path / 'a.csv')


@pytest.mark.parametrize('line', ['a,,b\n', ',,b\n', 'a,a\n', ',\n'])
def test_a_header_without_names_is_refused_and_not_quoted(tmp_path: pathlib.Path, line: str) -> None:
    (tmp_path / 'h.csv').write_text(line + 'Zyxquortle,x,y\n')
    with pytest.raises(ValueError, match='Expected a header that names each column') as error:
        names_of(tmp_path / 'h.csv')
    assert 'Zyxquortle' not in str(error.value)


# --- Other places ---------------------------------------------------------------------


def columns_of(place: str, **table: str) -> tuple[str, ...]:
    return read_header(place, Dialect(), Table(**table)).columns


def test_a_query_names_the_columns_in_its_order_and_each_once(tmp_path: pathlib.Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / 'a.db')) as database:
        database.execute('CREATE TABLE notes (id, note, ward)')
        database.commit()
    place = f'sqlite:///{tmp_path}/a.db'
    assert columns_of(place, query='SELECT ward, note, id FROM notes;') == ('ward', 'note', 'id')
    with pytest.raises(ValueError, match='unnamed=1, named once=2. Name the columns as --query does'):
        columns_of(place, query='SELECT id, note AS "" FROM notes')
    with pytest.raises(ValueError, match='no such column: gone'):
        columns_of(place, query='SELECT gone FROM notes')
    with pytest.raises(ValueError, match='Give --query'):
        columns_of(place)


def test_a_data_set_has_the_columns_of_its_split(tmp_path: pathlib.Path) -> None:
    train = datasets.Dataset.from_dict({'z': ['x'], 'stars': [4.5]})
    datasets.DatasetDict(train=train, test=train.select_columns('z')).save_to_disk(str(tmp_path / 'both'))
    assert columns_of(f'hf://{tmp_path}/both', split='train') == ('z', 'stars')
    assert columns_of(f'hf://{tmp_path}/both', split='test') == ('z',)
    with pytest.raises(ValueError, match='--split'):
        columns_of(f'hf://{tmp_path}/both')


def test_a_folder_of_texts_has_its_three_columns_and_the_given_encoding(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'pos').mkdir()
    (tmp_path / 'pos' / '1.txt').write_text('Good.')
    header = read_header(str(tmp_path), Dialect(encoding='windows-1252'))
    assert header.columns == ('text', 'label', 'id')
    assert header.dialect == Dialect(encoding='windows-1252')


def write_workbook(path: pathlib.Path, *rows: tuple[object, ...]) -> str:
    workbook = openpyxl.Workbook()
    for row in rows:
        workbook.worksheets[0].append(row)
    workbook.create_sheet('Other').append(['text'])
    workbook.save(path)
    return str(path)


def test_a_sheet_has_the_columns_of_its_first_row(tmp_path: pathlib.Path) -> None:
    place = write_workbook(
        tmp_path / 'a.xlsx', (), ('ward', None, ' note ', None), ('A', None, 'Fine.'), ('B', 'x')
    )
    assert columns_of(place, sheet='Sheet') == ('ward', 'note')
    with pytest.raises(RestrictedError, match='--sheet'):
        columns_of(place)


@pytest.mark.parametrize('first', [('Zyxquortle',), ('Zyxquortle', 'Zyxquortle'), (None, 'Zyxquortle')])
def test_a_sheet_whose_first_row_is_no_header_is_refused_and_not_quoted(
    tmp_path: pathlib.Path, first: tuple[object, ...]
) -> None:
    place = write_workbook(tmp_path / 'a.xlsx', first, ('ward', 'note'), ('A', 'Fine.'))
    with pytest.raises(ValueError, match='delete what stands above it') as error:
        columns_of(place, sheet='Sheet')
    assert 'Zyxquortle' not in str(error.value)
