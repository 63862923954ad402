"""Files that are read, and what is refused before any work."""

import gzip
import itertools
import json
import pathlib
import unicodedata

import datasets
import pytest

from tests.object_store import object_store
from tests.transforms.read.samples import LABELLED, TEXT
from transforms import durable, read
from transforms.read import RecordFields, files
from transforms.read.errors import RestrictedError


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


# --- One file by several names -----------------------------------------------------


def named(folder: pathlib.Path) -> list[str]:
    """Names of one file: itself, links, hard links, and ways around."""
    (folder / 'data').mkdir()
    (folder / 'data' / 'a.csv').write_text('text\nx\n')
    (folder / 'data' / 'link.csv').symlink_to('a.csv')
    (folder / 'data' / 'hard.csv').hardlink_to(folder / 'data' / 'a.csv')
    (folder / 'other').symlink_to('data')
    return [
        'data/a.csv', 'data/link.csv', 'data/hard.csv', './data/a.csv', 'data//a.csv', 'data/../data/a.csv',
        'other/a.csv', 'other/../data/a.csv', f'{folder}/data/a.csv', f'file://{folder}/data/a.csv',
        'data/*.csv', f'{folder}/*/a.csv', '**/*.csv', f'data/../../{folder.name}/**/a.csv',
    ]  # fmt: skip


def test_a_file_of_several_names_is_read_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = named(tmp_path)
    monkeypatch.chdir(tmp_path)
    for pair in itertools.product(names, names):
        (file,) = read.list_input(','.join(pair))
        assert pathlib.Path(file.path).samefile('data/a.csv')
    (file,) = read.check_input(','.join(names), TEXT.fields)
    # A list that goes by paths is told.
    monkeypatch.setattr(files, 'identity_of', lambda path: path)
    twice = {pair for pair in itertools.combinations(names, 2) if len(read.list_input(','.join(pair))) > 1}
    assert len(twice) > len(names)


@pytest.fixture
def texts(tmp_path: pathlib.Path) -> pathlib.Path:
    """Folders of texts that share some, by the names of those that do not."""
    for name in ('g/pos/1', 'g/neg/2', 'apart/pos/1'):
        path = tmp_path / f'{name}.txt'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('x')
    (tmp_path / 'copied' / 'pos').mkdir(parents=True)
    (tmp_path / 'copied' / 'pos' / '7.txt').hardlink_to(tmp_path / 'g' / 'pos' / '1.txt')
    (tmp_path / 'linked').symlink_to('g')
    (tmp_path / 'inner').symlink_to('g/neg')
    return tmp_path


