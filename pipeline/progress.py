"""Progress of a local run, seen from its finished batches.

A local runner's counters come only at the end, and counters of records may not be
shown at all (METHOD 8). Finished batches and their tokens are outputs, and may.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator

import rich.console
import rich.progress
from apache_beam.io.filesystems import FileSystems

from transforms.durable import is_local, list_files, read_file
from transforms.run_files import BATCHES_FOLDER, PLAN

_SECONDS_BETWEEN_LOOKS = 0.5
# Columns that count tokens, where a method's rows have them.
_TOKENS = ('private_tokens', 'public_tokens')
# Of a bucket each look is a request, which takes time and is charged.
_SECONDS_BETWEEN_REMOTE_LOOKS = 15.0


@contextlib.contextmanager
def watch(work_dir: str, console: rich.console.Console) -> Iterator[None]:
    """Shows batches, tokens, rate and time left while the body runs; silent off a terminal.

    Args:
        work_dir: The curator's folder, on any filesystem that Beam knows.
        console: Where to; nothing is shown where it is quiet or not a terminal.
    """
    if console.quiet or not console.is_terminal:
        yield
        return
    display = rich.progress.Progress(
        rich.progress.TextColumn('{task.description}'),
        rich.progress.BarColumn(),
        rich.progress.TextColumn('{task.completed} of {task.fields[planned]} batches'),
        rich.progress.TextColumn('{task.fields[tokens]:,} tokens, {task.fields[rate]:,.0f} per second'),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn('left'),
        rich.progress.TimeRemainingColumn(),
        console=console,
    )
    done = threading.Event()
    with display:
        task = display.add_task('Decoding', total=None, planned='?', tokens=0, rate=0.0)
        looker = threading.Thread(target=_look, args=(work_dir, display, task, done), daemon=True)
        looker.start()
        try:
            yield
        finally:
            done.set()
            looker.join()


def _look(
    work_dir: str, display: rich.progress.Progress, task: rich.progress.TaskID, done: threading.Event
) -> None:
    """Counts finished batches until the run is done."""
    pause = _SECONDS_BETWEEN_LOOKS if is_local(work_dir) else _SECONDS_BETWEEN_REMOTE_LOOKS
    tokens: dict[str, int] = {}
    planned: int | None = None
    began, earlier = time.monotonic(), None
    while True:
        finished = done.wait(pause)
        # What goes wrong here the run says itself, where it matters.
        with contextlib.suppress(OSError, ValueError):
            for path in list_files(FileSystems.join(work_dir, BATCHES_FOLDER), '.json'):
                if path not in tokens:
                    rows = json.loads(read_file(path))
                    tokens[path] = sum(row.get(name, 0) for row in rows for name in _TOKENS)
            planned = planned or _planned(FileSystems.join(work_dir, PLAN))
        so_far = sum(tokens.values())
        if earlier is None:
            earlier = so_far  # of a run that is resumed
        rate = (so_far - earlier) / (time.monotonic() - began)
        display.update(
            task, completed=len(tokens), total=planned, planned=planned or '?', tokens=so_far, rate=rate
        )
        if finished:
            return


def _planned(path: str) -> int | None:
    """Batches of the plan, once there is one."""
    return sum(json.loads(read_file(path))['batches_per_group']) if FileSystems.exists(path) else None
