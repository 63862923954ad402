"""The decoder interface: token ids in, states out, and logits from states; knows nothing of privacy.

A decoder prefills the private prompts and the public prompt of a batch once, then appends tokens to all of
them, a step at a time: one token, or several that are already known. The rows of private prediction share
their tokens; rows that are sampled independently have their own, and may each stand at a place of their own.
The next example of the batch starts again from the end of the prompts, by a step at offset 0: the cache keeps
the prompts and overwrites the generated tokens. A row whose text has ended can also take another prompt,
while the others go on (`with_rows`). Prefill and step return the rows' *states*; the output layer is a
separate method, since a caller may need only few columns of the logits.

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
import jax.numpy as jnp
import numpy as np

Cache = Any
Weights = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shapes:
    """The public shapes of a run's programs; they touch speed and memory, never the guarantee.

    Attributes:
        max_prompt_tokens: Every prompt is padded to this length P.
        max_example_tokens: Tokens of an example that the cache holds after the prompt.
        micro_batch_size: Rows m that go through the model together.
        rows_multiple: Public prompts are read in a multiple of so many rows.
        step_tokens: R, most tokens that a step appends. The cache has R - 1 slots behind an example's, so
            that the last step may write as many as any.
        columns: Most columns of logits that are computed for every row of a batch; None for all V.
    """

    max_prompt_tokens: int
    max_example_tokens: int
    micro_batch_size: int
    rows_multiple: int = 1
    step_tokens: int = 1
    columns: int | None = None

    @property
    def cache_length(self) -> int:
        """Slots of the cache: prompt, then example."""
        return self.max_prompt_tokens + self.example_slots

    @property
    def example_slots(self) -> int:
        """Slots of the cache for an example."""
        return self.max_example_tokens + self.step_tokens - 1

    def micro_batches(self, rows: int) -> int:
        """Micro-batches that hold `rows` rows, at least one."""
        return max(1, -(-rows // self.micro_batch_size))


class Decoder(abc.ABC):
    """Prefill, step, logits, and start again, for a batch of prompts that share one answer.

    Instances are hashable by identity, so that the compiled loop may hold them.

    Attributes:
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
    def append(
        self,
        weights: Weights,
        cache: tuple[Cache, ...],
        tokens: jax.Array,
        count: jax.Array,
        offset: jax.Array,
    ) -> tuple[tuple[jax.Array, ...], tuple[Cache, ...]]:
        """Appends tokens to every row, one or several; called inside the compiled loop.

        However tokens are cut into calls, states agree to rounding: the shapes are those of other products.

        Args:
            weights: `self.weights`.
            cache: The result of `prefill` or of the call before, of one micro-batch or more.
            tokens: `[r]` int32, 1 <= r <= R, the same for all rows; or `[m, r]`, each row's own, where the
                cache is of one micro-batch. What lies behind the first `count` changes nothing.
            count: int32 scalar, 1 to r: how many are appended.
            offset: int32 scalar, tokens of the current example before these; `offset + count` is at most
                `max_example_tokens`. 0 starts again from the prompts' end. Or `[m]`, each row's own, where
                the cache is of one micro-batch.

        Returns:
            The states after the last of them, `[m, D]` for every micro-batch, and the new cache.
        """

    def step(
        self, weights: Weights, cache: tuple[Cache, ...], token: jax.Array, offset: jax.Array
    ) -> tuple[tuple[jax.Array, ...], tuple[Cache, ...]]:
        """Appends one token, an int32 scalar: see `append`."""
        return self.append(weights, cache, jnp.reshape(token, 1), jnp.int32(1), offset)

    def with_rows(self, cache: Cache, into: jax.Array, other: Cache) -> Cache:
        """The cache of a micro-batch, with some rows replaced: their prompts, and what follows.

        Every array of a cache has its rows along the first axis. To be called in a compiled function that
        takes over the buffers of `cache`, which is then changed in place.

        Args:
            cache: The cache of one micro-batch.
            into: `[n]` int32, the rows that are replaced; one behind the last is none.
            other: The cache of n rows that take their places.
        """
        return jax.tree.map(lambda array, new: array.at[into].set(new, mode='drop'), cache, other)

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
