"""Pearson's test of counts against probabilities, with its odds of a false alarm."""

import functools
import math

import numpy as np
from scipy import stats

from tests.oracles.text_votes import log_mass


@functools.cache
def chi_square_bound(degrees: int, odds: float) -> float:
    """The value that a chi-square variable passes with probability `odds`."""
    return float(stats.chi2.isf(odds, degrees))


def chi_square(counts: np.ndarray, probabilities: np.ndarray, least: float = 8.0) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom; cells expected below `least` are pooled.

    Args:
        counts: `[n]` observed.
        probabilities: `[n]`, of total 1.
        least: Least expected count of a cell.
    """
    order = np.argsort(probabilities)
    observed, hoped = [0.0], [0.0]
    for count, expected in zip(counts[order], probabilities[order] * counts.sum(), strict=True):
        if hoped[-1] >= least:
            observed.append(0.0)
            hoped.append(0.0)
        observed[-1] += count
        hoped[-1] += expected
    pooled, expectation = np.array(observed), np.array(hoped)
    return float(((pooled - expectation) ** 2 / expectation).sum()), len(pooled) - 1


def discrete_gaussian(found: np.ndarray, scale: float) -> float:
    """p-value of Pearson's test of draws against the closed form of a scale.

    Of 60 cells of about equal mass, or of one whole number each where the scale is small.
    """
    reach = math.ceil(8 * scale) + 2
    mass = np.exp(log_mass(scale, reach))
    edges = np.unique(np.searchsorted(np.cumsum(mass), np.arange(1, 60) / 60) - reach)
    cells = np.searchsorted(edges, np.arange(-reach, reach + 1))
    probabilities = np.bincount(cells, mass, minlength=len(edges) + 1)
    observed = np.bincount(np.searchsorted(edges, found), minlength=len(edges) + 1)
    statistic, degrees = chi_square(observed, probabilities / probabilities.sum())
    return float(stats.chi2.sf(statistic, degrees))
