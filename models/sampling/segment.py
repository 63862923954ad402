"""The compiled part of the sampler: steps of all rows until enough of them have ended.

Rows stand at places of their own, each with its own prompt, key and state. A row that has ended is stepped on
with the others, where nobody reads it, until its place is taken by another request.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models.constraints import Constraint
from models.decoders import decoder
from models.sampling.nucleus import drawn
from models.sampling.settings import SamplerSettings


class Rows(NamedTuple):
    """State of the texts of a micro-batch; every array has the rows first."""

    keys: jax.Array  # [m 2] uint32, of each text's randomness
    tokens: jax.Array  # [m T] int32, as indices into the vocabulary
    lengths: jax.Array  # [m] int32, tokens so far
    stop_states: jax.Array  # [m] int32, of the stop rule
    masked_by: Any  # states of the constraint
    is_going: jax.Array  # [m] bool
    states: jax.Array  # [m D], the decoder's, from which the next token is predicted
    cache: Any


class Tokens(NamedTuple):
    """Tokens that may come, and their successors. C is V, or fewer."""

    columns: jax.Array | None  # [C] int32, the ids that are predicted; None for all V
    table: jax.Array  # [S C] int of `StopRule.table`, whose S is the end
    constraint: Constraint


def run(
    model: decoder.Decoder,
    weights: Any,
    rows: Rows,
    tokens: Tokens,
    wanted: jax.Array,
    *,
    settings: SamplerSettings,
) -> Rows:
    """Steps until at least `wanted` rows have ended.

    Args:
        model: The decoder.
        weights: Its weights.
        rows: The rows.
        tokens: See above.
        wanted: int32 scalar, at most m; rows that had ended before count.
        settings: Of the run.
    """

    def is_going(rows: Rows) -> jax.Array:
        return jnp.sum(~rows.is_going) < wanted

    return jax.lax.while_loop(
        is_going, lambda rows: _stepped(model, weights, rows, tokens, settings=settings), rows
    )


def _stepped(
    model: decoder.Decoder, weights: Any, rows: Rows, tokens: Tokens, *, settings: SamplerSettings
) -> Rows:
    end, most = len(tokens.table), settings.max_example_tokens
    count = len(rows.lengths)
    after = jnp.minimum(rows.stop_states, end - 1)
    logits = model.logits(weights, rows.states, tokens.columns) / settings.temperature
    logits = jnp.where(_allowed(rows, tokens, after, settings=settings), logits, -jnp.inf)
    keys = jax.vmap(jax.random.fold_in)(jax.random.wrap_key_data(rows.keys), rows.lengths)
    column = drawn(logits, keys, top_p=settings.top_p, top_k=settings.top_k)
    token = column if tokens.columns is None else tokens.columns[column]
    # A row that has ended stays at its last place.
    place = jnp.minimum(rows.lengths, most - 1)
    written = rows.tokens.at[jnp.arange(count), place].set(
        jnp.where(rows.is_going, token, rows.tokens[jnp.arange(count), place])
    )
    stop_states = jnp.where(rows.is_going, tokens.table[after, column].astype(jnp.int32), rows.stop_states)
    lengths = rows.lengths + rows.is_going
    states, (cache,) = model.append(weights, (rows.cache,), token[:, None], jnp.int32(1), place)
    return Rows(
        keys=rows.keys,
        tokens=written,
        lengths=lengths,
        stop_states=stop_states,
        # A row that has ended goes on by allowed tokens, which nobody reads.
        masked_by=jax.vmap(tokens.constraint.advance)(rows.masked_by, token),
        is_going=rows.is_going & (stop_states != end) & (lengths < most),
        states=states[0],
        cache=cache,
    )


def _allowed(rows: Rows, tokens: Tokens, after: jax.Array, *, settings: SamplerSettings) -> jax.Array:
    """`[m C]` bool: what may come, without what would end a text too early if anything else may come."""
    constraint, count = tokens.constraint, len(rows.lengths)
    if tokens.columns is None:
        allowed = constraint.allowed_rows(rows.masked_by, count)
    else:
        columns = tokens.columns
        # A state may hold no array, as where all rows may have the same tokens everywhere.
        allowed = jax.vmap(lambda state: constraint.allowed_among(state, columns), axis_size=count)(
            rows.masked_by
        )
    if not settings.min_example_tokens:
        return allowed
    goes_on = allowed & (tokens.table != len(tokens.table))[after]
    is_early = (rows.lengths < settings.min_example_tokens) & goes_on.any(axis=-1)
    return jnp.where(is_early[:, None], goes_on, allowed)
