"""Slow twins of DP-SGD's accounting: the privacy losses of one step on a fine grid, added up T times.

Sources: the definition of (ε, δ) as a hockey-stick divergence, and nothing of the library.
"""

import functools
import math

import numpy as np
from scipy import stats


def delta_of_steps(q: float, z: float, steps: int, epsilon: float, *, grid: float = 2e-4) -> float:
    """The larger δ at ε of both directions, by convolution of the losses of one step.

    Losses are rounded to the nearest point of a grid, so the result is neither an upper bound nor a lower
    one: the grid says how near it is.
    """
    return max(_delta(q, z, steps, epsilon, grid, removed) for removed in (True, False))


def delta_with_counts(
    q: float, z: float, steps: int, sigma: float, epsilon: float, *, grid: float = 2e-4
) -> float:
    """The same where one count, which the unit moves by 1, is released with discrete Gaussian noise too.

    What the count loses is added to ε before the steps are asked: their δ at ε minus that loss, in the mean
    over counts. Every count has its own mass, from the definition of N_Z(0, σ²), and none is rounded.
    """
    reach = math.ceil(14 * sigma) + 4
    masses = [math.exp(-(count**2) / (2 * sigma**2)) for count in range(-reach, reach + 1)]
    whole = math.fsum(masses)
    found = []
    for removed in (True, False):
        summed, total = _losses(q, z, steps, grid, removed)
        # log P(x) - log P(x + 1), of the noise x and of the one that would give the same count without it.
        found.append(
            math.fsum(
                mass / whole * _excess(summed, total, epsilon - (2 * count + 1) / (2 * sigma**2))
                for count, mass in zip(range(-reach, reach + 1), masses, strict=True)
                if mass > 0
            )
        )
    return max(found)


def _delta(q: float, z: float, steps: int, epsilon: float, grid: float, removed: bool) -> float:
    return _excess(*_losses(q, z, steps, grid, removed), epsilon)


def _excess(masses: np.ndarray, losses: np.ndarray, epsilon: float) -> float:
    """E[(1 - e^(ε - loss))⁺], the hockey-stick divergence, of losses that ascend."""
    worse = slice(int(np.searchsorted(losses, epsilon, side='right')), None)
    return float(np.sum(np.maximum(masses[worse], 0) * -np.expm1(epsilon - losses[worse])))


@functools.lru_cache(maxsize=8)
def _losses(q: float, z: float, steps: int, grid: float, removed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Masses of the losses of all steps, and these."""
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
    return summed, (np.arange(len(summed)) + steps * low) * grid
