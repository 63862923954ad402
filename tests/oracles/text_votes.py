"""Slow twins of votes on texts (METHOD 4e): votes in fractions, the discrete Gaussian by its definition.

Every root is a search among whole numbers, and every comparison is of fractions.
"""

import fractions
import functools
import math
from collections.abc import Sequence

import numpy as np


def nearest(similarities: Sequence[float], number: int) -> list[int]:
    """The candidates before which fewer than `number` stand: a higher value, or as high and earlier."""
    finite = [
        (fractions.Fraction(value), -place)
        for place, value in enumerate(similarities)
        if math.isfinite(value)
    ]
    return [-place for _, place in sorted(finite, reverse=True)[:number]]


def votes_of_unit(named: Sequence[Sequence[int]], quanta_per_vote: int) -> dict[int, int]:
    """The quanta of each candidate: the longest whole vector that is nowhere longer than the real one.

    Args:
        named: The distinct candidates of each record.
        quanta_per_vote: Quanta of a whole vote.
    """
    summed: dict[int, int] = {}
    for candidates in named:
        for candidate in candidates:
            # 1/√m, squared, is 1/m.
            quanta = _root_below(fractions.Fraction(quanta_per_vote**2, len(candidates)))
            summed[candidate] = summed.get(candidate, 0) + quanta
    squared = sum(quanta**2 for quanta in summed.values())
    if squared <= quanta_per_vote**2:
        return summed
    return {
        candidate: _root_below(fractions.Fraction(quanta**2 * quanta_per_vote**2, squared))
        for candidate, quanta in summed.items()
    }


def _root_below(square: fractions.Fraction) -> int:
    found = 0
    while (found + 1) ** 2 <= square:
        found += 1
    return found


@functools.lru_cache(maxsize=64)
def log_mass(scale: float, reach: int) -> np.ndarray:
    """`[2 reach + 1]`: log P(x) for x from −reach to reach, P(x) ∝ exp(−x²/(2 scale²)) on all whole numbers.

    CKS Definition 1. What the normaliser leaves out is below e^(−800).
    """
    beyond = np.arange(1, int(40 * scale) + 40, dtype=np.float64)
    total = 1 + 2 * np.exp(-(beyond**2) / (2 * scale**2))[::-1].sum()  # the smallest first
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    return -(x**2) / (2 * scale**2) - math.log(total)


def divergence_of_shift(shift: int, scale: float, alpha: float) -> float:
    """D_α of the discrete Gaussian and the same moved by `shift`, from the definition of D_α.

    The sum goes 12 scales beyond the place where its terms are largest, so that it leaves out less than
    1e-30 of itself.
    """
    middle = math.ceil(12 * scale + alpha * abs(shift)) + 1
    of_noise = log_mass(scale, middle + abs(shift))
    size = 2 * middle + 1
    ours = of_noise[abs(shift) : abs(shift) + size]
    moved = of_noise[abs(shift) - shift : abs(shift) - shift + size]
    terms = alpha * ours + (1 - alpha) * moved
    return float(terms.max() + math.log(np.exp(terms - terms.max()).sum())) / (alpha - 1)
