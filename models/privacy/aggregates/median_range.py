"""Medians of a batch's clipped votes, how far one unit can move them, and the loss of a token that they give.

CL = the paper on clusters and the median, 4.2 and appendix B; METHOD 5. A batch of n contexts holds,
for each token, n sorted votes v[0] ≤ … ≤ v[n−1] in [−c, c]. One unit moves the median by half a place
(an added or a removed context) or by a whole place (a replaced one):

    places        even n, h = n/2            odd n, h = (n−1)/2
    middle        (v[h−1] + v[h])/2          v[h]
    half below    v[h−1]                     (v[h−1] + v[h])/2
    one below     (v[h−2] + v[h−1])/2        v[h−1]

and upwards alike. Adding w makes the even median clamp(w, v[h−1], v[h]), and the odd one
(v[h] + clamp(w, v[h−1], v[h+1]))/2; removals end in the same range. CL takes a whole place for odd n,
where the true range is half of it.

The vocabulary is large, and most votes lie at the floor −c. If the upper middle vote of a column is at
the floor, then so are all medians of the column; counting finds these columns. Only the other columns
are selected from, in blocks, by bisection over the upper and then the lower 16 bits of a float32. That
is exact, sorts nothing, and costs time in proportion to the number of such columns.
"""

from __future__ import annotations

from typing import NamedTuple

from etils import epy

