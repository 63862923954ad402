"""The part of the graph that plans batches and decodes them."""

import dataclasses

import apache_beam as beam

from models.assembly import GeneratorSettings
from models.batch_plan import BatchPlan
from models.clustering.centers import Centers
from models.privacy import counts
from models.records import Record
from pipeline.methods import workers
from pipeline.methods.predict import worker_settings
from pipeline.methods.predict.mechanism import Config
from transforms.cluster import ClusterRecords
from transforms.condition import DrawConditions, with_conditions
from transforms.count import CountContexts
from transforms.plan import DrawPlan
from transforms.predict import PredictText


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a run is built from, looked at before anything is paid.

    Attributes:
        generator: What workers decode with.
        centers: The centres; None without clusters.
    """

    generator: GeneratorSettings
    centers: Centers | None


def prepare(config: Config) -> Prepared:
    """Looks at the model, the prompts, the reference and the centres."""
    generator = worker_settings.generator_settings(config)
    generator.check_prompts(config.input.label_values)
    if config.method.clusters is None:
        return Prepared(generator=generator, centers=None)
    worker_settings.cluster_settings(config).check()
    return Prepared(generator=generator, centers=Centers.read(config.method.centers_path))


def plan_batches(
    config: Config, centers: Centers | None, records: beam.PCollection[Record]
) -> tuple[beam.PCollection[Record], beam.PCollection[BatchPlan]]:
    """Records -> records in their clusters, where there are any, and the single plan."""
    own = config.method
    work_dir, labels = config.output.resolved_work_dir, config.input.label_values
    conditions = None
    if own.condition_on:
        assert own.structure is not None  # `Structured.check`
        # conditions: one Conditions
        conditions = records | 'Condition' >> DrawConditions(
            own.structure,
            labels,
            own.resolved_condition_rho,
            work_dir,
            unit=config.budget.unit,
        )
    configured = worker_settings.configured_plan(config)
    if configured is not None:
        plan = records.pipeline | 'Plan' >> beam.Create([configured], reshuffle=False)
        if conditions is not None:
            plan |= 'WithConditions' >> beam.Map(with_conditions, beam.pvalue.AsSingleton(conditions))
        return records, plan
    grouped, clustering, rho = records, None, own.count_rho
    if centers is not None:
        assert own.clusters is not None  # there are centres
        rho_of_centers, rho = counts.split_rho(own.resolved_clustering_rho)
        # clustering: one Clustering
        grouped, clustering = records | 'Cluster' >> ClusterRecords(
            worker_settings.cluster_settings(config),
            labels,
            work_dir,
            own.clusters,
            rho_of_centers,
            unit=config.budget.unit,
            text_limit=workers.text_limit(own),
        )
    # true_counts: one list of int, private
    true_counts = grouped | 'Count' >> CountContexts(
        labels, work_dir, unit=config.budget.unit, centers=None if centers is None else centers.count
    )
    plan = true_counts | 'Plan' >> DrawPlan(
        work_dir,
        labels,
        rho,
        own.batch_size,
        unit=config.budget.unit,
        examples_per_context=config.budget.examples_per_context,
        clustering=clustering,
        conditions=conditions,
    )
    return grouped, plan


def transform(config: Config, prepared: Prepared, plan: beam.PCollection[BatchPlan]) -> PredictText:
    """Records -> texts that batches of them vote on."""
    own = config.method
    return PredictText(
        prepared.generator,
        plan,
        config.output.resolved_work_dir,
        rounds=own.resolved_reference_rounds,
        reference_size=own.reference_size,
        text_limit=workers.text_limit(own),
        accelerator=config.runner.accelerator,
    )
