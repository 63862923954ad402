"""Progress of a local run, seen from its finished batches.

A local runner's counters come only at the end, and counters of records may not be
shown at all (METHOD 8). Finished batches and their tokens are outputs, and may. What is being
decoded at the moment is known where this process decodes (`models/activity.py`).
"""

import contextlib
import datetime
import json
import threading
import time
from collections.abc import Iterator

import rich.console
import rich.live
import rich.progress
from apache_beam.io.filesystems import FileSystems

from models import activity
from transforms.durable import is_local, list_files, read_file
from transforms.run_files import BATCHES_FOLDER, PLAN

READING, WRITING = 'Reading records', 'Writing'
_SECONDS_BETWEEN_LOOKS = 0.5
# Columns that count tokens, where a method's rows have them.
_TOKENS = ('private_tokens', 'public_tokens', 'forced_tokens', 'tokens')
# Of a bucket each look is a request, which takes time and is charged.
_SECONDS_BETWEEN_REMOTE_LOOKS = 15.0


@contextlib.contextmanager
def watch(work_dir: str, console: rich.console.Console) -> Iterator[None]:
    """Shows batches, tokens, rate and time left while the body runs; silent off a terminal.

    Args:
        work_dir: The curator's folder, on any filesystem that Beam knows.
        console: Where to; nothing is shown where it is quiet or not a terminal.
    """
    if console.quiet or not (console.is_terminal or console.is_jupyter):
        yield
        return
    # Two lines, so that both fit into eighty columns.
    doing = rich.progress.Progress(
        rich.progress.TextColumn('{task.description}'), rich.progress.BarColumn(), console=console
    )
    figures = rich.progress.Progress(
        rich.progress.TextColumn('{task.fields[finished]} of {task.fields[planned]} batches,'),
        rich.progress.TextColumn('{task.fields[tokens]:,} tokens, {task.fields[rate]} a second,'),
        rich.progress.TextColumn('elapsed'),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn('{task.fields[left]}'),
        console=console,
    )
    doing.add_task(READING, total=None)
    figures.add_task('', total=None, finished=0, planned='?', tokens=0, rate='0', left='')
    done = threading.Event()
    activity.report(None)
    with rich.live.Live(rich.console.Group(doing, figures), console=console):
        looker = threading.Thread(target=_look, args=(work_dir, doing, figures, done), daemon=True)
        looker.start()
        try:
            yield
        finally:
            done.set()
            looker.join()


def _look(
    work_dir: str, doing: rich.progress.Progress, figures: rich.progress.Progress, done: threading.Event
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
        under_way = activity.latest()
        part = under_way.tokens / under_way.max_tokens if under_way and under_way.max_tokens else 0.0
        completed = len(tokens) + part
        (above,), (below,) = doing.task_ids, figures.task_ids
        doing.update(
            above,
            description=_doing(len(tokens), planned, under_way),
            completed=completed,
            total=planned or None,  # none is of no text: how far training is, the description says
        )
        seconds = figures.tasks[0].time_remaining
        left = '' if seconds is None else f'about {datetime.timedelta(seconds=round(seconds))} left'
        figures.update(
            below, completed=completed, total=planned or None, finished=len(tokens),
            planned='?' if planned is None else planned,
            tokens=so_far, rate=f'{rate:,.0f}' if rate >= 10 or not rate else f'{rate:.1f}', left=left,
        )  # fmt: skip
        if finished:
            return


def _doing(finished: int, planned: int | None, under_way: activity.Activity | None) -> str:
    """What a run does, in words."""
    if planned and finished >= planned:
        return WRITING
    if under_way is not None:
        return str(under_way)
    return 'Decoding' if finished else READING


def _planned(path: str) -> int | None:
    """Batches of the plan, once there is one."""
    return sum(json.loads(read_file(path))['batches_per_group']) if FileSystems.exists(path) else None
