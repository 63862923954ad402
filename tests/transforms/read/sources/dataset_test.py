"""Hugging Face data sets, as the library writes them, and names that cannot be reached."""

import pathlib

import datasets
import huggingface_hub.constants
import pytest

from models.records import Record
from tests.object_store import object_store
from tests.transforms.read.samples import TEXT
from transforms import durable, read
from transforms.read import MissingColumns, Reason, RecordFields, RecordRules, Rejection, Table

RULES = RecordRules(
    fields=RecordFields(text='text', label='label', record_id='id', table=Table(split='train')),
    labels=('0', '1'),
)
PLAIN = RecordRules(fields=RecordFields(text='text', label='label', record_id='id'), labels=('0', '1'))


@pytest.fixture(scope='module')
def saved() -> datasets.Dataset:
    """Rows that are chosen and shuffled by a list of places, which a saved folder no longer has."""
    rows = {
        'text': [f'Text {n}.' for n in range(20)],
        'id': [n * 2.0 for n in range(20)],
        'label': [n % 2 for n in range(20)],
        'tokens': [['x']] * 20,
    }
    whole = datasets.Dataset.from_dict(rows)
    return whole.cast_column('label', datasets.ClassLabel(names=['neg', 'pos'])).shuffle(1).select(range(10))


def rows(place: str, rules: RecordRules) -> list[Record | Rejection]:
    (file,) = read.check_input(place, rules.fields)
    pieces = read.split_file(file.path, rules.fields.table)
    return [one for piece in pieces for one in read.read_piece(piece, rules)]


def expected(saved: datasets.Dataset) -> list[tuple[str, str, str]]:
    return sorted((row['text'], str(row['label']), f'{row["id"]:g}') for row in saved)


def shown(found: list[Record | Rejection]) -> list[tuple[str, str, str]]:
    return sorted((one.text, str(one.label), str(one.record_id)) for one in found if isinstance(one, Record))


def test_a_saved_data_set_is_read_file_by_file(saved: datasets.Dataset, tmp_path: pathlib.Path) -> None:
    saved.save_to_disk(str(tmp_path / 'one'), num_shards=3)
    place = f'hf://{tmp_path}/one'
    assert shown(rows(place, PLAIN)) == expected(saved)
    assert len(list(read.split_file(place))) == 3
    with pytest.raises(ValueError, match="Expected no split.*split='train'"):
        read.check_input(place, RULES.fields)
    with pytest.raises(MissingColumns, match=r"missing=\['ward'\]"):
        read.check_input(place, RecordFields(text='text', label='ward'))
    with pytest.raises(ValueError, match="column='tokens', type='list"):
        read.check_input(place, RecordFields(text='text', label='tokens'))


def test_of_several_splits_one_has_to_be_named(saved: datasets.Dataset, tmp_path: pathlib.Path) -> None:
    both = datasets.DatasetDict(train=saved, test=saved.select(range(2)))
    both.save_to_disk(str(tmp_path / 'both'))
    place = f'hf://{tmp_path}/both/'
    assert shown(rows(place, RULES)) == expected(saved)
    with pytest.raises(ValueError, match=r"one of the splits \['train', 'test'\].*got none.*--split"):
        read.check_input(place, PLAIN.fields)
    with pytest.raises(ValueError, match="got split='dev'"):
        read.check_input(place, RecordFields(text='text', table=Table(split='dev')))
    datasets.DatasetDict(train=saved).save_to_disk(str(tmp_path / 'only'))
    assert shown(rows(f'hf://{tmp_path}/only', PLAIN)) == expected(saved)


def test_the_digest_is_of_the_rows_of_the_split(saved: datasets.Dataset, tmp_path: pathlib.Path) -> None:
    def digest(name: str, **splits: datasets.Dataset) -> str:
        datasets.DatasetDict(**splits).save_to_disk(str(tmp_path / name))
        (file,) = read.list_input(f'hf://{tmp_path}/{name}')
        return file.checksum(RULES.fields)

    other = saved.map(lambda row: {'text': row['text'].upper()})
    first = digest('a', train=saved, test=saved)
    assert digest('b', train=saved, test=other) == first
    assert digest('c', train=other, test=saved) != first


def test_a_saved_data_set_of_an_object_store_is_read(saved: datasets.Dataset, tmp_path: pathlib.Path) -> None:
    saved.save_to_disk(str(tmp_path / 'one'))
    with object_store():
        for path in (tmp_path / 'one').iterdir():
            durable.write_file(f'gs://bucket/one/{path.name}', path.read_bytes())
        assert shown(rows('hf://gs://bucket/one', PLAIN)) == expected(saved)


def test_damage_ends_a_file_as_a_rejected_row(saved: datasets.Dataset, tmp_path: pathlib.Path) -> None:
    saved.save_to_disk(str(tmp_path / 'one'))
    (file,) = (tmp_path / 'one').glob('*.arrow')
    file.write_bytes(file.read_bytes()[:-200])
    (found,) = rows(f'hf://{tmp_path}/one', PLAIN)
    assert isinstance(found, Rejection) and found.reason is Reason.UNREADABLE_REST
    file.write_bytes(b'secret')
    with pytest.raises(ValueError, match='Expected Arrow files') as caught:
        read.check_input(f'hf://{tmp_path}/one', PLAIN.fields)
    assert 'secret' not in str(caught.value)


def test_what_is_no_data_set_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r'DIR/\*\.parquet'):
        read.check_input(f'hf://{tmp_path}', TEXT.fields)
    with pytest.raises(FileNotFoundError, match='Expected a data set'):
        read.check_input('hf:///no/such/folder', TEXT.fields)


@pytest.fixture
def offline(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The cache of the library, which has nothing else to ask."""
    for module in (huggingface_hub.constants, datasets.config):
        monkeypatch.setattr(module, 'HF_HUB_OFFLINE', True)
    monkeypatch.setattr(datasets.config, 'HF_DATASETS_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


def test_a_name_that_cannot_be_reached_says_so(offline: pathlib.Path) -> None:
    with pytest.raises(ConnectionError, match='the library datasets says: .*Check the name') as caught:
        read.check_input('hf://no-owner/no-name', TEXT.fields)
    assert '\n' not in str(caught.value) and caught.value.__context__ is None


def test_a_name_is_read_from_the_cache_of_the_library(saved: datasets.Dataset, offline: pathlib.Path) -> None:
    file = str(offline.parent / 'a.parquet')
    saved.remove_columns('tokens').to_parquet(file)
    builder = datasets.load_dataset_builder(
        'parquet', data_files={'train': file, 'test': file}, cache_dir=str(offline)
    )
    builder.download_and_prepare()
    # As the library keeps what it fetched under a name.
    (offline / 'parquet').rename(offline / 'owner___notes')
    for path in [*offline.rglob('*.arrow'), *offline.rglob('dataset_info.json')]:
        if path.suffix == '.json':
            path.write_text(path.read_text().replace('"parquet"', '"notes"'))
        path.rename(path.with_name(path.name.replace('parquet', 'notes')))
    next((offline / 'owner___notes').iterdir()).rename(offline / 'owner___notes' / 'default')
    place = 'hf://owner/notes'
    assert shown(rows(place, RULES)) == expected(saved)
    with pytest.raises(ValueError, match=r"one of the splits \['train', 'test'\]"):
        read.check_input(place, PLAIN.fields)
    ((_, (number, version)),) = read.split_file(place, RULES.fields.table)
    with pytest.raises(ValueError, match='one version of the data set on all machines'):
        next(read.read_piece((place, (number, 'of another day')), RULES))
