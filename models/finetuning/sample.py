"""Texts of a fine-tuned model: post-processing of its adapter, so any number of them is free.

All rows of a planned batch show the same instruction and are sampled together, independently. The order of
operations is the usual one: temperature, then the K most probable tokens, then the nucleus (Holtzman et al.
2020), the fewest most probable tokens whose probabilities sum to at least p. Each of them reads the allowed
tokens alone, with probabilities conditioned on them. With a structure each row has a state of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models import activity
from models.constraints import Constraint
from models.decoders import decoder, family
from models.finetuning.settings import TuningSettings
from models.privacy.randomness import RunKey
from models.records import BatchId, TunedExample
from models.sampling.nucleus import nucleus
from models.stop_rule import StopRule


class TextSampler:
    """Holds the adapted model and the compiled loop of a run."""

    def __init__(self, settings: TuningSettings, adapter: Any) -> None:
        """Loads the weights and places them, with the adapter, on the worker's devices."""
        multiple = family.ROWS_MULTIPLE * len(jax.local_devices())
        self._settings = settings
        self._rows = -(-settings.resolved_texts_together // multiple) * multiple
        self._writer = settings.writer()
        shapes = decoder.Shapes(
            max_prompt_tokens=max(len(self._writer.public_prompt(label)) for label in settings.labels),
            max_example_tokens=settings.max_example_tokens,
            micro_batch_size=self._rows,
            rows_multiple=multiple,
        )
        self._decoder = family.family_of(settings.model).load_decoder(
            settings.model, settings.checkpoint, shapes=shapes, dtype=settings.dtype, adapter=adapter
        )
        stop = self._writer.stop_rule(self._decoder.vocab_size)
        self._stop = stop
        self._constraint = self._writer.constraint(self._decoder.vocab_size)
        self._loop = jax.jit(
            functools.partial(_sampled, self._decoder, table=jnp.asarray(stop.table), settings=settings)
        )

    def sample(self, batch_id: BatchId, label: str | None, count: int, key: RunKey) -> list[TunedExample]:
        """The texts of one planned batch: a function of the adapter, the run key and the batch's name.

        Args:
            batch_id: The batch.
            label: Its label.
            count: Number of texts; at most `resolved_texts_together`.
            key: The run's secret.
        """
        activity.report(activity.Activity('Sampling', batch_id=str(batch_id)))
        prompt = self._writer.public_prompt(label)
        states, cache = self._decoder.prefill([prompt] * self._rows)
        seed = key.hash('text', self._settings.run_id.encode(), str(batch_id).encode(), size=8)
        words = np.frombuffer(seed, np.uint32)
        tokens, lengths, ended = self._loop(
            self._decoder.weights,
            states[0],
            cache,
            jax.random.wrap_key_data(jnp.asarray(words)),
            self._constraint,
        )
        ids = [row[:length] for row, length in zip(np.asarray(tokens), np.asarray(lengths), strict=True)]
        texts = self._texts(ids[:count], np.asarray(ended)[:count])
        return [
            TunedExample(
                text=text,
                label=label,
                batch_id=str(batch_id),
                index_in_batch=index,
                tokens=len(ids[index]),
                truncated=not bool(ended[index]),
            )
            for index, text in enumerate(texts)
        ]

    def _texts(self, ids: Sequence[np.ndarray], ended: np.ndarray) -> list[str]:
        rows = [_without_stop(row, self._stop) for row in ids]
        texts = self._writer.texts(rows)
        structure = self._settings.structure
        if structure is not None and structure.closes_truncated:
            cut = np.flatnonzero(~ended).tolist()
            closed = self._writer.closed_texts([rows[index] for index in cut])
            for index, text in zip(cut, closed, strict=True):
                texts[index] = text
        return texts


def _without_stop(ids: np.ndarray, stop: StopRule) -> list[int]:
    return [int(token) for token in ids if int(token) not in stop.tokens]


def _sampled(
    model: decoder.Decoder,
    weights: Any,
    states: jax.Array,
    cache: Any,
    key: jax.Array,
    constraint: Constraint,
    *,
    table: jax.Array,
    settings: TuningSettings,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tokens `[m T]`, the length of each row's text `[m]`, and whether it ended by itself `[m]`."""
    rows, most, end = len(states), settings.max_example_tokens, len(table)

    def is_going(carry: Any) -> Any:
        place, _, _, state, *_ = carry
        return (place < most) & jnp.any(state != end)

    def one(carry: Any) -> Any:
        place, tokens, lengths, state, masked_by, states, cache = carry
        # A state may hold no array, as where all rows may have the same tokens everywhere.
        allowed = jax.vmap(constraint.allowed, axis_size=rows)(masked_by)
        logits = jnp.where(allowed, model.logits(weights, states), -jnp.inf) / settings.temperature
        kept = nucleus(logits, top_p=settings.top_p, top_k=settings.top_k)
        drawn = jax.random.categorical(jax.random.fold_in(key, place), jnp.where(kept, logits, -jnp.inf))
        token = drawn.astype(jnp.int32)
        going = state != end
        tokens = tokens.at[:, place].set(jnp.where(going, token, 0))
        after = table[jnp.minimum(state, end - 1), token].astype(jnp.int32)
        # A row that has ended goes on by allowed tokens, which nobody reads.
        masked_by = jax.vmap(constraint.advance)(masked_by, token)
        states, cache = model.append(weights, cache, token[:, None], jnp.int32(1), place)
        return place + 1, tokens, lengths + going, jnp.where(going, after, end), masked_by, states[0], cache

    start = (
        jnp.int32(0),
        jnp.zeros((rows, most), jnp.int32),
        jnp.zeros(rows, jnp.int32),
        jnp.zeros(rows, jnp.int32),
        jax.vmap(lambda _: constraint.start())(jnp.arange(rows)),
        states,
        cache,
    )
    _, tokens, lengths, state, *_ = jax.lax.while_loop(is_going, one, start)
    return tokens, lengths, state == end
