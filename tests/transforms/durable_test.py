"""Files of a run: whole, once, and the same for every reader."""

import os
import pathlib
import stat
import threading

import pytest

from models.privacy.randomness import RunKey
from transforms import durable


def test_write_file_leaves_the_file_and_nothing_beside_it(tmp_path: pathlib.Path) -> None:
    durable.write_file(str(tmp_path / 'a.json.gz'), b'bytes as they are')
    assert [path.name for path in tmp_path.iterdir()] == ['a.json.gz']
    assert (tmp_path / 'a.json.gz').read_bytes() == b'bytes as they are'


def test_write_file_keeps_what_is_there(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'a.json'
    durable.write_file(str(path), b'first')
    durable.write_file(str(path), b'second')
    assert [path.name for path in tmp_path.iterdir()] == ['a.json']
    assert path.read_bytes() == b'first'


def test_write_file_shows_no_half_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError('power cut')

    monkeypatch.setattr(os, 'link', fail)
    with pytest.raises(OSError, match='power cut'):
        durable.write_file(str(tmp_path / 'a.json'), b'content')
    assert os.listdir(tmp_path) == []


def test_concurrent_writers_leave_one_whole_file(tmp_path: pathlib.Path) -> None:
    contents = [bytes([65 + i]) * 100_000 for i in range(8)]
    threads = [
        threading.Thread(target=durable.write_file, args=(str(tmp_path / 'a'), content))
        for content in contents
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ['a']
    assert (tmp_path / 'a').read_bytes() in contents


def test_nothing_is_drawn_where_a_file_is(tmp_path: pathlib.Path) -> None:
    draws = iter(['first', 'second'])
    for _ in range(3):
        assert durable.draw_once(str(tmp_path / 'release.json'), lambda: next(draws)) == 'first'
    assert next(draws) == 'second'


def test_reading_what_is_not_there_says_so(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        durable.read_file(str(tmp_path / 'absent'))


def test_a_key_is_its_owners_alone_and_is_never_replaced(tmp_path: pathlib.Path) -> None:
    key = RunKey.new()
    durable.write_key(str(tmp_path), key)
    durable.write_key(str(tmp_path), RunKey.new())
    path = tmp_path / durable.RUN_KEY
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == key.to_bytes()
    assert durable.read_key(str(tmp_path)).commitment('run') == key.commitment('run')
    path.chmod(0o640)
    with pytest.raises(PermissionError, match='owner alone'):
        durable.read_key(str(tmp_path))


def test_a_folder_that_is_not_there_is_not_made_by_a_worker(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match='that all workers share'):
        durable.write_file(str(tmp_path / 'elsewhere' / 'a'), b'content')
    assert os.listdir(tmp_path) == []


def test_temporaries_of_killed_writers_are_nothing_and_can_be_removed(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.json.0123.tmp').write_bytes(b'half')
    assert durable.is_empty(str(tmp_path), besides=('*.tmp',))
    assert not durable.is_empty(str(tmp_path))
    (tmp_path / 'a.json').write_bytes(b'whole')
    assert not durable.is_empty(str(tmp_path), besides=('*.tmp',))
    durable.remove_temporaries(str(tmp_path))
    assert os.listdir(tmp_path) == ['a.json']
    assert durable.is_empty(str(tmp_path / 'absent'))
