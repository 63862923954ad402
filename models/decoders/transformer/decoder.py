"""A transformer as a `Decoder`, on all local devices, and as an encoder of texts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from models.decoders import decoder as decoder_lib
from models.decoders.transformer import forward, sharded
from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.sharded import ROWS
from models.decoders.transformer.weights import Adapter, Weights, adapt

# Numbers of tokens that a step has programs for, beside the most that it may append. Where arithmetic is the
# bottleneck a token that is read for nothing costs half of one that is read by itself, or more; an
# accelerator, which waits for the weights, reads a few tokens in the time of one.
_LENGTHS = (1, 2, 4)

# Tokens of prompts that go through the layers together: their activations stay in a processor's cache, or are
# enough to keep an accelerator busy, and no more of its memory than that.
_PIECE_TOKENS = 2**10
_PIECE_TOKENS_OF_ACCELERATORS = 2**14
# Activations of experts that are held at a time, of all experts for each token.
_MOST_ACTIVATIONS = 2**29


def piece_tokens(architecture: Architecture, *, is_processor: bool, devices: int = 1) -> int:
    """Tokens of prompts that go through the layers together on each of some devices whose rows meet."""
    tokens = _PIECE_TOKENS if is_processor else _PIECE_TOKENS_OF_ACCELERATORS
    if (experts := architecture.experts) is not None:
        tokens = min(tokens, max(1, _MOST_ACTIVATIONS // (2 * experts.count * experts.hidden_dim)))
    return max(1, tokens // devices)


def on_all_devices(specs: Any) -> Any:
    """Shardings over all local devices, in the tree of their `PartitionSpec`s."""
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), (ROWS,))
    return jax.tree.map(
        lambda spec: jax.sharding.NamedSharding(mesh, spec),
        specs,
        is_leaf=lambda leaf: isinstance(leaf, jax.sharding.PartitionSpec),
    )


@final
class TransformerDecoder(decoder_lib.Decoder):
    """A `Decoder` with a cache, in micro-batches whose rows are spread over all local devices."""

    def __init__(
        self,
        architecture: Architecture,
        weights: Weights,
        *,
        shapes: decoder_lib.Shapes,
        adapter: Adapter | None = None,
        is_sharded: bool = False,
    ) -> None:
        """Copies the weights to each device that does not hold them, or shards them.

        Args:
            architecture: The numbers of the model.
            weights: Its weights; their type is that of cache and products.
            shapes: The public shapes; the micro-batch size must be a multiple of the
                number of local devices.
            adapter: Low-rank factors that are added to the matrices, or a difference that is added to all
                weights, in float32; None for none.
            is_sharded: True if each device holds a shard of the weights: see `sharded.py`.
        """
        devices = jax.local_devices()
        if shapes.micro_batch_size % len(devices):
            raise ValueError(
                f'Expected micro_batch_size to be a multiple of the {len(devices)} local devices, '
                f'got micro_batch_size={shapes.micro_batch_size}. Round it up.'
            )
        self.shapes = shapes
        self.vocab_size = architecture.num_embed
        self._architecture = architecture
        is_processor = devices[0].platform == 'cpu'
        self._lengths = _LENGTHS if is_processor else (1,)
        # Rows of all devices meet where the weights are sharded.
        self._piece_tokens = piece_tokens(
            architecture, is_processor=is_processor, devices=len(devices) if is_sharded else 1
        )
        self._is_sharded = is_sharded
        self._by_row = on_all_devices(jax.sharding.PartitionSpec(ROWS))
        everywhere = jax.sharding.PartitionSpec()
        specs = sharded.specs(architecture, len(devices)) if is_sharded else everywhere
        self.weights = jax.device_put(weights, on_all_devices(specs))
        if adapter is not None:
            # A difference is added weight after weight: it need not lie there whole.
            placed: Any = adapter
            if not isinstance(adapter, Weights):
                of_factors = sharded.specs_of_factors(adapter) if is_sharded else everywhere
                placed = jax.device_put(adapter, on_all_devices(of_factors))
            self.weights = adapt(self.weights, placed)
        # Shards of the weights, for `jax.shard_map`.
        self._specs = jax.tree.map(lambda weight: weight.sharding.spec, self.weights)
        self._prefill = jax.jit(self._prefill_micro_batch)

    def prefill(
        self, prompts: Sequence[np.ndarray], *, together: int | None = None
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        size, length = together or self.shapes.micro_batch_size, self.shapes.max_prompt_tokens
        self._check_memory(len(prompts))
        tokens = np.zeros((len(prompts), length), np.int32)
        lengths = np.array([len(prompt) for prompt in prompts], np.int32)
        for row, prompt in zip(tokens, prompts, strict=True):
            row[: len(prompt)] = prompt
        results = []
        for first in range(0, len(prompts), size):
            rows = slice(first, first + size)
            placed = jax.device_put((tokens[rows], lengths[rows]), self._by_row)
            results.append(self._prefill(self.weights, *placed))
        states, caches = zip(*results, strict=True)
        return states, caches

    def _prefill_micro_batch(self, weights: Any, tokens: Any, lengths: Any) -> tuple[Any, Any]:
        """Prompts `[m P]` and their lengths `[m]` to last states `[m D]` and the cache, both by row."""

        def read(weights: Any, tokens: Any, lengths: Any) -> tuple[Any, Any]:
            return forward.read_prompts(
                self._architecture,
                weights,
                tokens,
                lengths,
                example_slots=self.shapes.example_slots,
                piece_tokens=self._piece_tokens,
                is_sharded=self._is_sharded,
            )

        # Each device takes its own rows piece by piece.
        by_row = self._by_row.spec
        results: tuple[Any, Any] = self._on_each(read, (self._specs, by_row, by_row), by_row)(
            weights, tokens, lengths
        )
        return results

    def _on_each(self, function: Any, in_specs: Any, out_specs: Any) -> Any:
        """A function of each device's own parts: see `jax.shard_map`."""
        return jax.shard_map(
            function, mesh=self._by_row.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )

    def append(
        self, weights: Any, cache: tuple[Any, ...], tokens: Any, count: Any, offset: Any
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        def of_rows(weights: Any, cache: Any, tokens: Any, count: Any, offset: Any) -> Any:
            return forward.append(
                self._architecture,
                weights,
                cache,
                tokens,
                count,
                offset,
                example_slots=self.shapes.example_slots,
                lengths=self._lengths,
                is_sharded=self._is_sharded,
            )

        if self._is_sharded:
            by_row, everywhere = self._by_row.spec, jax.sharding.PartitionSpec()
            of_tokens, of_offset = (by_row if n else everywhere for n in (tokens.ndim - 1, jnp.ndim(offset)))
            of_rows = self._on_each(of_rows, (self._specs, by_row, of_tokens, everywhere, of_offset), by_row)
        results = [of_rows(weights, part, tokens, count, offset) for part in cache]
        states, caches = zip(*results, strict=True)
        return states, caches

    def logits(self, weights: Any, states: Any, columns: Any | None = None) -> Any:
        if not self._is_sharded:
            return forward.logits(self._architecture, weights, states, columns)
        everywhere, of_table = jax.sharding.PartitionSpec(), self._by_row.spec
        if columns is None:
            # Each device computes the columns of the tokens that it holds.
            found = self._on_each(
                functools.partial(forward.logits_of, self._architecture),
                (of_table, everywhere),
                jax.sharding.PartitionSpec(None, ROWS),
            )(weights.output_layer, states)
        else:
            found = self._on_each(self._some_logits, (of_table, everywhere, everywhere), everywhere)(
                weights.output_layer, states, columns
            )
        is_whole = len(states) % len(self._by_row.mesh.devices) == 0
        return jax.lax.with_sharding_constraint(
            found, self._by_row if is_whole else on_all_devices(everywhere)
        )

    def _some_logits(self, table: Any, states: Any, columns: Any) -> Any:
        """Logits of some columns on every device, where each computes those of tokens that it holds."""
        of_held = forward.logits_of(self._architecture, sharded.held(table, columns), states)
        return jax.lax.psum(of_held, ROWS)  # zeros for the others

    def _check_memory(self, rows: int) -> None:
        """Refuses a batch whose caches and logits cannot fit, before anything is sampled."""
        devices = jax.local_devices()
        stats = devices[0].memory_stats() or {}
        if 'bytes_limit' in stats:
            free = (stats['bytes_limit'] - stats['bytes_in_use']) * len(devices)
        else:  # the host's own memory, what it can drop from its file cache counted in
            free = psutil.virtual_memory().available
        itemsize = self.weights.embedding.dtype.itemsize
        cache = rows * self.shapes.cache_length * self._architecture.cache_bytes_per_token(itemsize)
        columns = min(self.vocab_size, self.shapes.columns or self.vocab_size)
        logits = rows * columns * (itemsize + 4)
        if cache + logits > free:
            # The number of contexts in a batch is private, so the text does not give it.
            raise MemoryError(
                f'Expected the contexts of a batch to fit on the device, got '
                f'batch rows that need more than the free {free / 2**30:.1f} GiB. '
                'Lower max_prompt_tokens, max_example_tokens or batch_size, or use more devices.'
            )


def pooled_states(
    architecture: Architecture, weights: Weights, tokens: jax.Array, lengths: jax.Array
) -> jax.Array:
    """The mean hidden state of each text, for embeddings.

    The states are those of the last layer after the final norm. The mean runs over a text's own tokens: the
    start of text carries none of it, and padding is masked. Every row is computed on its own.

    Args:
        architecture: The numbers of the model.
        weights: Its weights.
        tokens: `[m L]` int32, of which each row begins with the start of text.
        lengths: `[m]`, the start of text counted in.

    Returns:
        `[m D]` float32, a row of zeros for a text without tokens.
    """
    slots = jnp.arange(tokens.shape[1])
    states = forward.states(architecture, weights, tokens)
    is_text = ((slots > 0) & (slots < lengths[:, None]))[..., None]
    total = jnp.where(is_text, states, 0.0).sum(axis=1)
    return total / jnp.maximum(lengths - 1, 1)[:, None]
