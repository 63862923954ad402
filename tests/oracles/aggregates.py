"""Clipping and the three aggregates, over NumPy rows of logits.

PP = Amin et al. 2024, CL = the paper on clusters and the median; METHOD 4b is the difference.
"""

import dataclasses
from collections.abc import Callable

import numpy as np


def clip(logits: np.ndarray, c: float) -> np.ndarray:
    """clip(z)_i = max(−c, z_i − max_j z_j + c) (PP equation 1); a row that is not finite is all −c.

    Args:
        logits: `[..., V]`.
        c: Clip bound.
    """
    result = np.full(logits.shape, -float(c))
    for index in np.ndindex(logits.shape[:-1]):
        row = [float(x) for x in logits[index]]
        if all(np.isfinite(row)):
            top = max(row)
            result[index] = [max(-c, (x - top) + c) for x in row]
    return result


def softmax(logits: np.ndarray, tau: float = 1.0) -> np.ndarray:
    """softmax(z/τ) over the last axis in float64; zeros for a row that is not finite."""
    result = np.zeros(logits.shape)
    for index in np.ndindex(logits.shape[:-1]):
        row = logits[index].astype(np.float64)
        if np.isfinite(row).all():
            powers = np.exp((row - row.max()) / tau)
            result[index] = powers / powers.sum()
    return result


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """log softmax over the last axis, float64."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def mean_aggregate(logits: np.ndarray, s: float, c: float | None) -> np.ndarray:
    """(1/s) Σ clip(z) over the first axis (PP Algorithm 1, line 13); c=None does not clip."""
    votes = logits.astype(np.float64) if c is None else clip(logits, c)
    return votes.sum(axis=0) / s


def difference_aggregate(
    logits: np.ndarray, public: np.ndarray, s: float, c: float | None, *, around_the_private: bool = False
) -> np.ndarray:
    """z_pub + (1/s) Σ clamp(z − z_pub, −c, c) of log-probabilities (METHOD 4b); a broken row adds nothing.

    Args:
        logits: `[n, ..., V]`.
        public: `[..., V]`.
        s: Divisor.
        c: Clip bound; None does not clamp (wrong).
        around_the_private: Wrong: clamps around the contexts' own mean instead of around z_pub.
    """
    base = log_softmax(public.astype(np.float64))
    rows = []
    for row in logits.astype(np.float64):
        finite = np.isfinite(row).all(axis=-1, keepdims=True)
        rows.append(np.where(finite, log_softmax(np.where(finite, row, 0.0)), np.nan))
    if around_the_private and rows:
        base = np.mean([np.nan_to_num(row) for row in rows], axis=0)
    total = np.zeros(base.shape)
    for row in rows:
        difference = row - base
        if c is not None:
            difference = np.minimum(np.maximum(difference, -c), c)
        total += np.where(np.isnan(row), 0.0, difference)
    return base + total / s


def top_k_plus(public: np.ndarray, released: np.ndarray, k: int, s: float, c: float) -> np.ndarray:
    """`[V]` bool: released tokens whose public logit is at least the k-th largest minus 2c/s (METHOD 4b)."""
    ranked = sorted((float(x) for x, keep in zip(public, released, strict=True) if keep), reverse=True)
    kth = ranked[min(k, len(ranked)) - 1]
    return np.array([bool(keep) and x >= kth - 2 * c / s for x, keep in zip(public, released, strict=True)])


def candidates(public: np.ndarray, released: np.ndarray, k: int | None) -> list[int]:
    """Ids of a step's candidates, rising: all, or the first K and a spare by public logit, then by id.

    Spare are a quarter of K, or 64; tokens that are not released come last.
    """
    ranked = sorted(range(len(public)), key=lambda x: (-float(public[x]) if released[x] else float('inf'), x))
    return sorted(ranked if k is None else ranked[: k + max(64, k // 4)])


def allowed_tokens(public: np.ndarray, released: np.ndarray, k: int | None, s: float, c: float) -> np.ndarray:
    """`[V]` bool: Top-k+ of the released tokens, of which those that are no candidates are left out."""
    if k is None:
        return released.copy()
    candidate = np.isin(np.arange(len(public)), candidates(public, released, k))
    return top_k_plus(public, released, k, s, c) & candidate


def median(votes: np.ndarray) -> np.ndarray:
    """Middle of `[n, ...]` sorted votes, n >= 1; between two middles their mean, in the votes' own type."""
    ordered, h = np.sort(votes, axis=0), len(votes) // 2
    return ordered[h] if len(votes) % 2 else (ordered[h - 1] + ordered[h]) / votes.dtype.type(2)


def median_aggregate(logits: np.ndarray, public: np.ndarray, c: float | None) -> np.ndarray:
    """Median of clip(z) (CL equation 3); of no context, clip(z_pub). c=None does not clip (wrong)."""
    rows = logits if len(logits) else public[None]
    return median(rows.astype(np.float64) if c is None else clip(rows, c))


def medians_after_one_change(votes: np.ndarray, c: float, *, replace: bool, random: np.ndarray) -> np.ndarray:
    """`[changes, V]` medians of the batches that one change makes of this one, built one by one.

    A vote is added that is all at −c, all at c, another context's, or random; each vote in turn is
    removed; where `replace`, each in turn makes place for each of the added ones.

    Args:
        votes: `[n, V]` clipped logits, n >= 2.
        c: Clip bound.
        replace: True if a context's content may change.
        random: `[k, V]` further votes in [−c, c].
    """
    ends = np.stack([np.full(votes.shape[1], end, votes.dtype) for end in (-c, c)])
    added = np.concatenate([ends, votes, random.astype(votes.dtype)])
    fewer = [np.delete(votes, row, axis=0) for row in range(len(votes))]
    changed = fewer + [np.concatenate([votes, vote[None]]) for vote in added]
    if replace:
        changed += [np.concatenate([rest, vote[None]]) for rest in fewer for vote in added]
    return np.stack([median(batch) for batch in changed])


@dataclasses.dataclass(frozen=True)
class Twin:
    """The slow twin of one aggregate.

    Attributes:
        scores: From `[n, ..., V]` logits, `[..., V]` public logits, s and c to the aggregate `[..., V]`.
        widens_top_k: True if it keeps what 2c/s more could lift over the K-th token (Top-k+).
    """

    scores: Callable[..., np.ndarray]
    widens_top_k: bool = False


# By the name that the aggregate is registered with.
TWINS = {
    'mean': Twin(lambda logits, public, s, c: mean_aggregate(logits, s, c)),
    'median': Twin(lambda logits, public, s, c: median_aggregate(logits, public, c)),
    'difference': Twin(difference_aggregate, widens_top_k=True),
}
