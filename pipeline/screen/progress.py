"""Progress of a local run, seen from its finished batches.

A local runner's counters come only at the end, and counters of records may not be
shown at all (METHOD 8). Finished batches and their tokens are outputs, and may. The batch that is being
decoded is known where this process decodes (`models/activity.py`).
"""

import contextlib
import datetime
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import rich.console
import rich.progress
import rich.table
from apache_beam.io.filesystems import FileSystems
from rich import text

from models import activity
from pipeline.screen import off_screen
from transforms.durable import is_local, list_files, read_file
from transforms.run_files import BATCHES_FOLDER, PLAN

READING, WRITING = 'Reading records', 'Writing'
_SECONDS_BETWEEN_LOOKS = 0.5
# Each look at a bucket is a request, which takes time and is charged.
_SECONDS_BETWEEN_REMOTE_LOOKS = 15.0
_SECONDS_BETWEEN_LINES = 60.0
# Columns that count tokens, where a method's rows have them.
_TOKENS = ('private_tokens', 'public_tokens', 'forced_tokens', 'tokens')


class _Clocks(rich.progress.ProgressColumn):
    """The time since a run began, and below it the time that is left, once that is known."""

    def render(self, task: rich.progress.Task) -> text.Text:
        return text.Text('\n'.join(_clocks(task)))


def _clocks(task: rich.progress.Task) -> list[str]:
    clocks = [f'elapsed {datetime.timedelta(seconds=int(task.elapsed or 0))}']
    if task.time_remaining:
        clocks.append(f'about {datetime.timedelta(seconds=int(task.time_remaining))} left')
    return clocks


