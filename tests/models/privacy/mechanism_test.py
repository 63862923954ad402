"""Votes, aggregates, sensitivities, and the choice between a private and a public token.

Keys are fixed, so every test is deterministic; the odds stated are those of a random key.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.privacy import candidates, mechanism, sampling, sparse_vector, whole_numbers
from models.privacy.aggregates import AGGREGATES
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey
from tests import oracles, samples
from tests.models.privacy.sampling_test import halves, words_of
from tests.samples import PARAMS

pytestmark = pytest.mark.heavy

KEY = RunKey(bytes(range(32)))
ODDS = 1e-6  # false alarms of a statistical test
DRAWS = 200_000


# ------------------------------------------------------------------------ votes


def test_rows_that_are_not_private_vote_nothing_whatever_they_hold() -> None:
    rng = np.random.default_rng(3)
    private = rng.normal(0, 3, (3, 6)).astype(np.float32)
    expected = samples.tally((jnp.asarray(private),), (jnp.ones(3, bool),), PARAMS)
    mass = whole_numbers.integers(sparse_vector.tally((jnp.asarray(private),), (jnp.ones(3, bool),)))
    for filling in (0.0, 1e30, np.nan, np.inf, -np.inf):
        padded = np.concatenate([private, np.full((5, 6), filling, np.float32)])
        votes = samples.tally((jnp.asarray(padded),), (jnp.arange(8) < 3,), PARAMS)
        np.testing.assert_array_equal(
            whole_numbers.integers(votes.tallied), whole_numbers.integers(expected.tallied)
        )
        found = sparse_vector.tally((jnp.asarray(padded),), (jnp.arange(8) < 3,))
        np.testing.assert_array_equal(whole_numbers.integers(found), mass)


def test_a_row_votes_the_same_whatever_the_others_hold() -> None:
    rng = np.random.default_rng(4)
    row = rng.normal(0, 3, 6).astype(np.float32)
    alone = samples.tally((jnp.asarray(row[None]),), (jnp.ones(1, bool),), PARAMS)
    for others in (rng.normal(0, 30, (7, 6)), np.full((7, 6), np.nan), np.full((7, 6), 1e38)):
        rows = np.concatenate([others, row[None]]).astype(np.float32)
        everyone = samples.tally((jnp.asarray(rows),), (jnp.ones(8, bool),), PARAMS)
        rest = samples.tally((jnp.asarray(rows),), (jnp.arange(8) < 7,), PARAMS)
        moved = whole_numbers.integers(everyone.tallied) - whole_numbers.integers(rest.tallied)
        np.testing.assert_array_equal(moved, whole_numbers.integers(alone.tallied))
        mass = [
            whole_numbers.integers(sparse_vector.tally((jnp.asarray(some),), (jnp.asarray(mask),)))
            for some, mask in (
                (rows, np.ones(8, bool)),
                (rows, np.arange(8) < 7),
                (row[None], np.ones(1, bool)),
            )
        ]
        np.testing.assert_array_equal(mass[0] - mass[1], mass[2])


def test_an_empty_batch_gives_the_zero_vector_and_distance_one() -> None:
    logits = jnp.asarray(np.random.default_rng(5).normal(0, 3, (4, 6)), jnp.float32)
    votes = samples.tally((logits,), (jnp.zeros(4, bool),), PARAMS)
    assert not np.asarray(mechanism.aggregate(votes, PARAMS)).any()
    assert samples.distance_of(votes.distance, PARAMS) == pytest.approx(1, abs=2e-6)


def test_no_distance_is_computed_without_the_sparse_vector() -> None:
    plain = dataclasses.replace(PARAMS, threshold=None, threshold_noise_scale=None)
    votes = samples.tally((jnp.ones((4, 6)),), (jnp.ones(4, bool),), plain)
    assert not np.asarray(votes.distance).any()


@functools.partial(jax.jit, static_argnames='params')
def _aggregate_and_distance(
    logits: jax.Array, masks: jax.Array, public: jax.Array, params: MechanismParams
) -> tuple[jax.Array, jax.Array]:
    """`[D, V]` and `[D, 2]` of D datasets, each with its own logits, mask and public logits."""

    def one(rows: jax.Array, mask: jax.Array, public_row: jax.Array) -> tuple[jax.Array, jax.Array]:
        # Row 0 is the public prompt's, which counts as no context.
        votes = samples.tally((jnp.vstack([public_row, rows]),), (jnp.append(False, mask),), params)
        return mechanism.aggregate(votes, params), votes.distance

    return jax.vmap(one)(logits, masks, public)


@pytest.mark.first
@pytest.mark.parametrize('aggregate', ['mean', 'difference'])
@pytest.mark.parametrize('examples_per_context', [1, 2])
@pytest.mark.parametrize('spread', [0.1, 3.0, 100.0])
def test_one_unit_moves_aggregate_and_distance_by_their_sensitivities_at_most(
    spread: float, examples_per_context: int, aggregate: str
) -> None:
    """Brute force over 20 000 random batches; the extremes come within 1 % of the bounds."""
    params = dataclasses.replace(PARAMS, examples_per_context=examples_per_context, aggregate=aggregate)
    rng = np.random.default_rng(int(spread * 10))
    batches, most, vocab = 20_000, 5, 3
    logits = rng.normal(0, spread, (batches, most, vocab)).astype(np.float32)
    masks = rng.random((batches, most)) < 0.6
    # Half of the changed rows are extreme: one token or all but one at the top.
    extreme = np.where(rng.integers(0, vocab, batches)[:, None] == np.arange(vocab), 60.0, -60.0)
    extreme *= rng.choice([-1.0, 1.0], (batches, 1))
    logits[::2, 0] = extreme[::2]
    # Spread enough for some token to be rarer than e^−c: only there a difference can be +c.
    calm = rng.normal(0, max(spread, 3.0), (batches, vocab))
    public = np.where(rng.random((batches, 1)) < 0.5, -extreme, calm)
    changed, changed_masks = logits.copy(), masks.copy()
    if examples_per_context == 1:
        masks[:, 0], changed_masks[:, 0] = True, False
    else:
        masks[:, 0] = changed_masks[:, 0] = True
        changed[:, 0] = -logits[:, 0]
    run = functools.partial(_aggregate_and_distance, public=jnp.asarray(public, jnp.float32), params=params)
    aggregates, distance = map(np.asarray, run(jnp.asarray(logits), jnp.asarray(masks)))
    other_aggregates, other_distance = map(np.asarray, run(jnp.asarray(changed), jnp.asarray(changed_masks)))
    # A difference of log-probabilities as large as 100 is held to some 1e-5.
    rounding = 1e-5 if aggregate == 'mean' else 1e-4
    distance, other_distance = (high * 2.0**24 + low for high, low in (distance.T, other_distance.T))
    aggregate_move = np.abs(aggregates - other_aggregates).max() / params.aggregate_sensitivity
    distance_move = np.abs(distance - other_distance).max() / (params.change.value * sparse_vector.MASS)
    assert 0.99 < aggregate_move <= 1 + rounding
    assert 0.99 < distance_move <= 1, 'whole numbers: no rounding'


@pytest.mark.parametrize('kind', list(AGGREGATES))
@pytest.mark.parametrize('rows', [0, 3, 6])
def test_tokens_of_every_aggregate_come_as_often_as_the_oracle_says(kind: str, rows: int) -> None:
    """Chi-square over 2e5 draws at odds 1e-6; the other aggregates' frequencies are rejected."""
    vocab = 40
    params = dataclasses.replace(PARAMS, aggregate=kind, threshold=None, threshold_noise_scale=None)
    rng = np.random.default_rng(20 + rows)
    public, logits = rng.normal(0, 3, vocab), rng.normal(0, 3, (rows, vocab))
    stacked = jnp.asarray(np.concatenate([public[None], logits]), jnp.float32)
    votes = samples.tally((stacked,), (jnp.arange(rows + 1) > 0,), params)
    words = halves(words_of(f'{kind}{rows}', DRAWS, sampling.tree_levels(vocab)))
    choose = jax.jit(
        jax.vmap(lambda w: mechanism.choose_token(votes, jnp.zeros(2, int), jnp.zeros(2, int), w, params)[0])
    )
    counts = np.bincount(np.asarray(choose(words)), minlength=vocab)
    for other in AGGREGATES:
        settings_ = oracles.Mechanism(
            s=4, c=3.0, tau=2.0, r=1, max_tokens=1, max_example_tokens=1, aggregate=other
        )
        expected = oracles.softmax(settings_.private_scores(logits, public))
        statistic, degrees = oracles.chi_square(counts, expected)
        assert (statistic <= oracles.chi_square_bound(degrees, ODDS)) == (other == kind)


