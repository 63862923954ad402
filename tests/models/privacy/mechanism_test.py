"""Votes, aggregates, sensitivities and the exactness of the sampler, tails included.

Keys are fixed, so every test is deterministic; the odds stated are those of a random key.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from models.privacy import mechanism
from models.privacy.params import MAX_CLIP_OVER_TEMPERATURE, MechanismParams
from models.privacy.randomness import RunKey
from tests import oracles

KEY = RunKey(bytes(range(32)))
ODDS = 1e-6  # false alarms of a statistical test
DRAWS = 200_000

PARAMS = MechanismParams(
    batch_size=4,
    clip_bound=3.0,
    temperature=2.0,
    max_private_tokens=1,
    max_batch_tokens=8,
    threshold=0.5,
    threshold_noise_scale=0.1,
)
DIFFERENCE = dataclasses.replace(PARAMS, aggregate='difference')
MEDIAN = dataclasses.replace(PARAMS, aggregate='median')

# ------------------------------------------------------------------------ votes

BROKEN = {
    'nan': [np.nan, 0, 0, 0, 0],
    'inf': [np.inf, 0, 0, 0, 0],
    'minus inf': [-np.inf, 0, 1, 0, 0],
    'all nan': [np.nan] * 5,
    'both infinities': [np.inf, -np.inf, 0, 0, 0],
    'overflow': [3.4e38, -3.4e38, 0, 0, 0],
}


@pytest.mark.parametrize('name', BROKEN)
def test_a_broken_row_costs_no_more_than_any_other(name: str) -> None:
    """It moves the sums by its own bounded vote, and leaves those of the other rows as they are."""
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 3, (4, 5)).astype(np.float32)
    logits[2] = BROKEN[name]
    mask = np.array([True, True, True, True])
    without = np.array([True, True, False, True])
    votes = mechanism.count_votes(jnp.asarray(logits), jnp.asarray(mask), PARAMS)
    others = mechanism.count_votes(jnp.asarray(logits), jnp.asarray(without), PARAMS)
    moved = np.asarray(votes.clipped_sum - others.clipped_sum)
    assert (np.abs(moved) <= PARAMS.clip_bound + 1e-5).all()
    mass = np.asarray(votes.probability_sum - others.probability_sum)
    assert (mass >= -1e-6).all() and mass.sum() <= 1 + 1e-6
    if not np.isfinite(logits[2]).all():
        np.testing.assert_allclose(moved, -PARAMS.clip_bound, atol=1e-5)


def test_rows_that_are_not_private_vote_nothing_whatever_they_hold() -> None:
    rng = np.random.default_rng(3)
    private = rng.normal(0, 3, (3, 6)).astype(np.float32)
    expected = mechanism.count_votes(jnp.asarray(private), jnp.ones(3, bool), PARAMS)
    for filling in (0.0, 1e30, np.nan, np.inf, -np.inf):
        padded = np.concatenate([private, np.full((5, 6), filling, np.float32)])
        votes = mechanism.count_votes(jnp.asarray(padded), jnp.arange(8) < 3, PARAMS)
        np.testing.assert_allclose(votes.clipped_sum, expected.clipped_sum, atol=1e-6)
        np.testing.assert_allclose(votes.probability_sum, expected.probability_sum, atol=1e-6)


def test_a_row_votes_the_same_whatever_the_others_hold() -> None:
    rng = np.random.default_rng(4)
    row = rng.normal(0, 3, 6).astype(np.float32)
    alone = mechanism.count_votes(jnp.asarray(row[None]), jnp.ones(1, bool), PARAMS)
    for others in (rng.normal(0, 30, (7, 6)), np.full((7, 6), np.nan), np.full((7, 6), 1e38)):
        rows = np.concatenate([others, row[None]]).astype(np.float32)
        everyone = mechanism.count_votes(jnp.asarray(rows), jnp.ones(8, bool), PARAMS)
        rest = mechanism.count_votes(jnp.asarray(rows), jnp.arange(8) < 7, PARAMS)
        np.testing.assert_allclose(everyone.clipped_sum - rest.clipped_sum, alone.clipped_sum, atol=1e-5)
        np.testing.assert_allclose(
            everyone.probability_sum - rest.probability_sum, alone.probability_sum, atol=1e-6
        )


def test_an_empty_batch_gives_the_zero_vector_and_distance_one() -> None:
    logits = jnp.asarray(np.random.default_rng(5).normal(0, 3, (4, 6)), jnp.float32)
    votes = mechanism.count_votes(logits, jnp.zeros(4, bool), PARAMS)._replace(public_logits=logits[0])
    assert not np.asarray(mechanism.mean_aggregate(votes, PARAMS)).any()
    assert float(mechanism.public_distance(votes, PARAMS)) == pytest.approx(1, abs=1e-6)


def test_probabilities_are_not_summed_without_the_sparse_vector() -> None:
    plain = dataclasses.replace(PARAMS, threshold=None, threshold_noise_scale=None)
    votes = mechanism.count_votes(jnp.ones((4, 6)), jnp.ones(4, bool), plain)
    assert not np.asarray(votes.probability_sum).any()


@functools.partial(jax.jit, static_argnames='params')
def _aggregate_and_distance(
    logits: jax.Array, masks: jax.Array, public: jax.Array, params: MechanismParams
) -> tuple[jax.Array, jax.Array]:
    """`[D, V]` and `[D]` of D datasets, each with its own logits, mask and public logits."""

    def one(rows: jax.Array, mask: jax.Array, public_row: jax.Array) -> tuple[jax.Array, jax.Array]:
        votes = mechanism.count_votes(rows, mask, params, public_row)._replace(public_logits=public_row)
        return mechanism.aggregate(votes, params), mechanism.public_distance(votes, params)

    return jax.vmap(one)(logits, masks, public)


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
    aggregate_move = np.abs(aggregates - other_aggregates).max() / params.aggregate_sensitivity
    distance_move = np.abs(distance - other_distance).max() / params.distance_sensitivity
    assert 0.99 < aggregate_move <= 1 + rounding
    assert 0.99 < distance_move <= 1 + 1e-5


# --------------------------------------------------------------- difference aggregate


def _difference(logits: np.ndarray, public: np.ndarray, params: MechanismParams = DIFFERENCE) -> np.ndarray:
    rows = np.concatenate([public[None], logits, np.full((2, len(public)), np.nan)]).astype(np.float32)
    mask = (np.arange(len(rows)) > 0) & (np.arange(len(rows)) <= len(logits))
    votes = mechanism.tally((jnp.asarray(rows),), (jnp.asarray(mask),), params)
    return np.asarray(mechanism.aggregate(votes, params))


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


@pytest.mark.parametrize(
    'broken', [[np.nan, 0, 0, 0, 0], [np.inf, 0, 0, 0, 0], [-np.inf, 0, 1, 0, 0], [np.nan] * 5]
)
def test_a_broken_row_adds_nothing_to_the_public_prediction(broken: list) -> None:
    rng = np.random.default_rng(1)
    logits, public = rng.normal(0, 4, (3, 5)), rng.normal(0, 4, 5)
    found = _difference(np.concatenate([logits, [broken]]), public)
    np.testing.assert_array_equal(found, _difference(logits, public))


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


@pytest.mark.parametrize('kind', ['difference', 'median'])
@pytest.mark.parametrize('fill', [(5, 3), (8,), (2, 2, 2, 2), (1, 0, 7)])
def test_micro_batches_and_padding_change_no_aggregate(kind: str, fill: tuple[int, ...]) -> None:
    params = DIFFERENCE if kind == 'difference' else MEDIAN
    rng = np.random.default_rng(2)
    public, logits = rng.normal(0, 4, (1, 9)), rng.normal(0, 4, (8, 9))
    settings_ = oracles.Mechanism(
        s=4, c=3.0, tau=1.0, r=1, max_tokens=1, max_example_tokens=1, aggregate=params.aggregate
    )
    parts, masks, start = [], [], 0
    for number, private in enumerate(fill):
        rows = np.full((9, 9), 1e30)
        rows[:1] = public if number == 0 else rows[:1]
        rows[1 : 1 + private] = logits[start : start + private]
        mask = (np.arange(9) >= 1) & (np.arange(9) < 1 + private)
        parts.append(jnp.asarray(rows, jnp.float32))
        masks.append(jnp.asarray(mask))
        start += private
    votes = mechanism.tally(tuple(parts), tuple(masks), params)
    np.testing.assert_array_equal(votes.public_logits, public[0].astype(np.float32))
    expected = settings_.private_scores(logits, public[0])
    np.testing.assert_allclose(mechanism.aggregate(votes, params), expected, rtol=1e-5, atol=1e-5)
    distance = oracles.distance(logits, public[0], params.batch_size)
    assert float(mechanism.public_distance(votes, params)) == pytest.approx(distance, abs=1e-5)


@pytest.mark.parametrize('kind', ['mean', 'difference', 'median'])
@pytest.mark.parametrize('rows', [0, 3, 6])
def test_tokens_of_every_aggregate_come_as_often_as_the_oracle_says(kind: str, rows: int) -> None:
    """Chi-square over 2e5 draws at odds 1e-6; the other aggregates' frequencies are rejected."""
    vocab = 40
    params = dataclasses.replace(PARAMS, aggregate=kind, threshold=None, threshold_noise_scale=None)
    rng = np.random.default_rng(20 + rows)
    public, logits = rng.normal(0, 3, vocab), rng.normal(0, 3, (rows, vocab))
    stacked = jnp.asarray(np.concatenate([public[None], logits]), jnp.float32)
    votes = mechanism.tally((stacked,), (jnp.arange(rows + 1) > 0,), params)
    words = _halves(_words(f'{kind}{rows}', DRAWS, mechanism.tree_levels(vocab)))
    choose = jax.jit(
        jax.vmap(
            lambda w: mechanism.choose_token(
                votes, jnp.ones(vocab, bool), jnp.float32(0), jnp.float32(0), w, params
            )[0]
        )
    )
    counts = np.bincount(np.asarray(choose(words)), minlength=vocab)
    for other in ('mean', 'difference', 'median'):
        settings_ = oracles.Mechanism(
            s=4, c=3.0, tau=2.0, r=1, max_tokens=1, max_example_tokens=1, aggregate=other
        )
        expected = oracles.softmax(settings_.private_scores(logits, public))
        statistic, degrees = oracles.chi_square(counts, expected)
        assert (statistic <= oracles.chi_square_bound(degrees, ODDS)) == (other == kind)


