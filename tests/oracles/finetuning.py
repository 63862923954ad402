"""The loss of fine-tuning as one would write it first: every row whole, and padded to the longest text.

Each text stands after each instruction in a row of its own, which runs through all matrices; logits of all
columns are computed for each place of a text, and again on the way back.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from models.decoders.transformer import forward
from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.weights import adapt


def log_probabilities(
    architecture: Architecture,
    weights: Any,
    adapter: Any,
    tokens: jax.Array,
    first: jax.Array,
    count: int,
) -> jax.Array:
    """`[m count]` of tokens `first` to `first + count - 1` of rows `[m L]`."""
    weights = adapt(weights, adapter)
    states = forward.states(architecture, weights, tokens)
    places = first[:, None] + jnp.arange(count)
    before = jnp.take_along_axis(states, places[..., None] - 1, axis=1).reshape(-1, states.shape[-1])
    targets = jnp.take_along_axis(tokens, places, axis=1).reshape(-1)
    size = min(len(targets), max(8, 2**22 // architecture.num_embed))
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
    return jax.lax.map(of_piece, pieces).reshape(-1)[: len(targets)].reshape(places.shape)


def unit_loss(
    architecture: Architecture, max_tokens: int, mismatch_weight: float
) -> Callable[[Any, Any, Mapping[str, jax.Array]], jax.Array]:
    """As `models.finetuning.loss.unit_loss`; of the model it takes weights and (tokens, lengths)."""

    def loss(adapter: Any, model: Any, unit: Mapping[str, jax.Array]) -> jax.Array:
        weights, (prompts, prompt_lengths) = model
        chosen, texts, lengths = unit['instructions'], unit['texts'], unit['lengths']
        prompt, first = prompts[chosen], prompt_lengths[chosen]
        rows = jax.vmap(lambda text: jax.vmap(_row, (0, 0, None))(prompt, first, text))(texts)
        count, ways, length = rows.shape
        found = log_probabilities(
            architecture, weights, adapter, rows.reshape(-1, length), jnp.tile(first, count), max_tokens
        ).reshape(count, ways, max_tokens)
        known = jnp.arange(max_tokens) < lengths[:, None]
        nll = -jnp.where(known[:, None], found, 0.0).sum(axis=(0, 2)) / max_tokens
        return nll[0] if ways == 1 else nll[0] - mismatch_weight * nll[1:].mean()

    return loss


def _row(prompt: jax.Array, length: jax.Array, text: jax.Array) -> jax.Array:
    """`[P + T]`: the tokens of a prompt, then those of a text `[T]`, then zeros."""
    slots = jnp.arange(len(prompt) + len(text))
    places = slots - length
    of_text = text[jnp.clip(places, 0, len(text) - 1)]
    of_prompt = prompt[jnp.clip(slots, 0, len(prompt) - 1)]
    return jnp.where(places < 0, of_prompt, jnp.where(places < len(text), of_text, 0))
