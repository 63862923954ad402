"""The whole job on one screen."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from models.batching import BatchPlan
from models.clustering.centers import Centers
from models.privacy import counts, report
from models.records import Record
from pipeline.config import JobConfig
from pipeline.methods import METHODS
from pipeline.run.identity import software_versions
from pipeline.run.render import render_released, render_restricted
from pipeline.run.settings import cluster_settings, configured_plan, record_rules, text_limit
from transforms.assign import CountContexts, DrawPlan
from transforms.cluster import ClusterRecords
from transforms.condition import DrawConditions, with_conditions
from transforms.finetune import DrawLabelMix
from transforms.read import ReadRecords, Rejection
from transforms.run_files import CLUSTERING, CONDITIONS, PLAN
from transforms.sample import SampleUnits
from transforms.write import KeepRejected, WriteCorpus, WriteReports, WriteRestricted


def build(
    root: beam.Pipeline,
    config: JobConfig,
    prepared: Any,
    charge: report.LedgerEntry | None = None,
    files: Sequence[str] | None = None,
    centers_run: str | None = None,
) -> None:
    """The graph of one run: read -> assign batches -> generate -> write and report."""
    work_dir, output = config.resolved_work_dir, str(config.output)
    # What follows travels to workers, who have no business with the ledger.
    # With the ω that was chosen for it.
    omega = config.params().omega if config.is_individual else config.omega
    config = dataclasses.replace(config, dataset=None, ledger=None, omega=omega)

    # records: Record, rejected: Rejection
    if config.reads_records:
        records, rejected = root | 'Read' >> ReadRecords(str(config.input), record_rules(config), files)
    else:
        records, rejected = _no_records(root)
    # sampled: Record, left_out: one int, restricted, or none where all are taken
    sampled, left_out = _sample(records, config)
    # grouped: Record, with its cluster where the run has any; plan: one BatchPlan
    centers = Centers.read(config.centers_path) if config.clusters is not None else None
    grouped, plan = _plan_batches(sampled, config, centers)
    # rows: the method's; from here on everything of them is releasable
    # sizes: (BatchId, int), facts: BatchFacts, counted: (field of the report, int); all restricted
    method = METHODS[config.method]
    rows, sizes, facts, counted = grouped | 'Generate' >> method.transform(config, prepared, plan)
    columns = method.columns_with_labels(config)
    totals = rows | 'Corpus' >> WriteCorpus(plan, output, config.resolved_shards, columns)
    versions = software_versions()
    render = functools.partial(render_released, config, prepared, versions, centers, charge, centers_run)
    _ = totals | 'Report' >> WriteReports(plan, render, output)
    # The curator's own
    restrict = functools.partial(render_restricted, config)
    _ = records | 'Restricted' >> WriteRestricted(
        rejected, sizes, facts, counted, left_out, plan, restrict, work_dir
    )
    if config.keep_rejected:
        _ = rejected | 'Rejected' >> KeepRejected(work_dir)


def _no_records(
    root: beam.Pipeline,
) -> tuple[beam.PCollection[Record], beam.PCollection[Rejection]]:
    """What a run that samples from a released adapter reads: nothing."""
    records = root | 'NoRecords' >> beam.Create([], reshuffle=False).with_output_types(Record)
    return records, root | 'NoneRejected' >> beam.Create([], reshuffle=False).with_output_types(Rejection)


def _sample(
    records: beam.PCollection[Record], config: JobConfig
) -> tuple[beam.PCollection[Record], beam.PCollection[int]]:
    """Records -> those of the run's sample of units, and the number of the others."""
    if config.sample_rate == 1:
        nothing = beam.Create([], reshuffle=False).with_output_types(int)
        return records, records.pipeline | 'NoneLeftOut' >> nothing
    return records | 'Sample' >> SampleUnits(config.sample_rate, config.resolved_work_dir)


def _plan_batches(
    records: beam.PCollection[Record], config: JobConfig, centers: Centers | None
) -> tuple[beam.PCollection[Record], beam.PCollection[BatchPlan]]:
    """Records -> records in their clusters, where there are any, and the single plan."""
    work_dir, labels = config.resolved_work_dir, config.label_values
    if config.label_mix_rho is not None:
        return records, records | 'Plan' >> DrawLabelMix(
            FileSystems.join(work_dir, PLAN),
            labels,
            config.label_mix_rho,
            work_dir,
            texts=config.examples_per_label * len(labels),
            together=config.resolved_micro_batch_size,
            unit=config.unit,
        )
    conditions = None
    if config.condition_on:
        assert config.structure is not None  # `JobConfig.check`
        # conditions: one Conditions
        conditions = records | 'Condition' >> DrawConditions(
            FileSystems.join(work_dir, CONDITIONS),
            config.structure,
            labels,
            config.resolved_condition_rho,
            work_dir,
            unit=config.unit,
        )
    if config.configured_batches is not None:
        plan = records.pipeline | 'Plan' >> beam.Create([configured_plan(config)], reshuffle=False)
        if conditions is not None:
            plan |= 'WithConditions' >> beam.Map(with_conditions, beam.pvalue.AsSingleton(conditions))
        return records, plan
    grouped, clustering, rho = records, None, config.count_rho
    if centers is not None:
        assert config.clusters is not None  # `build`
        rho_of_centers, rho = counts.split_rho(config.resolved_clustering_rho)
        # clustering: one Clustering
        grouped, clustering = records | 'Cluster' >> ClusterRecords(
            cluster_settings(config),
            labels,
            work_dir,
            FileSystems.join(work_dir, CLUSTERING),
            config.clusters,
            rho_of_centers,
            unit=config.unit,
            text_limit=text_limit(config),
        )
    # true_counts: one list of int, private
    true_counts = grouped | 'Count' >> CountContexts(
        labels, work_dir, unit=config.unit, centers=None if centers is None else centers.count
    )
    plan = true_counts | 'Plan' >> DrawPlan(
        FileSystems.join(work_dir, PLAN),
        labels,
        rho,
        config.batch_size,
        unit=config.unit,
        examples_per_context=config.examples_per_context,
        clustering=clustering,
        conditions=conditions,
    )
    return grouped, plan
