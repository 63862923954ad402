"""The decoder interface: token ids in, states out, and logits from states; knows nothing of privacy.

A decoder prefills the private prompts and the public prompt of a batch once, then
steps all of them with one shared token at a time. The next example of the batch
starts again from the prompts' end, by stepping at offset 0: the cache keeps the
prompts and overwrites what was generated. Prefill and step give the rows' *states*; the
output layer is a method of its own, since whoever asks for the logits may want few columns.

Rows (one for each prompt) are independent: the logits of a row are the same
whatever the other rows hold. To that end every program has shapes that are public:
prompts are padded to a fixed length and rows come in micro-batches of a fixed size;
a larger batch has more micro-batches, never larger ones.
"""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

Cache = Any
Weights = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shapes:
    """The public shapes of a run's programs; they touch speed and memory, never the guarantee.

    Attributes:
        max_prompt_tokens: Every prompt is padded to this length P.
        max_example_tokens: Tokens that the cache holds after the prompt.
        micro_batch_size: Rows m that go through the model together.
        rows_multiple: Public rows are filled up to a multiple of this, beside the micro-batches.
        columns: Most columns of logits that are computed of every row of a batch; None for all V.
    """

    max_prompt_tokens: int
    max_example_tokens: int
    micro_batch_size: int
    rows_multiple: int = 1
    columns: int | None = None

    @property
    def cache_length(self) -> int:
        """Slots of the cache: prompt, then example."""
        return self.max_prompt_tokens + self.max_example_tokens

    def micro_batches(self, rows: int) -> int:
        """Micro-batches that hold `rows` rows, at least one."""
        return max(1, -(-rows // self.micro_batch_size))


class Decoder(abc.ABC):
    """Prefill, step, logits, and start again, for a batch of prompts that share one answer.

    Instances are hashable by identity, so that the compiled loop may hold them.

    Attributes:
        shapes: The public shapes.
        vocab_size: V, the number of all logits of a row.
        weights: The model's parameters, an argument of the compiled loop.
    """

    shapes: Shapes
    vocab_size: int
    weights: Weights

    @abc.abstractmethod
    def prefill(
        self, prompts: Sequence[np.ndarray], *, together: int | None = None
    ) -> tuple[tuple[jax.Array, ...], tuple[Cache, ...]]:
        """Runs prompts through the model, once.

        Args:
            prompts: Token ids of each row, int32, 1 to P tokens; as many rows as the
                micro-batches hold, padding rows included.
            together: Rows of one micro-batch; None for `micro_batch_size`.

        Returns:
            The states after each prompt, `[m, D]` for every micro-batch, and the cache of each. Caches
            of several calls may be joined for `step`.

        Raises:
            MemoryError: The batch cannot fit on the device, however it is cut.
        """

    @abc.abstractmethod
    def step(
        self, weights: Weights, cache: tuple[Cache, ...], token: jax.Array, offset: jax.Array
    ) -> tuple[tuple[jax.Array, ...], tuple[Cache, ...]]:
        """Appends one shared token to every row; called inside the compiled loop.

        Args:
            weights: `self.weights`.
            cache: What `prefill` or the step before returned, of one micro-batch or more.
            token: int32 scalar.
            offset: int32 scalar, tokens of the current example before this one. 0 starts
                again from the prompts' end.

        Returns:
            The next states, `[m, D]` for every micro-batch, and the new cache.
        """

    @abc.abstractmethod
    def logits(self, weights: Weights, states: jax.Array, columns: jax.Array | None = None) -> jax.Array:
        """The output layer on some rows; called inside the compiled loop.

        A row's logits are a function of its own state, bit by bit whatever the other rows
        hold. Those of some columns are the same columns of all, to rounding: they come of
        another matrix product.

        Args:
            weights: `self.weights`.
            states: `[m, D]`, of `prefill` or `step`; any number m of rows.
            columns: `[C]` int32 token ids in [0, V), in any order; None for all V.

        Returns:
            `[m, V]` float32, or `[m, C]` in the order of the columns.
        """
