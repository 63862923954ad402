"""The exactness of the sampler, tails included.

Keys are fixed, so every test is deterministic; the odds stated are those of a random key.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from models.privacy import sampling
from models.privacy.randomness import RunKey
from tests import oracles

KEY = RunKey(bytes(range(32)))
ODDS = 1e-6  # false alarms of a statistical test
DRAWS = 200_000


@jax.jit
def _sample(scores: jax.Array, allowed: jax.Array, words: jax.Array) -> jax.Array:
    """`[n]` tokens for `[n, levels, 2]` words."""
    return jax.vmap(sampling.sample_token, in_axes=(None, None, 0))(scores, allowed, words)


@jax.jit
def _weights(scores: jax.Array, allowed: jax.Array) -> jax.Array:
    """The weights that the tree is built on."""
    return jnp.where(allowed, jnp.exp(scores - jnp.where(allowed, scores, -jnp.inf).max()), 0.0)


def words_of(purpose: str, count: int, levels: int) -> np.ndarray:
    return KEY.words(purpose, count=count * levels).reshape(count, levels)


def halves(words: np.ndarray) -> jax.Array:
    """uint64 words to the pairs of uint32 that the device takes."""
    return jnp.asarray(
        np.stack([words >> np.uint64(32), words & np.uint64(2**32 - 1)], axis=-1).astype(np.uint32)
    )


def _scores(kind: str, vocab: int) -> np.ndarray:
    """Scores z̄/τ of a private token; the range is the widest that params admit, 2c/τ = 30."""
    rng = np.random.default_rng(vocab)
    c = sampling.MAX_CLIP_OVER_TEMPERATURE
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


@pytest.mark.first
@pytest.mark.heavy
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
    levels = sampling.tree_levels(vocab)
    assert tree.levels == levels
    random_words = words_of('walk', 600, levels)
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
    ours = np.asarray(_sample(jnp.asarray(scores), jnp.asarray(allowed), halves(words)))
    assert ours.tolist() == [tree.walk(row) for row in words]
    assert allowed[ours].all()


@given(
    hnp.arrays(np.float32, 5, elements=st.floats(-30, 30, width=32)),
    st.lists(st.booleans(), min_size=5, max_size=5).filter(any),
    st.lists(st.sampled_from([0, 1, 2**31, 2**32, 2**63, 2**64 - 1]), min_size=3, max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_a_token_that_is_not_allowed_is_never_drawn(scores: np.ndarray, allowed: list, words: list) -> None:
    drawn = _sample(jnp.asarray(scores), jnp.asarray(allowed), halves(np.array([words], np.uint64)))
    assert allowed[int(drawn[0])]


# The tail: V = 4096, one token at c, the others at the floor −c.
VOCAB, PEAK, LEVELS = 4096, 1234, 12


def _peaked(ratio: float) -> jax.Array:
    return jnp.asarray(np.where(np.arange(VOCAB) == PEAK, ratio / 2, -ratio / 2), jnp.float32)


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
        tokens = np.asarray(_sample(_peaked(20.0), jnp.ones(VOCAB, bool), halves(words)))
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
    assert sampling.tree_levels(vocab) == levels
