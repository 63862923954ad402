"""Slow twins of a Gaussian mechanism's (epsilon, delta): in fifty digits, and by a search that halves."""

import mpmath


def delta_of_gaussian(noise_multiplier: float, epsilon: float) -> float:
    """δ at ε: what N(1/z, 1) has beyond e^ε times N(0, 1) (Balle and Wang 2018, Theorem 8)."""
    return float(_delta(mpmath.mpf(noise_multiplier), mpmath.mpf(epsilon)))


def epsilon_of_gaussian(noise_multiplier: float, delta: float) -> float:
    """The least ε at δ."""
    z, low, high = mpmath.mpf(noise_multiplier), mpmath.mpf(0), mpmath.mpf(1)
    with mpmath.workdps(50):
        while _delta(z, high) > delta:
            high *= 2
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if _delta(z, middle) > delta else (low, middle)
    return float(high)


def _delta(z: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    with mpmath.workdps(50):
        # log p/q at x is x/z − 1/(2z²), so p is more than e^ε q beyond this place.
        place = z * epsilon + 1 / (2 * z)
        return _beyond(place - 1 / z) - mpmath.exp(epsilon) * _beyond(place)


def _beyond(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2
