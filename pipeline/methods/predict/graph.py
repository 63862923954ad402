"""The part of the graph that plans batches and decodes them, and what it is built from."""

import dataclasses
from typing import Any

import apache_beam as beam

from models.assembly import GeneratorSettings
from models.batch_plan import BatchPlan
from models.clustering.centers import Centers, ClusterSettings
from models.privacy import counts
from models.records import Record
from pipeline.methods import workers
from pipeline.methods.fine_tune import released
from pipeline.methods.method import Generated
from pipeline.methods.predict.reference import read_reference
from pipeline.methods.predict.run import PredictionRun
from transforms.cluster import ClusterRecords
from transforms.condition import DrawConditions, with_conditions
from transforms.count import CountContexts
from transforms.plan import DrawPlan
from transforms.predict import PredictText


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """Settings from which workers build their generator, and the centres; None without clusters."""

    generator: GeneratorSettings
    centers: Centers | None


def prepare(run: PredictionRun) -> Prepared:
    """Looks at the model, the prompts, the reference and the centres."""
    generator = generator_settings(run)
    generator.check_prompts(run.input.label_values)
    if run.method.clusters is None:
        return Prepared(generator=generator, centers=None)
    return Prepared(generator=generator, centers=cluster_settings(run).build().centers)


def generator_settings(run: PredictionRun) -> GeneratorSettings:
    """Settings of the workers' generator; checks model and adapter, and reads the reference."""
    settings = run.method
    return GeneratorSettings(
        run_id=run.run_id,
        params=run.params,
        **workers.model_settings(settings, run.runner),
        micro_batch_size=settings.rows_together,
        label_words=tuple(run.input.label_words.items()),
        reference=read_reference(run.config, workers.text_limit(settings)),
        adapter=released.released_adapter(settings, settings.adapter),
        **workers.prompt_settings(settings, run.input),
    )


def cluster_settings(run: PredictionRun) -> ClusterSettings:
    """Settings of the workers' clusterer."""
    settings = run.method
    model: dict[str, Any] = {}
    if settings.embedder == 'decoder':
        model = {
            'model': settings.model,
            'checkpoint': str(settings.checkpoint_path),
            'tokenizer': str(settings.tokenizer_path),
            'dtype': settings.decided_dtype,
        }
    return ClusterSettings(centers=str(settings.centers_path), embedder=settings.embedder, **model)


def generate(run: PredictionRun, prepared: Prepared, records: beam.PCollection[Record]) -> Generated:
    """Records -> texts that batches of them vote on."""
    settings = run.method
    # grouped: Record, in the groups that the plan has; plan: one BatchPlan
    grouped, plan = _plan_batches(run, prepared.centers, records)
    rows, sizes, facts, counted = grouped | 'Generate' >> PredictText(
        prepared.generator,
        plan,
        run.work_dir,
        rounds=settings.decoding_rounds,
        reference_size=settings.reference_size,
        text_limit=workers.text_limit(settings),
        accelerator=run.runner.accelerator,
    )
    return Generated(plan=plan, rows=rows, sizes=sizes, facts=facts, counted=counted)


def _plan_batches(
    run: PredictionRun, centers: Centers | None, records: beam.PCollection[Record]
) -> tuple[beam.PCollection[Record], beam.PCollection[BatchPlan]]:
    """Records -> records in their clusters, where there are any, and the single plan."""
    settings, work_dir, labels = run.method, run.work_dir, run.input.label_values
    conditions = None
    if settings.condition_on:
        assert settings.structure is not None  # `Structured.check`
        # conditions: one Conditions
        conditions = records | 'Condition' >> DrawConditions(
            settings.structure,
            labels,
            settings.condition_rho,
            work_dir,
            unit=run.budget.unit,
        )
    if run.batch_plan is not None:
        plan = records.pipeline | 'Plan' >> beam.Create([run.batch_plan], reshuffle=False)
        if conditions is not None:
            plan |= 'WithConditions' >> beam.Map(with_conditions, beam.pvalue.AsSingleton(conditions))
        return records, plan
    grouped, clustering, rho = records, None, settings.count_rho
    if centers is not None:
        assert settings.clusters is not None  # there are centres
        rho_of_centers, rho = counts.split_rho(settings.clustering_rho)
        # clustering: one Clustering
        grouped, clustering = records | 'Cluster' >> ClusterRecords(
            cluster_settings(run),
            labels,
            work_dir,
            settings.clusters,
            rho_of_centers,
            unit=run.budget.unit,
            text_limit=workers.text_limit(settings),
        )
    # true_counts: one list of int, private
    true_counts = grouped | 'Count' >> CountContexts(
        labels, work_dir, unit=run.budget.unit, centers=None if centers is None else centers.count
    )
    plan = true_counts | 'Plan' >> DrawPlan(
        work_dir,
        labels,
        rho,
        settings.batch_size,
        unit=run.budget.unit,
        examples_per_context=run.budget.examples_per_context,
        clustering=clustering,
        conditions=conditions,
    )
    return grouped, plan