class Display(rich.progress.Progress):
    """Two lines, so that they fit into eighty columns: the activity of a run, and how far it is.

    rich measures the pace from when something was first seen to move: loading and compiling are not repeated.

    Args:
        console: The screen that shows it.
        sampling_share: Seconds of sampling for each second of training, by the plan.
        get_time: Seconds of a clock that never goes back; None for the machine's.
    """

    def __init__(
        self,
        console: rich.console.Console,
        sampling_share: float = 0.0,
        get_time: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(
            rich.progress.TextColumn('{task.description}\n{task.fields[counted]}', markup=False),
            rich.progress.BarColumn(),
            # The bar alone gives way where it is narrow.
            _Clocks(table_column=rich.table.Column(no_wrap=True)),
            console=console,
            # A notebook would keep its last state below what the run says at its end.
            transient=console.is_jupyter,
            get_time=get_time,
            speed_estimate_period=math.inf,
        )
        self._share = sampling_share
        self._earlier: int | None = None  # tokens of a run that is resumed
        self._batches = self.add_task(READING, total=None, counted='0 of ? batches, 0 tokens, 0 a second')
        self._steps = self.add_task('', total=None, counted='', visible=False)

    def show(
        self, tokens: Mapping[str, int], planned: int | None, under_way: activity.Activity | None
    ) -> None:
        """Works the lines out anew.

        Args:
            tokens: Tokens of each finished batch, by the batch's file.
            planned: Batches of the plan; None before there is one.
            under_way: Activity of this process.
        """
        if self._earlier is None:
            self._earlier = sum(tokens.values())
        is_training = under_way is not None and under_way.unit == activity.STEP
        if under_way is not None and is_training:
            self._show_steps(under_way)
        else:
            self._show_batches(tokens, planned, under_way)
        shown, hidden = (self._steps, self._batches) if is_training else (self._batches, self._steps)
        self.update(shown, description=_doing(len(tokens), planned, under_way), visible=True)
        self.update(hidden, visible=False)

    def line(self) -> str:
        """The state that `show` worked out, on one line."""
        (task,) = (each for each in self.tasks if each.visible)
        parts = [task.description, task.fields['counted'], *_clocks(task)]
        return '; '.join(filter(None, parts))

    def _show_steps(self, under_way: activity.Activity) -> None:
        # The step that is named is under way.
        finished = under_way.done - 1
        # Sampling comes after training.
        self.update(self._steps, completed=finished, total=under_way.total * (1 + self._share))
        speed = self._tasks[self._steps].speed
        pace = '' if not speed else f', {1 / speed:.3g} s a step'
        self.update(self._steps, counted=f'{finished:,} of {under_way.total:,} steps{pace}')

    def _show_batches(
        self, tokens: Mapping[str, int], planned: int | None, under_way: activity.Activity | None
    ) -> None:
        # An activity that counts texts is at several batches at once.
        part, so_far = 0.0, sum(tokens.values())
        is_of_batch = under_way is not None and under_way.unit == activity.TOKEN and under_way.total
        if under_way is not None and is_of_batch and under_way.batch_id not in {*map(_name_of, tokens)}:
            part = under_way.done / under_way.total
            so_far += under_way.done
        seconds = self._tasks[self._batches].elapsed
        rate = (so_far - (self._earlier or 0)) / seconds if seconds else 0.0
        shown = f'{rate:,.0f}' if rate >= 10 or not rate else f'{rate:.1f}'
        total = '?' if planned is None else f'{planned:,}'
        self.update(
            self._batches,
            completed=len(tokens) + part,
            total=planned or None,
            counted=f'{len(tokens):,} of {total} batches, {so_far:,} tokens, {shown} a second',
        )


@contextlib.contextmanager
def watch(work_dir: str, console: rich.console.Console, sampling_share: float = 0.0) -> Iterator[None]:
    """Shows what a run does, how far it is and what time is left; in a log with a line a minute.

    Args:
        work_dir: The curator's folder, on any filesystem that Beam knows.
        console: The screen, or the log; nothing is shown where it is quiet.
        sampling_share: Seconds of sampling for each second of training, by the plan.
    """
    if console.quiet:
        yield
        return
    activity.report(None)
    done = threading.Event()
    is_screen = off_screen.shows_progress(console)
    display = Display(console, sampling_share)
    with display if is_screen else contextlib.nullcontext():
        # rich draws under a lock, for which a bucket's client that prints would wait: another thread looks.
        log = None if is_screen else console
        looker = threading.Thread(target=_look, args=(work_dir, display, done, log), daemon=True)
        looker.start()
        try:
            yield
        finally:
            done.set()
            looker.join()


def _look(work_dir: str, display: Display, done: threading.Event, log: rich.console.Console | None) -> None:
    """Looks again and again until the run is done, and writes a line a minute to a log."""
    pause = _SECONDS_BETWEEN_LOOKS if is_local(work_dir) else _SECONDS_BETWEEN_REMOTE_LOOKS
    tokens: dict[str, int] = {}
    planned: int | None = None
    is_last = False
    written = time.monotonic()
    while not is_last:
        is_last = done.wait(pause)
        # The run itself says what goes wrong, where it matters.
        with contextlib.suppress(OSError, ValueError):
            for path in list_files(FileSystems.join(work_dir, BATCHES_FOLDER), '.json'):
                if path not in tokens:
                    rows = json.loads(read_file(path))
                    tokens[path] = sum(row.get(name, 0) for row in rows for name in _TOKENS)
            planned = planned or _planned(FileSystems.join(work_dir, PLAN))
        display.show(tokens, planned, activity.latest())
        if log is not None and not is_last and time.monotonic() - written >= _SECONDS_BETWEEN_LINES:
            written = time.monotonic()
            log.print(display.line(), soft_wrap=True, markup=False, highlight=False)


def _name_of(path: str) -> str:
    """The batch whose file it is."""
    return path.rpartition('/')[2].removesuffix('.json')


def _doing(finished: int, planned: int | None, under_way: activity.Activity | None) -> str:
    """The activity of a run, in words."""
    if planned and finished >= planned:
        return WRITING
    if under_way is not None:
        return str(under_way)
    return 'Decoding' if finished else READING


def _planned(path: str) -> int | None:
    """Batches of the plan, once there is one."""
    return sum(json.loads(read_file(path))['batches_per_group']) if FileSystems.exists(path) else None
