"""Component-wise medians of clipped logits, and how far one unit can move them (CL 4.2; METHOD 5).

CL = the clustering paper. A batch of n contexts holds, for each token, n sorted votes
v[0] ≤ … ≤ v[n−1] in [−c, c]. One unit moves the median by half a place (an added or a
removed context) or by a whole place (a replaced one):

    places        even n, h = n/2            odd n, h = (n−1)/2
    middle        (v[h−1] + v[h])/2          v[h]
    half below    v[h−1]                     (v[h−1] + v[h])/2
    one below     (v[h−2] + v[h−1])/2        v[h−1]

and upwards alike. Adding w makes the even median clamp(w, v[h−1], v[h]), and the odd
one (v[h] + clamp(w, v[h−1], v[h+1]))/2; removals end in the same range. CL takes a
whole place for odd n, where the true range is half of it.

The vocabulary is large and most votes lie at the floor −c. A column whose upper middle
lies there has all its medians there: counting finds it. Only the others are selected
from, by bisection over the bits of a float32, in blocks of columns: exact, without
sorting, at a cost that follows the number of such columns.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from models.privacy import clipping
from models.privacy.params import Change

# Columns that are selected from at once: their votes stay in a core's cache.
BLOCK = 512
# Below this many contexts the range is the whole clip range (METHOD 5).
FEWEST = 3


class Medians(NamedTuple):
    """Medians of one step's votes.

    Attributes:
        middle: `[V]` the aggregate.
        lowest: `[V]` the lowest median that a change of one unit can cause.
        highest: `[V]` the highest.
    """

    middle: jax.Array
    lowest: jax.Array
    highest: jax.Array


def medians(
    logits: tuple[jax.Array, ...],
    is_private: tuple[jax.Array, ...],
    public_logits: jax.Array,
    clip_bound: float,
    change: Change,
) -> Medians:
    """Medians of clipped logits over the private rows of all micro-batches (CL equation 3).

    Formal guarantee: for every batch that one change of one unit makes of this one,
    its medians lie in [`lowest`, `highest`], component by component. A batch without
    contexts has the clipped public logits for its medians (METHOD 2).

    Args:
        logits: `[m, V]` raw logits for every micro-batch.
        is_private: `[m]` bool for every micro-batch.
        public_logits: `[V]`.
        clip_bound: c.
        change: What one unit does to a batch.
    """
    vocab = public_logits.shape[0]
    parts = [(z, *clipping.row_tops(z), mask[:, None]) for z, mask in zip(logits, is_private, strict=True)]
    rows = sum(mask.sum() for mask in is_private)
    above = sum(
        ((clipping.clip_below(z, top, finite, clip_bound) > -clip_bound) & mask).sum(axis=0, dtype=jnp.int32)
        for z, top, finite, mask in parts
    )
    # The highest place that any median reads is n//2 + 1; it lies at the floor unless
    # n − 1 − n//2 votes lie above.
    undecided = above >= jnp.maximum(1, rows - 1 - rows // 2)
    columns = jnp.nonzero(undecided, size=vocab + BLOCK, fill_value=vocab)[0]
    blocks = -(-undecided.sum() // BLOCK)

    def select(carry: tuple[jax.Array, Medians]) -> tuple[jax.Array, Medians]:
        block, found = carry
        chosen = jax.lax.dynamic_slice(columns, (block * BLOCK,), (BLOCK,))
        held = [
            jnp.where(
                mask,
                clipping.clip_below(jnp.take(z, chosen, axis=1, mode='clip'), top, finite, clip_bound),
                jnp.inf,
            )
            for z, top, finite, mask in parts
        ]
        here = _medians_of_block(jnp.concatenate(held), rows, change)
        return block + 1, jax.tree.map(lambda all_, some: all_.at[chosen].set(some, mode='drop'), found, here)

    floor = jnp.full(vocab, -clip_bound, jnp.float32)
    _, found = jax.lax.while_loop(
        lambda carry: carry[0] < blocks, select, (jnp.int32(0), Medians(floor, floor, floor))
    )
    few = rows < FEWEST
    return Medians(
        jnp.where(rows == 0, clipping.clip_logits(public_logits, clip_bound), found.middle),
        jnp.where(few, -clip_bound, found.lowest),
        jnp.where(few, clip_bound, found.highest),
    )


def _medians_of_block(held: jax.Array, rows: jax.Array, change: Change) -> Medians:
    """Medians of `[N, B]` votes, of which `rows` in each column are finite and the others ∞.

    With fewer than `FEWEST` rows only the middle means something.
    """
    h = rows // 2
    # Places h − 2 to h + 1 hold all that any median reads.
    at_h = _select(held, h)
    below = (held < at_h).sum(axis=0)
    up_to = (held <= at_h).sum(axis=0)
    higher = jnp.where(held > at_h, held, jnp.inf).min(axis=0)
    after = jnp.where(up_to > h + 1, at_h, higher)
    lower = jnp.where(held < at_h, held, -jnp.inf).max(axis=0)
    before = jnp.where(below < h, at_h, lower)
    # Strictly below v[h−1], should v[h−2] differ from it.
    below_before = (held < before).sum(axis=0)
    lowest = jnp.where(held < before, held, -jnp.inf).max(axis=0)
    before_that = jnp.where(below_before < h - 1, before, lowest)

    even = rows % 2 == 0
    # From low to high in steps of half a place; the middle is the third.
    if_even = (
        (before_that + before) / 2,
        before,
        (before + at_h) / 2,
        at_h,
        (at_h + after) / 2,
    )
    if_odd = (before, (before + at_h) / 2, at_h, (at_h + after) / 2, after)
    ladder = [jnp.where(even, a, b) for a, b in zip(if_even, if_odd, strict=True)]
    steps = change.value
    return Medians(ladder[2], ladder[2 - steps], ladder[2 + steps])


def _select(held: jax.Array, place: jax.Array) -> jax.Array:
    """The value at a place (from 0) of each sorted column, by bisection over its 32 bits.

    Args:
        held: `[N, B]` float32 without NaN; −0 counts as 0.
        place: int32 scalar below N.

    Returns:
        `[B]`.
    """
    ordered = _as_ordered(held)

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        # Halfway without overflow: low + high passes the range of int32.
        middle = (low & high) + ((low ^ high) >> 1)
        enough = (ordered <= middle).sum(axis=0) > place
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    low, _ = jax.lax.fori_loop(0, 32, halve, (ordered.min(axis=0), ordered.max(axis=0)))
    return _from_ordered(low)


def _as_ordered(values: jax.Array) -> jax.Array:
    """Integers in the order of the floats: a negative float's bits, but the sign, are turned over."""
    bits = jax.lax.bitcast_convert_type(values + 0.0, jnp.int32)  # + 0.0 makes −0 into 0
    return jnp.where(bits < 0, bits ^ jnp.int32(0x7FFFFFFF), bits)


def _from_ordered(ordered: jax.Array) -> jax.Array:
    """Inverse of `_as_ordered`."""
    bits = jnp.where(ordered < 0, ordered ^ jnp.int32(0x7FFFFFFF), ordered)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
