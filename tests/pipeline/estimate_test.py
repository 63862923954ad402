"""Rates of this machine: kept for later plans, read without JAX, and refused where they are damaged."""

import dataclasses
import datetime
import json
import math
import pathlib
from typing import Any

import pytest
from pipeline.calibration import Machine

from models import cache
from models.decoders import device
from models.decoders.gemma import calibration as gemma_calibration
from pipeline import calibration
from tests.command_line import in_this_process

ARGUMENTS = (
    'plan',
    '--delta',
    '1e-6',
    '--aggregate',
    'mean',
    '--max-private-tokens',
    '8',
    '--batches-per-label',
    '1',
)


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache, and measurements of one round each."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    for name, value in {'SECONDS': 0.0, 'LEAST_ROUNDS': 1, 'LAYERS_BYTES': 1, 'CACHE_BYTES': 2**22}.items():
        monkeypatch.setattr(gemma_calibration, name, value)
    return tmp_path


def kept(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in folder.rglob('*') if path.is_file()]


@pytest.mark.parametrize('dtype', ['auto', 'float32', 'bfloat16'])
def test_without_a_calibration_rates_are_those_of_a_named_machine(dtype: str) -> None:
    known = calibration.known('bundled', dtype=dtype)
    assert known.measured_on is None and 'EPYC' in known.device
    assert known.dtype == (device.fastest_dtype('cpu') if dtype == 'auto' else dtype)
    said = ' '.join(in_this_process(*ARGUMENTS, '--dtype', dtype).stdout.split())
    assert f'from rates of {known.device}; measure this machine: dp-corpus plan --calibrate' in said
    found = json.loads(in_this_process(*ARGUMENTS, '--json', '--dtype', dtype).stdout)['decoding']
    assert found['measured_on'] is None and found['device'] == known.device and found['dtype'] == known.dtype


def test_a_calibration_is_kept_for_later_plans(folder: pathlib.Path) -> None:
    before = json.loads(in_this_process(*ARGUMENTS, '--json').stdout)
    done = in_this_process(*ARGUMENTS, '--json', '--calibrate')
    assert (done.returncode, done.stderr) == (0, '')
    measured, later = json.loads(done.stdout), json.loads(in_this_process(*ARGUMENTS, '--json').stdout)
    assert measured == later and len(kept(folder)) == 1
    assert measured['decoding']['measured_on'] == datetime.date.today().isoformat()
    assert measured['decoding'] != before['decoding'] and measured['epsilon'] == before['epsilon']
    said = ' '.join(in_this_process(*ARGUMENTS).stdout.split())
    assert f'from rates measured on this machine on {datetime.date.today().isoformat()}' in said
    # Of this model, type and machine alone.
    assert calibration.known('bundled', dtype='auto').measured_on is not None
    assert calibration.known('bundled', dtype='bfloat16').measured_on is None
    assert calibration.known('gemma3-270m', dtype='auto').measured_on is None


def test_another_machine_has_rates_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Machine.this()
    others = [
        dataclasses.replace(here, **change)
        for change in (
            {'processor': 'another'},
            {'cores': here.cores + 1},
            {'jax': '0'},
            {'platforms': 'tpu'},
        )
    ]
    paths = {calibration.file_of(machine, 'bundled', 'float32') for machine in (here, *others)}
    assert len(paths) == 5 and here.processor and here.cores >= 1
    calibration.calibrate('bundled', dtype='float32')
    monkeypatch.setattr(Machine, 'this', lambda: others[0])
    assert calibration.known('bundled', dtype='float32').measured_on is None


def changed(document: dict[str, Any], **change: Any) -> bytes:
    return json.dumps(document | change).encode()


@pytest.mark.parametrize(
    'damage',
    [
        lambda whole: b'',
        lambda whole: b'\xff\xfe',
        lambda whole: b'null',
        lambda whole: b'[]',
        lambda whole: b'{}',
        lambda whole: json.dumps(whole).encode()[:-9],
        lambda whole: changed(whole, model='gemma3-1b'),
        lambda whole: changed(whole, requested_dtype='bfloat16'),
        lambda whole: changed(whole, dtype='bfloat16'),
        lambda whole: changed(whole, dtype='int8'),
        lambda whole: changed(whole, machine=whole['machine'] | {'cores': 4096}),
        lambda whole: changed(whole, more=1),
        lambda whole: changed(whole, measured_on='yesterday'),
        lambda whole: changed(whole, measured_on=None),
        lambda whole: changed(whole, device=7),
        lambda whole: changed(whole, rates=whole['rates'] | {'step_flops': 0}),
        lambda whole: changed(whole, rates=whole['rates'] | {'step_flops': -1e9}),
        lambda whole: changed(whole, rates=whole['rates'] | {'step_flops': math.nan}),
        lambda whole: changed(whole, rates=whole['rates'] | {'step_flops': '1e9'}),
        lambda whole: changed(whole, rates=whole['rates'] | {'step_flops': True}),
        lambda whole: changed(whole, rates={}),
        lambda whole: changed(whole, rates=None),
    ],
)
def test_a_damaged_file_is_refused_and_can_be_measured_anew(damage: Any) -> None:
    path = calibration.file_of(Machine.this(), 'bundled', 'float32')
    whole = {
        'machine': dataclasses.asdict(Machine.this()), 'model': 'bundled', 'requested_dtype': 'float32',
        'device': 'a device', 'dtype': 'float32', 'measured_on': '2026-01-02',
        'rates': dataclasses.asdict(calibration.REFERENCE['float32'].rates),
    }  # fmt: skip
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(whole))
    assert calibration.known('bundled', dtype='float32').measured_on == '2026-01-02'
    path.write_bytes(damage(whole))
    with pytest.raises(ValueError, match='Measure anew with `dp-corpus plan --calibrate`, or remove it'):
        calibration.known('bundled', dtype='float32')
    done = in_this_process(*ARGUMENTS, '--dtype', 'float32')
    assert done.returncode == 2 and path.name in done.stderr.replace('\n', '')


def test_a_damaged_file_is_replaced(folder: pathlib.Path) -> None:
    path = calibration.file_of(Machine.this(), 'bundled', 'float32')
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{')
    found = calibration.calibrate('bundled', dtype='float32')
    assert calibration.known('bundled', dtype='float32') == found and kept(folder) == [path]


def test_a_cache_that_cannot_be_written_to_is_an_error(folder: pathlib.Path) -> None:
    path = calibration.file_of(Machine.this(), 'bundled', 'float32').parent
    path.write_text('a file where the folder should be')
    done = in_this_process(*ARGUMENTS, '--calibrate')
    assert done.returncode == 2 and path.name in done.stderr.replace('\n', '')
