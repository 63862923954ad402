"""The places that an --input names, and that no part of a password stays in it."""

import os
import pathlib
import unicodedata

import pytest

from transforms import places
from transforms.read.compression import CODECS


@pytest.mark.parametrize(
    ('given', 'without', 'password'),
    [
        ('postgresql://u:geheim@h:5432/d', 'postgresql://u@h:5432/d', 'geheim'),
        ('postgresql+psycopg://u:geh%40im@h/d?a=b', 'postgresql+psycopg://u@h/d?a=b', 'geh@im'),
        ('postgres://:geheim@/d?host=/tmp', 'postgres://@/d?host=/tmp', 'geheim'),
        (
            'postgresql://u@h/d?password=ge%2Bheim&sslmode=require',
            'postgresql://u@h/d?sslmode=require',
            'ge+heim',
        ),
        ('postgresql://u@h/d?PASSWORD=geheim', 'postgresql://u@h/d', 'geheim'),
        # Not quoted as they should be.
        ('postgresql://u:ge@he/im@h/d', 'postgresql://u@h/d', 'ge@he/im'),
        ('postgresql://u:ge?heim@h/d', 'postgresql://u@h/d', 'ge?heim'),
        ('mysql://u:geheim@h/d', 'mysql://u@h/d', 'geheim'),
        # None of these is a password.
        ('postgresql://u@h:5432/d', 'postgresql://u@h:5432/d', None),
        ('postgresql://h:5432/d?user=u@h', 'postgresql://h:5432/d?user=u@h', None),
        ('postgresql://u@h/d', 'postgresql://u@h/d', None),
        ('sqlite:///a:b@c.db', 'sqlite:///a:b@c.db', None),
        ('gs://bucket/a:b@c.csv', 'gs://bucket/a:b@c.csv', None),
        ('notes:1@2.csv', 'notes:1@2.csv', None),
    ],
)
def test_a_password_is_taken_out_of_the_url(given: str, without: str, password: str | None) -> None:
    assert places.take_password(given) == (without, password)
    assert places.has_password(given) == (password is not None)
    assert not places.has_password(without)


def test_the_url_of_a_database_is_one_pattern() -> None:
    assert places.split_patterns(' postgresql://a,b/d ') == ['postgresql://a,b/d']
    assert places.split_patterns('a.csv, gs://b/c.csv,') == ['a.csv', 'gs://b/c.csv']


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A working directory of files whose names are not what a list takes them for."""
    for name in (
        'a,b.csv',
        'c.csv',
        ' d.csv',
        'e f.csv',
        'Smith, J/g.csv',
        'é.csv',
        'two,names',
        'names,twice',
    ):
        path = tmp_path / unicodedata.normalize('NFD', name)
        path.parent.mkdir(exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('HOME', str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ('given', 'found'),
    [
        ('a,b.csv', ['a,b.csv']),
        ('a,b.csv,c.csv', ['a,b.csv', 'c.csv']),
        ('c.csv, a,b.csv,*.csv', ['c.csv', 'a,b.csv', '*.csv']),
        ('c.csv, d.csv', ['c.csv', ' d.csv']),
        ('c.csv , c.csv', ['c.csv', 'c.csv']),
        ('Smith, J/g.csv,c.csv', ['Smith, J/g.csv', 'c.csv']),
        ('Smith, J', ['Smith, J']),
        ('c.csv,Smith, J/*.csv', ['c.csv', 'Smith, J/*.csv']),
        ('hf://Smith, J,c.csv', ['hf://Smith, J', 'c.csv']),
        ('none,here.csv', ['none', 'here.csv']),
        ('none*,here.csv', ['none*', 'here.csv']),
        ('\u00e9.csv', ['e\u0301.csv']),
    ],
)
def test_a_comma_belongs_to_the_name_of_what_is_there(
    folder: pathlib.Path, given: str, found: list[str]
) -> None:
    assert places.split_patterns(given) == found


def test_a_list_of_two_readings_is_refused(folder: pathlib.Path) -> None:
    with pytest.raises(ValueError, match='read in one way, got input=.two,names,twice.*Give a [?]'):
        places.split_patterns('two,names,twice')
    (folder / 'two,names,twice').touch()
    assert places.split_patterns('two,names,twice') == ['two,names,twice']


@pytest.mark.parametrize('before', ['file://', 'file:', 'FILE://localhost', 'file:///'])
def test_a_url_of_a_file_is_its_path(folder: pathlib.Path, before: str) -> None:
    assert places.split_patterns(f'{before}{folder}/e%20f.csv') == [f'{folder}/e f.csv']
    assert places.split_patterns(f'{before}{folder}/a,b.csv,c.csv') == [f'{folder}/a,b.csv', 'c.csv']
    (folder / 'e%20f.csv').touch()
    assert places.split_patterns(f'{before}{folder}/e%20f.csv') == [f'{folder}/e%20f.csv']


def test_a_tilde_is_the_folder_of_a_user(folder: pathlib.Path) -> None:
    assert places.split_patterns('~/c.csv,~/*.csv') == [f'{folder}/c.csv', f'{folder}/*.csv']
    (folder / '~').mkdir()
    (folder / '~' / 'c.csv').touch()
    assert places.split_patterns('~/c.csv') == ['~/c.csv']


def test_a_long_list_is_looked_up_with_few_looks_at_the_disk(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, exists = [], os.path.exists
    monkeypatch.setattr(os.path, 'exists', lambda path: looks.append(path) or exists(path))
    for before in ('', f'{folder}/'):
        names = [f'{before}part-{number:05d}.jsonl' for number in range(500)]
        assert places.split_patterns(','.join(names)) == names
    assert len(looks) < 500 * 40


@pytest.mark.parametrize(
    ('place', 'text', 'table'),
    [
        ('a.csv', True, True),
        ('gs://b/a.TSV.GZ', True, True),
        ('folder/*', True, True),
        ('a.jsonl', True, False),
        ('a.json.zst', True, False),
        ('a*.ndjson', True, False),
        ('texts/', True, False),
        ('a.parquet', False, False),
        ('a.XLSX', False, False),
        ('hf://owner/name', False, False),
        ('sqlite:///a.csv', False, False),
    ],
)
def test_what_may_be_text_and_csv(place: str, text: bool, table: bool) -> None:
    assert (places.may_be_text(place), places.may_be_csv(place)) == (text, table)


def test_a_folder_holds_no_csv(tmp_path: pathlib.Path) -> None:
    assert places.may_be_text(str(tmp_path)) and not places.may_be_csv(str(tmp_path))


def test_files_of_text_have_the_endings_that_are_unpacked() -> None:
    assert [places.may_be_csv(f'a.jsonl.{codec}') for codec in CODECS] == [False] * len(CODECS)
    assert all(places.may_be_csv(f'a.csv.{codec}') and places.may_be_text(f'a.{codec}') for codec in CODECS)
