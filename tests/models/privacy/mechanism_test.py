"""Clipping, votes, sensitivities and the exactness of the sampler, tails included.

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

any_float = st.floats(width=32, allow_nan=True, allow_infinity=True)
rows = hnp.arrays(np.float32, (4, 5), elements=any_float)
bounds = st.floats(1 / 64, 50, width=32)
calm = st.floats(-100, 100, width=32)

# ------------------------------------------------------------------------- clip


@given(rows, bounds)
@settings(max_examples=150, deadline=None)
def test_clip_keeps_every_component_between_minus_c_and_c(logits: np.ndarray, bound: float) -> None:
    clipped = np.asarray(mechanism.clip_logits(jnp.asarray(logits), bound))
    assert clipped.dtype == np.float32 and clipped.shape == logits.shape
    assert (clipped >= -np.float32(bound)).all() and (clipped <= np.float32(bound)).all()
    finite = np.isfinite(logits).all(axis=1)
    assert (clipped[~finite] == -np.float32(bound)).all()
    assert (clipped[finite].max(axis=1) == np.float32(bound)).all()


@given(hnp.arrays(np.float32, (3, 7), elements=calm), bounds)
@settings(max_examples=100, deadline=None)
def test_clip_equals_the_oracle(logits: np.ndarray, bound: float) -> None:
    ours = np.asarray(mechanism.clip_logits(jnp.asarray(logits), bound))
    np.testing.assert_allclose(ours, oracles.clip(logits, bound), rtol=1e-6, atol=2e-5)


@given(hnp.arrays(np.int16, (2, 6), elements=st.integers(-500, 500)), st.integers(-1000, 1000))
@settings(max_examples=50, deadline=None)
def test_clip_does_not_see_a_shift(logits: np.ndarray, shift: int) -> None:
    # Eighths, so that float32 shifts them without rounding.
    plain = mechanism.clip_logits(jnp.asarray(logits / 8, jnp.float32), 5.0)
    shifted = mechanism.clip_logits(jnp.asarray((logits + shift) / 8, jnp.float32), 5.0)
    np.testing.assert_array_equal(plain, shifted)


@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float16])
def test_clip_and_votes_are_float32_whatever_the_model_computes_in(dtype: jnp.dtype) -> None:
    logits = jnp.asarray(np.random.default_rng(1).normal(0, 5, (40, 9)), dtype)
    assert mechanism.clip_logits(logits, 3.0).dtype == jnp.float32
    votes = mechanism.count_votes(logits, jnp.ones(40, bool), PARAMS)
    assert votes.clipped_sum.dtype == votes.probability_sum.dtype == jnp.float32
    exact = np.asarray(logits, np.float64)
    np.testing.assert_allclose(votes.clipped_sum, oracles.clip(exact, 3.0).sum(axis=0), atol=1e-4)
    np.testing.assert_allclose(votes.probability_sum, oracles.softmax(exact).sum(axis=0), atol=1e-5)


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
        votes = mechanism.count_votes(rows, mask, params)._replace(public_logits=public_row)
        return mechanism.mean_aggregate(votes, params), mechanism.public_distance(votes, params)

    return jax.vmap(one)(logits, masks, public)


@pytest.mark.parametrize('examples_per_context', [1, 2])
@pytest.mark.parametrize('spread', [0.1, 3.0, 100.0])
def test_one_unit_moves_aggregate_and_distance_by_their_sensitivities_at_most(
    spread: float, examples_per_context: int
) -> None:
    """Brute force over 20 000 random batches; the extremes come within 1 % of the bounds."""
    params = dataclasses.replace(PARAMS, examples_per_context=examples_per_context)
    rng = np.random.default_rng(int(spread * 10))
    batches, most, vocab = 20_000, 5, 3
    logits = rng.normal(0, spread, (batches, most, vocab)).astype(np.float32)
    masks = rng.random((batches, most)) < 0.6
    # Half of the changed rows are extreme: one token or all but one at the top.
    extreme = np.where(rng.integers(0, vocab, batches)[:, None] == np.arange(vocab), 60.0, -60.0)
    extreme *= rng.choice([-1.0, 1.0], (batches, 1))
    logits[::2, 0] = extreme[::2]
    public = np.where(rng.random((batches, 1)) < 0.5, -extreme, rng.normal(0, spread, (batches, vocab)))
    changed, changed_masks = logits.copy(), masks.copy()
    if examples_per_context == 1:
        masks[:, 0], changed_masks[:, 0] = True, False
    else:
        masks[:, 0] = changed_masks[:, 0] = True
        changed[:, 0] = -logits[:, 0]
    run = functools.partial(_aggregate_and_distance, public=jnp.asarray(public, jnp.float32), params=params)
    aggregate, distance = map(np.asarray, run(jnp.asarray(logits), jnp.asarray(masks)))
    other_aggregate, other_distance = map(np.asarray, run(jnp.asarray(changed), jnp.asarray(changed_masks)))
    aggregate_move = np.abs(aggregate - other_aggregate).max() / params.aggregate_sensitivity
    distance_move = np.abs(distance - other_distance).max() / params.distance_sensitivity
    assert 0.99 < aggregate_move <= 1 + 1e-5
    assert 0.99 < distance_move <= 1 + 1e-5


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
