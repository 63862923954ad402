"""The columns of files, before anybody has named one."""

import pathlib

import pyarrow as pa
import pytest
from pyarrow import parquet

from transforms.read import Dialect, RecordFields, check_input, read_header


def names_of(path: pathlib.Path, dialect: Dialect = Dialect()) -> list[str]:  # noqa: B008 - immutable
    return [column.name for column in read_header(str(path), dialect).columns]


@pytest.mark.parametrize('delimiter', [',', ';', '\t', '|'])
@pytest.mark.parametrize(
    'encoding', ['utf-8', 'utf-8-sig', 'utf-16', 'utf-16-le', 'utf-16-be', 'windows-1252']
)
def test_the_header_line_of_csv_and_what_a_run_needs_to_read_it(
    tmp_path: pathlib.Path, delimiter: str, encoding: str
) -> None:
    path = tmp_path / 'records.csv'
    path.write_bytes(f'Größe, in cm{delimiter}note\n1{delimiter}2\n'.replace(', in', ' in').encode(encoding))
    header = read_header(str(path), Dialect())
    assert [column.name for column in header.columns] == ['Größe in cm', 'note']
    # With this dialect the file has its columns.
    assert check_input(str(path), RecordFields(text='note', label='Größe in cm', dialect=header.dialect))


def test_a_given_dialect_is_kept(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.csv').write_text('note;ward, with a comma\n')
    given = Dialect(delimiter=';', encoding='utf-8')
    header = read_header(str(tmp_path / 'a.csv'), given)
    assert [column.name for column in header.columns] == ['note', 'ward, with a comma']
    assert header.dialect == given


def test_other_formats_and_columns_of_fractions(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.jsonl').write_text('{"text": "x", "b": 1}\n{"a": 2}\n')
    (tmp_path / 'b.json').write_text('[{"text": "x"}]')
    parquet.write_table(pa.table({'z': ['x'], 'stars': [4.5], 'n': [1]}), tmp_path / 'c.parquet')
    assert names_of(tmp_path / 'a.jsonl') == ['a', 'b', 'text']
    assert names_of(tmp_path / 'b.json') == ['text']
    columns = read_header(str(tmp_path / 'c.parquet'), Dialect()).columns
    assert [(column.name, column.is_fraction) for column in columns] == [
        ('z', False), ('stars', True), ('n', False),
    ]  # fmt: skip


def test_an_empty_file_is_passed_over_and_only_empty_ones_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.csv').touch()
    (tmp_path / 'b.csv').write_text('note\nx\n')
    assert names_of(tmp_path / '*.csv') == ['note']
    with pytest.raises(ValueError, match='Expected a file with records, got 1 without any'):
        names_of(tmp_path / 'a.csv')


@pytest.mark.parametrize('line', ['a,b,\n', 'a,a\n', ',\n'])
def test_a_header_without_names_is_refused_and_not_quoted(tmp_path: pathlib.Path, line: str) -> None:
    (tmp_path / 'h.csv').write_text(line + 'Zyxquortle,x,y\n')
    with pytest.raises(ValueError, match='Expected a header that names each column once') as error:
        names_of(tmp_path / 'h.csv')
    assert 'Zyxquortle' not in str(error.value)


def test_a_damaged_file_of_a_format_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'd.parquet').write_bytes(b'PAR1')
    with pytest.raises(ValueError, match='Expected a Parquet file'):
        names_of(tmp_path / 'd.parquet')
    (tmp_path / 'e.txt').write_text('x')
    with pytest.raises(ValueError, match='Expected a file ending in'):
        names_of(tmp_path / 'e.txt')
