"""Vectors of units in whole numbers of a public grid, and exact sums of them (METHOD 7a).

A sum of floats depends on its order and is rounded: one unit of norm 1 can move a float32 sum of 16,384 units
by 2. So what a unit adds is rounded towards zero to a public grid, and added up as whole numbers. Such a sum
is exact, in any order, however rows are cut into micro-batches and spread over devices, and one unit moves
it by what it adds itself. Noise is whole numbers of the same grid. The sum with its noise becomes a float
once: post-processing.

XLA has whole numbers of 32 bits here, so a sum is kept as two of them. Gradients are counted in steps of
C / RADIUS, votes and probabilities in quanta that `aggregates.aggregate` and `sparse_vector` name.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any, Final

from etils import epy

# `plan` and `--help` read settings that name the constants, and answer at once.
with epy.lazy_imports():
    import jax
    import jax.numpy as jnp
    import numpy as np

# Bits of the lower of two limbs.
LIMB: Final = 12
# The largest quantity of one row in a column, and in all columns of a non-negative vector.
MOST_QUANTA: Final = 2**24
# Contexts of a batch, units of a step, and the public divisor s. With these bounds no limb leaves 31 bits.
MOST_CONTEXTS: Final = 2**17
# C in steps of the grid of gradients. Of 270 million equal components each is 256 steps.
RADIUS: Final = 2**22
# Units whose steps are added up in one number of 32 bits.
TOGETHER: Final = 2**31 // RADIUS - 1
# Rounding of a float32 norm, doubled: gradients are scaled to this share of RADIUS less.
NORM_SLACK: Final = 2.0**-12

# Squares are added up so many at a time, in whatever order: that rounds by 2¹⁰ · 2⁻²⁴ of the result at most.
_TERMS: Final = 2**10


class Limbs(typing.NamedTuple):
    """Whole numbers `high · 2^12 + low`, where `low` need not be below 2^12.

    Attributes:
        high: int32: an array, or a tree of arrays.
        low: int32, of the same shape or shapes.
    """

    high: Any
    low: Any


def sum_of_rows(parts: Sequence[jax.Array], most: int) -> Limbs:
    """The sum over the rows of all micro-batches, `[...]`.

    Formal guarantee: the sum is exact, for up to `MOST_CONTEXTS` rows.

    Args:
        parts: `[m, ...]` int32 for every micro-batch.
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
    return Limbs(
        jax.tree.map(lambda high, low: high + (low >> LIMB), limbs.high, limbs.low),
        jax.tree.map(lambda low: low & (2**LIMB - 1), limbs.low),
    )


def add(one: Limbs, other: Limbs) -> Limbs:
    """The exact sum of both, with every `low` in [0, 2^12)."""
    return carried(jax.tree.map(jnp.add, one, other))


def as_floats(limbs: Limbs, unit: float = 1.0) -> Any:
    """The numbers times a unit, in float32: a function of each alone, right to a relative 2^-22."""

    def of_leaf(high: Any, low: Any) -> Any:
        return (high.astype(jnp.float32) * 2.0**LIMB + low.astype(jnp.float32)) * unit

    return jax.tree.map(of_leaf, *carried(limbs))


def limbs_of(numbers: np.ndarray) -> Limbs:
    """int64 numbers below 2^43 in size as limbs: numpy arrays of the same shape."""
    return Limbs((numbers >> LIMB).astype(np.int32), (numbers & (2**LIMB - 1)).astype(np.int32))


def integers(limbs: Limbs) -> Any:
    """The numbers as int64, in numpy arrays."""
    return jax.tree.map(
        lambda high, low: (np.asarray(high, np.int64) << LIMB) + np.asarray(low, np.int64), *limbs
    )


# --- Gradients -------------------------------------------------------------------------


def steps(gradient: Any, clip_norm: float) -> Any:
    """One unit's gradient, clipped to C, in whole steps of C / RADIUS: a tree of int32 arrays.

    Formal guarantee: for any input the L2 norm over all components is at most RADIUS. Components that are
    not finite count as zero; neither a norm beyond float32 nor one below it changes that.

    The gradient is divided by its largest component first, so that no square over- or underflows. Then it
    is scaled by min(largest / C, 1 / norm) and rounded towards zero.

    Args:
        gradient: A tree of float arrays.
        clip_norm: C.
    """
    leaves, tree = jax.tree.flatten(gradient)
    leaves = [jnp.where(jnp.isfinite(leaf), leaf, 0.0).astype(jnp.float32) for leaf in leaves]
    largest = jnp.stack([jnp.abs(leaf).max(initial=0.0) for leaf in leaves]).max()
    shares = [leaf / jnp.where(largest > 0, largest, 1.0) for leaf in leaves]
    norm = jnp.sqrt(_added(jnp.stack([_added(jnp.square(leaf).ravel()) for leaf in shares])))
    factor = jnp.minimum(largest / clip_norm, 1 / jnp.maximum(norm, 1.0)) * (RADIUS * (1 - NORM_SLACK))
    whole_steps = [jnp.trunc(leaf * factor) for leaf in shares]
    # A bound on each component, whatever became of a quotient: comparisons are false of a NaN.
    whole_steps = [jnp.where(jnp.abs(leaf) <= RADIUS, leaf, 0.0).astype(jnp.int32) for leaf in whole_steps]
    return jax.tree.unflatten(tree, whole_steps)


def _added(terms: Any) -> Any:
    """A sum of numbers that are not negative, off by 2⁻¹⁴ of itself for each factor of 2¹⁰ of them."""
    while terms.size > _TERMS:
        whole = terms.size // _TERMS * _TERMS
        parts = [terms[:whole].reshape(-1, _TERMS).sum(axis=1), terms[whole:].sum()[None]]
        # The barrier keeps the compiler from making one sum of two, whose rounding nothing bounds.
        terms = jax.lax.optimization_barrier(jnp.concatenate(parts))
    return terms.sum()


def of_steps(total: Any) -> Limbs:
    """A tree of sums of `steps`, of up to `TOGETHER` units, as limbs."""
    return Limbs(
        jax.tree.map(lambda leaf: leaf >> LIMB, total), jax.tree.map(lambda leaf: leaf & (2**LIMB - 1), total)
    )


def zeros_like(like: Any) -> Limbs:
    """Zeros of the shapes of a tree."""
    return Limbs(*(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.int32), like) for _ in range(2)))
