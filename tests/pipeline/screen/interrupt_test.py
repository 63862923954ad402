"""Ctrl-C is answered at once and ends the command, in Python's hands or not; what is finished is kept."""

import json
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from launch.demo import records as demo_records
from pipeline.screen import interrupt
from tests.command_line import in_a_process

pytestmark = pytest.mark.run

# Native code in the main thread, between two instructions of Python: a lock that it waits for twice.
BLOCKED = """
import ctypes
native, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
native.pthread_mutex_lock(mutex)
print('waiting', flush=True)
native.pthread_mutex_lock(mutex)
"""
SLEEPING = """
import time
print('waiting', flush=True)
try:
    time.sleep(100)
except KeyboardInterrupt:
    raise ValueError('Remove the cause.')
"""


def begun(body: str, grace: float | None = None) -> subprocess.Popen[str]:
    """A process that has begun the body, answered where a time of grace is given."""
    if grace is not None:
        answered = f'from pipeline.screen import interrupt\ninterrupt.GRACE_SECONDS = {grace}\n'
        body = f'{answered}with interrupt.answered():\n{textwrap.indent(body, "    ")}'
    process = subprocess.Popen(
        [sys.executable, '-c', body], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == 'waiting\n'
    # From its print to its lock it is not far.
    time.sleep(0.2)
    return process


def test_native_code_is_ended_after_some_grace() -> None:
    process = begun(BLOCKED, grace=1.0)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (interrupt.EXIT_CODE, interrupt.ANSWER)


def test_native_code_would_not_end_by_itself() -> None:
    process = begun(BLOCKED)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=3)
    process.kill()
    process.communicate()


def test_a_second_one_ends_it_at_once() -> None:
    process = begun(BLOCKED, grace=1e6)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    # The answer, after an empty line, is there before anything ends.
    assert process.stderr.readline() + process.stderr.readline() == f'\n{interrupt.ANSWER}\n'
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == interrupt.EXIT_CODE
    process.communicate()


def test_whatever_error_an_interrupted_body_ends_with_is_not_shown_as_one() -> None:
    process = begun(SLEEPING, grace=1e6)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert said.rstrip().endswith('KeyboardInterrupt') and process.returncode == -signal.SIGINT


def test_a_body_that_is_not_interrupted_leaves_everything_as_it_was() -> None:
    before, wakeup = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    with interrupt.answered():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before and signal.set_wakeup_fd(-1) == wakeup
    with pytest.raises(ValueError, match='its own'), interrupt.answered():
        raise ValueError('its own')
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize('stage', ['importing', 'loading', 'decoding'])
def test_a_run_ends_at_any_stage_and_goes_on_later(tmp_path: pathlib.Path, stage: str) -> None:
    records = tmp_path / 'records.jsonl'
    records.write_text(''.join(json.dumps(row) + '\n' for row in demo_records.demo_records(64)))
    output = tmp_path / 'corpus'
    arguments = (
        'generate', '--input', str(records), '--text-field', 'text', '--batches-per-label', '3',
        '--batch-size', '8', '--aggregate', 'mean', '--max-private-tokens', '150', '--delta', '1e-3',
        '--max-prompt-tokens', '64', '--max-example-tokens', '40', '--output', str(output),
    )  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, '-m', 'pipeline.main', *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    said = process.stderr.readline()
    if stage != 'importing':
        while 'Loading the model' not in said:
            said += process.stderr.readline()
    batches = tmp_path / 'corpus.curator' / 'batches'
    while stage == 'decoding' and not any(batches.glob('*.json')):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=interrupt.GRACE_SECONDS + 60)
    said += rest
    assert process.returncode == interrupt.EXIT_CODE, said
    assert interrupt.ANSWER in said and 'Traceback' not in said and 'Remove the cause' not in said
    if stage == 'decoding':
        done = in_a_process(*arguments, '--json')
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)['corpus']['examples'] > 0
