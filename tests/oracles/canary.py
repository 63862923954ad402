"""A lower bound on epsilon from releases with and without one unit: the audit that a claim has to survive.

Any test of "was it there" that a mechanism of (ε, δ) faces has TPR <= e^ε FPR + δ, and the same of the
negatives (Kairouz et al. 2015). The test is a threshold, chosen on half of the releases; on the other half
its rates are bounded by Clopper and Pearson's intervals, so that a right claim is contradicted no more
often than at the odds.
"""

import math

import numpy as np
from scipy import stats

ODDS = 1e-6
_THRESHOLDS = 300


def epsilon_at_least(present: np.ndarray, absent: np.ndarray, delta: float) -> float:
    """The largest ε that the scores contradict at `ODDS`, 0 where they contradict none.

    Args:
        present: Scores of releases with the unit; larger ones speak for it.
        absent: Scores of releases without it.
        delta: δ of the claim.
    """
    halves = [(scores[::2], scores[1::2]) for scores in (present, absent)]
    (chosen_present, tested_present), (chosen_absent, tested_absent) = halves
    grid = np.quantile(
        np.concatenate([chosen_present, chosen_absent]), np.linspace(0.002, 0.998, _THRESHOLDS)
    )
    # The threshold is chosen on one half, so that the other half's rates are binomial at it.
    best = max(grid, key=lambda threshold: _bound(chosen_present, chosen_absent, threshold, delta))
    return _bound(tested_present, tested_absent, best, delta)


def _bound(present: np.ndarray, absent: np.ndarray, threshold: float, delta: float) -> float:
    hits, alarms = int((present > threshold).sum()), int((absent > threshold).sum())
    best = 0.0
    for few, many, of_few, of_many in (
        (alarms, hits, len(absent), len(present)),
        (len(present) - hits, len(absent) - alarms, len(present), len(absent)),
    ):
        least = _lower(many, of_many, ODDS / 4)
        most = _upper(few, of_few, ODDS / 4)
        if least > delta and most > 0:
            best = max(best, math.log((least - delta) / most))
    return best


def _lower(hits: int, count: int, odds: float) -> float:
    return 0.0 if hits == 0 else float(stats.beta.ppf(odds, hits, count - hits + 1))


def _upper(hits: int, count: int, odds: float) -> float:
    return 1.0 if hits == count else float(stats.beta.ppf(1 - odds, hits + 1, count - hits))