def test_aggregate_divides_by_the_public_batch_size() -> None:
    row = jnp.asarray([[9.0, -9.0, 0.0]])
    for rows in (1, 2, 7):
        votes = samples.tally((jnp.tile(row, (rows, 1)),), (jnp.ones(rows, bool),), PARAMS)
        expected = rows / PARAMS.batch_size * np.array([3.0, -3.0, -3.0])
        np.testing.assert_allclose(mechanism.aggregate(votes, PARAMS), expected, rtol=1e-6)


@pytest.mark.parametrize('batch', [0, 1, 3, 9])
def test_aggregate_and_distance_equal_the_oracle(batch: int) -> None:
    rng = np.random.default_rng(batch)
    logits = np.concatenate([rng.normal(0, 4, (batch, 11)), np.zeros((2, 11))]).astype(np.float32)
    public = rng.normal(0, 4, 11).astype(np.float32)
    mask = jnp.arange(batch + 2) < batch
    rows = jnp.asarray(np.concatenate([public[None], logits]))
    votes = samples.tally((rows,), (jnp.append(False, mask),), PARAMS)
    expected = oracles.mean_aggregate(logits[:batch], PARAMS.batch_size, PARAMS.clip_bound)
    np.testing.assert_allclose(mechanism.aggregate(votes, PARAMS), expected, rtol=1e-5, atol=1e-5)
    distance = oracles.distance(logits[:batch], public, PARAMS.batch_size)
    assert samples.distance_of(votes.distance, PARAMS) == pytest.approx(distance, abs=1e-5)