from models.privacy.aggregates import clipping
from models.privacy.public_numbers import Change

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# Columns that are selected from at once: their votes stay in a core's cache.
BLOCK = 256
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
    counted: jax.Array | None = None,
) -> Medians:
    """Medians of clipped logits over the private rows of all micro-batches (CL equation 3).

    Formal guarantee: the medians of every neighbouring batch lie in [`lowest`, `highest`],
    component by component. The medians of a batch without contexts are the clipped public
    logits (METHOD 2).

    Args:
        logits: `[m, V]` raw logits for every micro-batch.
        is_private: `[m]` bool for every micro-batch.
        public_logits: `[V]`.
        clip_bound: c.
        change: What one unit does to a batch.
        counted: `[V]` bool, the columns that a row is centred over; None for all.
    """
    vocab = public_logits.shape[0]
    parts = [
        (z, *clipping.row_tops(z, counted), mask[:, None]) for z, mask in zip(logits, is_private, strict=True)
    ]
    rows = jnp.concatenate(is_private).sum()
    # Counted in float32, exact to 2^24: the sum over rows is faster than that of integers.
    above = sum(
        jnp.where(mask & (clipping.clip_below(z, top, finite, clip_bound) > -clip_bound), 1.0, 0.0).sum(
            axis=0
        )
        for z, top, finite, mask in parts
    )
    # The highest place that any median reads is n//2 + 1; it lies at the floor unless
    # n − 1 − n//2 votes lie above.
    undecided = above >= jnp.maximum(1, rows - 1 - rows // 2)
    columns = jnp.nonzero(undecided, size=vocab + BLOCK, fill_value=vocab)[0]
    blocks = -(-undecided.sum() // BLOCK)

    def select(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        block, statistics = carry
        chosen = jax.lax.dynamic_slice(columns, (block * BLOCK,), (BLOCK,))
        held = [
            jnp.where(
                mask,
                clipping.clip_below(jnp.take(z, chosen, axis=1, mode='clip'), top, finite, clip_bound),
                jnp.inf,
            )
            for z, top, finite, mask in parts
        ]
        here = jnp.stack(_medians_of_block(_as_ordered(jnp.concatenate(held)), rows, change))
        return block + 1, jax.lax.dynamic_update_slice(statistics, here, (0, block * BLOCK))

    # Side by side in the order of `columns`; one gather puts them into their places.
    statistics = jnp.zeros((len(Medians._fields), vocab + BLOCK), jnp.float32)
    _, statistics = jax.lax.while_loop(lambda carry: carry[0] < blocks, select, (jnp.int32(0), statistics))
    spread = jnp.take(statistics, jnp.cumsum(undecided) - 1, axis=1, mode='clip')
    middle, lowest, highest = jnp.where(undecided, spread, -clip_bound)
    few = rows < FEWEST
    return Medians(
        jnp.where(rows == 0, clipping.clip_logits(public_logits, clip_bound, counted), middle),
        jnp.where(few, -clip_bound, lowest),
        jnp.where(few, clip_bound, highest),
    )


def token_losses(
    medians: Medians, allowed: jax.Array, token: jax.Array, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """−log α and log β of one private token, scalars >= 0 (CL appendix B; METHOD 5).

    Formal guarantee: for every batch whose medians lie between `lowest` and `highest`,
    the log ratio of the token's probabilities under this batch and that one lies in
    [log α, log β].

    With p the softmax of m/τ, log Σ exp(hi/τ) − log Σ exp(m/τ) = log(1 + Σ p (e^((hi−m)/τ) − 1)):
    a small difference is computed as such, not as that of two large sums.

    Args:
        medians: The step's medians.
        allowed: `[V]` bool, the tokens that could be sampled.
        token: The one that was.
        temperature: τ.
    """

    def log_sum(scores: jax.Array) -> jax.Array:
        return jax.nn.logsumexp(jnp.where(allowed, scores / temperature, -jnp.inf))

    probabilities = jax.nn.softmax(jnp.where(allowed, medians.middle / temperature, -jnp.inf))

    def log_growth(other: jax.Array) -> jax.Array:
        growth = jnp.where(allowed, jnp.expm1((other - medians.middle) / temperature), 0.0)
        total = (probabilities * growth).sum()
        # Near −1 the sum has lost its digits, and the difference of logarithms has not.
        return jax.lax.cond(
            total < -0.5,
            lambda: log_sum(other) - log_sum(medians.middle),
            lambda: jnp.log1p(total),
        )

    up = (medians.highest[token] - medians.middle[token]) / temperature
    down = (medians.middle[token] - medians.lowest[token]) / temperature
    return up - log_growth(medians.lowest), down + log_growth(medians.highest)


def _medians_of_block(ordered: jax.Array, rows: jax.Array, change: Change) -> Medians:
    """Medians of `[N, B]` votes as ordered integers; in each column `rows` votes are finite, the others ∞.

    With fewer than `FEWEST` rows only the middle has a meaning.
    """
    h = rows // 2
    # Places h − 2 to h + 1 hold all that any median reads.
    middle, below = _select(ordered, h)
    up_to = (ordered <= middle).sum(axis=0)
    least, most = jnp.iinfo(jnp.int32).min, jnp.iinfo(jnp.int32).max
    higher = jnp.where(ordered > middle, ordered, most).min(axis=0)
    lower = jnp.where(ordered < middle, ordered, least).max(axis=0)
    previous = jnp.where(below < h, middle, lower)
    # Strictly below v[h−1], should v[h−2] differ from it.
    below_previous = (ordered < previous).sum(axis=0)
    lowest = jnp.where(ordered < previous, ordered, least).max(axis=0)

    at_h, before = _from_ordered(middle), _from_ordered(previous)
    after = _from_ordered(jnp.where(up_to > h + 1, middle, higher))
    before_that = _from_ordered(jnp.where(below_previous < h - 1, previous, lowest))
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


def _select(ordered: jax.Array, place: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The value at a place of each sorted column: its upper 16 bits, then the lower 16 among equal ones.

    A core handles twice as many int16 as int32 at once, and the number of passes is the same.

    Args:
        ordered: `[N, B]` int32.
        place: From 0, int32 scalar below N.

    Returns:
        `[B]` the value, and `[B]` int32 how many are less.
    """
    upper = (ordered >> 16).astype(jnp.int16)
    first, less = _bisect(upper, jnp.broadcast_to(place, ordered.shape[1:]))
    lower = ((ordered & 0xFFFF) - 2**15).astype(jnp.int16)
    # The others lie below, and are left out of the place, or above.
    among = jnp.where(upper == first, lower, jnp.int16(2**15 - 1))
    second, less_among = _bisect(among, place - less)
    return (first.astype(jnp.int32) << 16) + (second.astype(jnp.int32) + 2**15), less + less_among


def _bisect(keys: jax.Array, places: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The key at `places[b]` of each sorted column of `[N, B]` int16, and how many are less, int32."""
    # A count of rows fits into int16 but for the largest batches.
    counter = jnp.int16 if keys.shape[0] < 2**15 else jnp.int32
    places = places.astype(counter)

    def halve(_: int, bounds: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        low, high, less = bounds
        # Halfway without overflow: low + high passes the range of int16.
        middle = (low & high) + ((low ^ high) >> 1)
        up_to = (keys <= middle).astype(counter).sum(axis=0, dtype=counter)
        enough = up_to > places
        return (
            jnp.where(enough, low, middle + 1),
            jnp.where(enough, middle, high),
            jnp.where(enough, less, up_to),
        )

    start = jnp.full_like(places, -(2**15), jnp.int16), jnp.full_like(places, 2**15 - 1, jnp.int16)
    low, _, less = jax.lax.fori_loop(0, 16, halve, (*start, jnp.zeros_like(places)))
    return low, less.astype(jnp.int32)


def _as_ordered(values: jax.Array) -> jax.Array:
    """Integers in the order of the floats: the bits of a negative float, but for the sign, are inverted."""
    bits = jax.lax.bitcast_convert_type(values + 0.0, jnp.int32)  # + 0.0 makes −0 into 0
    return jnp.where(bits < 0, bits ^ jnp.int32(0x7FFFFFFF), bits)


def _from_ordered(ordered: jax.Array) -> jax.Array:
    """Inverse of `_as_ordered`."""
    bits = jnp.where(ordered < 0, ordered ^ jnp.int32(0x7FFFFFFF), ordered)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
