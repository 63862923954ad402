"""Clipped vectors of units as whole numbers of steps of a public grid, and their exact sums (METHOD 7a).

A sum of floats depends on its order and is rounded: one unit of norm 1 can move a float32 sum of 16,384 units
by 2. So each unit's vector is clipped to C, written in steps of C / RADIUS, rounded towards zero, and added
up as whole numbers. Such a sum is exact, in any order and over any devices, and one unit moves it by its own
vector, whose norm is at most RADIUS steps. Noise is whole numbers of the same steps (`gaussian_noise`). The
sum with its noise becomes a float once: post-processing.

XLA has 32-bit numbers here. So a sum is held as two of them: `high · 2¹⁶ + low` with 0 ≤ low < 2¹⁶.
README, section 9, has the proof.
"""

from __future__ import annotations

import typing
from typing import Any, Final

import numpy as np
from etils import epy

# `plan` and `--help` read settings that name the constants, and answer at once.
with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# C in steps of the grid. Of 270 million equal components each is 256 steps.
RADIUS: Final = 2**22
# What rounding may do to a float32 norm, doubled: units are scaled to this share of RADIUS less.
NORM_SLACK: Final = 2.0**-12
# Units that are added at a time: as many low halves fit into 32 bits.
MOST_TOGETHER: Final = 2**15
# Units of a sum: the high half holds 2²⁵ of RADIUS steps.
MOST_UNITS: Final = 2**24

_LOW_BITS: Final = 16
_LOW: Final = 2**_LOW_BITS
# Squares are added up so many at a time, in whatever order: that rounds by 2¹⁰ · 2⁻²⁴ of the result at most.
_TERMS: Final = 2**10


class Sum(typing.NamedTuple):
    """Whole numbers in two halves, `high · 2¹⁶ + low`: two trees of int32 arrays of the same shapes."""

    high: Any
    low: Any


def steps(vector: Any, clip_norm: float) -> Any:
    """One unit's vector, clipped to C, in whole steps of C / RADIUS: a tree of int32 arrays.

    Formal guarantee: for any input the L2 norm over all components is at most RADIUS. Components that are
    not finite count as zero; neither a norm beyond float32 nor one below it changes that.

    The vector is divided by its largest component first, so that no square over- or underflows. Then it is
    scaled by min(largest / C, 1 / norm) and rounded towards zero.

    Args:
        vector: A tree of float arrays.
        clip_norm: C.
    """
    leaves, tree = jax.tree.flatten(vector)
    leaves = [jnp.where(jnp.isfinite(leaf), leaf, 0.0).astype(jnp.float32) for leaf in leaves]
    largest = jnp.stack([jnp.abs(leaf).max(initial=0.0) for leaf in leaves]).max()
    shares = [leaf / jnp.where(largest > 0, largest, 1.0) for leaf in leaves]
    norm = jnp.sqrt(_added(jnp.stack([_added(jnp.square(leaf).ravel()) for leaf in shares])))
    factor = jnp.minimum(largest / clip_norm, 1 / jnp.maximum(norm, 1.0)) * (RADIUS * (1 - NORM_SLACK))
    found = [jnp.trunc(leaf * factor) for leaf in shares]
    # A bound on each component, whatever became of a quotient: comparisons are false of a NaN.
    found = [jnp.where(jnp.abs(leaf) <= RADIUS, leaf, 0.0).astype(jnp.int32) for leaf in found]
    return jax.tree.unflatten(tree, found)


def _added(terms: Any) -> Any:
    """A sum of numbers that are not negative, off by 2⁻¹⁴ of itself for each factor of 2¹⁰ of them."""
    while terms.size > _TERMS:
        whole = terms.size // _TERMS * _TERMS
        parts = [terms[:whole].reshape(-1, _TERMS).sum(axis=1), terms[whole:].sum()[None]]
        # The barrier keeps the compiler from making one sum of two, whose rounding nothing bounds.
        terms = jax.lax.optimization_barrier(jnp.concatenate(parts))
    return terms.sum()


def sum_of_units(of_units: Any) -> Sum:
    """The sum over the first axis of a tree of `steps`, int32 `[m ...]`, where m is at most MOST_TOGETHER."""
    assert jax.tree.leaves(of_units)[0].shape[0] <= MOST_TOGETHER
    high = jax.tree.map(lambda leaf: (leaf >> _LOW_BITS).sum(axis=0, dtype=jnp.int32), of_units)
    low = jax.tree.map(lambda leaf: (leaf & (_LOW - 1)).sum(axis=0, dtype=jnp.int32), of_units)
    return _carried(high, low)


def zeros_like(like: Any) -> Sum:
    """Zeros of the shapes of a tree."""
    return Sum(*(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.int32), like) for _ in range(2)))


def add(one: Sum, other: Sum) -> Sum:
    """The exact sum of both."""
    return _carried(
        *(jax.tree.map(jnp.add, half, with_half) for half, with_half in zip(one, other, strict=True))
    )


def _carried(high: Any, low: Any) -> Sum:
    """A sum whose low half may have grown beyond 2¹⁶."""
    return Sum(
        jax.tree.map(lambda a, b: a + (b >> _LOW_BITS), high, low),
        jax.tree.map(lambda leaf: leaf & (_LOW - 1), low),
    )


def to_float(whole: Sum, step: float) -> Any:
    """The numbers times the length of a step: a tree of float32 arrays, each right to about 2⁻²³."""

    def of_leaf(high: Any, low: Any) -> Any:
        return (high.astype(jnp.float32) * _LOW + low.astype(jnp.float32)) * jnp.float32(step)

    return jax.tree.map(of_leaf, whole.high, whole.low)


def halves(numbers: np.ndarray) -> Sum:
    """int64 numbers, of less than 2⁴⁷, as a sum: numpy arrays of the same shape."""
    return Sum((numbers >> _LOW_BITS).astype(np.int32), (numbers & (_LOW - 1)).astype(np.int32))


def integers(whole: Sum) -> Any:
    """A sum as a tree of numpy int64 arrays."""
    return jax.tree.map(
        lambda high, low: np.asarray(high, np.int64) * _LOW + np.asarray(low, np.int64), whole.high, whole.low
    )
