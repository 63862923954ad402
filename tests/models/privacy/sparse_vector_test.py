"""The sparse-vector test in whole numbers: every outcome of a run with its exact probability, all neighbours.

The comparison is that of decoding (`sparse_vector.passes`), over all values of both noises; these have the
probabilities of the discrete Laplace, which `randomness_test.py` shows draws to have. Distances are
a few quanta and so is the noise, where a grid would show.
"""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.privacy import sparse_vector
from models.privacy.params import MechanismParams
from tests import samples

# Scales of a distance, 2σ, and of the threshold, in few quanta, since a context moves a distance by so many.
SCALE, MOVE = 20, 8
PARAMS = MechanismParams(
    batch_size=1, clip_bound=1.0, temperature=1.0, max_private_tokens=1, max_batch_tokens=9,
    threshold=-30 / 2**24, threshold_noise_scale=SCALE / 2**24,
)  # fmt: skip
NOISE = np.arange(-80 * SCALE, 80 * SCALE + 1)


def _odds(scale: float) -> np.ndarray:
    """The probability of every value of the noise, of which e^-40 is left out."""
    weights = np.exp(-np.abs(NOISE) / scale)
    return weights / weights.sum()


@functools.cache
def _passing(distance: int, scale: float = 2 * SCALE) -> np.ndarray:
    """The probability that a distance passes, for every value of the threshold's noise."""
    limbs = jnp.asarray(sparse_vector.limbs(NOISE))
    here = jnp.asarray(sparse_vector.limbs(np.array(distance)))
    test = jax.jit(jax.vmap(lambda u: sparse_vector.passes(here, limbs, u, PARAMS)))
    return np.asarray(test(limbs), np.float64) @ _odds(scale)


def _log_odds(distances: tuple[int, ...], *, ends: bool, scale: float = 2 * SCALE) -> float:
    """A run of public tokens, and a private one at the end of it where it `ends`."""
    product = _odds(SCALE)
    for place, distance in enumerate(distances):
        passing = _passing(distance, scale)
        product = product * (passing if ends and place == len(distances) - 1 else 1 - passing)
    return math.log(product.sum())


def _worst(move: int, scale: float = 2 * SCALE) -> float:
    """The largest log ratio of a run's outcome over all distances and all neighbours of them."""
    worst = 0.0
    for tests in (1, 2, 3, 4):
        for before in itertools.product((0, 5 * MOVE, 10 * MOVE), repeat=tests):
            for moves in itertools.product((-move, move), repeat=tests):
                after = tuple(a + b for a, b in zip(before, moves, strict=True))
                for ends in (False, True):
                    ratio = _log_odds(before, ends=ends, scale=scale) - _log_odds(
                        after, ends=ends, scale=scale
                    )
                    worst = max(worst, abs(ratio))
    return worst


def test_scales_are_sigma_and_twice_that_in_quanta() -> None:
    assert sparse_vector.noise_scales(PARAMS.threshold_noise_scale, 1) == (SCALE, 2 * SCALE)
    assert sparse_vector.noise_scales(0.5, 64) == (32 * 2**24, 64 * 2**24)


def test_a_run_costs_at_most_two_moves_over_sigma_and_nearly_all_of_it() -> None:
    """Every outcome of up to four tests; a price a tenth lower, and half the noise, are found to be wrong."""
    price = 2 * MOVE / SCALE
    assert 0.9 * price < _worst(MOVE) <= price * (1 + 1e-9)
    assert _worst(MOVE, scale=SCALE) > 1.1 * price


def test_a_distance_that_moves_further_than_one_context_should_is_found() -> None:
    """The fault of a float sum of distances: its moves are larger than the noise was made for."""
    assert _worst(MOVE + 2) > 2 * MOVE / SCALE


def test_outcomes_of_a_run_are_all_there_is() -> None:
    for tests in (1, 3):
        distances = (5, 0, 40)[:tests]
        ended = [math.exp(_log_odds(distances[: place + 1], ends=True)) for place in range(tests)]
        assert sum(ended) + math.exp(_log_odds(distances, ends=False)) == pytest.approx(1, abs=1e-12)


def test_comparisons_are_of_whole_numbers() -> None:
    """Against Python's, at ties, a quantum beside them, and at the largest numbers that are let in."""
    params = dataclasses.replace(PARAMS, batch_size=2**17, threshold=999.9, threshold_noise_scale=2.0)
    threshold = sparse_vector.threshold_in_quanta(params)
    rng = np.random.default_rng(0)
    most = 2**54 - 1
    for noise, other in (
        (0, 0),
        (most, -most // 2),
        (-most, most // 2),
        *rng.integers(-most, most, (9, 2)) // 2,
    ):
        for distance in (0, 2**17 * 2**24, int(rng.integers(2**42))):
            tie = int(noise) + int(distance) - threshold
            for shift in (-1, 0, 1):
                against = tie + shift if abs(tie) < most else int(other)
                limbs = (sparse_vector.limbs(np.array(value)) for value in (distance, noise, against))
                found = sparse_vector.passes(*map(jnp.asarray, limbs), params)
                assert bool(found) == (distance + int(noise) >= threshold + against)


def test_thresholds_are_those_of_settings() -> None:
    for theta, s in ((0.3, 64), (-0.5, 2), (1000.0, 2**17)):
        params = dataclasses.replace(PARAMS, batch_size=s, threshold=theta, threshold_noise_scale=0.1)
        assert sparse_vector.threshold_in_quanta(params) == pytest.approx(theta * s * 2**24, abs=0.5)
        limbs = sparse_vector.limbs(np.array(sparse_vector.threshold_in_quanta(params)))
        assert samples.distance_of(limbs, params) == pytest.approx(theta, rel=1e-7)
