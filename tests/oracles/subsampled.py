"""Slow twins of DP-SGD's accounting: the privacy losses of one step on a fine grid, added up T times.

Sources: the definition of (ε, δ) as a hockey-stick divergence, and nothing of the library.
"""

import math

import numpy as np
from scipy import stats


def delta_of_steps(q: float, z: float, steps: int, epsilon: float, *, grid: float = 2e-4) -> float:
    """The larger δ at ε of both directions, by convolution of the losses of one step.

    Losses are rounded to the nearest point of a grid, so the result is neither an upper bound nor a lower
    one: the grid says how near it is.
    """
    return max(_delta(q, z, steps, epsilon, grid, removed) for removed in (True, False))


def _delta(q: float, z: float, steps: int, epsilon: float, grid: float, removed: bool) -> float:
    # Outputs of one step: N(0, z²) without the unit, (1 − q) N(0, z²) + q N(1, z²) with it.
    edges = np.linspace(-12 * z, 1 + 12 * z, 400_001)
    middles = (edges[1:] + edges[:-1]) / 2
    without = np.diff(stats.norm.cdf(edges / z))
    with_unit = (1 - q) * without + q * np.diff(stats.norm.cdf((edges - 1) / z))
    ratio = np.log1p(q * np.expm1((2 * middles - 1) / (2 * z * z)))
    losses, masses = (ratio, with_unit) if removed else (-ratio, without)
    places = np.round(losses / grid).astype(int)
    low, high = places.min(), places.max()
    one = np.bincount(places - low, masses, minlength=high - low + 1)
    size = 1 << math.ceil(math.log2(steps * (high - low) + 1))
    summed = np.fft.irfft(np.fft.rfft(one, size) ** steps, size)[: steps * (high - low) + 1]
    total = (np.arange(len(summed)) + steps * low) * grid
    worse = total > epsilon
    return float(np.sum(np.maximum(summed[worse], 0) * -np.expm1(epsilon - total[worse])))
