"""Sums over contexts in whole numbers: exact, in any order, however rows are cut into micro-batches.

A sum of floats is not: one bounded term can move it by more than its bound (METHOD 7a). What a context adds
is rounded towards zero to a public grid, and counted in quanta of it. Devices have 32-bit whole numbers, so
a sum is kept as two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from etils import epy

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# Bits of the lower of two limbs.
LIMB = 12
# The largest quantity of one context in a column, and in all columns of a non-negative vector: 2^24 quanta.
MOST_QUANTA = 2**24
# Contexts of a batch, and the public divisor s. With these bounds no limb leaves 31 bits.
MOST_CONTEXTS = 2**17


class Limbs(NamedTuple):
    """Whole numbers `high · 2^12 + low`, where `low` need not be below 2^12.

    Attributes:
        high: int32.
        low: int32, of the same shape.
    """

    high: jax.Array
    low: jax.Array


def sum_of_rows(parts: Sequence[jax.Array], most: int) -> Limbs:
    """The sum over the rows of all micro-batches, `[C]`.

    Formal guarantee: the sum is exact, for up to `MOST_CONTEXTS` rows.

    Args:
        parts: `[m, C]` int32 for every micro-batch.
        most: No element is larger in size, at most `MOST_QUANTA`.
    """
    assert most <= MOST_QUANTA
    together = (2**31 - 1) // most
    high = low = jnp.int32(0)
    for part in parts:
        for start in range(0, len(part), together):
            here = part[start : start + together].sum(axis=0)
            high, low = high + (here >> LIMB), low + (here & (2**LIMB - 1))
    return Limbs(high, low)


def carried(limbs: Limbs) -> Limbs:
    """The same numbers with every `low` in [0, 2^12)."""
    return Limbs(limbs.high + (limbs.low >> LIMB), limbs.low & (2**LIMB - 1))


def as_floats(limbs: Limbs) -> jax.Array:
    """The numbers in float32: a function of each number alone, right to a relative 2^-22."""
    high, low = carried(limbs)
    return high.astype(jnp.float32) * 2.0**LIMB + low.astype(jnp.float32)
