"""Sums over contexts are exact, in any order and company; sums of floats, their open twin, are not."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.privacy import mechanism, sparse_vector, whole_numbers
from models.privacy.aggregates import aggregate
from models.privacy.params import MechanismParams

PARAMS = MechanismParams(
    batch_size=64, clip_bound=1.0, temperature=1.0, max_private_tokens=1, max_batch_tokens=1,
    threshold=0.5, threshold_noise_scale=0.2,
)  # fmt: skip


def _sum(parts: list[np.ndarray], most: int) -> list[int]:
    found = jax.jit(whole_numbers.sum_of_rows, static_argnums=1)([jnp.asarray(part) for part in parts], most)
    for limb, floored in zip(whole_numbers.carried(found), found, strict=True):
        assert limb.dtype == floored.dtype == jnp.int32
    return whole_numbers.integers(found).tolist()


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('most', [1, 1000, 2**22, 2**24])
def test_a_sum_of_rows_is_that_of_whole_numbers(most: int) -> None:
    rng = np.random.default_rng(most)
    rows = rng.integers(-most, most, (700, 5), dtype=np.int32, endpoint=True)
    rows[:, 0], rows[:, 1] = most, -most
    expected = rows.astype(object).sum(axis=0).tolist()
    for cuts in ([], [3], [128, 256, 384, 512, 640], list(range(7, 700, 7))):
        assert _sum(np.split(rows, cuts), most) == expected
        assert _sum(np.split(rng.permutation(rows), cuts), most) == expected


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('sign', [-1, 1])
def test_the_largest_batch_that_is_let_in_has_room(sign: int) -> None:
    """And a float of it is right to a relative 2^-22."""
    n, most = whole_numbers.MOST_CONTEXTS, whole_numbers.MOST_QUANTA
    rows = np.full((n, 1), sign * most, np.int32)
    assert _sum(np.split(rows, 8), most) == [sign * n * most]
    found = whole_numbers.as_floats(whole_numbers.sum_of_rows([jnp.asarray(rows)], most))
    assert float(found[0]) == sign * n * most
    # More rows than fit into 32 bits at once, the open twin, wrap around.
    assert int(jnp.asarray(rows).sum()) != sign * n * most


def test_floats_of_whole_numbers_are_right_and_never_out_of_order() -> None:
    rng = np.random.default_rng(0)
    numbers = np.unique(rng.integers(-(2**40), 2**40, 1000) >> rng.integers(0, 40, 1000))
    limbs = whole_numbers.Limbs(*(jnp.asarray(part, jnp.int32) for part in (numbers >> 12, numbers & 4095)))
    found = np.asarray(whole_numbers.as_floats(limbs), np.float64)
    assert (np.abs(found - numbers) <= 2.0**-22 * np.abs(numbers)).all()
    assert (np.diff(found) >= 0).all()


# ------------------------------------------------ one context, and all others as they are

# A context votes c, the others lie just above half a unit in the last place of the sum that it makes.
BIG, SMALL = 4096, 4096
EDGE = 2.0**-12 * (1 + 2.0**-10)


def _float_sum(votes: np.ndarray) -> float:
    """In float32, one row after the other."""
    return float(np.cumsum(votes, dtype=np.float32)[-1])


@functools.partial(jax.jit, static_argnames=('params', 'parts'))
def _tally(rows: jax.Array, is_private: jax.Array, params: MechanismParams, parts: int) -> mechanism.Votes:
    public = jnp.zeros((1, rows.shape[1]))
    return mechanism.tally(
        public, tuple(jnp.split(rows, parts)), tuple(jnp.split(is_private, parts)),
        jnp.ones(rows.shape[1], bool), params,
    )  # fmt: skip


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('kind', ['mean', 'difference'])
def test_one_context_moves_a_sum_of_votes_by_its_own_vote(kind: str) -> None:
    """8,192 votes for which a sum in float32 moves by 2 c: the open twin."""
    params = dataclasses.replace(PARAMS, aggregate=kind)
    votes = np.concatenate([np.ones(BIG), np.full(SMALL, EDGE)]).astype(np.float32)
    assert _float_sum(votes) - _float_sum(votes[1:]) > 1.99
    # The votes of the last token under the mean, or of the first one under the difference.
    rows = np.stack([np.zeros_like(votes), votes - 1], axis=1) if kind == 'mean' else _differing(votes)
    everyone = np.ones(len(rows), bool)
    without = np.arange(len(rows)) > 0
    found = {
        parts: [
            whole_numbers.integers(_tally(rows, mask, params, parts).tallied) for mask in (everyone, without)
        ]
        for parts in (1, 16)
    }
    np.testing.assert_array_equal(found[1], found[16])
    alone = whole_numbers.integers(_tally(rows[:1], np.ones(1, bool), params, 1).tallied)
    moved = found[1][0] - found[1][1]
    np.testing.assert_array_equal(moved, alone)
    assert np.abs(moved).max() == aggregate.vote_limit(1.0)
    shuffled = np.random.default_rng(1).permutation(len(rows))
    again = whole_numbers.integers(_tally(rows[shuffled], everyone, params, 16).tallied)
    np.testing.assert_array_equal(again, found[1][0])


def _differing(votes: np.ndarray) -> np.ndarray:
    """Logits of 32 tokens, of which the first one's log-probability is `votes` above that of even odds."""
    share = np.exp(votes.astype(np.float64)) / 32
    others = np.log((1 - share) / 31)
    return np.concatenate([np.log(share)[:, None], np.repeat(others[:, None], 31, axis=1)], axis=1).astype(
        np.float32
    )


