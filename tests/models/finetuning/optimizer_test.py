"""DP-Adam without the variance of the noise is its slow twin, and estimates what it should."""

import dataclasses
import pathlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from models.finetuning import adapter as adapters
from models.finetuning import optimizer, train, units
from models.privacy.randomness import RunKey
from tests.models.finetuning import tiny
from tests.oracles import finetuning as slow
from tests.samples import SECRET

KEY = RunKey(SECRET)
PARAMS = tiny.settings().params
# (z C / s)² of these.
VARIANCE = (0.5 * 1.0 / 8) ** 2


@pytest.fixture(autouse=True, scope='module')
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


def steps(transformation: optax.GradientTransformation, of_steps: np.ndarray) -> list[np.ndarray]:
    """The adapter after each step, from zero."""
    adapter = {'a': jnp.zeros(of_steps.shape[1] - 2), 'b': jnp.zeros((2, 1))}
    state, found = transformation.init(adapter), []
    for gradient in jnp.asarray(of_steps, jnp.float32):
        tree = {'a': gradient[:-2], 'b': gradient[-2:, None]}
        changes, state = transformation.update(tree, state, adapter)
        adapter = optax.apply_updates(adapter, changes)
        found.append(np.concatenate([np.ravel(adapter['a']), np.ravel(adapter['b'])]))
    return found


@pytest.mark.parametrize('floor', [0.1, 3.0])
def test_it_is_its_twin_step_for_step(floor: float) -> None:
    """Of components whose gradient is far above the noise, of its size, and below it."""
    rng = np.random.default_rng(0)
    of_component = np.array([1.0, 0.1, 0.05, -0.02, 0.0, 0.0, -0.3])
    noisy = of_component + np.sqrt(VARIANCE) * rng.normal(size=(40, 7))
    found = steps(optimizer.of_private_steps(0.01, PARAMS, floor), noisy)
    expected = list(slow.corrected_adam(np.zeros(7), noisy, 0.01, VARIANCE, floor * VARIANCE))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-5)
    # With the variance in it, or with the share of it in Adam's own moment, steps are others.
    plain = steps(optimizer.of_private_steps(0.01, PARAMS, None), noisy)
    assert np.abs(plain[-1] - expected[-1]).max() > 0.01


def test_without_a_floor_it_is_optax_adam_as_it_was() -> None:
    noisy = np.random.default_rng(1).normal(size=(9, 5))
    found = steps(optimizer.of_private_steps(0.01, PARAMS, None), noisy)
    np.testing.assert_array_equal(found, steps(optax.adam(0.01), noisy))


def test_what_is_divided_by_is_the_square_without_noise() -> None:
    """The mean of 400 corrected second moments is g², the square without noise, after one step and after ten.

    Its standard error after one is √((2 Φ² + 4 Φ g²) / 400), 7 % of g²; Adam's own is too large by Φ, 39 %.
    """
    rng = np.random.default_rng(2)
    gradient = 0.1
    for count in (1, 10):
        noisy = gradient + np.sqrt(VARIANCE) * rng.normal(size=(count, 400))
        moments = optax.scale_by_adam()
        state = moments.init(jnp.zeros(400))
        for of_step in jnp.asarray(noisy, jnp.float32):
            _, state = moments.update(of_step, state)
        # The floor is out of reach: what is under the root shows.
        corrected = optimizer.scale_by_corrected_adam(VARIANCE - 1.0, 1e-9)
        scaled, _ = corrected.update(jnp.asarray(noisy[-1], jnp.float32), _before(noisy), None)
        first = np.asarray(state.mu) / (1 - 0.9**count)
        root = np.square(first / np.asarray(scaled)) - 1.0
        assert root.mean() == pytest.approx(gradient**2, rel=0.15)
        assert (root + VARIANCE).mean() != pytest.approx(gradient**2, rel=0.3)


def _before(noisy: np.ndarray) -> optax.ScaleByAdamState:
    moments = optax.scale_by_adam()
    state = moments.init(jnp.zeros(noisy.shape[1]))
    for of_step in jnp.asarray(noisy[:-1], jnp.float32):
        _, state = moments.update(of_step, state)
    return state


ROWS: list[units.Row] = [
    (bytes([number]) * 16, 'abc'[number % 3], [f'text {number}']) for number in range(20)
]


def test_a_run_with_it_trains_another_adapter_and_resumes_to_the_same(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = units.in_order(ROWS)
    trainer = train.Trainer(tiny.settings(variance_floor=0.1))
    whole = trainer.train(members, KEY)
    plain = train.Trainer(tiny.settings())
    assert adapters.to_bytes(plain.train(members, KEY)) != adapters.to_bytes(whole)
    monkeypatch.setattr(train, 'CHECKPOINT_STEPS', 2)
    shorter = dataclasses.replace(PARAMS, tuning_steps=4)
    half = train.Trainer(tiny.settings(variance_floor=0.1))
    monkeypatch.setattr(half, '_settings', dataclasses.replace(half._settings, params=shorter))
    half.train(members, KEY, str(tmp_path / 'tuning'))
    resumed = trainer.train(members, KEY, str(tmp_path / 'tuning'))
    assert adapters.to_bytes(resumed) == adapters.to_bytes(whole)
    # A checkpoint holds the same arrays with it and without.
    states = [each.first_state(KEY) for each in (trainer, plain)]
    assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])


def test_a_warm_start_knows_no_noise() -> None:
    warm = {'warm_start': (('a', 'xyz'), ('b', 'zyx')), 'warm_steps': 3, 'warm_learning_rate': 0.01}
    found = []
    for floor in (None, 0.1):
        trainer = train.Trainer(tiny.settings(variance_floor=floor, **warm))
        found.append(adapters.to_bytes(trainer.warmed(trainer.first_state(KEY))['adapter']))
    assert found[0] == found[1]
