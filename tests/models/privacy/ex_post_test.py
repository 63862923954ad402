"""The losses of a median run against METHOD 5 at 50 digits, and as bounds on what they bound.

That they hold for whole streams, the sparse vector included, is shown by enumeration in
`tests/models/privacy/enumeration_test.py`.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from models.privacy import ex_post
from models.privacy.aggregates import median_range
from models.privacy.params import Change, MechanismParams
from tests import oracles

pytestmark = pytest.mark.heavy

PARAMS = MechanismParams(
    batch_size=4,
    clip_bound=3.0,
    temperature=1.5,
    max_private_tokens=8,
    max_batch_tokens=8,
    aggregate='median',
)
SPARSE = dataclasses.replace(PARAMS, threshold=0.5, threshold_noise_scale=0.25)  # 2/(sσ) = 2
# float32 holds a loss to this, relative or absolute.
SLACK = 1e-5


@functools.partial(jax.jit, static_argnames='tau')
def _all_losses(medians: median_range.Medians, allowed: jax.Array, tau: float) -> tuple[jax.Array, jax.Array]:
    """`[V]` of each: the losses of every token."""
    tokens = jnp.arange(allowed.shape[0])
    return jax.vmap(median_range.token_losses, in_axes=(None, None, 0, None))(medians, allowed, tokens, tau)


def _losses(medians: tuple, tau: float, allowed: np.ndarray | None = None) -> np.ndarray:
    """`[2, V]` float64."""
    device = median_range.Medians(*(jnp.asarray(part, jnp.float32) for part in medians))
    mask = jnp.ones(device.middle.shape[0], bool) if allowed is None else jnp.asarray(allowed)
    return np.stack([np.asarray(part, np.float64) for part in _all_losses(device, mask, tau)])


def _random_medians(rng: np.random.Generator, vocab: int, c: float, spread: float) -> tuple:
    middle = rng.uniform(-c, c, vocab)
    lowest = np.maximum(middle - rng.exponential(spread, vocab), -c)
    highest = np.minimum(middle + rng.exponential(spread, vocab), c)
    return tuple(part.astype(np.float32) for part in (middle, lowest, highest))


# ------------------------------------------------------------------- the equations


@pytest.mark.parametrize('vocab', [1, 2, 5, 300])
@pytest.mark.parametrize('c, tau', [(3.0, 1.5), (15.0, 1.0), (0.1, 2.0)])
@pytest.mark.parametrize('spread', [1e-4, 0.3, 30.0])
@pytest.mark.parametrize('masked', [False, True])
def test_losses_equal_the_equations_at_50_digits(
    vocab: int, c: float, tau: float, spread: float, masked: bool
) -> None:
    rng = np.random.default_rng(vocab)
    medians = _random_medians(rng, vocab, c, spread)
    allowed = rng.random(vocab) < 0.5 if masked else np.ones(vocab, bool)
    allowed[vocab // 2] = True
    ours = _losses(medians, tau, allowed)
    for token in np.flatnonzero(allowed)[:12]:
        expected = oracles.token_losses(*medians, allowed, token, tau)
        np.testing.assert_allclose(ours[:, token], expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize('c, tau', [(15.0, 1.0), (15.0, 1.5)])
def test_losses_hold_their_digits_at_the_widest_range(c: float, tau: float) -> None:
    """Σ p (e^((lo−m)/τ) − 1) comes within 2^-40 of −1, and (hi − m)/τ is 2c/τ = 30."""
    vocab = 4000
    peak = np.where(np.arange(vocab) == 7, c, -c)
    for middle in (peak, np.full(vocab, c), np.full(vocab, -c), np.zeros(vocab)):
        medians = (middle.astype(np.float32), np.full(vocab, -c, np.float32), np.full(vocab, c, np.float32))
        ours = _losses(medians, tau)
        assert np.isfinite(ours).all()
        for token in (7, 8):
            expected = oracles.token_losses(*medians, np.ones(vocab, bool), token, tau)
            np.testing.assert_allclose(ours[:, token], expected, rtol=1e-5, atol=1e-5)


def test_a_small_loss_is_not_lost_among_large_sums() -> None:
    """Losses of a range of 1e-6 keep four digits, where a difference of two logarithms keeps none."""
    vocab = 4096
    rng = np.random.default_rng(0)
    middle = rng.uniform(-1, 1, vocab).astype(np.float32)
    middle[5] = 2.0**-8
    width = np.float32(2.0**-20)
    lowest, highest = middle.copy(), middle.copy()
    lowest[5], highest[5] = middle[5] - width, middle[5] + width
    ours = _losses((middle, lowest, highest), 1.0)
    for token in (5, 6):
        expected = oracles.token_losses(middle, lowest, highest, np.ones(vocab, bool), token, 1.0)
        np.testing.assert_allclose(ours[:, token], expected, rtol=1e-4)


# --------------------------------------------------------------------- they are bounds


def _log_ratio(middle: np.ndarray, other: np.ndarray, tau: float) -> np.ndarray:
    """log of every token's probability under the medians over that under others, `[..., V]`."""
    return oracles.log_softmax(middle.astype(np.float64) / tau) - oracles.log_softmax(
        other.astype(np.float64) / tau
    )


