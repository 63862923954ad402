"""A lower bound on epsilon from releases with and without one unit: the audit that a claim has to survive.

Any test of "was it there" that a mechanism of (ε, δ) faces has TPR <= e^ε FPR + δ, and the same of the
negatives (Kairouz et al. 2015). Rates are bounded by Clopper and Pearson's intervals, at odds for all
thresholds together, so that a right claim is contradicted no more often than these odds.
"""

import math

import numpy as np
from scipy import stats

ODDS = 1e-6
_THRESHOLDS = 40


def epsilon_at_least(present: np.ndarray, absent: np.ndarray, delta: float) -> float:
    """The largest ε that the scores contradict at `ODDS`, 0 where they contradict none.

    Args:
        present: Scores of releases with the unit; larger ones speak for it.
        absent: Of releases without.
        delta: δ of the claim.
    """
    thresholds = np.quantile(np.concatenate([present, absent]), np.linspace(0.01, 0.99, _THRESHOLDS))
    odds = ODDS / (4 * _THRESHOLDS)
    best = 0.0
    for threshold in thresholds:
        hits, alarms = int((present > threshold).sum()), int((absent > threshold).sum())
        for few, many, of_few, of_many in (
            (alarms, hits, len(absent), len(present)),
            (len(present) - hits, len(absent) - alarms, len(present), len(absent)),
        ):
            least = _lower(many, of_many, odds)
            most = _upper(few, of_few, odds)
            if least > delta and most > 0:
                best = max(best, math.log((least - delta) / most))
    return best


def _lower(hits: int, count: int, odds: float) -> float:
    return 0.0 if hits == 0 else float(stats.beta.ppf(odds, hits, count - hits + 1))


def _upper(hits: int, count: int, odds: float) -> float:
    return 1.0 if hits == count else float(stats.beta.ppf(1 - odds, hits + 1, count - hits))
