"""One-run auditing: a lower bound on ε from m canaries, each in the run by a fair coin of its own.

An attacker scores every canary, guesses "in" or "out" for those that it is surest of, and says nothing of the
others. Two bounds say how many right guesses a private mechanism allows; both hold for any attacker that
reads nothing but the output:

* SNJ = Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", for any mechanism of
  (ε, δ). The library jax_privacy computes it.
* MMC = Mahloujifar, Melis and Chaudhuri 2024, "Auditing f-differential privacy in one run", for a mechanism
  whose whole curve of (ε, δ) is known. It sees smaller faults: of half of the noise at ε = 4, with 10,500
  canaries, the other bound says ε > 3.3. The library knows the curve of a Gaussian alone, so the bound for
  any curve is here.

An audit proves no privacy: the bound speaks of the attack that was tried, and no ε above `most` can show.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

# Fewer canaries show no ε that a run has.
LEAST_CANARIES = 64
CONFIDENCE = 0.95
# Shares of the canaries that are guessed, chosen before any score is seen: the surest of both ends, and of
# the upper end alone.
_BOTH_ENDS, _UPPER_END = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1.0), (1 / 32, 1 / 8)
# Bounds of an attack: SNJ and MMC.
_BOUNDS = 2
# Strengths of the noise that are tried: powers of two in steps of an eighth, from 2^-6 to 2^6.
_STEPS = 8
_STRENGTHS = range(-6 * _STEPS, 6 * _STEPS + 1)
# Epsilons at which a curve is evaluated. Any subset of a curve is a curve that holds.
EPSILONS = np.concatenate([[0.0], np.geomspace(0.01, 40.0, 120)])

# (strength, epsilons) -> δ at each ε of the mechanism whose noise is smaller by the factor `strength`.
Curve = Callable[[float, np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The curve that is proven for a mechanism. Public.

    Attributes:
        epsilon: As the run reports it.
        delta: At which.
        curve: All pairs (ε, δ) of the mechanism; it holds under adding or removing one unit.
    """

    epsilon: float
    delta: float
    curve: Curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """The scores of all canaries. Restricted to the curator.

    Attributes:
        canaries: m.
        area: Area under the ROC curve; 0.5 for guessing.
        epsilon_at_least: ε̂, the larger of the next two.
        epsilon_of_any: ε̂ for any mechanism of (ε, δ) (SNJ).
        epsilon_of_curve: ε̂ from the mechanism's own curve (MMC): ε at δ of the noisiest such mechanism that
            the guesses contradict, but for a step of 9 % of the noise.
        contradicts: Whether the guesses contradict what is proven: ε̂ is larger, or the curve does not hold.
        most: ε̂ if every guess were right: no attack on so many canaries shows more by the bound of SNJ.
        scores_in: Scores of the canaries in the run.
        scores_out: Scores of the others.
    """

    canaries: int
    area: float = dataclasses.field(repr=False)
    epsilon_at_least: float = dataclasses.field(repr=False)
    epsilon_of_any: float = dataclasses.field(repr=False)
    epsilon_of_curve: float = dataclasses.field(repr=False)
    contradicts: bool = dataclasses.field(repr=False)
    most: float
    scores_in: tuple[float, ...] = dataclasses.field(repr=False)
    scores_out: tuple[float, ...] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Guesses:
    """The result of an attacker that guesses so many of m canaries."""

    canaries: int
    count: int
    right: int


def check_canaries(canaries: int) -> None:
    """Refuses too few.

    Raises:
        ValueError: Fewer than `LEAST_CANARIES`.
    """
    if canaries < LEAST_CANARIES:
        raise ValueError(
            f'Expected canaries >= {LEAST_CANARIES}, got canaries={canaries}. Fewer show no epsilon that a '
            'run has: give 512 or more.'
        )


def coins(canaries: int, seed: int) -> np.ndarray:
    """A fair coin for each canary, `[m]` bool."""
    return np.random.default_rng([seed, 1]).random(canaries) < 0.5


def bounds(scores: np.ndarray, present: np.ndarray, guarantee: Guarantee) -> Bounds:
    """The bounds on ε; together they hold with probability `CONFIDENCE`.

    Each bound and each number of guesses has an equal share of the odds of error (Bonferroni).

    Args:
        scores: `[m]`; larger ones speak for "in".
        present: `[m]` bool, the coins.
        guarantee: What is proven.
    """
    from sklearn import metrics

    scores, present = np.nan_to_num(np.asarray(scores, np.float64)), np.asarray(present, bool)
    guesses = guesses_of(scores, present)
    share = (1 - CONFIDENCE) / (_BOUNDS * len(guesses))
    of_any = max(epsilon_of_any(each, guarantee.delta, share) for each in guesses)
    perfect = (dataclasses.replace(each, right=each.count) for each in guesses)
    of_curve = epsilon_of_curve(guesses, guarantee, share)
    return Bounds(
        canaries=len(scores),
        area=float(metrics.roc_auc_score(present, scores)),
        epsilon_at_least=max(of_any, of_curve),
        epsilon_of_any=of_any,
        epsilon_of_curve=of_curve,
        contradicts=max(of_any, of_curve) > guarantee.epsilon or not curve_holds(guesses, guarantee, share),
        most=max(epsilon_of_any(each, guarantee.delta, share) for each in perfect),
        scores_in=tuple(scores[present].tolist()),
        scores_out=tuple(scores[~present].tolist()),
    )


