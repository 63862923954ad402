"""The folder of a release is found by whatever name leads to it."""

import pathlib

import pytest

from pipeline.release import released_corpus
from transforms.run_files import DATA_FOLDER, REPORT


def test_a_release_is_found_by_every_name_of_its_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / 'notes 1,2'
    (folder / DATA_FOLDER).mkdir(parents=True)
    (folder / REPORT).touch()
    (folder / DATA_FOLDER / 'train.parquet').touch()
    monkeypatch.setenv('HOME', str(tmp_path))
    for name in (
        str(folder),
        f'{folder}/',
        f'file://{folder}',
        '~/notes 1,2',
        f'file://{tmp_path}/notes%201,2',
    ):
        assert released_corpus.is_release(name), name
        (shard,) = released_corpus.list_shards(name, 'start')
        assert pathlib.Path(shard.path).samefile(folder / DATA_FOLDER / 'train.parquet')
    assert not released_corpus.is_release(f'{folder}/{DATA_FOLDER}/*.parquet')
    assert not released_corpus.is_release(f'{folder},{folder}')
