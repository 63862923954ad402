"""A step's units on several devices: the same adapter, and the same clipped sum where sums are exact."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.finetuning import train, units
from models.privacy import gradients
from models.privacy.randomness import RunKey
from tests.models.finetuning import tiny
from tests.samples import SECRET

pytestmark = pytest.mark.run
ROOT = pathlib.Path(__file__).parents[3]
DEVICES = 8
# Each label has as many units; a batch of 6 in the mean is never a multiple of the devices.
ROWS: list[units.Row] = [
    (bytes([number]) * 16, 'abc'[number % 3], [f'{"abc"[number % 3] * 3} {number}'] * (1 + number % 2))
    for number in range(30)
]


def exact_sum(size: int, count: int) -> np.ndarray:
    """A clipped sum all of whose numbers are binary fractions that float32 adds without rounding.

    Of n units the k-th has the gradient 2^(k mod 5) in one place, clipped to 4.
    """
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), ('units',))
    by_unit = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('units'))

    def loss(parameters: jax.Array, _: None, unit: dict[str, jax.Array]) -> jax.Array:
        return parameters[unit['place']] * unit['slope']

    summed = train.batch_sum(
        gradients.clipped_sum(loss, 4.0), size, lambda part: jax.lax.with_sharding_constraint(part, by_unit)
    )
    numbers = np.arange(48)
    of_units = {'place': jnp.asarray(numbers % 7), 'slope': jnp.asarray(2.0 ** (numbers % 5), jnp.float32)}
    return np.asarray(jax.jit(summed)(jnp.zeros(7), None, of_units, jnp.int32(count)))


def by_hand(count: int) -> np.ndarray:
    found = np.zeros(7, np.float32)
    for number in range(count):
        found[number % 7] += min(2.0 ** (number % 5), 4.0)
    return found


def save(path: str) -> None:
    """What the devices at hand compute, for a comparison across processes."""
    with tiny.known():
        # 3 units together do not divide among 8 devices: each has one, and the others padding.
        trainer = train.Trainer(tiny.settings(micro_batch_size=3))
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
        adapter=np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(adapter)]),
        exact=np.stack([exact_sum(16, count) for count in (1, 20, 48)]),
    )  # fmt: skip


def test_eight_devices_train_the_adapter_that_one_trains(tmp_path: pathlib.Path) -> None:
    assert len(jax.local_devices()) == 1
    paths = {devices: tmp_path / f'{devices}.npz' for devices in (1, DEVICES)}
    code = f'import sys; from {__name__} import save; save(sys.argv[1])'
    save(str(paths[1]))
    subprocess.run(
        [sys.executable, '-c', code, str(paths[DEVICES])],
        check=True, cwd=ROOT, timeout=500,
        env=os.environ | {
            'XLA_FLAGS': f'--xla_force_host_platform_device_count={DEVICES}', 'JAX_PLATFORMS': 'cpu',
        },
    )  # fmt: skip
    one, many = (np.load(paths[devices]) for devices in (1, DEVICES))
    assert (one['devices'], many['devices']) == (1, DEVICES)
    assert bool(many['adds_up']) and not bool(one['adds_up'])
    for found in (one, many):
        np.testing.assert_array_equal(found['exact'], np.stack([by_hand(count) for count in (1, 20, 48)]))
    np.testing.assert_allclose(many['adapter'], one['adapter'], rtol=0, atol=3e-5)
    np.testing.assert_allclose(many['losses'], one['losses'], rtol=0, atol=1e-4)
    # Another order of the noise, or of the batch, would be seen.
    assert np.abs(one['adapter']).max() > 1000 * 3e-5
