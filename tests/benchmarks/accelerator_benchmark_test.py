"""The benchmark for accelerators runs to its end on a processor, on nothing but what such a machine has."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from models.decoders.gemma import architectures
from pipeline.asked.config import settings_of
from pipeline.methods import METHODS
from tests.benchmarks import accelerator_benchmark as benchmark
from tests.benchmarks import accelerator_jobs

pytestmark = pytest.mark.heavy

BUNDLED = architectures.ARCHITECTURES['bundled']
ROOT = pathlib.Path(__file__).parents[2]
# Packages that come with JAX, and a few that are carried.
THERE = ('jax', 'jaxlib', 'numpy', 'ml_dtypes', 'scipy', 'opt_einsum', 'etils', 'packaging', 'psutil')


@pytest.mark.run
def test_a_step_is_measured_on_what_such_a_machine_has(tmp_path: pathlib.Path) -> None:
    for name in THERE:
        package = pathlib.Path(str(importlib.util.find_spec(name).origin)).parent
        for folder in (package, package.with_name(f'{name}.libs')):
            if folder.is_dir():
                (tmp_path / folder.name).symlink_to(folder)
    # -S leaves out all that is installed.
    done = subprocess.run(
        [sys.executable, '-S', '-m', 'tests.benchmarks.accelerator_benchmark', 'measure', '--allow-cpu',
         '--models', 'bundled', '--parts', 'step', 'sampling', '--folder', str(tmp_path),
         '--contexts', '7', '--prompt-tokens', '16',
         '--new-tokens', '8', '--rounds', '1', '--bytes-per-second', '1e9'],
        capture_output=True, text=True, timeout=600, check=False, cwd=ROOT,
        env={'PATH': os.environ['PATH'], 'PYTHONPATH': f'{ROOT}:{tmp_path}', 'HOME': str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    line, end = (json.loads(line) for line in done.stdout.splitlines())
    # Without weights the rest is said to be left out.
    assert end['measures'] == 'nothing else' and 'models fetch' in end['said']
    assert (line['model'], line['contexts'], line['rows'], line['bandwidth']) == ('bundled', 7, 8, 'declared')
    assert line['weight_bytes'] == 2 * BUNDLED.num_parameters
    # 4 layers, 2 heads of 64, keys and values in bfloat16.
    assert line['cache_bytes'] == 8 * (16 + 8) * 4 * 2 * 2 * 64 * 2
    assert line['roofline_ms'] == pytest.approx((line['weight_bytes'] + line['cache_bytes']) / 1e6)
    assert line['roofline_share'] == pytest.approx(line['roofline_ms'] / line['ms_per_step'])
    assert line['prefill_seconds'] > 0


@pytest.mark.run
@pytest.mark.parametrize('part', ['sampling', 'tuning'])
def test_the_other_parts_run_to_their_ends(gemma_file: str, part: str) -> None:
    """On Gemma 3 270M; `make bench-gpu` runs whole jobs, which take minutes on a processor."""
    done = subprocess.run(
        [sys.executable, '-m', 'tests.benchmarks.accelerator_benchmark', 'measure', '--allow-cpu',
         '--parts', part, '--size', 'small'],
        capture_output=True, text=True, timeout=600, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = (json.loads(line) for line in done.stdout.splitlines())
    rate = {'sampling': 'tokens_per_second', 'tuning': 'units_per_second'}[part]
    assert line['model'] == 'gemma3-270m' and line[rate] > 0


def test_every_job_is_a_command_that_a_plan_understands(tmp_path: pathlib.Path) -> None:
    """Flags and settings of each; nothing is decoded."""
    commands = accelerator_jobs.commands(tmp_path / 'weights', tmp_path, accelerator_jobs.SIZES['small'])
    assert {arguments[1] for _, arguments in commands} == {
        f'--method={method}' for method in METHODS if method != 'refine'
    }
    for _, (command, *flags) in commands:
        assert command == 'generate'
        given = dict(flag.removeprefix('--').split('=', 1) for flag in flags)
        assert given.keys() <= {name.replace('_', '-') for name in settings_of(given['method'])}, given[
            'method'
        ]


def test_what_is_carried_fits_and_has_neither_tensorflow_nor_jax() -> None:
    needed = set(benchmark.needed_packages())
    assert {'apache-beam', 'pyarrow', 'orbax-checkpoint', 'tensorstore', 'protobuf'} <= needed
    assert not needed & {'jax', 'jaxlib', 'numpy', 'tensorflow', 'tensorflow-text', 'gemma', 'torch'}


def test_weights_come_in_pieces_and_are_joined(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 10
    (tmp_path / 'weights').write_bytes(content)
    monkeypatch.setattr(benchmark, 'PART_BYTES', 1000)
    pieces = benchmark._pieces_of(tmp_path / 'weights', tmp_path)
    assert [piece.stat().st_size for piece in pieces] == [1000, 1000, 560]
    for number, piece in enumerate(pieces):
        (tmp_path / f'part-{number + 1}').mkdir()
        piece.rename(tmp_path / f'part-{number + 1}' / piece.name)
    joined = accelerator_jobs.checkpoint_of(tmp_path)
    assert joined is not None and joined.read_bytes() == content


def test_a_processor_is_refused_unless_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        benchmark.main(['measure'])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "got platform='cpu'" in said and '`carry` collects' in said and '--allow-cpu' in said


def test_random_parameters_are_arranged_like_real_ones() -> None:
    tree = benchmark.random_weights(BUNDLED)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(tree)} == {'bfloat16'}
    assert sum(leaf.size for leaf in jax.tree.leaves(tree)) == BUNDLED.num_parameters
    first, second = tree.layers[0].down, tree.layers[1].down
    assert not np.array_equal(np.asarray(first), np.asarray(second))


def test_every_device_reads_all_weights_and_its_part_of_the_cache() -> None:
    measured = {'weight_bytes': 6e9, 'cache_bytes': 8e9, 'devices': 4, 'ms_per_step': 16.0}
    line = benchmark.with_roofline(measured, 1e12, declared=False)
    assert line['roofline_ms'] == pytest.approx(8.0) and line['roofline_share'] == pytest.approx(0.5)
    assert (line['bandwidth'], line['bytes_per_second']) == ('measured', 1e12)
