"""The candidates of a step: which they are, and that no other column has a part in a vote.

Twin: `oracles.candidates` and `oracles.allowed_tokens`, which rank all tokens in plain Python.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.privacy import candidates, mechanism, whole_numbers
from models.privacy.aggregates import AGGREGATES, aggregate, median_range
from models.privacy.params import MechanismParams
from tests import oracles, samples

pytestmark = pytest.mark.heavy

BASE = MechanismParams(
    batch_size=3, clip_bound=2.0, temperature=1.5, max_private_tokens=4, max_batch_tokens=8
)
VOCAB, WIDTH, ROWS = 150, 12, 6


def _params(aggregate: str, k: int | None, **changes: object) -> MechanismParams:
    return dataclasses.replace(BASE, aggregate=aggregate, public_top_k=k, **changes)


@pytest.mark.parametrize(
    ('k', 'vocab', 'expected'),
    [(None, 50, 50), (1, 50, 50), (1, 100, 65), (36, 100, 100), (300, 10_000, 375), (1024, 262_144, 1280)],
)
def test_the_number_of_candidates_is_k_and_a_spare(k: int | None, vocab: int, expected: int) -> None:
    assert candidates.count(k, vocab) == expected


def test_all_columns_of_every_row_are_computed_where_they_are_read() -> None:
    """Without K, and for the distance of the sparse vector; the shape of a run's programs knows it."""
    tested = {'threshold': 0.5, 'threshold_noise_scale': 0.2}
    for k, expected in ((None, None), (1024, 1280)):
        params = _params('difference', k)
        assert mechanism.columns_of_every_row(params) == expected
        assert mechanism.columns_of_every_row(dataclasses.replace(params, **tested)) is None