def test_only_the_median_has_medians() -> None:
    rows, mask = (jnp.ones((3, 5)),), (jnp.ones(3, bool),)
    assert mechanism.tally(rows, mask, PARAMS).medians is None
    assert mechanism.tally(rows, mask, DIFFERENCE).medians is None
    medians = mechanism.tally(rows, mask, MEDIAN).medians
    assert medians is not None and (np.asarray(medians.middle) == PARAMS.clip_bound).all()


def test_aggregate_divides_by_the_public_batch_size() -> None:
    row = jnp.asarray([[9.0, -9.0, 0.0]])
    for rows in (1, 2, 7):
        votes = mechanism.count_votes(jnp.tile(row, (rows, 1)), jnp.ones(rows, bool), PARAMS)
        expected = rows / PARAMS.batch_size * np.array([3.0, -3.0, -3.0])
        np.testing.assert_allclose(mechanism.mean_aggregate(votes, PARAMS), expected, rtol=1e-6)


@pytest.mark.parametrize('batch', [0, 1, 3, 9])
def test_aggregate_and_distance_equal_the_oracle(batch: int) -> None:
    rng = np.random.default_rng(batch)
    logits = np.concatenate([rng.normal(0, 4, (batch, 11)), np.zeros((2, 11))]).astype(np.float32)
    public = rng.normal(0, 4, 11).astype(np.float32)
    mask = jnp.arange(batch + 2) < batch
    votes = mechanism.count_votes(jnp.asarray(logits), mask, PARAMS)._replace(
        public_logits=jnp.asarray(public)
    )
    aggregate = oracles.mean_aggregate(logits[:batch], PARAMS.batch_size, PARAMS.clip_bound)
    np.testing.assert_allclose(mechanism.mean_aggregate(votes, PARAMS), aggregate, rtol=1e-5, atol=1e-5)
    distance = oracles.distance(logits[:batch], public, PARAMS.batch_size)
    assert float(mechanism.public_distance(votes, PARAMS)) == pytest.approx(distance, abs=1e-5)


