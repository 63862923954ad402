"""δ of a Gaussian mechanism at every ε, exactly: that of the pair N(μ, 1) and N(0, 1), and the way back.

A μ is kept as ρ = μ²/2, the mechanism's ρ in zCDP. Gaussian mechanisms one after another, each chosen after
the outputs before it, are one of the sum of their ρ (README, section 12).
"""

import math
from collections.abc import Callable

import numpy as np


def delta_of_gaussian(rho: float, epsilon: float | np.ndarray) -> np.ndarray:
    """δ at each ε of N(μ, 1) and N(0, 1) for μ = √(2ρ) (Balle and Wang 2018, Theorem 8)."""
    from scipy import special

    mu = math.sqrt(2 * rho)
    at = np.asarray(epsilon, float)
    first = special.ndtr(mu / 2 - at / mu)
    # e^ε Φ(−μ/2 − ε/μ), in logarithms: the first factor may be no float.
    second = np.exp(at + special.log_ndtr(-mu / 2 - at / mu))
    return np.maximum(first - second, 0)


def epsilon_from_gaussian(rho: float, delta: float) -> float:
    """The least ε at δ of a Gaussian mechanism of μ = √(2ρ), rounded upwards."""
    if rho == 0 or float(delta_of_gaussian(rho, 0.0)) <= delta:
        return 0.0
    high = 1.0
    while float(delta_of_gaussian(rho, high)) > delta:
        high *= 2
    return _least(lambda epsilon: float(delta_of_gaussian(rho, epsilon)) <= delta, 0.0, high)


def rho_from_gaussian(epsilon: float, delta: float) -> float:
    """The largest μ²/2 of a Gaussian mechanism within (epsilon, delta), rounded downwards."""
    high = 1.0
    while float(delta_of_gaussian(high, epsilon)) <= delta:
        high *= 2
    low = high
    while float(delta_of_gaussian(low, epsilon)) > delta:
        low /= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(delta_of_gaussian(middle, epsilon)) <= delta else (low, middle)
    return low


def _least(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The least number that holds between one that does not and one that does, rounded upwards."""
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
