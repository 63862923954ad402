"""Texts of a fine-tuned model: post-processing of its adapter, so any number of them is free.

The prompts of a planned batch show the same instruction. Texts are sampled independently, by the sampler
that votes on whole texts use too (`models.sampling.decoder_source`), in the usual order of operations:
temperature, then the K most probable tokens, then the nucleus (Holtzman et al. 2020), the fewest most
probable tokens whose probabilities sum to at least p. Each of them reads the allowed tokens alone, of the
whole vocabulary, with probabilities conditioned on them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from models import activity
from models.finetuning.settings import TuningSettings
from models.model_settings import ModelSettings
from models.privacy.randomness import RunKey
from models.records import BatchId, TunedExample
from models.sampling.decoder_source import DecoderSource
from models.sampling.settings import SamplerSettings
from models.sampling.source import Request, SampledText


class PlannedTexts(NamedTuple):
    """A planned batch: its name, its label, and the number of its texts."""

    batch_id: BatchId
    label: str | None
    size: int


class TextSampler:
    """Holds the adapted model and the compiled loop of a run."""

    def __init__(self, settings: TuningSettings, adapter: Any) -> None:
        """Loads the weights and places them, with the adapter, on the worker's devices."""
        self._run_id = settings.run_id
        self._source = DecoderSource(_sampler_settings(settings), adapter)

    def sample(self, batches: Sequence[PlannedTexts], key: RunKey) -> list[list[TunedExample]]:
        """The texts of each planned batch: a function of the adapter, the run key and the batch's name.

        Give several at once: no row of the model waits for the last texts of a batch then.

        Args:
            batches: Any number of them, with different names.
            key: The run's secret.
        """
        if batches:
            activity.report(activity.Activity('Sampling', batch_id=str(batches[0].batch_id)))
        requests = [
            Request(name=f'{self._run_id}/{batch.batch_id}/{index:06d}', label=batch.label)
            for batch in batches
            for index in range(batch.size)
        ]
        answers = iter(self._source.sample(requests, key))
        return [[_example(batch, index, next(answers)) for index in range(batch.size)] for batch in batches]


def _example(batch: PlannedTexts, index: int, sampled: SampledText | None) -> TunedExample:
    assert sampled is not None  # for the types: our own decoder answers every request
    return TunedExample(
        text=sampled.text,
        label=batch.label,
        batch_id=str(batch.batch_id),
        index_in_batch=index,
        tokens=sampled.tokens,
        truncated=sampled.truncated,
    )


def _sampler_settings(settings: TuningSettings) -> SamplerSettings:
    model = {field.name: getattr(settings, field.name) for field in dataclasses.fields(ModelSettings)}
    model['max_prompt_tokens'] = settings.longest_instruction
    return SamplerSettings(
        **model,
        max_example_tokens=settings.max_example_tokens,
        min_example_tokens=settings.min_example_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        rows=settings.sampled_together,
    )
