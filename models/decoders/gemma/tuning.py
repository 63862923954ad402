"""Gemma as a `Tunable`: log probabilities of texts, to be differentiated by low-rank factors or all weights.

The gemma library has adapters of its own (`gm.nn.LoRA`), for its modules. Texts are sampled by this
project's forward pass, whose matrices are arranged otherwise; so it trains what it samples
with, through the very same functions.
"""

from __future__ import annotations

import functools
from typing import Any

from etils import epy

from models.decoders.gemma import forward
from models.decoders.gemma.architectures import Architecture
from models.decoders.gemma.weights import adapt

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# Logits that are held at a time, for each unit: they are computed again on the way back.
_LOGITS_AT_A_TIME = 2**22


def log_probabilities(
    architecture: Architecture,
    weights: Any,
    adapter: Any,
    tokens: jax.Array,
    first: jax.Array,
    *,
    count: int,
) -> jax.Array:
    """See `models.decoders.family.Tunable.log_probabilities`."""
    weights = adapt(weights, adapter)
    states = forward.states(architecture, weights, tokens)
    places = first[:, None] + jnp.arange(count)
    before = jnp.take_along_axis(states, places[..., None] - 1, axis=1).reshape(-1, states.shape[-1])
    targets = jnp.take_along_axis(tokens, places, axis=1).reshape(-1)
    size = min(len(targets), max(8, _LOGITS_AT_A_TIME // architecture.num_embed))
    padding = -len(targets) % size

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def of_piece(piece: tuple[jax.Array, jax.Array]) -> jax.Array:
        states, targets = piece
        logits = forward.logits(architecture, weights, states)
        chosen = jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
        return chosen - jax.nn.logsumexp(logits, axis=1)

    pieces = (
        jnp.pad(before, ((0, padding), (0, 0))).reshape(-1, size, before.shape[-1]),
        jnp.pad(targets, (0, padding)).reshape(-1, size),
    )
    found = jax.lax.map(of_piece, pieces).reshape(-1)
    return found[: len(targets)].reshape(places.shape)
