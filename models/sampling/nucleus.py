"""The nucleus of each row's prediction, and a token from it, without a sort.

The order of operations is the usual one: temperature, then the K most probable tokens, then the nucleus
(Holtzman et al. 2020), the fewest most probable tokens whose probabilities sum to at least p.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# Predictions are summed in blocks of so many tokens, and one block is then summed token by token.
_BLOCK = 512


class _Trial(NamedTuple):
    number: jax.Array  # int32 scalar
    found: jax.Array  # [m] int32, the token of the last trial
    blocks: jax.Array  # [m B], the shares of each block that are above the floor
    floor: jax.Array  # [m], the next token has a greater share
    is_done: jax.Array  # [m] bool


def drawn(logits: jax.Array, keys: jax.Array, *, top_p: float, top_k: int | None) -> jax.Array:
    """`[m]` int32: a token of each row's nucleus, which is never computed: a function of its logits and key.

    A token is drawn by its share of all. It is in the nucleus if the tokens that are more probable have less
    than p together. If it is not, neither are those that are no more probable, and the next token is drawn
    of the others alone. So a trial is one pass over the predictions, and few are needed, where a search for
    the edge of the nucleus takes thirty (FlashInfer's sampler does the same: Ye et al. 2025).

    Args:
        logits: `[m C]` float32, at their temperature; −∞ for tokens that may not come.
        keys: `[m]` keys of JAX' generator.
        top_p: In (0, 1].
        top_k: At least 1; None for all.
    """
    rows, columns = logits.shape
    if top_k is not None and top_k < columns:
        logits = jnp.where(nucleus(logits, top_p=1.0, top_k=top_k), logits, -jnp.inf)
    shares = jnp.exp(logits - logits.max(axis=-1, keepdims=True))
    shares = jnp.pad(shares, ((0, 0), (0, -columns % _BLOCK))).reshape(rows, -1, _BLOCK)
    blocks = shares.sum(axis=-1)
    wanted = top_p * blocks.sum(axis=-1)

    def one(trial: _Trial) -> _Trial:
        draws = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, trial.number)))(keys)
        tokens = _at(shares, trial.blocks, trial.floor, draws)
        share = jnp.take_along_axis(shares.reshape(rows, -1), tokens[:, None], axis=-1)
        above = jnp.where(shares > share[:, None], shares, 0.0).sum(axis=-1)
        is_in = above.sum(axis=-1) < wanted
        again = ~trial.is_done
        return _Trial(
            number=trial.number + 1,
            found=jnp.where(again, tokens, trial.found),
            blocks=jnp.where(again[:, None], above, trial.blocks),
            floor=jnp.where(again, share[:, 0], trial.floor),
            is_done=trial.is_done | is_in,
        )

    first = _Trial(
        number=jnp.int32(0),
        found=jnp.zeros(rows, jnp.int32),
        blocks=blocks,
        floor=jnp.zeros(rows, jnp.float32),
        is_done=jnp.zeros(rows, bool),
    )
    if top_p >= 1:
        draws = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 0)))(keys)
        return _at(shares, blocks, first.floor, draws)
    return jax.lax.while_loop(lambda trial: ~trial.is_done.all(), one, first).found


def _at(shares: jax.Array, blocks: jax.Array, floor: jax.Array, draws: jax.Array) -> jax.Array:
    """The tokens at which the sums of the shares above the floor pass a share of all: `[m]` int32."""
    ends = jnp.cumsum(blocks, axis=-1)
    place = draws * ends[:, -1]
    block = _first(ends > place[:, None], blocks > 0)
    before = jnp.take_along_axis(ends - blocks, block[:, None], axis=-1)
    within = jnp.take_along_axis(shares, block[:, None, None], axis=1)[:, 0]
    within = jnp.where(within > floor[:, None], within, 0.0)
    passed = before + jnp.cumsum(within, axis=-1) > place[:, None]
    return block * _BLOCK + _first(passed, within > 0)


def _first(passed: jax.Array, possible: jax.Array) -> jax.Array:
    """The first place that is passed and possible; the last possible one where rounding leaves none."""
    both = passed & possible
    last = possible.shape[-1] - 1 - jnp.argmax(possible[:, ::-1], axis=-1)
    return jnp.where(both.any(axis=-1), jnp.argmax(both, axis=-1), last).astype(jnp.int32)


def nucleus(logits: jax.Array, *, top_p: float, top_k: int | None) -> jax.Array:
    """`[m V]` bool: the tokens to sample from; ties with the least probable of them are included.

    Thresholds are found by bisection on the bits of the probabilities, which are ordered like the numbers:
    exact, and without sorting the vocabulary.

    Args:
        logits: `[m V]` float32, at their temperature; −∞ for tokens that may not come.
        top_p: In (0, 1].
        top_k: At least 1; None for all.
    """
    shares = jax.nn.softmax(logits, axis=-1)
    bits = jax.lax.bitcast_convert_type(shares, jnp.int32)
    possible = shares > 0

    def largest(holds: Any) -> jax.Array:
        """`[m 1]`: the largest threshold that keeps enough."""

        def halve(_: Any, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            low, high = bounds
            middle = low + (high - low) // 2
            enough = holds(bits >= middle)
            return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

        low = jnp.ones((len(logits), 1), jnp.int32)
        high = jnp.full((len(logits), 1), 0x3F800001, jnp.int32)  # just above 1
        return jax.lax.fori_loop(0, 31, halve, (low, high))[0]

    kept = possible
    if top_k is not None and top_k < logits.shape[-1]:
        kept &= bits >= largest(lambda above: above.sum(axis=-1, keepdims=True) >= top_k)
    if top_p < 1:
        of_kept = jnp.where(kept, shares, 0.0)
        wanted = top_p * of_kept.sum(axis=-1, keepdims=True)
        kept &= bits >= largest(
            lambda above: jnp.where(above, of_kept, 0.0).sum(axis=-1, keepdims=True) >= wanted
        )
    return kept
