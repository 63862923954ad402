"""A step's units on several devices: the same adapter, and the same clipped sum where sums are exact.

A machine that loses its devices within a step may go on with others.
"""

import os
import pathlib
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.finetuning import train, units
from models.finetuning.settings import TuningSettings
from models.privacy import gradients, whole_numbers
from models.privacy.randomness import RunKey
from tests.models.finetuning import tiny
from tests.samples import SECRET

pytestmark = pytest.mark.run
ROOT = pathlib.Path(__file__).parents[3]
DEVICES = 8
LOST = 77  # the exit code of a process whose devices are gone
# Each label has as many units; a batch of 6 in the mean is never a multiple of the devices.
ROWS: list[units.Row] = [
    (bytes([number]) * 16, 'abc'[number % 3], [f'{"abc"[number % 3] * 3} {number}'] * (1 + number % 2))
    for number in range(30)
]


def exact_sum(size: int, count: int) -> np.ndarray:
    """In whole steps. Of n units the k-th has the gradient 2^(k mod 5) in one place, clipped to 4."""
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), ('units',))
    by_unit = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('units'))

    def loss(parameters: jax.Array, _: None, unit: dict[str, jax.Array]) -> jax.Array:
        return parameters[unit['place']] * unit['slope']

    summed = train.batch_sum(
        gradients.clipped_sum(loss, 4.0), size, lambda part: jax.lax.with_sharding_constraint(part, by_unit)
    )
    numbers = np.arange(48)
    of_units = {'place': jnp.asarray(numbers % 7), 'slope': jnp.asarray(2.0 ** (numbers % 5), jnp.float32)}
    return np.asarray(whole_numbers.integers(jax.jit(summed)(jnp.zeros(7), None, of_units, jnp.int32(count))))


def by_hand(count: int) -> np.ndarray:
    found = np.zeros(7, np.int64)
    # Rounded towards zero, after the slack of norms: 4 is RADIUS.
    share = whole_numbers.RADIUS * (1 - whole_numbers.NORM_SLACK)
    for number in range(count):
        found[number % 7] += int(min(2.0 ** (number % 5) / 4.0, 1.0) * share)
    return found


def settings() -> TuningSettings:
    """Settings for 3 units together, which do not divide among 8 devices: each takes one, others padding."""
    return tiny.settings(micro_batch_size=3)


def save(path: str) -> train.Trainer:
    """Saves what the devices at hand compute, for a comparison across processes."""
    with tiny.known():
        trainer = train.Trainer(settings())
        members = units.in_order(ROWS)
        adapter = trainer.train(members, RunKey(SECRET))
        encoded = trainer.encoded(members)
        losses = trainer.losses(jax.tree.map(jnp.asarray, adapter), encoded)
        state = trainer.first_state(RunKey(SECRET))
        given = trainer._collated(encoded, np.arange(24), np.zeros(30, np.uint64))
        program = trainer._batch_sum.lower(
            state['adapter'], trainer._shared(state['adapter']), given, jnp.int32(20)
        ).compile()
    np.savez(
        path, devices=len(jax.local_devices()), losses=losses, adds_up='all-reduce' in program.as_text(),
        adapter=flat(adapter), exact=np.stack([exact_sum(16, count) for count in (1, 20, 48)]),
    )  # fmt: skip
    return trainer


def lose_devices(trainer: train.Trainer, checkpoints: str) -> None:
    """Trains anew, and ends the process within the fourth step, between its gradient and its update."""
    train.CHECKPOINT_STEPS = 2
    gradient, begun = trainer.gradient, 0

    def lost_at_the_fourth(*arguments: Any) -> Any:
        nonlocal begun
        found, begun = gradient(*arguments), begun + 1
        if begun == 4:
            jax.block_until_ready(found)
            os._exit(LOST)
        return found

    trainer.gradient = lost_at_the_fourth  # type: ignore[method-assign]
    trainer.train(units.in_order(ROWS), RunKey(SECRET), checkpoints)


def flat(adapter: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(adapter)])


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Results of one device and of eight, in `1.npz` and `8.npz`, and checkpoints that eight began."""
    folder = tmp_path_factory.mktemp('devices')
    assert len(jax.local_devices()) == 1
    save(str(folder / '1.npz'))
    code = f'import sys; from {__name__} import *; lose_devices(save(sys.argv[1]), sys.argv[2])'
    done = subprocess.run(
        [sys.executable, '-c', code, str(folder / f'{DEVICES}.npz'), str(folder / 'checkpoints')],
        check=False, cwd=ROOT, timeout=500,
        env=os.environ | {
            'XLA_FLAGS': f'--xla_force_host_platform_device_count={DEVICES}', 'JAX_PLATFORMS': 'cpu',
        },
    )  # fmt: skip
    assert done.returncode == LOST
    return folder


def test_eight_devices_train_the_adapter_that_one_trains(folder: pathlib.Path) -> None:
    one, many = (np.load(folder / f'{devices}.npz') for devices in (1, DEVICES))
    assert (one['devices'], many['devices']) == (1, DEVICES)
    assert bool(many['adds_up']) and not bool(one['adds_up'])
    for found in (one, many):
        np.testing.assert_array_equal(found['exact'], np.stack([by_hand(count) for count in (1, 20, 48)]))
    np.testing.assert_allclose(many['adapter'], one['adapter'], rtol=0, atol=3e-5)
    np.testing.assert_allclose(many['losses'], one['losses'], rtol=0, atol=1e-4)
    # Another order of the noise, or of the batch, would be seen.
    assert np.abs(one['adapter']).max() > 1000 * 3e-5


def test_one_device_ends_what_eight_began(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the last checkpoint, with the batches and the noise of the same key: the same adapter."""
    with tiny.known():
        trainer = train.Trainer(settings())
        step, taken = trainer.step, []

        def noted(state: dict[str, Any], *arguments: Any) -> dict[str, Any]:
            taken.append(int(state['step']))
            return step(state, *arguments)

        monkeypatch.setattr(trainer, 'step', noted)
        adapter = flat(trainer.train(units.in_order(ROWS), RunKey(SECRET), str(folder / 'checkpoints')))
    assert taken == [2, 3, 4, 5]
    np.testing.assert_allclose(adapter, np.load(folder / '1.npz')['adapter'], rtol=0, atol=3e-5)
