"""What the replays of several aggregates need: slow, in NumPy float64, and by formulas of their own.

An audit computes with these what decoding computed with `clipping.py` and the sampler's masks. It
finds what is wrong there only as long as neither side calls the other.

PP = Amin et al. 2024.
"""

from __future__ import annotations

import typing

from etils import epy

from models.privacy import candidates

if typing.TYPE_CHECKING:
    from models.privacy.params import MechanismParams

# `--help` lists the aggregates, and answers at once.
with epy.lazy_imports():
    import numpy as np


def counted(allowed: np.ndarray, params: MechanismParams, *, narrows: bool) -> np.ndarray:
    """The tokens that a row is centred over, `[V]` bool: the allowed ones, or all.

    The allowed ones with `public_top_k`, and where predictions are narrowed to them.
    """
    return allowed if narrows or params.public_top_k is not None else np.ones_like(allowed)


def clipped(logits: np.ndarray, clip_bound: float, among: np.ndarray, *, clips: bool) -> np.ndarray:
    """PP equation 1 of each row, `[rows, V]` float64; a row that is not finite votes −c throughout.

    Args:
        logits: `[rows, V]`.
        clip_bound: c.
        among: `[V]` bool, of `counted`: the tokens that have the maximum, and have to be finite.
        clips: False recentres the rows and cuts nothing off.
    """
    finite = np.isfinite(logits[:, among]).all(axis=1, keepdims=True)
    z = np.where(finite & among, logits, 0.0).astype(np.float64)
    votes = z - z[:, among].max(axis=1, keepdims=True) + clip_bound
    return np.where(finite, np.maximum(votes, -clip_bound) if clips else votes, -clip_bound)


def log_softmax(z: np.ndarray) -> np.ndarray:
    """log softmax over the last axis."""
    return z - np.logaddexp.reduce(z, axis=-1, keepdims=True)


def masked(mask: np.ndarray, public_logits: np.ndarray) -> np.ndarray:
    """The public logits of the mask's tokens, −∞ for the others, `[V]` float64."""
    return np.where(mask, public_logits.astype(np.float64), -np.inf)


def top_k(
    mask: np.ndarray, public_logits: np.ndarray, params: MechanismParams, slack: float = 0.0
) -> np.ndarray:
    """The mask's tokens from the K-th best public logit on, less a slack in nats, `[V]` bool.

    No more of them than a step has candidates: the first by logit, of equal ones by id.
    """
    k = params.public_top_k
    if k is None or k >= len(mask):
        return mask.copy()
    logits = masked(mask, public_logits)
    ranked = np.lexsort((np.arange(len(mask)), -logits))[: candidates.count(k, len(mask))]
    kept = np.zeros_like(mask)
    kept[ranked] = logits[ranked] >= logits[ranked[k - 1]] - slack
    return mask & kept
