"""The distance that the sparse vector tests, and its Laplace noise (PP equation 2)."""

import numpy as np

from tests.oracles.aggregates import softmax


def distance(logits: np.ndarray, public: np.ndarray, s: float) -> np.ndarray:
    """‖(1/s) Σ softmax(z) − softmax(z_pub)‖₁ with raw logits at temperature 1 (PP equation 2)."""
    return np.abs(softmax(logits).sum(axis=0) / s - softmax(public)).sum(axis=-1)


def laplace_cdf(x: np.ndarray | float, scale: float) -> np.ndarray:
    """P(Laplace(0, scale) < x)."""
    x = np.asarray(x, np.float64)
    small = 0.5 * np.exp(-np.abs(x) / scale)
    return np.where(x < 0, small, 1 - small)
