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

from models import bundled
from models.decoders.gemma import architectures, checkpoints
from models.decoders.transformer.checkpoint import Place
from tests.benchmarks import accelerator_benchmark as benchmark

pytestmark = pytest.mark.heavy

BUNDLED = architectures.ARCHITECTURES['bundled']
ROOT = pathlib.Path(__file__).parents[2]
# Packages that come with JAX, that are carried, or read weights. A processor's free memory is psutil's.
THERE = ('jax', 'jaxlib', 'numpy', 'ml_dtypes', 'scipy', 'opt_einsum', 'etils', 'safetensors', 'psutil')


@pytest.fixture(scope='module')
def parameters(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp('carried') / 'bundled.safetensors'
    benchmark.write_weights('bundled', bundled.CHECKPOINT, path)
    return path


@pytest.mark.run
def test_it_runs_on_what_such_a_machine_has(parameters: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for name in THERE:
        package = pathlib.Path(str(importlib.util.find_spec(name).origin)).parent
        for folder in (package, package.with_name(f'{name}.libs')):
            if folder.is_dir():
                (tmp_path / folder.name).symlink_to(folder)
    # -S leaves out all that is installed.
    done = subprocess.run(
        [sys.executable, '-S', '-m', 'tests.benchmarks.accelerator_benchmark', 'measure', '--allow-cpu',
         '--models', 'bundled', 'bundled', '--parameters', str(parameters),
         '--contexts', '7', '--prompt-tokens', '16', '--new-tokens', '8', '--rounds', '1',
         '--bytes-per-second', '1e9'],
        capture_output=True, text=True, timeout=600, check=False, cwd=ROOT,
        env={'PATH': os.environ['PATH'], 'PYTHONPATH': f'{ROOT}:{tmp_path}'},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line['weights'] for line in lines] == ['bundled.safetensors', 'random']
    for line in lines:
        assert (line['model'], line['contexts'], line['rows'], line['bandwidth']) == (
            'bundled', 7, 8, 'declared'
        )  # fmt: skip
        assert line['weight_bytes'] == 2 * BUNDLED.num_parameters
        # 4 layers, 2 heads of 64, keys and values in bfloat16.
        assert line['cache_bytes'] == 8 * (16 + 8) * 4 * 2 * 2 * 64 * 2
        assert line['roofline_ms'] == pytest.approx((line['weight_bytes'] + line['cache_bytes']) / 1e6)
        assert line['roofline_share'] == pytest.approx(line['roofline_ms'] / line['ms_per_step'])
        assert line['prefill_seconds'] > 0


def test_a_processor_is_refused_unless_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        benchmark.main(['measure'])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "got platform='cpu'" in said and '`carry` collects' in said and '--allow-cpu' in said


def test_carried_parameters_are_the_checkpoints(parameters: pathlib.Path) -> None:
    read = benchmark.read_weights(BUNDLED, parameters)
    loaded = checkpoints.load_weights(BUNDLED, bundled.CHECKPOINT, Place('bfloat16'))
    assert jax.tree.structure(read) == jax.tree.structure(loaded)
    for one, other in zip(jax.tree.leaves(read), jax.tree.leaves(loaded), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one, np.float32), np.asarray(other, np.float32))
    with pytest.raises(ValueError, match='Expected the weights of the model'):
        benchmark.read_weights(architectures.ARCHITECTURES['gemma3-270m'], parameters)


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
