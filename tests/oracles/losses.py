"""Slow twins of `losses`: hockey-stick divergences of discrete Gaussians on several cells.

All outputs are listed. A loss of N_Z(0, s²) moved by whole numbers is whole over 2s²: none is rounded.
"""

import collections
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from tests.oracles import subsampled


def losses_of_cells(moved: Sequence[int], scale: float) -> dict[int, float]:
    """Masses of 2s² times the loss of all cells together, where a unit moves each cell by so much.

    Noise beyond 12 scales is left out: less than 1e-31 of the mass.

    Args:
        moved: Change of each cell by the unit.
        scale: s.
    """
    reach = math.ceil(12 * scale) + 1
    noise = range(-reach, reach + 1)
    masses = [math.exp(-(x**2) / (2 * scale**2)) for x in noise]
    whole = math.fsum(masses)
    found = {0: 1.0}
    for by in moved:
        longer: collections.defaultdict[int, float] = collections.defaultdict(float)
        for loss, mass in found.items():
            for x, more in zip(noise, masses, strict=True):
                # log P(x) − log P(x + by), times 2s².
                longer[loss + 2 * x * by + by**2] += mass * more / whole
        found = dict(longer)
    return found


def delta_of_losses(losses: Mapping[int, float], scale: float, epsilon: float) -> float:
    """E[(1 − e^(ε − loss))⁺] of masses of 2s² times the loss."""
    return math.fsum(
        -mass * math.expm1(epsilon - loss / (2 * scale**2))
        for loss, mass in losses.items()
        if loss / (2 * scale**2) > epsilon
    )


def delta_of_gaussian(noise_multiplier: float, epsilon: float) -> float:
    """δ at ε of a Gaussian mechanism, in closed form (Balle and Wang 2018, Theorem 8)."""
    half, shift = 1 / (2 * noise_multiplier), epsilon * noise_multiplier
    return float(stats.norm.cdf(half - shift) - math.exp(epsilon) * stats.norm.cdf(-half - shift))


def delta_with_steps(
    losses: Mapping[int, float], scale: float, q: float, z: float, steps: int, epsilon: float
) -> float:
    """The larger δ of both directions where Poisson-sampled Gaussians are released too.

    What the cells lose is added to ε before the steps are asked, whose losses are on a grid
    (`tests.oracles.subsampled`).
    """
    thresholds = epsilon - np.fromiter(losses, float) / (2 * scale**2)
    weights = np.fromiter(losses.values(), float)
    found = []
    for removed in (True, False):
        masses, total = subsampled._losses(q, z, steps, 2e-4, removed)
        # E[(1 − e^(ε − loss))⁺] for every ε at once, from sums over all losses from a place on.
        places = np.searchsorted(total, thresholds, side='right')
        masses = np.append(np.maximum(masses, 0), 0)
        above = np.cumsum(masses[::-1])[::-1]
        shrunk = np.cumsum((masses * np.exp(-np.append(total, 0)))[::-1])[::-1]
        found.append(float(weights @ (above[places] - np.exp(thresholds) * shrunk[places])))
    return max(found)


def joint_losses(
    ours: np.ndarray, theirs: np.ndarray, scale: float
) -> tuple[dict[int, float], dict[int, float]]:
    """`losses_of_cells` of two cells, apart for outputs whose first is at least the second, and the others.

    Args:
        ours: True values of the two cells, of the dataset that outputs are drawn for.
        theirs: True values of its neighbour.
        scale: s.
    """
    reach = math.ceil(12 * scale) + 1
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-(x**2) / (2 * scale**2))
    mass /= mass.sum()
    first, second = (2 * x * (mine - its) + (mine - its) ** 2 for mine, its in zip(ours, theirs, strict=True))
    leads = (ours[0] + x)[:, None] >= (ours[1] + x)[None, :]
    loss, weight = first[:, None] + second[None, :], mass[:, None] * mass[None, :]
    parts = []
    for chosen in (leads, ~leads):
        values, places = np.unique(loss[chosen], return_inverse=True)
        summed = np.bincount(places, weight[chosen])
        parts.append(dict(zip(values.tolist(), summed.tolist(), strict=True)))
    return parts[0], parts[1]


def together(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """Masses of the sum of two independent losses."""
    found: collections.defaultdict[int, float] = collections.defaultdict(float)
    for (loss, mass), (more, weight) in ((a, b) for a in one.items() for b in other.items()):
        found[loss + more] += mass * weight
    return dict(found)
