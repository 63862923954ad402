"""The rows of a batch: its public prompts and its private ones, run through the model once."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models.decoders import decoder as decoder_lib


class Rows(NamedTuple):
    """A batch's prompts after their prefill: public rows first, then the private ones, then padding.

    Public rows ride in the first micro-batches, so that a step reads the weights once for all rows.

    Attributes:
        states: `[m, D]` after each prompt, for every micro-batch.
        is_private: `[m]` bool for every micro-batch; False for public rows and padding.
        cache: One for each micro-batch.
    """

    states: tuple[jax.Array, ...]
    is_private: tuple[jax.Array, ...]
    cache: tuple[Any, ...]


class PublicRows(NamedTuple):
    """The public prompt, or the prompts of a reference, after a prefill that many batches share.

    Attributes:
        states: `[M', D]` after each prompt, padding rows last.
        cache: The cache of these rows.
        prompts: M, the number of rows without padding.
    """

    states: jax.Array
    cache: Any
    prompts: int


# Padding rows hold one token.
_PADDING = np.array([1], np.int32)


def prefill_batch(
    decoder: decoder_lib.Decoder, public: PublicRows | None, private_prompts: Sequence[np.ndarray]
) -> Rows:
    """Runs the private prompts in whole micro-batches, behind the public rows.

    Args:
        decoder: The model.
        public: From `prefill_public`; None where no public prediction is read.
        private_prompts: Token ids, one prompt for each context; may be empty.
    """
    size, first = decoder.shapes.micro_batch_size, 0 if public is None else public.prompts
    end = first + len(private_prompts)
    count = decoder.shapes.micro_batches(end) * size
    states, cache = decoder.prefill([*[_PADDING] * first, *private_prompts, *[_PADDING] * (count - end)])
    places = np.arange(count)
    is_private = (first <= places) & (places < end)
    read = Rows(states, tuple(jnp.asarray(is_private.reshape(-1, size))), cache)
    return read if public is None else _behind(decoder, read, public)


def prefill_public(decoder: decoder_lib.Decoder, prompts: Sequence[np.ndarray]) -> PublicRows:
    """Runs the public prompt, or those of a reference, apart from the private rows.

    No private row shares this program with them, and in a step rows are independent, so their bits do not
    depend on the batch.

    Args:
        decoder: The model.
        prompts: M >= 1 prompts as token ids.
    """
    multiple = decoder.shapes.rows_multiple
    count = -(-len(prompts) // multiple) * multiple
    (states,), (cache,) = decoder.prefill([*prompts, *[_PADDING] * (count - len(prompts))], together=count)
    return PublicRows(states, cache, len(prompts))


def public_states(states: Sequence[jax.Array], count: int) -> jax.Array | None:
    """`[M, D]`: the states of the first M rows of all micro-batches; None for no rows."""
    if not count:
        return None
    parts = states[: -(-count // len(states[0]))]
    return (parts[0] if len(parts) == 1 else jnp.concatenate(parts))[:count]


def _behind(decoder: decoder_lib.Decoder, rows: Rows, public: PublicRows) -> Rows:
    """Rows with the public ones in the places before the private ones."""
    size = decoder.shapes.micro_batch_size
    states, cache = list(rows.states), list(rows.cache)
    for number, start in enumerate(range(0, public.prompts, size)):
        states[number], cache[number] = _with_rows(
            states[number],
            cache[number],
            public.states,
            public.cache,
            rows=slice(start, min(start + size, public.prompts)),
            decoder=decoder,
        )
    return rows._replace(states=tuple(states), cache=tuple(cache))


@functools.partial(jax.jit, static_argnames=('rows', 'decoder'), donate_argnames=('states', 'cache'))
def _with_rows(
    states: jax.Array,
    cache: Any,
    other_states: jax.Array,
    other_cache: Any,
    *,
    rows: slice,
    decoder: decoder_lib.Decoder,
) -> tuple[jax.Array, Any]:
    """A micro-batch with some rows of another one in its first places."""
    of_states, of_cache = jax.tree.map(lambda array: array[rows], (other_states, other_cache))
    first = jnp.arange(len(of_states))
    return states.at[first].set(of_states), decoder.with_rows(cache, first, of_cache)