def guesses_of(scores: np.ndarray, present: np.ndarray) -> tuple[Guesses, ...]:
    """The attackers that are tried: how many canaries each guesses, and how many of them rightly.

    Which canaries are guessed follows from the scores alone; ties are broken without the coins.

    Args:
        scores: `[m]`.
        present: `[m]` bool.
    """
    m = len(scores)
    shuffled = np.random.default_rng(m).permutation(m)
    order = shuffled[np.argsort(-scores[shuffled], kind='stable')]
    hits = np.concatenate([[0], np.cumsum(present[order])])
    misses = np.concatenate([[0], np.cumsum(~present[order[::-1]])])
    guesses = []
    for share in _BOTH_ENDS:
        # At least two are left out: the library wants a canary on both sides that nobody guesses.
        each = max(1, min(round(share * m), m - 2) // 2)
        guesses.append(Guesses(m, 2 * each, int(hits[each] + misses[each])))
    for share in _UPPER_END:
        count = max(1, round(share * m))
        guesses.append(Guesses(m, count, int(hits[count])))
    return tuple(guesses)


def epsilon_of_any(guesses: Guesses, delta: float, significance: float) -> float:
    """The largest ε that the guesses contradict for a mechanism of (ε, δ); 0 for none (SNJ, Theorem 5.2)."""
    from jax_privacy import auditing

    # The library counts scores at or above a threshold: 1 stands for a guess, 0 for none.
    silent = guesses.canaries - guesses.count
    right = np.repeat([1.0, 0.0], [guesses.right, 1])
    wrong = np.repeat([1.0, 0.0], [guesses.count - guesses.right, silent - 1])
    return float(
        auditing.CanaryScoreAuditor(right, wrong).epsilon_one_run(
            significance, delta, threshold_strategy=auditing.Explicit(1.0)
        )
    )


def contradicts(guesses: Guesses, epsilons: np.ndarray, deltas: np.ndarray, significance: float) -> bool:
    """True if so many right guesses contradict a curve of (ε, δ) (MMC, Algorithm 3 for two values).

    The curve gives the trade-off f: an event of probability x under one neighbour has at least probability
    f(1 − x) = max over ε of e^(−ε) (x − δ) and 1 − δ − e^ε (1 − x) under the other.

    Args:
        guesses: Of any attacker.
        epsilons: `[n]`.
        deltas: `[n]`, δ at each.
        significance: Odds of contradicting a curve that holds.
    """
    shrunk, grown, rest = np.exp(-epsilons), np.exp(epsilons), 1 - deltas

    def least(probability: float) -> float:
        first = shrunk * (probability - deltas)
        second = rest - grown * (1 - probability)
        return max(0.0, float(first.max()), float(second.max()))

    m, count, right = guesses.canaries, guesses.count, guesses.right
    of_right, of_wrong = significance * right / m, significance * (count - right) / m
    for place in range(right - 1, -1, -1):
        raised = max(of_wrong, least(of_right))
        if raised == of_wrong:
            break  # nothing changes from here on
        of_right = min(of_right + place / (count - place) * (raised - of_wrong), 1.0)
        of_wrong = raised
    return of_right + of_wrong > count / m


def epsilon_of_curve(guesses: Sequence[Guesses], guarantee: Guarantee, significance: float) -> float:
    """ε at δ of the noisiest mechanism of the guarantee's kind that some guesses contradict; 0 for none.

    Noise is changed by factors of 2^(1/8), and the result is rounded down to one of them.
    """
    first = bisect.bisect_left(
        _STRENGTHS,
        True,
        key=lambda step: curve_holds(guesses, guarantee, significance, 2 ** (step / _STEPS)),
    )
    if first == 0:
        return 0.0
    return epsilon_at(guarantee.curve, 2 ** (_STRENGTHS[first - 1] / _STEPS), guarantee.delta)


def curve_holds(
    guesses: Sequence[Guesses], guarantee: Guarantee, significance: float, strength: float = 1.0
) -> bool:
    """True if no guesses contradict the curve of the mechanism whose noise is smaller by `strength`."""
    deltas = guarantee.curve(strength, EPSILONS)
    return not any(contradicts(each, EPSILONS, deltas, significance) for each in guesses)


def epsilon_at(curve: Curve, strength: float, delta: float) -> float:
    """The smallest ε at δ of a curve, to a millionth."""
    from scipy import optimize

    def above(epsilon: float) -> float:
        return float(curve(strength, np.array([epsilon]))[0]) - delta

    if above(0.0) <= 0:
        return 0.0
    high = 1.0
    while above(high) > 0:
        high *= 2
    return float(optimize.brentq(above, 0.0, high, rtol=1e-6))
