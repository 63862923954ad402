"""The public prediction plus clipped differences from it (METHOD 4b), and Top-k+."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from models.privacy import candidates, mechanism, sampling
from models.privacy.params import MechanismParams
from tests import oracles, samples
from tests.samples import PARAMS

pytestmark = pytest.mark.heavy

DIFFERENCE = dataclasses.replace(PARAMS, aggregate='difference')


def _difference(logits: np.ndarray, public: np.ndarray, params: MechanismParams = DIFFERENCE) -> np.ndarray:
    rows = np.concatenate([public[None], logits, np.full((2, len(public)), np.nan)]).astype(np.float32)
    mask = (np.arange(len(rows)) > 0) & (np.arange(len(rows)) <= len(logits))
    votes = samples.tally((jnp.asarray(rows),), (jnp.asarray(mask),), params)
    return np.asarray(mechanism.aggregate(votes, params))


@pytest.mark.first
@pytest.mark.parametrize('rows', [0, 1, 3, 9])
def test_difference_aggregate_equals_the_oracle(rows: int) -> None:
    rng = np.random.default_rng(rows)
    logits, public = rng.normal(0, 4, (rows, 11)), rng.normal(0, 4, 11)
    logits[::3, 0] = np.nan
    expected = oracles.difference_aggregate(logits, public, PARAMS.batch_size, PARAMS.clip_bound)
    np.testing.assert_allclose(_difference(logits, public), expected, rtol=1e-5, atol=1e-5)


def test_an_empty_batch_gives_the_public_prediction() -> None:
    public = np.random.default_rng(0).normal(0, 4, 11)
    found = _difference(np.zeros((0, 11)), public)
    np.testing.assert_allclose(found, oracles.log_softmax(public), atol=1e-5)
    np.testing.assert_allclose(oracles.softmax(found), oracles.softmax(public), atol=1e-6)


@pytest.mark.first
def test_one_context_moves_a_component_by_exactly_c_over_s() -> None:
    """Both ways at once: where the public prompt expects a token less than e^−c, and where more."""
    params = dataclasses.replace(DIFFERENCE, clip_bound=0.5)
    public = np.array([0.0, 5.0, 0.0, 0.0])
    context = np.array([[60.0, -60.0, -60.0, -60.0]])
    moved = _difference(context, public, params) - _difference(context[:0], public, params)
    bound = params.aggregate_sensitivity
    assert bound == 0.5 / 4
    np.testing.assert_allclose(moved, [bound, -bound, -bound, -bound], rtol=1e-5)
    doubled = dataclasses.replace(params, examples_per_context=2)
    replaced = _difference(context, public, doubled) - _difference(-context, public, doubled)
    assert np.abs(replaced[0]) == pytest.approx(doubled.aggregate_sensitivity, rel=1e-5)


@pytest.mark.parametrize('top_k', [1, 3, 10, 19, 50])
@pytest.mark.parametrize('batch_size', [1, 4, 1000])
def test_top_k_plus_equals_the_oracle(top_k: int, batch_size: int) -> None:
    params = dataclasses.replace(DIFFERENCE, public_top_k=top_k, batch_size=batch_size)
    rng = np.random.default_rng(top_k)
    for _ in range(20):
        public = rng.normal(0, 2, 30).astype(np.float32)
        released = rng.random(30) < 0.7
        released[0] = True
        expected = oracles.top_k_plus(public, released, top_k, batch_size, params.clip_bound)
        mask, logits = jnp.asarray(released), jnp.asarray(public)
        found = candidates.choose(mask, logits, params, params.strategy.allowed)
        assert samples.allowed_of(found, 30).tolist() == expected.tolist()
        plain = dataclasses.replace(PARAMS, public_top_k=top_k, batch_size=batch_size)
        fewer = samples.allowed_of(candidates.choose(mask, logits, plain, plain.strategy.allowed), 30)
        assert not (fewer & ~expected).any()


def test_top_k_plus_keeps_every_token_that_one_context_could_lift_over_the_kth() -> None:
    """Within 2c/s of the K-th a context can turn the order around; past it none can."""
    params = dataclasses.replace(DIFFERENCE, public_top_k=1, clip_bound=1.0)
    public = np.array([0.0, -0.49, -0.51, -2.0])
    found = candidates.choose(
        jnp.ones(4, bool), jnp.asarray(public, jnp.float32), params, params.strategy.allowed
    )
    allowed = np.asarray(found.allowed)
    assert allowed.tolist() == [True, True, False, False]
    whole = dataclasses.replace(params, public_top_k=None)
    for token, can in ((1, True), (2, False)):
        context = np.where(np.arange(4) == token, 60.0, -60.0)[None]
        scores = _difference(context, public, whole)
        assert (scores[token] >= scores[0]) == can


def test_the_difference_aggregates_scores_span_what_the_sampler_resolves() -> None:
    """Tokens far below the public top are left out: whatever the contexts say, the range is 30 at most."""
    params = dataclasses.replace(DIFFERENCE, clip_bound=15.0, temperature=2.0)
    public = np.linspace(0, -200, 101)
    for context in (public[::-1] * 3, public, np.zeros(101)):
        logits = np.tile(context, (params.batch_size, 1))
        votes = samples.tally(
            (jnp.asarray(np.concatenate([public[None], logits]), jnp.float32),),
            (jnp.arange(params.batch_size + 1) > 0,),
            params,
        )
        allowed = np.asarray(votes.candidates.allowed)
        assert allowed.tolist() == (public >= -2 * (15 * 2.0 - 15.0)).tolist()
        scores = np.asarray(mechanism.aggregate(votes, params))[allowed] / params.temperature
        assert np.ptp(scores) <= 2 * sampling.MAX_CLIP_OVER_TEMPERATURE + 1e-4
