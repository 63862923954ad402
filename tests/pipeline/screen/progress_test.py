"""The progress display: finished batches on a terminal, nothing anywhere else."""

import io
import json
import pathlib
import re
import threading
import time

import pytest
import rich.console

from models import activity
from models.batch_plan import BatchPlan
from models.records import SyntheticExample
from pipeline.screen import progress
from tests.object_store import object_store
from transforms import batch_files, durable, run_files


def example(batch_id: str, tokens: int) -> SyntheticExample:
    return SyntheticExample(
        text='secret-looking text', label=None, batch_id=batch_id, index_in_batch=0, private_tokens=tokens,
        public_tokens=1, truncated=True,
    )  # fmt: skip


@pytest.fixture
def work_dir(tmp_path: pathlib.Path) -> str:
    (tmp_path / run_files.BATCHES_FOLDER).mkdir()
    return str(tmp_path)


def terminal() -> tuple[rich.console.Console, io.StringIO]:
    screen = io.StringIO()
    return rich.console.Console(force_terminal=True, file=screen, width=80, color_system=None), screen


def lookers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if '_look' in thread.name]


def last_lines(screen: io.StringIO) -> str:
    """The display's two lines as they stood at the end, as one."""
    plain = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', screen.getvalue())
    return ' '.join([line for line in re.split(r'[\r\n]+', plain) if line.strip()][-2:])


@pytest.mark.parametrize('is_terminal', [False, True])
def test_silent_when_quiet(work_dir: str, is_terminal: bool) -> None:
    screen = io.StringIO()
    console = rich.console.Console(file=screen, force_terminal=is_terminal, quiet=True)
    with progress.watch(work_dir, console):
        batch_files.write_batch(work_dir, '0000-000000', [example('0000-000000', 5)])
        assert lookers() == []
    assert screen.getvalue() == ''


def test_a_log_has_a_line_now_and_then(work_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, '_SECONDS_BETWEEN_LOOKS', 0.01)
    monkeypatch.setattr(progress, '_SECONDS_BETWEEN_LINES', 0.2)
    screen = io.StringIO()
    with progress.watch(work_dir, rich.console.Console(file=screen, force_terminal=False, width=80)):
        for step in range(1, 10):
            activity.report(activity.Activity('Fine-tuning', None, step, 9, activity.STEP))
            time.sleep(0.1)
    lines = screen.getvalue().splitlines()
    assert 2 <= len(lines) <= 5
    form = (
        r'Fine-tuning, step \d of 9; \d of 9 steps(, \S+ s a step)?; elapsed 0:00:0\d(; about 0:00:0\d left)?'
    )
    assert all(re.fullmatch(form, line) for line in lines), lines


def test_shows_finished_batches_and_their_tokens(work_dir: str) -> None:
    plan = BatchPlan(labels=('a', 'b'), batches_per_group=(2, 1), noisy_counts=None, contexts_rho=0.0)
    pathlib.Path(work_dir, 'plan.json').write_text(plan.to_json())
    console, screen = terminal()
    with progress.watch(work_dir, console):
        batch_files.write_batch(
            work_dir, '0000-000000', [example('0000-000000', 5), example('0000-000000', 7)]
        )
        batch_files.write_batch(work_dir, '0001-000000', [example('0001-000000', 1_200)])
        # A batch that is being written is none.
        pathlib.Path(work_dir, run_files.BATCHES_FOLDER, '0000-000001.json.aa.tmp').write_text('[{')
    assert '2 of 3 batches' in last_lines(screen)
    assert '1,215 tokens' in last_lines(screen)
    assert 'secret' not in screen.getvalue()


def test_the_number_of_batches_is_open_until_there_is_a_plan(work_dir: str) -> None:
    console, screen = terminal()
    with progress.watch(work_dir, console):
        assert len(lookers()) == 1
    assert '0 of ? batches' in last_lines(screen)


