"""Times of workers, by activity -> files of the work directory, for the curator alone."""

import contextlib
import time
from collections.abc import Iterator

from apache_beam.io.filesystems import FileSystems

from models import speed
from models.privacy.report import WorkerTime
from transforms.durable import is_local, list_files, read_file, replace_file
from transforms.run_files import WORKERS_FOLDER

# Object stores take one new version of an object a second.
_SECONDS_BETWEEN_REMOTE_WRITES = 5.0
_written = -_SECONDS_BETWEEN_REMOTE_WRITES


@contextlib.contextmanager
def timed(activity: speed.Activity, work_dir: str) -> Iterator[None]:
    """Measures a block, and writes down what the time of this process has gone to so far.

    A worker may end without a word, so its file is written anew after every piece of work.
    """
    with speed.measured(activity):
        yield
    # One that cannot be written costs the curator's page a line, and no run its end.
    with contextlib.suppress(Exception):
        _write(work_dir)


def _write(work_dir: str) -> None:
    global _written
    path = FileSystems.join(work_dir, WORKERS_FOLDER, f'{speed.worker_name()}.json')
    now = time.monotonic()
    if not is_local(path) and now < _written + _SECONDS_BETWEEN_REMOTE_WRITES:
        return
    replace_file(path, speed.worker_time().to_json().encode())
    _written = now


def read_worker_times(work_dir: str) -> list[WorkerTime]:
    """Times of all processes that worked on a run so far, those of earlier tries among them.

    A file that cannot be read, as of another version, is left out: it is no reason to fail.
    """
    found = []
    for path in sorted(list_files(FileSystems.join(work_dir, WORKERS_FOLDER), '.json')):
        with contextlib.suppress(OSError, ValueError):
            found.append(WorkerTime.from_json(read_file(path).decode()))
    return found
