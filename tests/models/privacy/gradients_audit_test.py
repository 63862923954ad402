"""A canary audits the whole step: its lower bound on epsilon stays below the claim, or the step is broken.

One unit is made to stand out: its gradient has a direction of its own, and without clipping forty times the
clip norm. The audit sees the noisy sum, as an adversary who knows all else does.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.finetuning import train
from models.privacy import gradients, whole_numbers
from models.privacy.accounting import subsampled
from models.privacy.randomness import RunKey
from tests.oracles import canary

pytestmark = pytest.mark.heavy

DELTA, TRIALS, DIMENSIONS, RECORDS, SIZE, OTHERS = 1e-2, 10_000, 256, 8, 4, 8
# A small sample, and everybody in each step with more noise.
SAMPLED, WHOLE = (
    gradients.TuningParams(
        units=float(units), expected_batch_size=5, tuning_steps=1, clip_norm=1.0, noise_multiplier=z,
        unit='user', examples_per_context=RECORDS,
    )
    for units, z in ((100, 0.5), (5, 4.0))
)  # fmt: skip
Release = Callable[[bool, RunKey, gradients.TuningParams], np.ndarray]


def loss(parameters: jax.Array, _: None, unit: jax.Array) -> jax.Array:
    return jnp.sum(unit @ parameters)


@functools.cache
def _units(with_canary: bool) -> np.ndarray:
    """Eight units of eight records, whose gradients lie across the canary's; the canary last."""
    units = np.random.default_rng(0).normal(size=(OTHERS, RECORDS, DIMENSIONS)).astype(np.float32)
    units[..., 0] = 0.0
    one = np.zeros((1, RECORDS, DIMENSIONS), np.float32)
    one[..., 0] = 5.0
    return np.concatenate([units, one]) if with_canary else units


@functools.cache
def _compiled(clip_norm: float) -> Callable[..., jax.Array]:
    return jax.jit(train.batch_sum(gradients.clipped_sum(loss, clip_norm), SIZE))


@functools.cache  # a function of the batch
def _sum(
    with_canary: bool, members: tuple[int, ...], clip_norm: float, by_record: bool = False
) -> np.ndarray:
    units = _units(with_canary)[list(members)]
    if by_record:
        units = units.reshape(-1, 1, DIMENSIONS)
    found = train.summed(
        functools.partial(_compiled(clip_norm), jnp.zeros(DIMENSIONS), None),
        jnp.zeros(DIMENSIONS),
        np.arange(len(units)),
        lambda rows: units[rows],
        2 * SIZE,
    )
    return np.asarray(clip_norm / whole_numbers.RADIUS * whole_numbers.integers(found))


def _members(with_canary: bool, key: RunKey, params: gradients.TuningParams) -> tuple[int, ...]:
    def coins(index: int) -> np.ndarray:
        unit = bytes([index]) * 16
        q = params.sampling_probability
        return gradients.steps_of_unit(key, 'audit', unit, 0, probability=q, steps=1)

    return tuple(index for index in range(OTHERS + with_canary) if len(coins(index)))


def _noise(key: RunKey, params: gradients.TuningParams, run_id: str = 'audit') -> np.ndarray:
    drawn = gradients.noise_of_step(key, run_id, 0, DIMENSIONS, params)
    return np.asarray(params.step * whole_numbers.integers(drawn))


def right(with_canary: bool, key: RunKey, params: gradients.TuningParams) -> np.ndarray:
    return _sum(with_canary, _members(with_canary, key, params), params.clip_norm) + _noise(key, params)


def without_clipping(with_canary: bool, key: RunKey, params: gradients.TuningParams) -> np.ndarray:
    return _sum(with_canary, _members(with_canary, key, params), 1e6) + _noise(key, params)


def clipped_by_record(with_canary: bool, key: RunKey, params: gradients.TuningParams) -> np.ndarray:
    """Each record of a user is clipped by itself, so that a user moves the sum by eight norms."""
    members = _members(with_canary, key, params)
    return _sum(with_canary, members, params.clip_norm, by_record=True) + _noise(key, params)


def fixed_batch(with_canary: bool, key: RunKey, params: gradients.TuningParams) -> np.ndarray:
    """Everybody is in the batch, and the price is that of a sample."""
    return _sum(with_canary, tuple(range(OTHERS + with_canary)), params.clip_norm) + _noise(key, params)


def noise_by_micro_batch(with_canary: bool, key: RunKey, params: gradients.TuningParams) -> np.ndarray:
    """Noise once for each micro-batch: how much there is tells how many there are."""
    members = _members(with_canary, key, params)
    parts = [_noise(key, params, f'audit {start}') for start in range(0, len(members), SIZE)]
    return np.sum([_sum(with_canary, members, params.clip_norm), *parts], axis=0)


def direction(release: np.ndarray) -> float:
    """Its component in the canary's direction."""
    return float(release[0])


def energy(release: np.ndarray) -> float:
    """The amount of noise."""
    return float(np.square(release).sum())


def _epsilon(release: Release, params: gradients.TuningParams, score: Callable[[np.ndarray], float]) -> float:
    def scores(with_canary: bool) -> np.ndarray:
        keys = (RunKey(bytes([with_canary]) * 28 + trial.to_bytes(4, 'little')) for trial in range(TRIALS))
        return np.array([score(release(with_canary, key, params)) for key in keys])

    return canary.epsilon_at_least(scores(True), scores(False), DELTA)


@pytest.mark.parametrize('score', [direction, energy])
@pytest.mark.parametrize('params', [SAMPLED, WHOLE], ids=['sampled', 'whole'])
def test_the_mechanism_stays_below_its_claim(
    params: gradients.TuningParams, score: Callable[[np.ndarray], float]
) -> None:
    """False alarms once in a million runs."""
    assert _epsilon(right, params, score) <= subsampled.epsilon_of_event(params.event, DELTA)


@pytest.mark.first
@pytest.mark.parametrize(
    'broken, params, score',
    [
        (without_clipping, SAMPLED, direction),
        (clipped_by_record, SAMPLED, direction),
        (fixed_batch, SAMPLED, direction),
        (noise_by_micro_batch, WHOLE, energy),
    ],
)
def test_a_broken_mechanism_is_caught(
    broken: Release, params: gradients.TuningParams, score: Callable[[np.ndarray], float]
) -> None:
    assert _epsilon(broken, params, score) > subsampled.epsilon_of_event(params.event, DELTA)