@pytest.mark.parametrize('other', ['g/pos', 'g/neg/', 'inner', 'copied', './g/../g/pos'])
def test_folders_that_share_a_file_are_refused(
    texts: pathlib.Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.chdir(texts)
    for pair in (('g', other), (other, 'g'), (str(texts / 'g'), other)):
        with pytest.raises(ValueError, match='share no file') as caught:
            read.list_input(','.join(pair))
        assert '.txt' not in str(caught.value)
    # Matches of a glob in a folder of texts are named after persons.
    for pattern in ('g,g/pos/*', 'g/pos/*,g'):
        with pytest.raises(RestrictedError, match='share no file') as restricted:
            read.list_input(pattern)
        assert '.txt' not in str(restricted.value) and '.txt' in restricted.value.for_the_curator
    assert len(read.list_input('g,apart')) == 2
    # A list that goes by paths is told.
    monkeypatch.setattr(files, '_refuse_shared', lambda listed: None)
    assert len(read.list_input(f'g,{other}')) == 2


def test_a_folder_of_several_names_is_read_once(texts: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(texts)
    assert len(read.list_input(f'g,g/,./g,linked,{texts}/g,file://{texts}/g')) == 1


def test_data_sets_that_share_a_file_are_refused(tmp_path: pathlib.Path) -> None:
    saved = datasets.Dataset.from_dict({'text': ['x', 'y']})
    datasets.DatasetDict(train=saved).save_to_disk(str(tmp_path / 'a'))
    for other in ('a/train', './a'):
        with pytest.raises(ValueError, match='share no file'):
            read.list_input(f'hf://{tmp_path}/a,hf://{tmp_path}/{other}')
    assert len(read.list_input(f'hf://{tmp_path}/a,hf://{tmp_path}/a/')) == 1
    state = tmp_path / 'a' / 'train' / 'state.json'
    named = json.loads(state.read_text())
    (file,) = (tmp_path / 'a' / 'train').glob('*.arrow')
    (file.with_name('b.arrow')).hardlink_to(file)
    for name in (file.name, 'b.arrow'):
        state.write_text(json.dumps(named | {'_data_files': [{'filename': file.name}, {'filename': name}]}))
        with pytest.raises(ValueError, match='each file once'):
            read.check_input(f'hf://{tmp_path}/a', TEXT.fields)


def test_of_an_object_store_paths_tell_files_apart() -> None:
    with object_store():
        for name in ('g/a.csv', 'g//a.csv', 'g/b.csv', 't/pos/1.txt', 't/neg/1.txt'):
            durable.write_file(f'gs://bucket/{name}', b'text\nx\n')
        assert len(read.list_input('gs://bucket/g/a.csv,gs://bucket/g/*.csv')) == 2
        # Objects of their own here, and one file on some filesystems.
        with pytest.raises(ValueError, match='differ in more than'):
            read.list_input('gs://bucket/g/a.csv,gs://bucket/g//a.csv')
        with pytest.raises(ValueError, match='share no file'):
            read.list_input('gs://bucket/t/,gs://bucket/t/pos/')
        assert len(read.list_input('gs://bucket/t/pos/,gs://bucket/t/neg/')) == 2


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


TREE = ('a.csv', 's/b.csv', 's/t/c.csv', 's/t/a.csv', 's/t/u/a.csv', 'ta.csv')


@pytest.mark.parametrize('place', ['here', 'by its path', 'object store'])
@pytest.mark.parametrize(
    ('glob', 'found'),
    [
        ('*.csv', ['a.csv', 'ta.csv']),
        ('*/*.csv', ['s/b.csv']),
        ('**/*.csv', list(TREE)),
        ('**/**/*.csv', list(TREE)),
        ('**.csv', list(TREE)),
        ('**', list(TREE)),
        ('**/a.csv', ['a.csv', 's/t/a.csv', 's/t/u/a.csv']),
        ('**/t/**/a.csv', ['s/t/a.csv', 's/t/u/a.csv']),
        ('s/**/*.csv', ['s/b.csv', 's/t/c.csv', 's/t/a.csv', 's/t/u/a.csv']),
        ('s/**/[bc].csv', ['s/b.csv', 's/t/c.csv']),
        ('?.csv,s/**/b.csv,**/b.csv', ['a.csv', 's/b.csv']),
    ],
)
def test_two_stars_stand_for_any_folders_and_for_none(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, place: str, glob: str, found: list[str]
) -> None:
    if place == 'object store':
        with object_store():
            for name in TREE:
                durable.write_file(f'gs://bucket/d/{name}', b'text\nx\n')
            glob = ','.join(f'gs://bucket/d/{part}' for part in glob.split(','))
            assert [file.path for file in read.list_input(glob)] == sorted(
                f'gs://bucket/d/{n}' for n in found
            )
        return
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('text\nx\n')
    monkeypatch.chdir(tmp_path)
    root = '' if place == 'here' else f'{tmp_path}/'
    glob = ','.join(f'{root}{part}' for part in glob.split(','))
    assert [file.path for file in read.list_input(glob)] == sorted(f'{root}{name}' for name in found)


def test_an_object_with_a_comma_in_its_name_is_found() -> None:
    with object_store():
        for name in ('a,b.csv', 'c.csv'):
            durable.write_file(f'gs://bucket/{name}', b'text\nx\n')
        found = read.list_input('gs://bucket/a,b.csv,gs://bucket/c.csv')
        assert [file.path for file in found] == ['gs://bucket/a,b.csv', 'gs://bucket/c.csv']


def test_a_glob_finds_accents_however_they_are_composed(tmp_path: pathlib.Path) -> None:
    name = unicodedata.normalize('NFD', 'Größe.csv')
    (tmp_path / name).write_text('text\nx\n')
    for given in ('Größe.csv', 'Grö*.csv', name):
        assert [file.path for file in read.list_input(f'{tmp_path}/{given}')] == [f'{tmp_path}/{name}']


@pytest.mark.parametrize(
    ('pattern', 'message'),
    [
        (
            'notes{a,b}.csv',
            r"pattern='notes\{a'.*comma in input='notes\{a,b\}.csv' separates.*write all paths out",
        ),
        ('C:\\notes\\a.csv', 'Folders have / between them here'),
        ('http://example.org/a.csv', 'a filesystem that Beam knows.*Fetch the file'),
    ],
)
def test_what_names_no_file_here_is_told_what_to_do(pattern: str, message: str) -> None:
    with pytest.raises((FileNotFoundError, ValueError), match=message):
        read.list_input(pattern)


CASE = pathlib.Path(__file__).parents[4] / 'shared' / 'cases' / '14-glob-names'


@pytest.mark.skipif(not CASE.is_dir(), reason='files of shared/cases are not here')
@pytest.mark.parametrize('name', ['notes 1,2.csv', 'notes{a,b}.csv', 'notes [2024].csv', 'n{ab}*?.csv'])
def test_files_of_the_case_are_found_by_their_own_names(name: str) -> None:
    assert [file.path for file in read.list_input(str(CASE / name))] == [str(CASE / name)]
    (piece,) = read.split_file(str(CASE / name))
    assert len(list(read.read_piece(piece, TEXT))) == 40


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
