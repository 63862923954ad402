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
from collections.abc import Iterator, Mapping

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


class Pace:
    """How fast something moves, from when it was first seen to: loading and compiling are not repeated."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._latest: tuple[float, float] | None = None

    def see(self, done: float, now: float) -> None:
        """Notes how far it is.

        Args:
            done: So much of it; 0 before anything is done.
            now: Seconds of a clock that never goes back.
        """
        if done <= 0:
            return
        if self._first is None:
            self._first = (done, now)
        if self._latest is None or done > self._latest[0]:
            self._latest = (done, now)

    @property
    def seconds_of_one(self) -> float | None:
        """Seconds of one more; None before it was seen to move."""
        if self._first is None or self._latest is None or self._latest[0] <= self._first[0]:
            return None
        return (self._latest[1] - self._first[1]) / (self._latest[0] - self._first[0])


class Progress:
    """Where a run is, from what is seen of it: the two lines of a display.

    Args:
        sampling_share: Seconds of sampling for each second of training, by the plan.
        began: When the run did, in seconds of the clock of `look`.

    Attributes:
        doing: What the run does, in words.
        counted: How far it is, and how fast.
        left: How long it still takes, in words; '' before that is known.
        completed: How much of `total` is done, for a bar.
        total: Batches, or steps while it trains; None where their number is not known.
    """

    def __init__(self, sampling_share: float, began: float) -> None:
        self._share, self._began = sampling_share, began
        self._earlier: int | None = None  # tokens of a run that is resumed
        self._of_batches, self._of_steps = Pace(), Pace()
        self.doing, self.counted, self.left = READING, '0 of ? batches, 0 tokens, 0 a second,', ''
        self.completed: float = 0.0
        self.total: float | None = None

    def look(
        self, tokens: Mapping[str, int], planned: int | None, under_way: activity.Activity | None, now: float
    ) -> None:
        """Works the lines out anew.

        Args:
            tokens: Of each finished batch.
            planned: Batches of the plan; None before there is one.
            under_way: What this process does.
            now: Seconds of a clock that never goes back.
        """
        self.left = ''
        self.doing = _doing(len(tokens), planned, under_way)
        if self._earlier is None:
            self._earlier = sum(tokens.values())
        if under_way is not None and under_way.unit == activity.STEP:
            self._look_at_steps(under_way, now)
        else:
            self._look_at_batches(tokens, planned, under_way, now)

    def _look_at_steps(self, under_way: activity.Activity, now: float) -> None:
        # The step that is named is under way.
        finished = under_way.done - 1
        self.completed, self.total = finished, under_way.total
        self._of_steps.see(finished, now)
        self.counted = f'{finished:,} of {under_way.total:,} steps,'
        if (seconds := self._of_steps.seconds_of_one) is not None:
            self.counted += f' {seconds:.3g} s a step,'
            steps_of_sampling = self._share * under_way.total
            self.left = _time_left(seconds * (under_way.total - finished + steps_of_sampling))

    def _look_at_batches(
        self, tokens: Mapping[str, int], planned: int | None, under_way: activity.Activity | None, now: float
    ) -> None:
        # What counts texts is at several batches at once.
        part, so_far = 0.0, sum(tokens.values())
        is_of_batch = under_way is not None and under_way.unit == activity.TOKEN and under_way.total
        if under_way is not None and is_of_batch and under_way.batch_id not in {*map(_name_of, tokens)}:
            part = under_way.done / under_way.total
            so_far += under_way.done
        self.completed, self.total = len(tokens) + part, planned or None
        self._of_batches.see(self.completed, now)
        rate = (so_far - (self._earlier or 0)) / (now - self._began) if now > self._began else 0.0
        shown = f'{rate:,.0f}' if rate >= 10 or not rate else f'{rate:.1f}'
        of = '?' if planned is None else f'{planned:,}'
        self.counted = f'{len(tokens):,} of {of} batches, {so_far:,} tokens, {shown} a second,'
        if planned and (seconds := self._of_batches.seconds_of_one) is not None:
            self.left = _time_left(seconds * max(0.0, planned - self.completed))


@contextlib.contextmanager
def watch(work_dir: str, console: rich.console.Console, sampling_share: float = 0.0) -> Iterator[None]:
    """Shows what a run does, how far it is and what time is left; silent but in a terminal or a notebook.

    Args:
        work_dir: The curator's folder, on any filesystem that Beam knows.
        console: Where to; nothing is shown where it is quiet, or neither a terminal nor a notebook.
        sampling_share: Seconds of sampling for each second of training, by the plan.
    """
    if console.quiet or not (console.is_terminal or console.is_jupyter):
        yield
        return
    # Two lines, so that both fit into eighty columns.
    doing = rich.progress.Progress(
        rich.progress.TextColumn('{task.description}'), rich.progress.BarColumn(), console=console
    )
    figures = rich.progress.Progress(
        rich.progress.TextColumn('{task.description}'),
        rich.progress.TextColumn('elapsed'),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn('{task.fields[left]}'),
        console=console,
    )
    activity.report(None)
    shown = Progress(sampling_share, time.monotonic())
    doing.add_task(shown.doing, total=None)
    figures.add_task(shown.counted, total=None, left=shown.left)
    done = threading.Event()
    # A notebook would keep its last state below what the run says at its end.
    with rich.live.Live(rich.console.Group(doing, figures), console=console, transient=console.is_jupyter):
        looker = threading.Thread(target=_look, args=(work_dir, doing, figures, shown, done), daemon=True)
        looker.start()
        try:
            yield
        finally:
            done.set()
            looker.join()


def _look(
    work_dir: str,
    doing: rich.progress.Progress,
    figures: rich.progress.Progress,
    shown: Progress,
    done: threading.Event,
) -> None:
    """Looks again and again until the run is done."""
    pause = _SECONDS_BETWEEN_LOOKS if is_local(work_dir) else _SECONDS_BETWEEN_REMOTE_LOOKS
    tokens: dict[str, int] = {}
    planned: int | None = None
    while True:
        finished = done.wait(pause)
        # What goes wrong here the run says itself, where it matters.
        with contextlib.suppress(OSError, ValueError):
            for path in list_files(FileSystems.join(work_dir, BATCHES_FOLDER), '.json'):
                if path not in tokens:
                    rows = json.loads(read_file(path))
                    tokens[path] = sum(row.get(name, 0) for row in rows for name in _TOKENS)
            planned = planned or _planned(FileSystems.join(work_dir, PLAN))
        shown.look(tokens, planned, activity.latest(), time.monotonic())
        (above,), (below,) = doing.task_ids, figures.task_ids
        doing.update(above, description=shown.doing, completed=shown.completed, total=shown.total)
        figures.update(below, description=shown.counted, left=shown.left)
        if finished:
            return


def _name_of(path: str) -> str:
    """The batch whose file it is."""
    return path.rpartition('/')[2].removesuffix('.json')


def _time_left(seconds: float) -> str:
    return f'about {datetime.timedelta(seconds=round(seconds))} left'


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
