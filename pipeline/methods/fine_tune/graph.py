"""The part of the graph that trains and samples, and what it is built from."""

import apache_beam as beam

from models.batch_plan import BatchPlan
from models.evolution.generation import Candidate
from models.finetuning.settings import TuningSettings
from models.privacy.earlier_release import TextOrigin
from models.records import Record
from pipeline.methods import earlier, start_corpus, workers
from pipeline.methods.fine_tune import released
from pipeline.methods.fine_tune.run import TuningRun
from pipeline.methods.method import Generated
from transforms.finetune import DrawLabelMix, FineTuneText


def prepare(run: TuningRun) -> TuningSettings:
    """Settings that workers train and sample with; checks the files of the model, and the prompts."""
    settings, card = run.method, run.card
    prompt = workers.prompt_settings(settings, run.input)
    if card is not None:
        # A structure is the sampling run's own, and the prompt is what the adapter was trained with.
        prompt |= {'template': card.template, 'schema': card.prompt['schema']}
    warm = settings.warm_start
    prepared = TuningSettings(
        run_id=run.run_id,
        params=run.params,
        labels=run.input.label_values,
        **workers.model_settings(settings, run.runner),
        micro_batch_size=run.units_together,
        remat=settings.remat,
        max_example_tokens=settings.max_example_tokens,
        label_words=tuple(run.input.label_words.items()),
        **prompt,
        lora_rank=run.lora_rank,
        learning_rate=settings.rate,
        warm_start=tuple((text.label, text.text) for text in warm_texts(run)),
        warm_steps=settings.free_steps,
        warm_learning_rate=settings.free_rate,
        warm_origin=TextOrigin() if warm is None else earlier.origin_of_texts(warm, 'warm_start'),
        mismatch_weight=settings.mismatch_weight,
        wrong_prompts=settings.wrong_prompts,
        mismatch_every=settings.mismatch_every,
        temperature=1.0 if settings.temperature is None else settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        examples_per_label=settings.examples_per_label,
        examples=settings.examples,
        texts_of_labels=run.texts_of_labels,
        texts_together=settings.rows_together,
    )
    prepared.check_prompts()
    return prepared


def warm_texts(run: TuningRun) -> tuple[Candidate, ...]:
    """The texts of the warm start, each with a declared label; none without it. Errors as of `read_start`."""
    place = run.method.warm_start
    if place is None:
        return ()
    return start_corpus.read_start(place, run.input, 'warm_start', labelled=True)


def generate(run: TuningRun, prepared: TuningSettings, records: beam.PCollection[Record]) -> Generated:
    """Records -> texts of the adapter that they train."""
    settings = run.method
    # plan: one BatchPlan
    plan = _plan(run, records)
    rows, sizes, facts, counted = records | 'Generate' >> FineTuneText(
        prepared,
        plan,
        run.work_dir,
        adapter=None if settings.adapter is None else released.adapter_folder(settings.adapter),
        # Characters of a text that training could use.
        text_limit=settings.max_example_tokens * workers.CHARACTERS_PER_TOKEN,
        accelerator=run.runner.accelerator,
    )
    return Generated(plan=plan, rows=rows, sizes=sizes, facts=facts, counted=counted)


def _plan(run: TuningRun, records: beam.PCollection[Record]) -> beam.PCollection[BatchPlan]:
    """The single plan of batches of texts."""
    if run.batch_plan is not None:
        return records.pipeline | 'Plan' >> beam.Create([run.batch_plan], reshuffle=False)
    settings, labels = run.method, run.input.label_values
    assert settings.label_mix_rho is not None  # else there is a plan
    return records | 'Plan' >> DrawLabelMix(
        labels,
        settings.label_mix_rho,
        run.work_dir,
        texts=settings.wanted_texts(len(labels)),
        together=settings.rows_together,
        unit=run.budget.unit,
    )
