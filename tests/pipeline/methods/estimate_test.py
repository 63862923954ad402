"""The time of a run: by what an earlier run on this machine left; no JAX is read for it."""

import json
import math
import os
import pathlib
from typing import Any

import pytest

from models import cache, speed
from pipeline.methods import estimate
from pipeline.methods.estimate import Speed, estimated
from tests.command_line import in_this_process

ARGUMENTS = (
    'plan',
    '--delta',
    '1e-6',
    '--aggregate',
    'mean',
    '--max-private-tokens',
    '8',
    '--dtype',
    'float32',
)
BATCH = ('--batches-per-label', '2', '--batch-size', '16', '--max-prompt-tokens', '92')


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache, and a process that has done nothing yet."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    speed.forget()
    return tmp_path


def leave(**seconds: float) -> None:
    """Leaves the seconds of a token of each kind of work, as a run does."""
    speed.forget()
    for work, of_token in seconds.items():
        for pieces in (100.0, of_token):  # the first one compiles
            speed.note(work, 10, 10 * pieces)
    estimate.keep('bundled', 'float32')


def shown(*arguments: str) -> str:
    done = in_this_process(*arguments)
    assert (done.returncode, done.stderr) == (0, '')
    return ' '.join(done.stdout.split())


def test_before_the_first_run_a_plan_says_that_the_time_is_not_known(folder: pathlib.Path) -> None:
    said = shown(*ARGUMENTS, *BATCH)
    assert 'Decoding not known: no run on this machine has decoded with bundled in float32 yet' in said
    found = json.loads(in_this_process(*ARGUMENTS, *BATCH, '--json').stdout)['estimate']
    assert (found['device'], found['decoding_hours']) == (None, None) and found['memory_bytes'] > 0
    assert not list(folder.iterdir())


def test_a_plan_multiplies_its_tokens_by_what_a_token_took() -> None:
    leave(decoding=0.01)
    found = json.loads(in_this_process(*ARGUMENTS, *BATCH, '--json').stdout)['estimate']
    # 2 batches of 16 rows of 100 tokens.
    assert found['decoding_hours'] == pytest.approx(3200 * 0.01 / 3600)
    said = shown(*ARGUMENTS, *BATCH)
    assert (
        'Decoding about 32 seconds as fast as an earlier run of bundled in float32 on this machine (' in said
    )


def test_without_a_number_of_batches_there_is_no_time() -> None:
    leave(decoding=0.01)
    assert 'Decoding' not in shown(*ARGUMENTS)


def test_a_run_leaves_a_time_and_nothing_else(folder: pathlib.Path) -> None:
    leave(decoding=0.0123456, training=0.5)
    paths = [path for path in folder.rglob('*') if path.is_file()]
    assert sorted(path.name.split('-')[2] for path in paths) == ['decoding', 'training']
    for path in paths:
        assert set(json.loads(path.read_text())) == {'device', 'seconds_of_token'}
    found = estimate.known_speed('bundled', 'float32', 'decoding')
    assert found is not None and found.seconds_of_token == 0.012


def test_work_that_no_run_has_done_is_not_known() -> None:
    leave(decoding=0.01)
    found = estimated('bundled', 'float32', {'decoding': 3600, 'training': 3600}, 0)
    assert (found.decoding_hours, found.training_hours, found.hours) == (0.01, None, None)
    assert found.decoding_share == 0
    leave(training=0.04)
    found = estimated('bundled', 'float32', {'decoding': 3600, 'training': 3600}, 0)
    assert found.hours == pytest.approx(0.05) and found.decoding_share == 0.25
    names = [name for name, _ in found.rows()]
    assert names == ['Training', 'Decoding', '']
    # Nothing is known of another model or type.
    assert estimate.known_speed('bundled', 'bfloat16', 'decoding') is None
    assert estimate.known_speed('gemma3-270m', 'float32', 'decoding') is None


def test_another_machine_has_a_speed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    leave(decoding=0.01)
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: set(range(4096)))
    assert estimate.known_speed('bundled', 'float32', 'decoding') is None


@pytest.mark.parametrize(
    'damage',
    [
        lambda whole: b'',
        lambda whole: b'\xff\xfe',
        lambda whole: b'null',
        lambda whole: b'[]',
        lambda whole: b'{}',
        lambda whole: json.dumps(whole).encode()[:-9],
        lambda whole: json.dumps(whole | {'seconds_of_token': 0}).encode(),
        lambda whole: json.dumps(whole | {'seconds_of_token': -1.0}).encode(),
        lambda whole: json.dumps(whole | {'seconds_of_token': math.nan}).encode(),
        lambda whole: json.dumps(whole | {'seconds_of_token': None}).encode(),
    ],
)
def test_a_damaged_file_is_refused_and_the_next_run_replaces_it(damage: Any) -> None:
    leave(decoding=0.01)
    path = estimate.file_of('bundled', 'float32', 'decoding')
    path.write_bytes(damage(json.loads(path.read_text())))
    done = in_this_process(*ARGUMENTS, *BATCH)
    assert done.returncode == 2 and 'which is damaged. Remove it' in ' '.join(done.stderr.split())
    leave(decoding=0.02)
    found = estimate.known_speed('bundled', 'float32', 'decoding')
    assert isinstance(found, Speed) and found.seconds_of_token == 0.02


@pytest.mark.parametrize(
    ('hours', 'shown'),
    [
        (0.5, '30 minutes'),
        (0.1, '6 minutes'),
        (0.01, '36 seconds'),
        (1.26, '1.3 hours'),
        (1234, '1,234 hours'),
    ],
)
def test_time_is_shown_in_the_unit_that_fits(hours: float, shown: str) -> None:
    assert estimate.duration(hours) == shown
