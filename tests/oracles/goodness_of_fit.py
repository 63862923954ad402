"""Pearson's test of counts against probabilities, with its odds of a false alarm."""

import functools

import numpy as np
from scipy import stats


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