# ----------------------------------------------------------- restricted vocabulary


def _allowed(public: list[float], released: list[bool], top_k: int | None) -> list[bool]:
    params = dataclasses.replace(PARAMS, public_top_k=top_k)
    logits = jnp.asarray(public, jnp.float32)
    found = candidates.choose(jnp.asarray(released), logits, params, params.strategy.allowed)
    return samples.allowed_of(found, len(public)).tolist()


@pytest.mark.parametrize(
    'public, released, top_k, expected',
    [
        ([3, 1, 2, 0], [1, 1, 1, 1], None, [1, 1, 1, 1]),
        ([3, 1, 2, 0], [1, 0, 1, 1], None, [1, 0, 1, 1]),
        ([3, 1, 2, 0], [1, 1, 1, 1], 1, [1, 0, 0, 0]),
        ([3, 1, 2, 0], [1, 1, 1, 1], 2, [1, 0, 1, 0]),
        ([3, 2, 2, 2], [1, 1, 1, 1], 2, [1, 1, 1, 1]),  # ties with the K-th stay in
        ([9, 1, 2, 0], [0, 1, 1, 1], 2, [0, 1, 1, 0]),  # K among the released
        ([3, 1, 2, 0], [1, 1, 1, 1], 4, [1, 1, 1, 1]),
        ([3, 1, 2, 0], [1, 1, 0, 1], 99, [1, 1, 0, 1]),
        ([3, 1, 2, 0], [0, 1, 0, 0], 3, [0, 1, 0, 0]),  # fewer released than K
    ],
)
def test_top_k_keeps_the_released_tokens_the_public_prompt_expects(
    public: list, released: list, top_k: int | None, expected: list
) -> None:
    assert _allowed(public, [bool(x) for x in released], top_k) == [bool(x) for x in expected]


# -------------------------------------------------------------------- choose_token


def _choose(
    distance_noise: float, threshold_noise: float, params: MechanismParams, word: int = 0
) -> tuple[int, bool]:
    # One context of four expects token 1, the public prompt token 0: the distance is 1.25.
    logits = jnp.asarray([[80.0, -80.0, -80.0], [-80.0, 80.0, -80.0]])
    votes = samples.tally((logits,), (jnp.array([False, True]),), params)
    words = halves(np.full(2, word, np.uint64))
    token, is_private = mechanism.choose_token(
        votes,
        samples.noise_in_limbs(threshold_noise, params),
        samples.noise_in_limbs(distance_noise, params),
        words,
        params,
    )
    return int(token), bool(is_private)


@pytest.mark.parametrize(
    'distance_noise, threshold_noise, private',
    [
        (0, 0, True),
        (-0.74, 0, True),
        (-0.76, 0, False),
        (0, 0.74, True),
        (0, 0.76, False),
        (-3, -3, True),
        (5, 5.76, False),
    ],
)
def test_a_token_is_private_where_the_noisy_distance_reaches_the_noisy_threshold(
    distance_noise: float, threshold_noise: float, private: bool
) -> None:
    token, is_private = _choose(distance_noise, threshold_noise, PARAMS, word=2**63)
    assert is_private == private
    if not private:
        assert token == 0


def test_every_token_is_private_without_the_sparse_vector() -> None:
    plain = dataclasses.replace(PARAMS, threshold=None, threshold_noise_scale=None)
    for noise in (-1e6, 0.0, 1e6):
        assert _choose(noise, -noise, plain)[1]


def test_private_and_public_tokens_have_their_own_temperatures() -> None:
    """Implied frequencies over 2e5 draws of each kind; chi-square at odds 1e-6."""
    params = dataclasses.replace(PARAMS, temperature=0.7, public_temperature=3.0)
    rng = np.random.default_rng(10)
    logits, public = rng.normal(0, 2, (3, 5)).astype(np.float32), rng.normal(0, 2, 5).astype(np.float32)
    rows = jnp.asarray(np.concatenate([public[None], logits]))
    votes = samples.tally((rows,), (jnp.arange(4) > 0,), params)
    words = halves(words_of('temperatures', DRAWS, 3))
    choose = jax.jit(
        jax.vmap(
            lambda noise, w: mechanism.choose_token(votes, noise, jnp.zeros(2, int), w, params),
            (None, 0),
        )
    )
    private = oracles.softmax(oracles.mean_aggregate(logits, 4, 3.0), 0.7)
    for noise, expected, flag in ((-99.0, private, True), (99.0, oracles.softmax(public, 3.0), False)):
        tokens, is_private = map(np.asarray, choose(samples.noise_in_limbs(noise, params), words))
        assert (is_private == flag).all()
        statistic, degrees = oracles.chi_square(np.bincount(tokens, minlength=5), expected)
        assert statistic <= oracles.chi_square_bound(degrees, ODDS)
