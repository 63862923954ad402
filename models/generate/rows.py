"""The rows of a batch: its private prompts and the public ones, run through the model once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models.decoders import decoder as decoder_lib


class PrivateRows(NamedTuple):
    """A batch's private prompts after their prefill.

    Attributes:
        states: `[m, D]` after each prompt, for every micro-batch; padding rows last.
        is_private: `[m]` bool for every micro-batch; False for padding.
        cache: One for each micro-batch.
    """

    states: tuple[jax.Array, ...]
    is_private: tuple[jax.Array, ...]
    cache: tuple[Any, ...]


class PublicRows(NamedTuple):
    """The public prompt, or the prompts of a reference, after a prefill that many batches share.

    Attributes:
        states: `[m, D]` after each prompt, padding rows last.
        cache: The cache of these rows, a tuple of length one.
        prompts: M, the number of rows without padding.
    """

    states: jax.Array
    cache: tuple[Any, ...]
    prompts: int


# Padding rows hold one token.
_PADDING = np.array([1], np.int32)


def prefill_private(decoder: decoder_lib.Decoder, private_prompts: Sequence[np.ndarray]) -> PrivateRows:
    """Runs the private prompts in whole micro-batches; padding rows have no vote."""
    size, rows = decoder.shapes.micro_batch_size, len(private_prompts)
    count = decoder.shapes.micro_batches(rows) * size
    states, cache = decoder.prefill([*private_prompts, *[_PADDING] * (count - rows)])
    is_private = np.arange(count) < rows
    return PrivateRows(states, tuple(jnp.asarray(is_private.reshape(-1, size))), cache)


def prefill_public(decoder: decoder_lib.Decoder, prompts: Sequence[np.ndarray]) -> PublicRows:
    """Runs the public prompt, or those of a reference, apart from the private rows.

    No private row shares a program with them, so their bits do not depend on the batch.

    Args:
        decoder: The model.
        prompts: M >= 1 prompts as token ids.
    """
    multiple = decoder.shapes.rows_multiple
    count = -(-len(prompts) // multiple) * multiple
    (states,), cache = decoder.prefill([*prompts, *[_PADDING] * (count - len(prompts))], together=count)
    return PublicRows(states, cache, len(prompts))
