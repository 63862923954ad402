"""What the replays of several aggregates need: slow, in NumPy float64, and by formulas of their own.

An audit computes with these what decoding computed with `clipping.py` and the sampler's masks. It
finds what is wrong there only as long as neither side calls the other.

PP = Amin et al. 2024.
"""

from __future__ import annotations

from etils import epy

# `--help` lists the aggregates, and answers at once.
with epy.lazy_imports():
    import numpy as np


def clipped(logits: np.ndarray, clip_bound: float, *, clips: bool) -> np.ndarray:
    """PP equation 1 of each row, `[rows, V]` float64; a row that is not finite votes −c throughout.

    Args:
        logits: `[rows, V]`.
        clip_bound: c.
        clips: False recentres the rows and cuts nothing off.
    """
    finite = np.isfinite(logits).all(axis=1, keepdims=True)
    z = np.where(finite, logits, 0.0).astype(np.float64)
    votes = z - z.max(axis=1, keepdims=True) + clip_bound
    return np.where(finite, np.maximum(votes, -clip_bound) if clips else votes, -clip_bound)


def log_softmax(z: np.ndarray) -> np.ndarray:
    """log softmax over the last axis."""
    return z - np.logaddexp.reduce(z, axis=-1, keepdims=True)


def masked(mask: np.ndarray, public_logits: np.ndarray) -> np.ndarray:
    """The public logits of the mask's tokens, −∞ for the others, `[V]` float64."""
    return np.where(mask, public_logits.astype(np.float64), -np.inf)


def top_k(mask: np.ndarray, public_logits: np.ndarray, k: int | None, slack: float = 0.0) -> np.ndarray:
    """The mask's tokens from the K-th best public logit on, less a slack in nats, `[V]` bool."""
    if k is None or k >= len(mask):
        return mask.copy()
    logits = masked(mask, public_logits)
    return mask & (logits >= np.sort(logits)[-k] - slack)
