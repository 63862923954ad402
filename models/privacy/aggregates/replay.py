"""Parts of the replays of aggregates: slow, in NumPy float64, written independently of decoding.

An audit computes with these what decoding computed with `clipping.py` and the sampler's masks. It
can find errors there only if neither side calls the other.

PP = Amin et al. 2024.
"""

from __future__ import annotations

from etils import epy

from models.privacy import candidates
from models.privacy.public_numbers import PublicNumbers

# `--help` lists the aggregates, and answers at once.
with epy.lazy_imports():
    import numpy as np


def counted(allowed: np.ndarray, params: PublicNumbers, *, narrows: bool) -> np.ndarray:
    """The tokens that a row is centred over, `[V]` bool: the allowed ones, or all.

    The allowed ones with `public_top_k`, or if predictions are narrowed to them.
    """
    return allowed if narrows or params.public_top_k is not None else np.ones_like(allowed)


def clipped(logits: np.ndarray, clip_bound: float, among: np.ndarray, *, clips: bool) -> np.ndarray:
    """PP equation 1 of each row, `[rows, V]` float64; a row that is not finite votes −c throughout.

    Args:
        logits: `[rows, V]`.
        clip_bound: c.
        among: `[V]` bool, from `counted`: the maximum is taken over these, and they have to be finite.
        clips: False recentres the rows without clipping them.
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
    mask: np.ndarray, public_logits: np.ndarray, params: PublicNumbers, slack: float = 0.0
) -> np.ndarray:
    """The mask's tokens from the K-th best public logit on, less a slack in nats, `[V]` bool.

    There are at most as many as a step has candidates: first by logit, then by id.
    """
    k = params.public_top_k
    if k is None or k >= len(mask):
        return mask.copy()
    logits = masked(mask, public_logits)
    ranked = np.lexsort((np.arange(len(mask)), -logits))[: candidates.count(k, len(mask))]
    kept = np.zeros_like(mask)
    kept[ranked] = logits[ranked] >= logits[ranked[k - 1]] - slack
    return mask & kept