def _publics(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Public predictions: spread, all equal, few values, and so near one another that a slack admits many."""
    return {
        'spread': rng.normal(0, 3, VOCAB),
        'all equal': np.zeros(VOCAB),
        'zeros of either sign': np.where(rng.random(VOCAB) < 0.5, -0.0, 0.0),
        'few values': rng.integers(0, 3, VOCAB).astype(float),
        'near': rng.normal(0, 0.01, VOCAB),
    }


@pytest.mark.parametrize('aggregate', list(AGGREGATES))
@pytest.mark.parametrize('k', [1, 40, 86, 149, 1000, None])
def test_candidates_equal_the_twin(aggregate: str, k: int | None) -> None:
    """Those of equal logits by their ids, whatever the mask; what a slack admits beyond the C is left out."""
    params, rng = _params(aggregate, k), np.random.default_rng(0)
    for name, public in _publics(rng).items():
        public = public.astype(np.float32)
        for share in (0.02, 0.5, 1.0):
            mask = rng.random(VOCAB) < share
            mask[rng.integers(VOCAB)] = True
            found = candidates.choose(jnp.asarray(mask), jnp.asarray(public), params, params.strategy.allowed)
            ids = oracles.candidates(public, mask, k)
            assert len(ids) == candidates.count(k, VOCAB) == len(found.allowed)
            if found.tokens is None:
                assert len(ids) == VOCAB
            else:
                np.testing.assert_array_equal(found.tokens, ids)
            np.testing.assert_array_equal(found.public_logits, public[ids])
            wider = params.clip_bound if oracles.TWINS[aggregate].widens_top_k else 0.0
            expected = oracles.allowed_tokens(public, mask, k, params.batch_size, wider)
            np.testing.assert_array_equal(samples.allowed_of(found, VOCAB), expected, err_msg=name)
            for index in (0, len(ids) // 2, len(ids) - 1):
                assert int(found.index_of(found.token_at(jnp.int32(index)))) == index


# ------------------------------------------------------- votes on the columns alone

WEIGHTS = np.random.default_rng(1).normal(0, 1, (VOCAB, WIDTH)).astype(np.float32)


def _output(states: jax.Array, columns: jax.Array | None) -> jax.Array:
    """An output layer that multiplies by the rows of the candidates alone."""
    weights = jnp.asarray(WEIGHTS)
    return states @ (weights if columns is None else weights[columns]).T


@functools.partial(jax.jit, static_argnames=('params', 'output'))
def _step(states: jax.Array, mask: jax.Array, params: MechanismParams, output: mechanism.Output) -> tuple:
    votes = mechanism.tally(states[:1], (states[:4], states[4:]), _private(), mask, params, output)
    losses = mechanism.token_losses(votes, votes.candidates.token_at(jnp.int32(0)), params)
    return mechanism.aggregate(votes, params), votes, losses


def _private() -> tuple[jax.Array, jax.Array]:
    """Row 0 is the public prompt's, the last one padding."""
    is_private = (np.arange(ROWS + 2) > 0) & (np.arange(ROWS + 2) <= ROWS)
    return jnp.asarray(is_private[:4]), jnp.asarray(is_private[4:])


def _states(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (ROWS + 2, WIDTH)).astype(np.float32)


@pytest.mark.parametrize('tested', [False, True], ids=['every token private', 'sparse vector'])
@pytest.mark.parametrize('aggregate', list(AGGREGATES))
@pytest.mark.parametrize('k', [1, 40, 120])
def test_votes_of_the_columns_are_those_of_the_whole_matrix(aggregate: str, k: int, tested: bool) -> None:
    """The same K logits, computed alone or taken from all; so are scores, candidates and losses."""
    params = _params(aggregate, k, **({'threshold': 0.5, 'threshold_noise_scale': 0.2} if tested else {}))
    for seed in range(4):
        states, mask = _states(seed), jnp.asarray(np.random.default_rng(seed).random(VOCAB) < 0.9)
        rows = states @ WEIGHTS.T
        scores, votes, losses = _step(jnp.asarray(states), mask, params, _output)
        expected, whole, whole_losses = _step(jnp.asarray(rows), mask, params, mechanism.given)
        np.testing.assert_array_equal(votes.candidates.allowed, whole.candidates.allowed)
        allowed = np.asarray(votes.candidates.allowed)
        np.testing.assert_allclose(np.asarray(scores)[allowed], np.asarray(expected)[allowed], atol=2e-5)
        assert (losses is None) == (aggregate != 'median')
        if losses is not None:
            np.testing.assert_allclose(losses, whole_losses, atol=2e-5)
        found, distance = (samples.distance_of(each.distance, params) for each in (votes, whole))
        assert found == pytest.approx(distance, abs=1e-5)
        assert (found > 0) == tested
        # And they are the twin's, from all logits in float64.
        settings = oracles.Mechanism.of(params)
        twin = settings.private_scores(rows[1 : ROWS + 1], rows[0], np.asarray(mask)) * params.temperature
        tokens = np.arange(VOCAB) if whole.candidates.tokens is None else np.asarray(whole.candidates.tokens)
        np.testing.assert_allclose(np.asarray(expected)[allowed], twin[tokens[allowed]], rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize('aggregate', list(AGGREGATES))
@pytest.mark.parametrize('k', [1, 40, 120])
def test_a_column_that_is_not_allowed_has_no_part_in_a_vote(aggregate: str, k: int) -> None:
    """Whatever the private rows hold there, not a bit of an allowed score moves; nor of a loss."""
    params, states = _params(aggregate, k), _states(9)
    rows, mask = (states @ WEIGHTS.T).astype(np.float32), jnp.ones(VOCAB, bool)
    scores, votes, losses = _step(jnp.asarray(rows), mask, params, mechanism.given)
    allowed, whole = np.asarray(votes.candidates.allowed), samples.allowed_of(votes.candidates, VOCAB)
    assert not whole.all()
    first = int(np.flatnonzero(allowed)[0])
    for filling in (np.nan, np.inf, -np.inf, 1e30, -1e30, 50.0):
        spoilt = rows.copy()
        spoilt[1:, ~whole] = filling
        again, found, other = _step(jnp.asarray(spoilt), mask, params, mechanism.given)
        np.testing.assert_array_equal(np.asarray(again)[allowed], np.asarray(scores)[allowed])
        assert np.isfinite(np.asarray(again)[allowed]).all()
        if isinstance(votes.tallied, median_range.Medians):
            for part, before in zip(found.tallied, votes.tallied, strict=True):
                np.testing.assert_array_equal(np.asarray(part)[allowed], np.asarray(before)[allowed])
            if first == 0:
                np.testing.assert_array_equal(other, losses)


@pytest.mark.parametrize('aggregate', list(AGGREGATES))
def test_a_broken_column_breaks_its_row_where_it_is_allowed(aggregate: str) -> None:
    """A row that is not finite on the candidates votes as every such row does."""
    params, states = _params(aggregate, 40), _states(10)
    rows, mask = (states @ WEIGHTS.T).astype(np.float32), jnp.ones(VOCAB, bool)
    _, votes, _ = _step(jnp.asarray(rows), mask, params, mechanism.given)
    token = int(votes.candidates.token_at(jnp.int32(np.flatnonzero(votes.candidates.allowed)[0])))
    allowed = np.asarray(votes.candidates.allowed)
    found = []
    for column in (slice(None), token):
        spoilt = rows.copy()
        spoilt[2, column] = np.nan
        found.append(np.asarray(_step(jnp.asarray(spoilt), mask, params, mechanism.given)[0])[allowed])
    np.testing.assert_array_equal(*found)
    assert np.isfinite(found[0]).all()


@pytest.mark.first
def test_without_k_rows_are_centred_over_all_tokens() -> None:
    """A token that the mask leaves out has the maximum of a row all the same, as before."""
    rows = np.zeros((3, 4), np.float32)
    rows[1:, 0] = 9.0
    mask = jnp.asarray([False, True, True, True])
    private = (jnp.arange(3) > 0,)
    for k, expected in ((None, -2.0), (4, 2.0)):
        params = _params('mean', k)
        votes = mechanism.tally(None, (jnp.asarray(rows),), private, mask, params)
        found = whole_numbers.integers(votes.tallied)[1:] * aggregate.quantum(params.clip_bound)
        np.testing.assert_allclose(found, 2 * expected)
