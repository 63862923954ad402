"""Medians, and the range that one change can move them in, against every neighbour built one by one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from models.privacy.aggregates import clipping, median_range
from models.privacy.params import Change
from tests import oracles

pytestmark = pytest.mark.heavy

C = 3.0
VOCAB = 7
ADD, REPLACE = Change.ADD_OR_REMOVE, Change.REPLACE
PUBLIC = np.random.default_rng(0).normal(0, 4, VOCAB).astype(np.float32)


@functools.partial(jax.jit, static_argnames=('bound', 'change'))
def _compiled(
    logits: tuple, is_private: tuple, public: jax.Array, bound: float, change: Change
) -> median_range.Medians:
    return median_range.medians(logits, is_private, public, bound, change)


def _medians(
    logits: np.ndarray,
    change: Change = ADD,
    *,
    public: np.ndarray = PUBLIC,
    bound: float = C,
    fill: tuple[int, ...] | None = None,
    size: int = 10,
) -> median_range.Medians:
    """Ours, on micro-batches of `size` rows of which `fill` are private; the others hold anything."""
    rng = np.random.default_rng(1)
    parts, masks, start = [], [], 0
    for private in (len(logits),) if fill is None else fill:
        rows = rng.choice([0.0, 1e30, -5.0, np.nan], (size, logits.shape[1])).astype(np.float32)
        places = rng.permutation(size)[:private]
        rows[places] = logits[start : start + private]
        parts.append(jnp.asarray(rows))
        masks.append(jnp.zeros(size, bool).at[places].set(True))
        start += private
    assert start == len(logits)
    found = _compiled(tuple(parts), tuple(masks), jnp.asarray(public), bound, change)
    return median_range.Medians(*map(np.asarray, found))


def _votes(logits: np.ndarray, bound: float = C) -> np.ndarray:
    """The clipped votes as the device has them, so that extremes can be compared bit by bit."""
    return np.asarray(clipping.clip_logits(jnp.asarray(logits), bound))


def _logits(kind: str, rows: int, vocab: int = VOCAB, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(1000 * seed + rows)
    if kind == 'spread':
        logits = rng.normal(0, 2, (rows, vocab))
    elif kind == 'tied':
        logits = rng.integers(-3, 4, (rows, vocab)).astype(float)
    elif kind == 'alike':
        logits = np.tile(rng.normal(0, 2, vocab), (rows, 1))
    elif kind == 'floor':
        logits = np.where(rng.random((rows, vocab)) < 0.6, -99.0, rng.normal(0, 2, (rows, vocab)))
    else:  # broken
        logits = rng.normal(0, 2, (rows, vocab))
        logits[rng.random(rows) < 0.4, 0] = np.nan
        logits[rng.random(rows) < 0.2, 1] = -np.inf
    return logits.astype(np.float32)


KINDS = ('spread', 'tied', 'alike', 'floor', 'broken')


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('rows', range(10))
def test_medians_are_those_of_the_oracle(rows: int, kind: str) -> None:
    for seed in range(3):
        logits = _logits(kind, rows, seed=seed)
        ours = _medians(logits).middle
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, oracles.median_aggregate(logits, PUBLIC, C), rtol=1e-6, atol=1e-6)
        if rows:
            np.testing.assert_array_equal(ours, oracles.median(_votes(logits)))


@pytest.mark.parametrize('change', Change)
@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('rows', range(3, 10))
def test_the_range_ends_at_the_extremes_over_all_neighbours(rows: int, kind: str, change: Change) -> None:
    """Not a bit wider or narrower, in every component."""
    for seed in range(3):
        logits = _logits(kind, rows, seed=seed)
        ours = _medians(logits, change)
        random = np.random.default_rng(seed).uniform(-C, C, (6, VOCAB))
        others = oracles.medians_after_one_change(_votes(logits), C, replace=change is REPLACE, random=random)
        np.testing.assert_array_equal(ours.lowest, others.min(axis=0))
        np.testing.assert_array_equal(ours.highest, others.max(axis=0))


grid = st.sampled_from([-1e30, -7.0, -6.0, -2.5, -1.0, -0.5, 0.0, 0.25, 1.0])
any_float = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(
    st.integers(3, 9).flatmap(lambda n: hnp.arrays(np.float32, (n, VOCAB), elements=grid | any_float)),
    st.sampled_from(Change),
    st.sampled_from([1 / 8, 3.0, 40.0]),
)
@settings(max_examples=150, deadline=None)
def test_any_logits_have_exact_medians_and_range(logits: np.ndarray, change: Change, bound: float) -> None:
    ours = _medians(logits, change, bound=bound)
    votes = _votes(logits, bound)
    others = oracles.medians_after_one_change(
        votes, bound, replace=change is REPLACE, random=np.zeros((0, VOCAB))
    )
    np.testing.assert_array_equal(ours.middle, oracles.median(votes))
    np.testing.assert_array_equal(ours.lowest, others.min(axis=0))
    np.testing.assert_array_equal(ours.highest, others.max(axis=0))
    assert (ours.lowest >= -bound).all() and (ours.highest <= bound).all()


@pytest.mark.parametrize('change', Change)
@pytest.mark.parametrize('rows', [0, 1, 2])
def test_of_fewer_than_three_contexts_the_range_is_the_whole_clip_range(rows: int, change: Change) -> None:
    for kind in KINDS:
        ours = _medians(_logits(kind, rows), change)
        assert (ours.lowest == -C).all() and (ours.highest == C).all()


@pytest.mark.parametrize('public', [PUBLIC, np.full(VOCAB, np.nan, np.float32)], ids=['finite', 'broken'])
def test_an_empty_batch_has_the_clipped_public_logits(public: np.ndarray) -> None:
    ours = _medians(np.zeros((0, VOCAB), np.float32), public=public)
    np.testing.assert_array_equal(ours.middle, _votes(public))
    np.testing.assert_allclose(ours.middle, oracles.clip(public, C), atol=1e-6)


@pytest.mark.parametrize('change', Change)
@pytest.mark.parametrize('fill', [(7, 0), (0, 7), (3, 4), (1, 0, 6), (2, 2, 2, 1)])
def test_micro_batches_of_any_fill_give_the_same_bits(fill: tuple[int, ...], change: Change) -> None:
    logits = _logits('floor', 7, vocab=40)
    public = np.zeros(40, np.float32)
    whole = _medians(logits, change, public=public)
    parts = _medians(logits, change, public=public, fill=fill, size=7)
    for ours, expected in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize('change', Change)
@pytest.mark.parametrize('rows, low_share', [(8, 0.0), (9, 0.55), (33, 0.52), (64, 0.5), (64, 0.97)])
def test_every_column_of_a_large_vocabulary_is_found(rows: int, low_share: float, change: Change) -> None:
    """Several blocks of columns and none: those that are selected from, and those at the floor."""
    vocab = 3 * median_range.BLOCK + 17
    rng = np.random.default_rng(rows)
    logits = np.where(rng.random((rows, vocab)) < low_share, -99.0, rng.normal(0, 1, (rows, vocab)))
    logits = logits.astype(np.float32)
    ours = _medians(logits, change, public=np.zeros(vocab, np.float32), bound=6.0, size=rows)
    votes = _votes(logits, 6.0)
    np.testing.assert_array_equal(ours.middle, oracles.median(votes))
    ends = np.stack([np.full(vocab, end, np.float32) for end in (-6.0, 6.0)])
    # Removing a lowest or a highest vote is the extreme removal, column by column.
    fewer = (np.sort(votes, axis=0)[1:], np.sort(votes, axis=0)[:-1])
    changed = [np.concatenate([votes, end[None]]) for end in ends] + list(fewer)
    if change is REPLACE:
        changed += [np.concatenate([rest, end[None]]) for rest in fewer for end in ends]
    others = np.stack([oracles.median(batch) for batch in changed])
    np.testing.assert_array_equal(ours.lowest, others.min(axis=0))
    np.testing.assert_array_equal(ours.highest, others.max(axis=0))


# -------------------------------------------------------------- other ranges are rejected
