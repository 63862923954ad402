"""A token of the nucleus: against the nucleus of a sort, and by its share there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.sampling.nucleus import drawn
from tests import oracles

pytestmark = pytest.mark.heavy

DRAWS = 20_000
WAYS = [(0.8, None), (0.3, 5), (1.0, 3), (1.0, None), (0.95, 20), (0.5, None)]


def _keys(count: int) -> jax.Array:
    return jax.random.split(jax.random.key(0), count)


def _shares(logits: np.ndarray, top_p: float, top_k: int | None) -> np.ndarray:
    kept = np.where(oracles.nucleus(logits, top_p, top_k), np.exp(logits - logits.max()), 0.0)
    shares: np.ndarray = kept / kept.sum()
    return shares


@pytest.mark.parametrize('top_p, top_k', WAYS)
def test_tokens_come_by_their_shares_of_the_nucleus(top_p: float, top_k: int | None) -> None:
    """Over two blocks of columns; a false alarm in 10,000 runs of each, for one way of drawing."""
    logits = np.full(600, -np.inf)
    logits[np.r_[:30, 540:570]] = 1.5 * np.random.default_rng(1).normal(size=60)
    rows = jnp.broadcast_to(jnp.asarray(logits, jnp.float32), (DRAWS, 600))
    found = np.asarray(jax.jit(drawn, static_argnames=('top_p', 'top_k'))(
        rows, _keys(DRAWS), top_p=top_p, top_k=top_k
    ))  # fmt: skip
    shares = _shares(logits, top_p, top_k)
    counts = np.bincount(found, minlength=600)
    assert set(np.flatnonzero(counts)) <= set(np.flatnonzero(shares))
    of = np.flatnonzero(shares)

    def fits(shares: np.ndarray) -> bool:
        statistic, degrees = oracles.chi_square(counts[of], shares[of])
        return statistic < oracles.chi_square_bound(max(1, degrees), 1e-4)

    assert fits(shares)
    if len(of) > 2:
        hotter = _shares(logits / 1.2, top_p, top_k) * (shares > 0)
        assert not fits(hotter / hotter.sum())


@pytest.mark.parametrize('top_p, top_k', WAYS)
def test_a_draw_is_a_function_of_its_own_row_and_key(top_p: float, top_k: int | None) -> None:
    """Those of the slow twin, whatever stands beside it."""
    logits = 3 * np.random.default_rng(2).normal(size=(16, 700)).astype(np.float32)
    keys = _keys(16)
    draw = jax.jit(drawn, static_argnames=('top_p', 'top_k'))
    found = np.asarray(draw(jnp.asarray(logits), keys, top_p=top_p, top_k=top_k))
    order = np.random.default_rng(3).permutation(16)
    again = np.asarray(draw(jnp.asarray(logits[order]), keys[order], top_p=top_p, top_k=top_k))
    assert (again == found[order]).all() and len(set(found.tolist())) > 4
    for row, key, token in zip(logits.astype(float), keys, found, strict=True):
        draws = (float(jax.random.uniform(jax.random.fold_in(key, trial))) for trial in range(100))
        assert oracles.drawn(row, draws, top_p, top_k) == token


@pytest.mark.first
def test_one_possible_token_is_drawn() -> None:
    logits = np.full((8, 1030), -np.inf, np.float32)
    logits[np.arange(8), np.arange(8) * 147] = -5.0
    for top_p in (1.0, 0.5):
        found = drawn(jnp.asarray(logits), _keys(8), top_p=top_p, top_k=None)
        assert np.asarray(found).tolist() == [147 * row for row in range(8)]
