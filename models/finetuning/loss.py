"""FT's training loss with its prompt-mismatch term, for one unit (FT equations 2 to 4).

Of a text x with label a, the right instruction i(a), and wrong ones I,

    L = NLL(i(a) ⊕ x) − λ/|I| Σ_{i ∈ I} NLL(i ⊕ x)

where the sum of an NLL runs over the tokens of x and its end. FT's sum includes the instruction's tokens:
they are public and never sampled, and their gradient would use up a unit's clip norm without carrying
anything of its text. A unit's loss is the sum over its texts, divided by the constant T: one scalar with one
gradient, which is clipped once, however many texts the unit has.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any

from etils import epy

from models.decoders.family import Tunable

if typing.TYPE_CHECKING:
    import numpy as np

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp


def unit_loss(
    tunable: Tunable, *, max_tokens: int, mismatch_weight: float
) -> Callable[[Any, Any, Mapping[str, jax.Array]], jax.Array]:
    """The loss of one unit, to be differentiated by the adapter.

    Args:
        tunable: The model.
        max_tokens: T.
        mismatch_weight: λ >= 0.

    Returns:
        A function of the adapter; of a pair of weights and instructions (tokens `[G P]`, lengths `[G]`); and
        of a unit: `instructions` `[1 + |I|]` int32, the right one first, `texts` `[k T]` and `lengths`
        `[k]`. Gives a float32 scalar.
    """

    def loss(adapter: Any, model: Any, unit: Mapping[str, jax.Array]) -> jax.Array:
        weights, (prompts, prompt_lengths) = model
        chosen, texts, lengths = unit['instructions'], unit['texts'], unit['lengths']
        # Rows: each text after each instruction, [k, 1 + |I|].
        prompt, first = prompts[chosen], prompt_lengths[chosen]
        rows = jax.vmap(lambda text: jax.vmap(_row, (0, 0, None))(prompt, first, text))(texts)
        count, ways, length = rows.shape
        found = tunable.log_probabilities(
            weights,
            adapter,
            rows.reshape(count * ways, length),
            jnp.tile(first, count),
            count=max_tokens,
        ).reshape(count, ways, max_tokens)
        known = jnp.arange(max_tokens) < lengths[:, None]
        # Selected, not multiplied: what stands for no token is no number that counts.
        nll = -jnp.where(known[:, None], found, 0.0).sum(axis=(0, 2)) / max_tokens
        if ways == 1:
            return nll[0]
        return nll[0] - mismatch_weight * nll[1:].mean()

    return loss


def _row(prompt: jax.Array, length: jax.Array, text: jax.Array) -> jax.Array:
    """`[P + T]`: the tokens of a prompt, then those of a text `[T]`, then zeros."""
    slots = jnp.arange(len(prompt) + len(text))
    places = slots - length
    of_text = text[jnp.clip(places, 0, len(text) - 1)]
    of_prompt = prompt[jnp.clip(slots, 0, len(prompt) - 1)]
    return jnp.where(places < 0, of_prompt, jnp.where(places < len(text), of_text, 0))


def wrong_instructions(word: int, label: int, labels: int, count: int) -> np.ndarray:
    """`[count]` indices of distinct labels other than `label`, each set equally likely.

    FT draws a few of many. Each unit has its own draw.

    Args:
        word: A uniform 64-bit word of this unit and step.
        label: The right one.
        labels: G, more than `count`.
        count: |I|.
    """
    import numpy as np

    others = [other for other in range(labels) if other != label]
    for place in range(count):
        word, step = divmod(word, len(others) - place)
        others[place], others[place + step] = others[place + step], others[place]
    return np.array(others[:count], np.int32)