def test_one_context_moves_a_distance_by_its_mass() -> None:
    """The same of the sparse vector: a float32 sum of probabilities moves by 2, ours by 1 at the most."""
    shares = np.concatenate([np.ones(BIG), np.full(SMALL, EDGE)])
    assert _float_sum(shares.astype(np.float32)) - _float_sum(shares[1:].astype(np.float32)) > 1.99
    with np.errstate(divide='ignore'):
        odds = np.log(shares) - np.log(1 - shares)
    rows = np.stack([odds.clip(-100, 100), np.zeros_like(odds)], axis=1).astype(np.float32)
    everyone, without = np.ones(len(rows), bool), np.arange(len(rows)) > 0
    distances = [
        [np.asarray(_tally(rows, mask, PARAMS, parts).distance, np.int64) @ [2**24, 1] for parts in (1, 16)]
        for mask in (everyone, without)
    ]
    assert distances[0][0] == distances[0][1] and distances[1][0] == distances[1][1]
    assert 0.99 * sparse_vector.MASS < distances[0][0] - distances[1][0] <= sparse_vector.MASS


@pytest.mark.parametrize('spread', [0.0, 0.5, 3.0, 30.0])
def test_a_prediction_has_a_mass_of_one_at_most_and_little_less(spread: float) -> None:
    """At most, exactly; a token loses less than a quantum: 2^18 tokens 1.6 %, where all are alike."""
    rng = np.random.default_rng(3)
    for vocab in (3, 1000, 2**18):
        rows = rng.normal(0, spread, (8, vocab)).astype(np.float32)
        counts = np.asarray(jax.jit(sparse_vector.in_quanta)(rows), np.int64)
        assert (counts >= 0).all()
        mass = counts.sum(axis=1)
        assert (mass <= sparse_vector.MASS).all()
        assert (mass >= sparse_vector.MASS * (1 - 4e-6) - vocab).all()


def test_a_mass_that_passes_one_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever floats make of a softmax: here twice of what it should be."""
    right = sparse_vector.clipping.probabilities
    monkeypatch.setattr(sparse_vector.clipping, 'probabilities', lambda *of, **also: 2 * right(*of, **also))
    assert not np.asarray(sparse_vector.in_quanta(jnp.zeros((2, 5)))).any()


@pytest.mark.first
@pytest.mark.heavy
def test_a_distance_is_that_of_whole_numbers() -> None:
    """Against Python's, for numbers of contexts on either side of s and for predictions far apart."""
    rng = np.random.default_rng(5)
    for s, n, vocab in itertools.product((1, 64, 2**17), (0, 300), (500,)):
        params = dataclasses.replace(PARAMS, batch_size=s)
        rows = rng.normal(0, 6, (n, vocab)).astype(np.float32)
        public = rng.normal(0, 6, vocab).astype(np.float32)
        mass = sparse_vector.tally((jnp.asarray(rows),), (jnp.ones(n, bool),))
        found = np.asarray(sparse_vector.public_distance(mass, jnp.asarray(public), params), np.int64)
        expected = np.asarray(sparse_vector.in_quanta(jnp.asarray(public)), np.int64) * s
        taken = np.asarray(sparse_vector.in_quanta(jnp.asarray(rows)), np.int64).sum(axis=0)
        assert 0 <= found[1] < 2**24
        assert found @ [2**24, 1] == np.abs(expected - taken).sum()
