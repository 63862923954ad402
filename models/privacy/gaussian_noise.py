"""Normal noise in whole numbers: round(σ ξ) with exactly the rounded draw, from keyed words (METHOD 7a).

A whole number k with noise round(N(0, σ²)) is round(k + N(0, σ²)): the rounded output of the mechanism that
the proof is about, so post-processing of it. What is left to show is that the program's draw is the rounded
one. It is found in float64, whose error has a bound. Where the number lies nearer than that bound to the
middle of two whole numbers, or in the tail, where a 64-bit word has too few bits left, it is found again in
arithmetic of as many digits as it takes, from further words. So the low bits of all draws are right, and
which values occur tells nothing of the sum below them (Mironov 2012).

A draw is the inverse distribution function of a uniform number of 256 bits: the bits behind them would
change a draw with probability 2⁻¹⁸⁰. README, section 9, has the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mpmath
import numpy as np

# Words behind the first one that a draw may need.
MORE_WORDS = 3
# The largest error of `deviates`: of SciPy's ndtri (below 2⁻⁴⁸, as Cephes states and a test finds), of the
# conversion to float64, and of the bits behind a word of 2⁴³ or more (below 2⁻⁴⁶).
ACCURACY = 2.0**-44
_LEAST_TAIL = 2**43
_TAIL_BITS = 63
_DIGITS = 320  # binary


def deviates(words: np.ndarray, more: Callable[[int], Sequence[int]]) -> np.ndarray:
    """N(0, 1) draws, float64, none further than ACCURACY from the exact one.

    Args:
        words: Uniform 64-bit words; the top bit is the sign, the rest the probability of the tail.
        more: From the index of a word to MORE_WORDS words that follow it.
    """
    from scipy import special

    sign = np.where(words >> np.uint64(_TAIL_BITS), 1.0, -1.0)
    tail = words & np.uint64(2**_TAIL_BITS - 1)
    draws = -special.ndtri((tail.astype(np.float64) + 0.5) * 2.0**-64)
    for index in np.flatnonzero(tail < np.uint64(_LEAST_TAIL)):
        draws[index] = abs(float(exact_deviate(int(words[index]), more(int(index)))))
    return sign * draws


def exact_deviate(word: int, more: Sequence[int]) -> mpmath.mpf:
    """The draw of a word and those that follow it, to some 300 binary digits.

    Args:
        word: Of 64 bits.
        more: MORE_WORDS words.
    """
    from scipy import special

    context = mpmath.mp.clone()
    context.prec = _DIGITS
    numerator = word & (2**_TAIL_BITS - 1)
    for following in more:
        numerator = numerator << 64 | int(following)
    bits = 64 * (1 + len(more))
    tail = context.ldexp(2 * numerator + 1, -bits - 1)
    draw = context.mpf(-float(special.ndtri(float(tail))))
    for _ in range(3):  # Newton's steps, from 45 right digits to more than there are
        density = context.exp(-draw * draw / 2) / context.sqrt(2 * context.pi)
        draw += (context.erfc(draw / context.sqrt(2)) / 2 - tail) / density
    return draw if word >> _TAIL_BITS else -draw


def rounded(scale: float, words: np.ndarray, more: Callable[[int], Sequence[int]]) -> np.ndarray:
    """The whole numbers nearest to `scale` times the exact draws of words: int64.

    Args:
        scale: Exactly this number; the results are below 2⁴⁷.
        words: As of `deviates`.
        more: As of `deviates`.
    """
    scaled = scale * deviates(words, more)
    numbers = np.floor(scaled + 0.5)
    # Distance of a number from the middle of two whole ones; the product and the sum round as well.
    near = np.abs(scaled - np.floor(scaled) - 0.5) <= scale * ACCURACY + np.abs(scaled) * 2.0**-51
    for index in np.flatnonzero(near):
        number = exact_deviate(int(words[index]), more(int(index)))
        context = number.context
        numbers[index] = int(context.floor(context.mpf(scale) * number + context.mpf(0.5)))
    return numbers.astype(np.int64)