# ---------------------------------------------------------------------- sampling


@jax.jit
def _sample(scores: jax.Array, allowed: jax.Array, words: jax.Array) -> jax.Array:
    """`[n]` tokens for `[n, levels, 2]` words."""
    return jax.vmap(mechanism.sample_token, in_axes=(None, None, 0))(scores, allowed, words)


@jax.jit
def _weights(scores: jax.Array, allowed: jax.Array) -> jax.Array:
    """The weights that the tree is built on."""
    return jnp.where(allowed, jnp.exp(scores - jnp.where(allowed, scores, -jnp.inf).max()), 0.0)


def _words(purpose: str, count: int, levels: int) -> np.ndarray:
    return KEY.words(purpose, count=count * levels).reshape(count, levels)


def _halves(words: np.ndarray) -> jax.Array:
    """uint64 words to the pairs of uint32 that the device takes."""
    return jnp.asarray(
        np.stack([words >> np.uint64(32), words & np.uint64(2**32 - 1)], axis=-1).astype(np.uint32)
    )


def _scores(kind: str, vocab: int) -> np.ndarray:
    """Scores z̄/τ of a private token; the range is the widest that params admit, 2c/τ = 30."""
    rng = np.random.default_rng(vocab)
    c = MAX_CLIP_OVER_TEMPERATURE
    scores = {
        'spread': rng.uniform(-c, c, vocab),
        'one peak': np.where(np.arange(vocab) == vocab // 3, c, -c),
        'equal': np.zeros(vocab),
        'half at the floor': np.where(rng.random(vocab) < 0.5, -c, rng.uniform(-c, c, vocab)),
        'peak at the end': np.where(np.arange(vocab) == vocab - 1, c, -c),
    }
    return scores[kind].astype(np.float32)


@pytest.mark.parametrize('vocab', [1, 2, 3, 5, 300, 4096])
@pytest.mark.parametrize('kind', ['spread', 'one peak', 'equal', 'half at the floor', 'peak at the end'])
@pytest.mark.parametrize('masked', [False, True])
def test_every_tokens_probability_is_exact_to_1e_5_floor_tokens_too(
    vocab: int, kind: str, masked: bool
) -> None:
    """The probability is the product of counts of 64-bit words down the tree, not an estimate."""
    scores = _scores(kind, vocab)
    allowed = np.random.default_rng(7).random(vocab) < 0.4 if masked else np.ones(vocab, bool)
    allowed[vocab // 2] = True
    weights = np.asarray(_weights(jnp.asarray(scores), jnp.asarray(allowed)))
    implied = oracles.sampling_tree(weights).probabilities(vocab)
    expected = np.zeros(vocab)
    expected[allowed] = oracles.softmax(scores[allowed].astype(np.float64))
    np.testing.assert_allclose(implied[allowed], expected[allowed], rtol=1e-5)
    assert (implied[~allowed] == 0).all()


@pytest.mark.parametrize('vocab', [1, 2, 3, 300, 4096])
@pytest.mark.parametrize('kind', ['spread', 'half at the floor'])
def test_the_sampler_walks_that_tree(vocab: int, kind: str) -> None:
    """So the exact probabilities above are the sampler's.

    Same tokens from random words and from words that steer to the far sides, just below and just
    above the point where a node turns.
    """
    scores = _scores(kind, vocab)
    allowed = np.random.default_rng(8).random(vocab) < 0.7
    allowed[-1] = True
    tree = oracles.sampling_tree(np.asarray(_weights(jnp.asarray(scores), jnp.asarray(allowed))))
    levels = mechanism.tree_levels(vocab)
    assert tree.levels == levels
    random_words = _words('walk', 600, levels)
    extreme = np.where(random_words % 3 == 0, 0, np.where(random_words % 3 == 1, 2**64 - 1, random_words))
    turning = random_words.copy()
    for row in range(len(turning)):
        node = 0
        for level in range(levels):
            count = int(tree.words_for_lighter[level][node])
            # Two roundings of the uniform away from the turn, on a random side.
            side = -1 if turning[row, level] & np.uint64(1) else 1
            gap = 2 ** max(1, count.bit_length() - 20)
            turning[row, level] = np.uint64(min(max(count + side * gap, 0), 2**64 - 1))
            lighter = int(turning[row, level]) < count
            node = 2 * node + int(lighter == (tree.right[level][node] < tree.left[level][node]))
    words = np.concatenate([random_words, extreme.astype(np.uint64), turning])
    ours = np.asarray(_sample(jnp.asarray(scores), jnp.asarray(allowed), _halves(words)))
    assert ours.tolist() == [tree.walk(row) for row in words]
    assert allowed[ours].all()


@given(
    hnp.arrays(np.float32, 5, elements=st.floats(-30, 30, width=32)),
    st.lists(st.booleans(), min_size=5, max_size=5).filter(any),
    st.lists(st.sampled_from([0, 1, 2**31, 2**32, 2**63, 2**64 - 1]), min_size=3, max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_a_token_that_is_not_allowed_is_never_drawn(scores: np.ndarray, allowed: list, words: list) -> None:
    drawn = _sample(jnp.asarray(scores), jnp.asarray(allowed), _halves(np.array([words], np.uint64)))
    assert allowed[int(drawn[0])]


def test_draws_have_the_softmax_distribution_and_no_other_temperature() -> None:
    """Chi-square over 2e5 draws at odds 1e-6 of a false alarm; 5 % in the temperature fails it."""
    vocab = 300
    scores = np.random.default_rng(9).normal(0, 2.0, vocab).astype(np.float32)
    words = _halves(_words('softmax', DRAWS, mechanism.tree_levels(vocab)))
    allowed = jnp.ones(vocab, bool)
    expected = oracles.softmax(scores)
    for factor, accepted in ((1.0, True), (1 / 1.05, False), (1.05, False)):
        tokens = np.asarray(_sample(jnp.asarray(scores * factor, jnp.float32), allowed, words))
        statistic, degrees = oracles.chi_square(np.bincount(tokens, minlength=vocab), expected)
        assert degrees > 200
        assert (statistic <= oracles.chi_square_bound(degrees, ODDS)) == accepted


# The tail: V = 4096, one token at c, the others at the floor −c.
VOCAB, PEAK, LEVELS = 4096, 1234, 12


def _peaked(ratio: float) -> jax.Array:
    return jnp.asarray(np.where(np.arange(VOCAB) == PEAK, ratio / 2, -ratio / 2), jnp.float32)


def test_floor_tokens_come_as_often_as_they_should() -> None:
    """2c/τ = 10 and 20 over 2e5 plain draws; binomial at odds 1e-6."""
    words = _halves(_words('tail', DRAWS, LEVELS))
    for ratio in (10.0, 20.0):
        tokens = np.asarray(_sample(_peaked(ratio), jnp.ones(VOCAB, bool), words))
        total = (VOCAB - 1) * math.exp(-ratio)
        floor = int((tokens != PEAK).sum())
        assert stats.binomtest(floor, DRAWS, total / (1 + total)).pvalue > ODDS
        if ratio == 10.0:
            left = int((tokens < PEAK).sum())  # and evenly among them
            assert stats.binomtest(left, floor, PEAK / (VOCAB - 1)).pvalue > ODDS


def test_a_floor_of_e_to_the_minus_20_is_drawn_and_one_cut_at_24_bits_is_not() -> None:
    """Only words whose leading 20 bits are zero can leave the peak at the leaves: draw among those.

    Among them the peak's sibling, of probability e^-20 = 2^-28.9, comes 2^20 times as often, some
    430 times in 2e5; binomial at odds 1e-6. With words of 24 bits it never comes, and the exact
    probabilities of such a generator show whole parts of the floor missing.
    """
    steer = np.full((DRAWS, LEVELS), 2**63, np.uint64)  # the heavier side, down to the last level
    steer[:, -1] = KEY.words('last level', count=DRAWS) >> np.uint64(20)
    sibling = PEAK ^ 1
    probability = 2**20 * math.exp(-20) / (1 + math.exp(-20))

    def count(words: np.ndarray) -> int:
        tokens = np.asarray(_sample(_peaked(20.0), jnp.ones(VOCAB, bool), _halves(words)))
        assert set(tokens.tolist()) <= {PEAK, sibling}
        return int((tokens == sibling).sum())

    exact = count(steer)
    assert stats.binomtest(exact, DRAWS, probability).pvalue > ODDS
    cut = (steer >> np.uint64(40) << np.uint64(40)) | np.uint64(2**39)  # 24 bits, centred
    assert stats.binomtest(count(cut), DRAWS, probability).pvalue < ODDS

    weights = np.asarray(_weights(_peaked(20.0), jnp.ones(VOCAB, bool)))
    truncated = oracles.sampling_tree(
        weights,
        lambda words: ((words >> np.uint64(40)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-24),
    ).probabilities(VOCAB)
    expected = oracles.softmax(np.asarray(_peaked(20.0)))
    assert truncated[sibling] == 0
    assert (np.abs(truncated / expected - 1) > 0.3).sum() >= 15


@pytest.mark.parametrize(
    'vocab, levels', [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (300, 9), (4096, 12), (4097, 13), (262_144, 18)]
)
def test_levels_are_those_of_the_tree(vocab: int, levels: int) -> None:
    assert mechanism.tree_levels(vocab) == levels


# ----------------------------------------------------------- restricted vocabulary


def _allowed(public: list[float], released: list[bool], top_k: int | None) -> list[bool]:
    params = dataclasses.replace(PARAMS, public_top_k=top_k)
    logits = jnp.asarray(public, jnp.float32)
    # Private sums that would give another answer, were they read.
    votes = mechanism.Votes(-5 * logits, -logits, logits)
    return np.asarray(mechanism.allowed_tokens(votes, jnp.asarray(released), params)).tolist()


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


@pytest.mark.parametrize('top_k', [1, 3, 10, 19, 50])
@pytest.mark.parametrize('batch_size', [1, 4, 1000])
def test_top_k_plus_equals_the_oracle_and_reads_public_values_alone(top_k: int, batch_size: int) -> None:
    params = dataclasses.replace(DIFFERENCE, public_top_k=top_k, batch_size=batch_size)
    rng = np.random.default_rng(top_k)
    for _ in range(20):
        public = rng.normal(0, 2, 30).astype(np.float32)
        released = rng.random(30) < 0.7
        released[0] = True
        expected = oracles.top_k_plus(public, released, top_k, batch_size, params.clip_bound)
        for private in (0.0, np.nan, 1e30):
            votes = mechanism.Votes(*(jnp.full(30, private),) * 2, jnp.asarray(public))
            found = mechanism.allowed_tokens(votes, jnp.asarray(released), params)
            assert np.asarray(found).tolist() == expected.tolist()
        plain = dataclasses.replace(PARAMS, public_top_k=top_k, batch_size=batch_size)
        fewer = np.asarray(mechanism.allowed_tokens(votes, jnp.asarray(released), plain))
        assert not (fewer & ~expected).any()


def test_top_k_plus_keeps_every_token_that_one_context_could_lift_over_the_kth() -> None:
    """Within 2c/s of the K-th a context can turn the order around; past it none can."""
    params = dataclasses.replace(DIFFERENCE, public_top_k=1, clip_bound=1.0)
    public = np.array([0.0, -0.49, -0.51, -2.0])
    votes = mechanism.Votes(*(jnp.zeros(4),) * 2, jnp.asarray(public, jnp.float32))
    allowed = np.asarray(mechanism.allowed_tokens(votes, jnp.ones(4, bool), params))
    assert allowed.tolist() == [True, True, False, False]
    for token, can in ((1, True), (2, False)):
        context = np.where(np.arange(4) == token, 60.0, -60.0)[None]
        scores = _difference(context, public, params)
        assert (scores[token] >= scores[0]) == can


def test_the_difference_aggregates_scores_span_what_the_sampler_resolves() -> None:
    """Tokens far below the public top are left out: whatever the contexts say, the range is 30 at most."""
    params = dataclasses.replace(DIFFERENCE, clip_bound=15.0, temperature=2.0)
    public = np.linspace(0, -200, 101)
    for context in (public[::-1] * 3, public, np.zeros(101)):
        logits = np.tile(context, (params.batch_size, 1))
        votes = mechanism.tally(
            (jnp.asarray(np.concatenate([public[None], logits]), jnp.float32),),
            (jnp.arange(params.batch_size + 1) > 0,),
            params,
        )
        allowed = np.asarray(mechanism.allowed_tokens(votes, jnp.ones(101, bool), params))
        assert allowed.tolist() == (public >= -2 * (15 * 2.0 - 15.0)).tolist()
        scores = np.asarray(mechanism.aggregate(votes, params))[allowed] / params.temperature
        assert np.ptp(scores) <= 2 * MAX_CLIP_OVER_TEMPERATURE + 1e-4


# -------------------------------------------------------------------- choose_token


def _choose(
    distance_noise: float, threshold_noise: float, params: MechanismParams, word: int = 0
) -> tuple[int, bool]:
    # One context of four expects token 1, the public prompt token 0: the distance is 1.25.
    logits = jnp.asarray([[-80.0, 80.0, -80.0]])
    votes = mechanism.count_votes(logits, jnp.ones(1, bool), params)._replace(
        public_logits=jnp.asarray([80.0, -80.0, -80.0])
    )
    words = _halves(np.full(2, word, np.uint64))
    released = jnp.ones(3, bool)
    token, is_private = mechanism.choose_token(
        votes, released, jnp.float32(threshold_noise), jnp.float32(distance_noise), words, params
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
    votes = mechanism.count_votes(jnp.asarray(logits), jnp.ones(3, bool), params)
    votes = votes._replace(public_logits=jnp.asarray(public))
    words = _halves(_words('temperatures', DRAWS, 3))
    choose = jax.jit(
        jax.vmap(
            lambda noise, w: mechanism.choose_token(
                votes, jnp.ones(5, bool), noise, jnp.float32(0), w, params
            ),
            (None, 0),
        )
    )
    private = oracles.softmax(oracles.mean_aggregate(logits, 4, 3.0), 0.7)
    for noise, expected, flag in ((-99.0, private, True), (99.0, oracles.softmax(public, 3.0), False)):
        tokens, is_private = map(np.asarray, choose(jnp.float32(noise), words))
        assert (is_private == flag).all()
        statistic, degrees = oracles.chi_square(np.bincount(tokens, minlength=5), expected)
        assert statistic <= oracles.chi_square_bound(degrees, ODDS)
