"""Services that end are started again, and leave nothing behind."""

import functools
import os
import pathlib
import signal
import threading

import psutil
import pytest

from launch.flink import supervisor
from launch.flink.supervisor import Service
from tests.launch.flink.local_cluster import starts, wait_for

pytestmark = pytest.mark.run


def test_a_service_that_ends_is_started_again_and_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    left = tmp_path / 'left.pid'
    script = f'sleep 1000 & echo $! > "{left}.tmp"; mv "{left}.tmp" "{left}"; wait'
    service = Service(name='parent', command=('/bin/sh', '-c', script))
    stopped = threading.Event()
    thread = threading.Thread(target=supervisor.supervise, args=(tmp_path, [service], stopped))
    thread.start()
    try:
        wait_for(left.exists, 20, 'the first start')
        first, child = supervisor.read_processes(tmp_path)['parent'], int(left.read_text())
        left.unlink()
        os.kill(first.pid, signal.SIGKILL)  # the parent alone
        wait_for(left.exists, 20, 'the second start')
        wait_for(functools.partial(is_dead, child), 5, 'ending the child')
        child = int(left.read_text())
        wait_for(lambda: starts(tmp_path, 'parent') == 2, 5, 'writing down the second start')
        assert not first.alive
    finally:
        stopped.set()
        thread.join()
    wait_for(functools.partial(is_dead, child), 5, 'ending the child')
    assert supervisor.read_processes(tmp_path) == {}


def is_dead(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_folder_has_one_supervisor(tmp_path: pathlib.Path) -> None:
    stopped = threading.Event()
    service = Service(name='sleeper', command=('sleep', '1000'))
    thread = threading.Thread(target=supervisor.supervise, args=(tmp_path, [service], stopped))
    thread.start()
    try:
        wait_for(lambda: starts(tmp_path, 'sleeper') == 1, 20, 'the start')
        with pytest.raises(FileExistsError, match='Expected no other supervisor'):
            supervisor.supervise(tmp_path, [service], stopped)
    finally:
        stopped.set()
        thread.join()
