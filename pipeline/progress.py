"""Progress of a local run, seen from its finished batches.

A local runner's counters come only at the end, and counters of records may not be
shown at all (METHOD 8). Finished batches and their tokens are outputs, and may.
"""

import contextlib
import json
import pathlib
import threading
import time
from collections.abc import Iterator

import rich.console
import rich.progress

from transforms.generate import BATCHES_FOLDER

_SECONDS_BETWEEN_LOOKS = 0.5


@contextlib.contextmanager
def watch(work_dir: str, console: rich.console.Console) -> Iterator[None]:
    """Shows batches, tokens, rate and time left while the body runs; silent off a terminal.

    Args:
        work_dir: The curator's folder, local.
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
        looker = threading.Thread(
            target=_look, args=(pathlib.Path(work_dir), display, task, done), daemon=True
        )
        looker.start()
        try:
            yield
        finally:
            done.set()
            looker.join()


def _look(
    work_dir: pathlib.Path, display: rich.progress.Progress, task: rich.progress.TaskID, done: threading.Event
) -> None:
    """Counts finished batches until the run is done."""
    seen: dict[str, int] = {}
    began, earlier = time.monotonic(), None
    while True:
        finished = done.wait(_SECONDS_BETWEEN_LOOKS)
        for path in (work_dir / BATCHES_FOLDER).glob('*.json'):
            if path.name not in seen:
                rows = json.loads(path.read_text(encoding='utf-8'))
                seen[path.name] = sum(row['private_tokens'] + row['public_tokens'] for row in rows)
        tokens = sum(seen.values())
        if earlier is None:
            earlier = tokens  # of a run that is resumed
        plan = work_dir / 'plan.json'
        planned = sum(json.loads(plan.read_text())['batches_per_group']) if plan.exists() else None
        rate = (tokens - earlier) / (time.monotonic() - began)
        display.update(
            task, completed=len(seen), total=planned, planned=planned or '?', tokens=tokens, rate=rate
        )
        if finished:
            return
