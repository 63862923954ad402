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
        A function of the adapter; of a pair of weights and instructions (tokens `[G P]`, lengths `[G]`, and
        what `Tunable.products` gives, or None); and of a unit: `instructions` `[1 + |I|]` int32, the right
        one first, `texts` `[k L]` and `lengths` `[k]`, where L is at most T. Gives a float32 scalar.
    """

    def loss(adapter: Any, model: Any, unit: Mapping[str, jax.Array]) -> jax.Array:
        weights, instructions = model
        chosen, texts = unit['instructions'], unit['texts']
        prompts, prompt_lengths, products = jax.tree.map(lambda of_all: of_all[chosen], instructions)
        log_probabilities = tunable.log_probabilities(
            weights, adapter, (prompts, prompt_lengths), texts, products
        )
        known = jnp.arange(texts.shape[1]) < unit['lengths'][:, None]
        # Selected, not multiplied: what stands for no token is no number that counts.
        nll = -jnp.where(known[:, None], log_probabilities, 0.0).sum(axis=(0, 2)) / max_tokens
        if len(nll) == 1:
            return nll[0]
        return nll[0] - mismatch_weight * nll[1:].mean()

    return loss


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
