"""Times of workers: one file a process, which its later work replaces."""

import json
import pathlib
import subprocess
import sys

import pytest

from models import speed
from transforms import worker_times
from transforms.run_files import WORKERS_FOLDER

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    speed.forget()
    (tmp_path / WORKERS_FOLDER).mkdir()
    return tmp_path


def test_a_process_has_one_file_with_all_that_it_did(folder: pathlib.Path) -> None:
    with worker_times.timed('loading', str(folder)):
        pass
    (first,) = worker_times.read_worker_times(str(folder))
    with worker_times.timed('decoding', str(folder)):
        speed.note('decoding', 7, 1.0)
    (both,) = worker_times.read_worker_times(str(folder))
    assert first.decoding_seconds == 0 and first.loading_seconds == both.loading_seconds > 0
    assert both.decoding_seconds > 0 and both.decoding_tokens == 7
    assert both.elapsed_seconds > first.elapsed_seconds
    # No part of a file is left.
    assert [path.suffix for path in (folder / WORKERS_FOLDER).iterdir()] == ['.json']


@pytest.mark.run
def test_another_process_has_a_file_of_its_own(folder: pathlib.Path) -> None:
    code = (
        'import sys; from transforms.worker_times import timed\n'
        "with timed('training', sys.argv[1]): print('jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, '-c', code, str(folder)],
        check=True, cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == 'False\n', 'nothing that needs no model brings JAX'
    with worker_times.timed('decoding', str(folder)):
        pass
    found = worker_times.read_worker_times(str(folder))
    assert sorted(worker.training_seconds > 0 for worker in found) == [False, True]


def test_a_folder_that_cannot_be_written_ends_no_work_and_errors_of_the_work_are_its_own(
    tmp_path: pathlib.Path,
) -> None:
    with worker_times.timed('decoding', str(tmp_path / 'missing')):
        done = True
    assert done and worker_times.read_worker_times(str(tmp_path / 'missing')) == []
    with pytest.raises(KeyError, match='mine'), worker_times.timed('decoding', str(tmp_path)):
        raise KeyError('mine')


def test_a_file_of_another_version_is_left_out(folder: pathlib.Path) -> None:
    with worker_times.timed('decoding', str(folder)):
        pass
    (folder / WORKERS_FOLDER / 'a.json').write_text(json.dumps({'device': 'processor'}))
    (folder / WORKERS_FOLDER / 'b.json').write_bytes(b'\xff')
    assert len(worker_times.read_worker_times(str(folder))) == 1