box = hnp.arrays(np.float32, (3, 4), elements=st.floats(-3, 3, width=32))


@given(box, hnp.arrays(np.float64, (20, 4), elements=st.floats(0, 1)), st.sampled_from([0.25, 1.0, 2.25]))
@settings(max_examples=150, deadline=None)
def test_any_medians_between_the_ends_are_within_the_losses(
    parts: np.ndarray, inside: np.ndarray, tau: float
) -> None:
    lowest, middle, highest = np.sort(parts, axis=0)
    minus_log_alpha, log_beta = _losses((middle, lowest, highest), tau)
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=4)))
    low, high = lowest.astype(np.float64), highest.astype(np.float64)
    for share in np.concatenate([corners, inside]):
        ratio = _log_ratio(middle, low + share * (high - low), tau)
        assert (ratio <= log_beta * (1 + SLACK) + SLACK).all()
        assert (-ratio <= minus_log_alpha * (1 + SLACK) + SLACK).all()


def test_both_losses_are_nearly_attained_by_a_corner() -> None:
    """By the token alone at one end and all others at the other: it forgets but the token's own term."""
    rng = np.random.default_rng(3)
    vocab, tau = 400, 1.5
    middle, lowest, highest = _random_medians(rng, vocab, 3.0, 0.5)
    minus_log_alpha, log_beta = _losses((middle, lowest, highest), tau)
    for token in (0, 7, 399):
        alone = np.arange(vocab) == token
        up = _log_ratio(middle, np.where(alone, lowest, highest), tau)[token]
        down = -_log_ratio(middle, np.where(alone, highest, lowest), tau)[token]
        assert log_beta[token] - 0.03 < up <= log_beta[token] + SLACK
        assert minus_log_alpha[token] - 0.03 < down <= minus_log_alpha[token] + SLACK


def _batches(rows: int, vocab: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (rows, vocab))
    logits[rng.random((rows, vocab)) < 0.2] = -99.0
    return logits.astype(np.float32)


def _neighbours(logits: np.ndarray, public: np.ndarray, c: float, *, replace: bool) -> list[np.ndarray]:
    """Medians of all batches that one change makes, the added votes taken from a grid."""
    vocab = logits.shape[1]
    # Recentred logits on a grid: one token on top, the others anywhere down to the floor and past it.
    grid = np.array(list(itertools.product((0.0, -1.0, -c, -2 * c, -50.0), repeat=vocab)), np.float32)
    grid = grid[(grid == 0).any(axis=1)]
    fewer = [np.delete(logits, row, axis=0) for row in range(len(logits))]
    changed = fewer + [np.concatenate([logits, row[None]]) for row in grid]
    if replace:
        changed += [np.concatenate([rest, row[None]]) for rest in fewer for row in grid]
    return [oracles.median_aggregate(batch, public, c) for batch in changed]