def test_shows_what_is_being_done(work_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the records to the files, and a time that is left before the first batch is finished."""
    monkeypatch.setattr(progress, '_SECONDS_BETWEEN_LOOKS', 0.05)
    console, screen = terminal()
    with progress.watch(work_dir, console):

        def seen(words: str) -> bool:
            return any(time.sleep(0.1) is None and words in last_lines(screen) for _ in range(50))

        assert seen('Reading records')
        plan = BatchPlan(labels=(None,), batches_per_group=(2,), noisy_counts=None, contexts_rho=0.0)
        pathlib.Path(work_dir, 'plan.json').write_text(plan.to_json())
        activity.report(activity.Activity('Loading the model'))
        assert seen('Loading the model')
        for tokens in (0, 12, 48):
            activity.report(activity.Activity('Decoding', '0000-000001', tokens, 96))
            assert seen(f'Decoding, batch 0000-000001, token {tokens} of 96')
        assert seen('elapsed 0:00:0') and re.search(r'about 0:\d\d:\d\d left', last_lines(screen))
        for index in range(2):
            batch_files.write_batch(work_dir, f'0000-00000{index}', [example(f'0000-00000{index}', 5)])
        assert seen('Writing') and '2 of 2 batches' in last_lines(screen)


def test_a_run_without_texts_shows_its_training(work_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, '_SECONDS_BETWEEN_LOOKS', 0.01)
    plan = BatchPlan(labels=('a',), batches_per_group=(0,), noisy_counts=None, contexts_rho=0.0)
    pathlib.Path(work_dir, 'plan.json').write_text(plan.to_json())
    console, screen = terminal()
    with progress.watch(work_dir, console):
        activity.report(activity.Activity('Fine-tuning', None, 3, 9, activity.STEP))
        time.sleep(0.3)
    assert 'Fine-tuning, step 3 of 9' in last_lines(screen) and '2 of 9 steps' in last_lines(screen)
    assert 'batches' not in last_lines(screen)
    assert progress.WRITING not in screen.getvalue()


class Clocked:
    """A display with a clock of its own."""

    def __init__(self, sampling_share: float = 0.0) -> None:
        self._now = 0.0
        self._console = rich.console.Console(file=io.StringIO(), width=80, color_system=None)
        self._display = progress.Display(self._console, sampling_share, get_time=lambda: self._now)

    def at(self, now: float, tokens: dict[str, int], planned: int, doing: activity.Activity | None) -> str:
        """The two lines at this second, as one."""
        self._now = now
        self._display.show(tokens, planned, doing)
        with self._console.capture() as shown:
            self._console.print(self._display.get_renderable())
        lines = shown.get().splitlines()
        assert len(lines) == 2 and max(map(len, lines)) <= 80
        return ' '.join(' '.join(lines).split())


def test_a_training_says_steps_and_what_is_left_with_the_sampling_after_it() -> None:
    """The first step compiles for a minute, and each of the 100 takes two seconds."""
    clocked = Clocked(sampling_share=0.25)
    for step in range(1, 101):
        now = 2.0 * step + (60.0 if step > 1 else 0.0)
        doing = activity.Activity('Fine-tuning', None, step, 100, activity.STEP)
        shown = clocked.at(now, {}, 5, doing)
        assert f'{step - 1} of 100 steps' in shown and 'batches' not in shown
        if step > 2:
            true = 2.0 * (101 - step) + 0.25 * 200
            assert ' 2 s a step' in shown
            assert seconds_left(shown) == pytest.approx(true, rel=0.02, abs=1)
    shown = clocked.at(300.0, {}, 5, activity.Activity('Sampling', '0000-000001'))
    assert '0 of 5 batches, 0 tokens' in shown and 'steps' not in shown and 'elapsed 0:05:00' in shown
    assert 'Sampling, batch 0000-000001' in shown


def test_votes_say_how_far_the_first_batch_is_and_what_is_left() -> None:
    clocked = Clocked()
    shown = clocked.at(40.0, {}, 8, activity.Activity('Compiling (1 of 3)', '0000-000000'))
    assert 'Compiling (1 of 3), batch 0000-000000' in shown and 'left' not in shown
    for tokens in range(0, 49, 12):
        doing = activity.Activity('Decoding', '0000-000000', tokens, 96)
        shown = clocked.at(41.0 + tokens, {}, 8, doing)
    assert '0 of 8 batches, 48 tokens, 0.5 a second' in shown
    # The longest lines, beside which no word of the clocks goes on in a third one.
    doing = activity.Activity('Decoding', '0000-000000', 48, 3_000)
    assert clocked.at(89.0, {}, 8, doing).endswith(' left')
    # A token a second, of 96 in each batch.
    assert seconds_left(shown) == pytest.approx(7.5 * 96, rel=0.02)
    # A batch that is written counts once.
    doing = activity.Activity('Decoding', '0000-000000', 96, 96)
    shown = clocked.at(138.0, {'w/0000-000000.json': 96}, 8, doing)
    assert '1 of 8 batches, 96 tokens' in shown


def test_a_round_and_its_stage_are_said_with_the_texts_so_far() -> None:
    activity.report(activity.Activity('Round 2 of 3: sampling texts'))
    activity.advance(12, 256, activity.TEXT)
    shown = Clocked().at(10.0, {}, 6, activity.latest())
    assert 'Round 2 of 3: sampling texts, text 12 of 256' in shown and '0 of 6 batches' in shown


def seconds_left(shown: str) -> int:
    found = re.search(r'about (\d+):(\d\d):(\d\d) left', shown)
    assert found is not None, shown
    hours, minutes, seconds = map(int, found.groups())
    return 3600 * hours + 60 * minutes + seconds


def test_what_an_earlier_run_of_this_process_did_is_not_shown(work_dir: str) -> None:
    activity.report(activity.Activity('Decoding', '0009-000001', 12, 96))
    console, screen = terminal()
    with progress.watch(work_dir, console):
        pass
    assert 'Reading records' in last_lines(screen) and '0009' not in screen.getvalue()


def test_the_display_ends_with_a_run_that_fails(work_dir: str) -> None:
    console, _ = terminal()
    with pytest.raises(RuntimeError, match='the run'), progress.watch(work_dir, console):
        raise RuntimeError('the run')
    assert lookers() == []


def test_a_resumed_run_does_not_count_earlier_tokens_into_its_rate(
    work_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, '_SECONDS_BETWEEN_LOOKS', 0.01)
    batch_files.write_batch(work_dir, '0000-000000', [example('0000-000000', 1_000_000)])
    console, screen = terminal()
    with progress.watch(work_dir, console):
        threading.Event().wait(0.2)
    assert '1,000,001 tokens, 0 a second' in last_lines(screen)


def test_batches_are_read_as_they_were_written(work_dir: str) -> None:
    batch_files.write_batch(work_dir, '0000-000000', [example('0000-000000', 5)])
    rows = json.loads(pathlib.Path(batch_files.batch_path(work_dir, '0000-000000')).read_text())
    assert [row['private_tokens'] + row['public_tokens'] for row in rows] == [6]


def test_a_bucket_is_watched_too_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float | None] = []
    real = threading.Event.wait

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        if '_look' in threading.current_thread().name:
            pauses.append(timeout)
        return real(event, timeout)

    monkeypatch.setattr(threading.Event, 'wait', wait)
    console, screen = terminal()
    with object_store(), progress.watch('gs://bucket/work', console):
        plan = BatchPlan(labels=('a',), batches_per_group=(3,), noisy_counts=None, contexts_rho=0.0)
        durable.write_file('gs://bucket/work/plan.json', plan.to_json().encode())
        batch_files.write_batch('gs://bucket/work', '0000-000000', [example('0000-000000', 5)])
    assert '1 of 3 batches' in last_lines(screen) and '6 tokens' in last_lines(screen)
    # The client of the bucket waits for its own threads, without a limit.
    assert {pause for pause in pauses if pause is not None} == {progress._SECONDS_BETWEEN_REMOTE_LOOKS}


def test_a_damaged_batch_ends_neither_the_display_nor_the_run(work_dir: str) -> None:
    pathlib.Path(work_dir, run_files.BATCHES_FOLDER, '0000-000000.json').write_text('[{')
    console, screen = terminal()
    with progress.watch(work_dir, console):
        pass
    assert '0 of ? batches' in last_lines(screen)
