"""Slow twins of the filter of Gaussians: finite pairs of distributions, all outputs listed.

A pair is the distribution of a run's outputs with one unit and without it. Whether it is within a Gaussian
mechanism but for a failure is looked at in both directions, at each ratio of the pair and many between.
"""

import dataclasses
import math

import numpy as np
from scipy import stats


@dataclasses.dataclass(frozen=True)
class Pair:
    """Probabilities of the same outputs, with a unit and without it."""

    with_unit: tuple[float, ...]
    without: tuple[float, ...]


def randomized_response(epsilon: float) -> Pair:
    """One bit, which is true with odds e^ε."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    return Pair((truth, 1 - truth), (1 - truth, truth))


def rarely_reveals(probability: float, pair: Pair) -> Pair:
    """A pair that says with some probability whether the unit is there."""
    rest = 1 - probability
    return Pair(
        (*(rest * mass for mass in pair.with_unit), probability, 0.0),
        (*(rest * mass for mass in pair.without), 0.0, probability),
    )


def binned_gaussian(shift: float) -> Pair:
    """A Gaussian mechanism whose output is told to one of six places."""
    edges = np.array([-np.inf, -1.5, -0.5, 0.3, 1.0, 2.0, np.inf])
    masses = [np.diff(stats.norm.cdf(edges - by)) for by in (shift, 0.0)]
    return Pair(tuple(masses[0].tolist()), tuple(masses[1].tolist()))


def chosen_by_output(first: Pair, then: tuple[Pair | None, Pair | None]) -> Pair:
    """Two runs together: after the first's output of place 0 the first of two follows, else the second.

    None is no run.
    """
    with_unit, without = [], []
    for place, (ours, theirs) in enumerate(zip(first.with_unit, first.without, strict=True)):
        following = then[min(place, 1)] or Pair((1.0,), (1.0,))
        with_unit += [ours * mass for mass in following.with_unit]
        without += [theirs * mass for mass in following.without]
    return Pair(tuple(with_unit), tuple(without))


def is_within(pair: Pair, rho: float, failure: float) -> bool:
    """True if at every ε, in both directions, the divergence is at most the failure and the Gaussian's δ."""
    ours, theirs = np.array(pair.with_unit), np.array(pair.without)
    both = (ours > 0) & (theirs > 0)
    most = float(np.abs(np.log(ours[both] / theirs[both])).max()) + 1
    epsilons = np.union1d(np.linspace(-most, most, 801), np.log(ours[both] / theirs[both]))
    mu = math.sqrt(2 * rho)
    # Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) of every ε at once.
    first, second = stats.norm.cdf(mu / 2 - epsilons / mu), stats.norm.cdf(-mu / 2 - epsilons / mu)
    allowed = failure + first - np.exp(epsilons) * second + 1e-12
    for one, other in ((ours, theirs), (theirs, ours)):
        divergence = np.maximum(0, one - np.exp(epsilons)[:, None] * other).sum(axis=1)
        if np.any(divergence > allowed):
            return False
    return True


def least_rho(pair: Pair, failure: float) -> float:
    """The least μ²/2 with which a pair is within a Gaussian mechanism but for a failure, by halving."""
    low, high = 1e-9, 1e3
    while high / low > 1 + 1e-4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_within(pair, middle, failure) else (middle, high)
    return high
