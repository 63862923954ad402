"""Texts of a fine-tuned model: post-processing of its adapter, so any number of them is free.

Those of a planned batch show the same instruction. They are sampled independently, by the sampler that votes
on whole texts use too (`models.sampling.decoder_source`), in the usual order of operations: temperature, then
the K most probable tokens, then the nucleus (Holtzman et al. 2020), the fewest most probable tokens whose
probabilities sum to at least p. Each of them reads the allowed tokens alone, of the whole vocabulary, with
probabilities conditioned on them.
"""

from __future__ import annotations

from typing import Any

from models import activity
from models.finetuning.settings import TuningSettings
from models.privacy.randomness import RunKey
from models.records import BatchId, TunedExample
from models.sampling.decoder_source import DecoderSource
from models.sampling.settings import SamplerSettings
from models.sampling.source import Request


class TextSampler:
    """Holds the adapted model and the compiled loop of a run."""

    def __init__(self, settings: TuningSettings, adapter: Any) -> None:
        """Loads the weights and places them, with the adapter, on the worker's devices."""
        self._run_id = settings.run_id
        self._source = DecoderSource(_sampler_settings(settings), adapter)

    def sample(self, batch_id: BatchId, label: str | None, count: int, key: RunKey) -> list[TunedExample]:
        """The texts of one planned batch: a function of the adapter, the run key and the batch's name.

        Args:
            batch_id: The batch.
            label: Its label.
            count: Number of texts.
            key: The run's secret.
        """
        activity.report(activity.Activity('Sampling', batch_id=str(batch_id)))
        requests = [
            Request(name=f'{self._run_id}/{batch_id}/{index:06d}', label=label) for index in range(count)
        ]
        return [
            TunedExample(
                text=found.text,
                label=label,
                batch_id=str(batch_id),
                index_in_batch=index,
                tokens=found.tokens,
                truncated=found.truncated,
            )
            for index, found in enumerate(self._source.sample(requests, key))
            if found is not None  # for the types: our own decoder answers every request
        ]


def _sampler_settings(settings: TuningSettings) -> SamplerSettings:
    writer = settings.writer()
    return SamplerSettings(
        model=settings.model,
        checkpoint=settings.checkpoint,
        tokenizer=settings.tokenizer,
        dtype=settings.dtype,
        template=settings.template,
        max_prompt_tokens=max(len(writer.public_prompt(label)) for label in settings.labels),
        max_example_tokens=settings.max_example_tokens,
        min_example_tokens=settings.min_example_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        rows=settings.resolved_texts_together,
        label_words=settings.label_words,
        label_name=settings.label_name,
        attributes=settings.attributes,
        text_name=settings.text_name,
        corpus_description=settings.corpus_description,
        schema=settings.schema,
        structure=settings.structure,
    )
