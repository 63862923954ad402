"""Answers of a decoder: the probabilities of the labels after each text, and their contextual calibration."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from etils import epy

from models.clustering import embedder
from models.decoders import device, family
from pipeline.evaluation.in_context.prompts import Shots, Writer
from pipeline.evaluation.in_context.settings import InContextSettings
from pipeline.evaluation.measure import NotDefined

with epy.lazy_imports():
    import jax

    from models.decoders import decoder as decoder_lib

# Prompts that go through the model together.
MOST_ROWS = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A loaded decoder.

    Attributes:
        fingerprint: SHA-256 of its weights.
        read: Weights, states and cache after prompts, ids of a text `[T]` with their number, and columns to
            logits `[m K]`, states and cache after the text. States and cache are taken over.
    """

    decoder: decoder_lib.Decoder
    fingerprint: str
    read: Callable[..., tuple[Any, Any, Any]]


@functools.lru_cache(maxsize=1)
def _load(model: str, checkpoint: str, dtype: str, shapes: decoder_lib.Shapes) -> Model:
    loaded = family.family_of(model).load_decoder(model, checkpoint, shapes=shapes, dtype=dtype)

    def read(
        weights: Any, states: Any, cache: Any, tokens: jax.Array, length: jax.Array, columns: jax.Array
    ) -> tuple[jax.Array, Any, Any]:
        def step(place: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            return loaded.step(weights, carry[1], tokens[place], place)

        # A text begins at the prompts' end, whatever was read there before.
        states, cache = jax.lax.fori_loop(0, length, step, (states, cache))
        return loaded.logits(weights, states[0], columns), states, cache

    leaves = jax.tree.leaves(loaded.weights)
    return Model(
        decoder=loaded,
        fingerprint=embedder.fingerprint_of({'model': model, 'dtype': dtype}, *map(np.asarray, leaves)),
        read=jax.jit(read, donate_argnums=(1, 2)),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Questions:
    """Questions to a decoder; equal ones have equal answers.

    Attributes:
        settings: Which decoder.
        words: Labels and what prompts call them.
        prompts: Examples of each prompt.
        queries: Texts that each prompt is asked about.
        progress: Told how many parts are done.
    """

    settings: InContextSettings
    words: tuple[tuple[str, str], ...]
    prompts: tuple[Shots, ...] = dataclasses.field(repr=False)
    queries: tuple[str, ...] = dataclasses.field(repr=False)
    progress: Callable[[int], None] = dataclasses.field(default=lambda done: None, compare=False, repr=False)

    @property
    def blocks(self) -> list[tuple[Shots, ...]]:
        """Prompts that go through the model together."""
        return [self.prompts[first : first + MOST_ROWS] for first in range(0, len(self.prompts), MOST_ROWS)]

    @property
    def parts(self) -> int:
        """Parts whose end is told."""
        return len(self.blocks) * len(self.queries)

    @property
    def dtype(self) -> str:
        """Type of weights and products."""
        return device.fastest_dtype() if self.settings.dtype == 'auto' else self.settings.dtype

    def writer(self) -> Writer:
        """Writes the prompts; see `Writer.of`."""
        return Writer.of(self.settings, dict(self.words))

    def model(self) -> Model:
        """The decoder, loaded once for all prompts of as many examples."""
        examples = len(self.words) * self.settings.examples_per_label
        shapes = self.writer().shapes(examples, family.ROWS_MULTIPLE * len(jax.local_devices()))
        return _load(self.settings.model, self.settings.files.checkpoint, self.dtype, shapes)


@functools.lru_cache(maxsize=4)
def answers(questions: Questions) -> np.ndarray:
    """Probabilities of the labels among themselves, `[prompts, queries, K]` float64, not to be written to.

    Prompts go through the model once, side by side. A text that is asked about is then read by all of
    them together, from each prompt's end.

    Raises:
        NotDefined: The prompts do not fit into memory.
    """
    writer, model = questions.writer(), questions.model()
    decoder, shapes, columns = model.decoder, model.decoder.shapes, np.array(writer.columns, np.int32)
    queries = [writer.query(text) for text in questions.queries]
    by_block, done = [], 0
    for block in questions.blocks:
        rows = shapes.micro_batches(len(block)) * shapes.micro_batch_size
        padding = [np.array(writer.header[:1], np.int32)] * (rows - len(block))
        try:
            states, cache = decoder.prefill([*map(writer.prompt, block), *padding], together=rows)
        except MemoryError:
            raise NotDefined(
                f'Prompts of {shapes.max_prompt_tokens} tokens do not fit into memory, {rows} at a time. '
                'Lower --in-context-examples.'
            ) from None
        logits = []
        for query in queries:
            tokens = np.zeros(shapes.max_example_tokens, np.int32)
            tokens[: len(query)] = query
            of_labels, states, cache = model.read(
                decoder.weights, states, cache, tokens, np.int32(len(query)), columns
            )
            logits.append(np.asarray(of_labels[: len(block)], np.float64))
            done += 1
            questions.progress(done)
        by_block.append(np.stack(logits, axis=1))
    shares = _softmax(np.concatenate(by_block))
    shares.flags.writeable = False
    return shares


def _softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def calibrated(probabilities: np.ndarray, content_free: np.ndarray) -> np.ndarray:
    """Contextual calibration (Zhao et al. 2021, section 5): W p with W = diag(p_cf)⁻¹ and b = 0.

    Args:
        probabilities: Of labels after each text, `[..., n, K]`.
        content_free: Of labels after each content-free input in the same prompt, `[..., c, K]`; p_cf is
            their mean.

    Returns:
        `[..., n, K]`, renormalised: one K-th each where a text says no more than content-free inputs do.
    """
    weighted = probabilities / content_free.mean(axis=-2, keepdims=True)
    return weighted / weighted.sum(axis=-1, keepdims=True)