@functools.partial(jax.jit, static_argnames=('c', 'change'))
def _compiled(
    rows: jax.Array, mask: jax.Array, public: jax.Array, c: float, change: Change
) -> median_range.Medians:
    return median_range.medians((rows,), (mask,), public, c, change)


def _medians(logits: np.ndarray, public: np.ndarray, c: float, change: Change) -> median_range.Medians:
    """Ours, in float32, among eight rows of which the others are padding."""
    rows = np.zeros((8, logits.shape[1]), np.float32)
    rows[: len(logits)] = logits
    found = _compiled(jnp.asarray(rows), jnp.arange(8) < len(logits), jnp.asarray(public), c, change)
    return median_range.Medians(*map(np.asarray, found))


@pytest.mark.parametrize('change', Change)
@pytest.mark.parametrize('rows', range(6))
@pytest.mark.parametrize('vocab', [2, 3])
def test_every_neighbour_of_a_small_batch_is_within_the_losses(rows: int, vocab: int, change: Change) -> None:
    c, tau, worst = 2.0, 1.5, 0.0
    for seed in range(4):
        logits, public = _batches(rows, vocab, seed), _batches(1, vocab, 90 + seed)[0]
        found = _medians(logits, public, c, change)
        minus_log_alpha, log_beta = _losses(found, tau)
        for other in _neighbours(logits, public, c, replace=change is Change.REPLACE):
            ratio = _log_ratio(found.middle, other, tau)
            assert (ratio <= log_beta + SLACK).all() and (-ratio <= minus_log_alpha + SLACK).all()
            bound = np.where(ratio > 0, log_beta, minus_log_alpha)
            worst = max(worst, (np.abs(ratio) / np.maximum(bound, 0.01)).max())
    if rows >= 3:
        assert worst > 0.7  # nearly used up


# ------------------------------------------------------------------- sums of a batch


def _batch_loss(alpha: list[float], beta: list[float], private: list[bool]) -> ex_post.BatchLoss:
    return ex_post.BatchLoss(
        batch_id='0000-000000',
        minus_log_alpha=tuple(alpha),
        log_beta=tuple(beta),
        places=tuple(range(len(alpha))),
        is_private=tuple(private),
    )


def test_a_batchs_loss_is_the_larger_of_two_sums_and_the_papers_the_sum_of_the_larger() -> None:
    loss = _batch_loss([1.0, 0.5, 2.0], [2.0, 0.25, 0.125], [True] * 3)
    assert loss.epsilon(PARAMS) == 3.5
    assert loss.paper_epsilon(PARAMS) == 4.5
    assert _batch_loss([0.125], [3.0], [True]).epsilon(PARAMS) == 3.0


@pytest.mark.parametrize(
    'private, runs',
    [
        ([], 0),
        ([True], 1),
        ([False], 1),
        ([True, True, True], 3),
        ([False, True, False, True], 2),
        ([True, False], 2),
        ([False, False, False], 1),
    ],
)
def test_every_run_of_the_test_costs_and_so_does_one_left_open(private: list[bool], runs: int) -> None:
    loss = _batch_loss([0.5 * flag for flag in private], [0.25 * flag for flag in private], private)
    assert loss.sparse_vector_runs() == runs
    assert loss.epsilon(SPARSE) == 0.5 * sum(private) + 2 * runs
    assert loss.paper_epsilon(SPARSE) == 0.5 * sum(private) + 2 * runs
    shared = dataclasses.replace(SPARSE, examples_per_context=2)
    assert loss.epsilon(shared) == 0.5 * sum(private) + 4 * runs


def test_a_batchs_loss_prints_none_of_its_numbers() -> None:
    shown = repr(_batch_loss([0.123], [0.456], [True]))
    assert shown == "BatchLoss(batch_id='0000-000000')"
