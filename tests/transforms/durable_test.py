"""Files of a run: whole, once, and the same for every reader."""

import errno
import os
import pathlib
import stat
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import pytest

from models.privacy.randomness import RunKey
from tests import fork_server
from tests.object_store import object_store
from transforms import durable

PROCESSES = fork_server.CONTEXT


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


# --- Races -----------------------------------------------------------------------

WRITERS, READERS, TURNS = 4, 2, 25
SIZE = 300_000


@pytest.fixture(scope='module', autouse=True)
def warm_processes() -> Iterator[None]:
    with fork_server.preloaded('transforms.durable'):
        yield


def write_in_a_race(path: str, writer: int, starts: Any, seen: Any) -> None:
    """One of several processes that begin to write the same file at once; says whose bytes it reads then."""
    for turn in range(TURNS):
        starts.wait()
        durable.write_file(f'{path}{turn}', bytes([writer]) * SIZE)
        seen.put((turn, durable.read_file(f'{path}{turn}')))


def read_in_a_race(path: str, starts: Any, seen: Any) -> None:
    """Reads the file as soon as there is one."""
    for turn in range(TURNS):
        starts.wait()
        while not os.path.exists(f'{path}{turn}'):
            pass
        seen.put((turn, durable.read_file(f'{path}{turn}')))


@pytest.mark.first
@pytest.mark.run
def test_of_racing_processes_exactly_one_wins_and_everyone_reads_its_bytes(tmp_path: pathlib.Path) -> None:
    path, starts, seen = str(tmp_path / 'file'), PROCESSES.Barrier(WRITERS + READERS), PROCESSES.Queue()
    processes = [
        PROCESSES.Process(target=write_in_a_race, args=(path, writer, starts, seen))
        for writer in range(WRITERS)
    ] + [PROCESSES.Process(target=read_in_a_race, args=(path, starts, seen)) for _ in range(READERS)]
    for process in processes:
        process.start()
    contents: dict[int, set[bytes]] = {}
    for _ in range(len(processes) * TURNS):
        turn, content = seen.get(timeout=60)
        contents.setdefault(turn, set()).add(content)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    wholes = [bytes([writer]) * SIZE for writer in range(WRITERS)]
    winners = [wholes.index(content) for turn in range(TURNS) for content in contents[turn]]
    assert len(winners) == TURNS, 'two processes read different bytes'
    # One writer that always is the first would be no race: chance would have it once in 4 ** 24.
    assert len(set(winners)) > 1
    assert sorted(os.listdir(tmp_path)) == sorted(f'file{turn}' for turn in range(TURNS))


def test_a_writer_whose_temporary_is_cleared_away_writes_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another launcher of the same run does once its shards are written."""
    real, cleared = os.link, []

    def link(temporary: str, path: str) -> None:
        if not cleared:
            durable.remove_temporaries(str(tmp_path))
            cleared.append(temporary)
        real(temporary, path)

    monkeypatch.setattr(os, 'link', link)
    durable.write_file(str(tmp_path / 'a.json'), b'content')
    assert os.listdir(tmp_path) == ['a.json'] and len(cleared) == 1
    assert (tmp_path / 'a.json').read_bytes() == b'content'


def test_a_filesystem_without_hard_links_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, 'Operation not permitted')

    monkeypatch.setattr(os, 'link', refuse)
    with pytest.raises(OSError, match='hard links'):
        durable.write_file(str(tmp_path / 'a.json'), b'content')
    assert os.listdir(tmp_path) == []


# --- An object store -------------------------------------------------------------


def test_an_object_is_written_once_and_read_back() -> None:
    with object_store() as objects:
        path = 'gs://bucket/work/batches/a.json'
        with pytest.raises(FileNotFoundError, match='a.json'):
            durable.read_file(path)
        durable.write_file(path, b'first')
        durable.write_file(path, b'second')
        assert durable.read_file(path) == b'first'
        assert durable.draw_once(path, lambda: 'third') == 'first'
        assert list(objects) == ['bucket/work/batches/a.json']


def test_of_racing_uploads_exactly_one_wins() -> None:
    with object_store() as objects:
        for turn in range(5):
            path, starts = f'gs://bucket/{turn}', threading.Barrier(WRITERS)

            def upload(writer: int, path: str = path, starts: threading.Barrier = starts) -> bytes:
                starts.wait()
                durable.write_file(path, bytes([writer]) * SIZE)
                return durable.read_file(path)

            with futures.ThreadPoolExecutor(WRITERS) as pool:
                assert len(set(pool.map(upload, range(WRITERS)))) == 1
        # A generation for each object: nothing was replaced.
        assert sorted(generation for generation, _ in objects.values()) == list(range(2, 7))


def test_folders_of_an_object_store() -> None:
    with object_store():
        durable.make_folder('gs://bucket/work', private=True)
        assert durable.is_empty('gs://bucket/work')
        for name in (
            'work/run.json.0f.tmp',
            'work/batches/a.json',
            'work/batches/b.json',
            'work/batches/b.tmp',
        ):
            durable.write_file(f'gs://bucket/{name}', b'')
        assert not durable.is_empty('gs://bucket/work', besides=('*.tmp',))
        assert durable.is_empty('gs://bucket/work', besides=('*.tmp', '*.json'))
        expected = ['gs://bucket/work/batches/a.json', 'gs://bucket/work/batches/b.json']
        assert sorted(durable.list_files('gs://bucket/work/batches', '.json')) == expected
        durable.remove_temporaries('gs://bucket/work/batches')
        assert sorted(durable.list_files('gs://bucket/work/batches', '')) == expected


@pytest.mark.parametrize('name', ['work[1]', 'work[!a]', 'what?', 'wo*rk', 'work['])
def test_a_folder_of_an_object_store_is_meant_by_its_own_name(name: str) -> None:
    """Taken for a pattern, a folder of another run would look empty, and two runs would share it."""
    with object_store():
        for other in ('work1', 'workb', 'whats', 'wo-rk'):
            durable.write_file(f'gs://bucket/{other}/a.json', b'')
        assert durable.is_empty(f'gs://bucket/{name}')
        assert durable.list_files(f'gs://bucket/{name}', '.json') == []
        durable.write_file(f'gs://bucket/{name}/b.json', b'')
        assert not durable.is_empty(f'gs://bucket/{name}')
        assert durable.list_files(f'gs://bucket/{name}', '.json') == [f'gs://bucket/{name}/b.json']


def test_a_key_in_an_object_store_is_never_replaced() -> None:
    with object_store():
        key = RunKey.new()
        durable.write_key('gs://bucket/work', key)
        durable.write_key('gs://bucket/work', RunKey.new())
        assert durable.read_key('gs://bucket/work').commitment('run') == key.commitment('run')


# --- What a run draws once -------------------------------------------------------


def test_nothing_is_drawn_where_a_file_is(tmp_path: pathlib.Path) -> None:
    draws = iter(['first', 'second'])
    for _ in range(3):
        assert durable.draw_once(str(tmp_path / 'release.json'), lambda: next(draws)) == 'first'
    assert next(draws) == 'second'


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
