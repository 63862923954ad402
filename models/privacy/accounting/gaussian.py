"""Costs as those of Gaussian mechanisms with a chance of failure, which add up whoever decides on them.

A run is of "μ with failure s" where at every ε >= 0, in both directions,

    δ(ε) <= s + δ_μ(ε),    δ_μ that of N(μ, 1) and N(0, 1)

README, section 12, proves that runs of (μ₁, s₁), (μ₂, s₂), … are together of (√Σμᵢ², Σsᵢ), even where outputs
decide on later runs and their costs, as long as both sums stay within bounds that were fixed in advance.
A μ is kept as ρ = μ²/2: of a Gaussian mechanism that is its ρ in zCDP, and it adds up as that does.
"""

import collections
import functools
import math
from collections.abc import Iterable

import numpy as np

from models.privacy import events
from models.privacy.accounting import losses
from models.privacy.accounting.normal_pair import delta_of_gaussian

# ε at which a bound is looked at, up to where failure is all that is left.
_POINTS = 4_000
# μ is found to this share, upwards.
_PRECISION = 1e-4
_INTERVAL = 1e-3
_MOST = 2.0**12


def gaussian_rho(released: Iterable[events.DpEvent], failure: float) -> float | None:
    """The least μ²/2 with which these releases together are of (μ, failure), rounded upwards.

    Args:
        released: Decided together, in any order.
        failure: s in [0, 1), which Poisson-sampled Gaussians need and no other event.

    Returns:
        None where one of them is known in zCDP or at Rényi orders alone, or no μ is found.
    """
    noise: list[tuple[losses.Leaf, int]] = []
    sampled: collections.Counter[events.PoissonSampledDpEvent] = collections.Counter()
    for leaf, count in losses.leaves(released):
        match leaf:
            case None:
                return None
            case events.PoissonSampledDpEvent(sampling_probability=q) if q < 1:
                sampled[leaf] += count
            case _:
                noise.append((leaf, count))
    of_noise = losses.rho_of_gaussians(noise)
    if of_noise is None:
        return None
    if not sampled:
        return of_noise
    ordered = tuple(sorted(sampled.items(), key=repr))
    rho = _rho_of_sampled(ordered, failure)
    return None if rho is None else of_noise + rho


def needs_failure(released: Iterable[events.DpEvent]) -> bool:
    """True if one of these releases draws a sample, so that `gaussian_rho` needs a failure above zero."""
    return any(
        isinstance(leaf, events.PoissonSampledDpEvent) and leaf.sampling_probability < 1
        for leaf, _ in losses.leaves(released)
    )


@functools.lru_cache(maxsize=256)
def _rho_of_sampled(
    sampled: tuple[tuple[events.PoissonSampledDpEvent, int], ...], failure: float
) -> float | None:
    """The least μ²/2, to a share of 1e-4, of Poisson-sampled Gaussians with a failure."""
    composed = losses.distribution(sampled, _INTERVAL)
    most = 1.0
    while float(composed.get_delta_for_epsilon(most)) > failure:
        most *= 2
        if most > _MOST:
            return None  # failure is less than what the distribution leaves out
    points = np.linspace(0, most, _POINTS)
    # δ of both directions, the larger of them.
    needed = np.asarray(composed.get_delta_for_epsilon(points))

    def is_enough(rho: float) -> bool:
        # δ falls as ε grows: at no ε between two points is the one larger than at the first, or the other
        # less than at the second. Beyond the last the failure is enough.
        return bool(np.all(needed[:-1] <= failure + delta_of_gaussian(rho, points[1:])))

    high = 1e-6
    while not is_enough(high):
        high *= 2
        if high > _MOST:
            return None
    low = high / 2
    while high / low > 1 + _PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
