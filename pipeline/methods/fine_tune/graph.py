"""The part of the graph that trains and samples, and what it is built from."""

import apache_beam as beam

from models.batch_plan import BatchPlan
from models.evolution.generation import Candidate
from models.finetuning.settings import TuningSettings
from models.privacy.earlier_release import TextOrigin
from models.records import Record
from pipeline.methods import earlier, start_corpus, workers
from pipeline.methods.fine_tune import mechanism, released
from pipeline.methods.fine_tune.mechanism import Config
from transforms.finetune import DrawLabelMix, FineTuneText


def prepare(config: Config, dtype: str) -> TuningSettings:
    """What workers train and sample with; checks the files of the model, and the prompts."""
    own = config.method
    card = None if own.adapter is None else released.read_card(own.adapter)
    prompt = workers.prompt_settings(own, config.input)
    if card is not None:
        # A structure is the sampling run's own, and the prompt is what the adapter was trained with.
        prompt |= {'template': card.template, 'schema': card.prompt['schema']}
    warm = own.warm_start
    found = TuningSettings(
        run_id=config.output.resolved_run_id,
        params=mechanism.params(config),
        labels=config.input.label_values,
        **workers.model_settings(own, dtype),
        micro_batch_size=mechanism.units_together(config),
        remat=own.remat,
        max_example_tokens=own.max_example_tokens,
        label_words=tuple(config.input.label_words.items()),
        **prompt,
        lora_rank=own.resolved_lora_rank if card is None else card.lora_rank,
        learning_rate=own.resolved_learning_rate,
        warm_start=tuple((of.label, of.text) for of in warm_texts(config)),
        warm_steps=own.resolved_warm_steps,
        warm_learning_rate=own.resolved_warm_learning_rate,
        warm_origin=TextOrigin() if warm is None else earlier.origin_of_texts(warm, 'warm_start'),
        mismatch_weight=own.mismatch_weight,
        wrong_prompts=own.wrong_prompts,
        mismatch_every=own.mismatch_every,
        temperature=1.0 if own.temperature is None else own.temperature,
        top_p=own.top_p,
        top_k=own.top_k,
        examples_per_label=own.examples_per_label,
        examples=own.examples,
        texts_of_labels=mechanism.texts_of_labels(config),
        texts_together=own.resolved_micro_batch_size,
    )
    found.check_prompts()
    return found


def warm_texts(config: Config) -> tuple[Candidate, ...]:
    """The texts of the warm start, each with a declared label; none without it.

    Raises:
        FileNotFoundError: There is nothing.
        ValueError: As `start_corpus.read_start`.
    """
    place = config.method.warm_start
    if place is None:
        return ()
    return start_corpus.read_start(place, config.input, 'warm_start', labelled=True)


def configured_plan(config: Config) -> BatchPlan | None:
    """The plan of batches of texts; None where the mix of labels is counted first."""
    if config.method.label_mix_rho is not None:
        return None
    counts = released.released_counts(config.method)
    rho = None if counts is None else mechanism.params(config).label_mix_rho
    return BatchPlan(
        labels=config.input.label_values,
        batches_per_group=mechanism.batches_of_texts(config),
        noisy_counts=counts,
        contexts_rho=rho or 0.0,
    )


def plan_batches(
    config: Config, records: beam.PCollection[Record]
) -> tuple[beam.PCollection[Record], beam.PCollection[BatchPlan]]:
    """Records -> the same records, and the single plan of batches of texts."""
    plan = configured_plan(config)
    if plan is not None:
        return records, records.pipeline | 'Plan' >> beam.Create([plan], reshuffle=False)
    own, labels = config.method, config.input.label_values
    assert own.label_mix_rho is not None  # `configured_plan`
    return records, records | 'Plan' >> DrawLabelMix(
        labels,
        own.label_mix_rho,
        config.output.resolved_work_dir,
        texts=own.wanted_texts(len(labels)),
        together=own.resolved_micro_batch_size,
        unit=config.budget.unit,
    )


def transform(config: Config, prepared: TuningSettings, plan: beam.PCollection[BatchPlan]) -> FineTuneText:
    """Records -> texts of the adapter that they train."""
    own = config.method
    return FineTuneText(
        prepared,
        plan,
        config.output.resolved_work_dir,
        adapter=None if own.adapter is None else released.adapter_folder(own.adapter),
        # Characters of a text that training could use.
        text_limit=own.max_example_tokens * workers.CHARACTERS_PER_TOKEN,
        accelerator=config.runner.accelerator,
    )
