"""Whole numbers and their noise: the discrete Gaussian, exactly, from the run key (METHOD 7 and 7a).

N_Z(0, σ²) has a probability proportional to exp(−x²/2σ²) at every whole number x. It is drawn as Canonne,
Kamath and Steinke (2020) draw it, in whole numbers of any size, from a stream of random bits: no float is
in it, and no probability is rounded. How many bits a draw takes depends on the noise alone.

The bits follow from the run key and from what the noise is added to. So whoever repeats a draw, from
whatever copy of a work directory, draws the same noise for the same numbers, and other noise for others.
"""

import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

import numpy as np

from models.privacy.randomness import RunKey

_PURPOSE: Final = 'table noise'
# Numbers of a table are of 64 bits. What noise would carry beyond stops there: a function of the exact sum.
_LEAST, _LARGEST = -(2**63), 2**63 - 1


@dataclasses.dataclass(frozen=True)
class NoiseSource:
    """The source of the noise of one table: a key, and what distinguishes this table from all others.

    Attributes:
        name: What the table answers, in parts: which release of which run, and what was asked. Two questions
            with one name would show whether they have the same answer.
    """

    key: RunKey
    name: tuple[bytes, ...] = dataclasses.field(repr=False)

    def of(self, *parts: str) -> 'NoiseSource':
        """The source of a table whose name has further parts."""
        return NoiseSource(self.key, (*self.name, *(part.encode() for part in parts)))


def add_noise(table: np.ndarray, variance: Fraction, source: NoiseSource) -> np.ndarray:
    """Adds one draw of N_Z(0, `variance`) to each number of a table.

    The draws are a function of the key, the name, the variance, the shape and the table itself, and of
    nothing else. The table is in it because two tables with the same noise would show their difference: to
    whoever has not the key, each has noise of its own.

    Args:
        table: int64 of any shape; private.
        variance: σ² > 0, in the units of the table.
        source: Where the noise comes from.

    Returns:
        int64 of the same shape.

    Raises:
        ValueError: The variance is not positive, or the table is not of int64.
    """
    if table.dtype != np.int64:
        raise ValueError(
            f'Expected a table of int64, got dtype={str(table.dtype)!r}, shape={table.shape!r}. '
            'Round what is added up to whole numbers first.'
        )
    if variance <= 0:
        raise ValueError(f'Expected variance > 0, got variance={variance!r}. Noise of none hides nothing.')
    words = source.key.stream(
        _PURPOSE,
        *source.name,
        f'{variance.numerator}/{variance.denominator}'.encode(),
        repr(table.shape).encode(),
        table.astype('<i8').tobytes(),
    )
    noisy = [number + discrete_gaussian(variance, words) for number in table.ravel().tolist()]
    return np.array([min(max(number, _LEAST), _LARGEST) for number in noisy], np.int64).reshape(table.shape)


def discrete_gaussian(variance: Fraction, words: Iterator[int]) -> int:
    """One draw of N_Z(0, `variance`): Algorithm 3 of Canonne, Kamath and Steinke.

    A draw of a discrete Laplace distribution of scale t is kept with probability
    exp(−(|y| − σ²/t)² / 2σ²).

    Args:
        variance: σ² > 0.
        words: Uniform whole numbers of 64 bits, without end.
    """
    numerator, denominator = variance.numerator, variance.denominator
    scale = math.isqrt(numerator // denominator) + 1  # ⌊σ⌋ + 1
    while True:
        draw = _discrete_laplace(scale, words)
        distance = abs(draw) * scale * denominator - numerator
        if _falls_exponentially(distance**2, 2 * numerator * denominator * scale**2, words):
            return draw


def _discrete_laplace(scale: int, words: Iterator[int]) -> int:
    """A draw with a probability proportional to exp(−|y|/scale): Algorithm 2, with s = 1."""
    while True:
        rest = _below(scale, words)
        if not _falls_exponentially(rest, scale, words):
            continue
        whole = 0
        while _falls_exponentially(1, 1, words):
            whole += 1
        draw, is_negative = rest + scale * whole, next(words) & 1
        if draw or not is_negative:  # else 0 would be drawn twice as often
            return -draw if is_negative else draw


def _falls_exponentially(numerator: int, denominator: int, words: Iterator[int]) -> bool:
    """True with probability exp(−numerator/denominator): Algorithm 1."""
    while numerator > denominator:
        if not _falls_exponentially(1, 1, words):
            return False
        numerator -= denominator
    tosses = 1
    while _is_below(numerator, tosses * denominator, words):
        tosses += 1
    return tosses % 2 == 1


def _is_below(numerator: int, denominator: int, words: Iterator[int]) -> bool:
    """True with probability numerator/denominator, which is at most 1.

    A uniform number of [0, 1) is compared with it, digit by digit of 64 bits, until a digit differs.
    """
    while True:
        digit, numerator = divmod(numerator << 64, denominator)
        word = next(words)
        if word != digit:
            return word < digit


def _below(bound: int, words: Iterator[int]) -> int:
    """A uniform whole number of [0, bound)."""
    digits = -(-bound.bit_length() // 64)
    most = (1 << 64 * digits) // bound * bound
    while True:
        number = 0
        for _ in range(digits):
            number = number << 64 | next(words)
        if number < most:
            return number % bound
