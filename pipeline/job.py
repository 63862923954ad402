"""The whole job on one screen."""

import functools
from collections.abc import Sequence
from typing import Any

import apache_beam as beam

from models.privacy import report
from models.records import Record
from pipeline import methods
from pipeline.run.identity import software_versions
from pipeline.run.record_rules import record_rules
from pipeline.run.render import render_released, render_restricted
from pipeline.settings.job_config import JobConfig
from transforms.read import ReadRecords, Rejection
from transforms.restricted import KeepRejected, WriteRestricted
from transforms.sample import SampleUnits
from transforms.write import WriteCorpus, WriteReports


def build(
    root: beam.Pipeline,
    config: JobConfig,
    prepared: Any,
    charge: report.LedgerEntry | None = None,
    files: Sequence[str] | None = None,
) -> None:
    """The graph of one run: read -> assign batches -> generate -> write and report.

    Args:
        root: The pipeline.
        config: The run.
        prepared: What its method's `prepare` returned.
        charge: The ledger's entry; None without a ledger.
        files: The input files that were looked at.
    """
    method = methods.of(config)
    # What follows travels to workers, who have no business with the ledger.
    config = method.for_workers(config).replace(dataset=None, ledger=None)
    work_dir, output = config.output.resolved_work_dir, str(config.output.output)

    # records: Record, rejected: Rejection
    records, rejected = _read(root, config, files)
    # sampled: Record, left_out: one int, restricted, or none where all are taken
    sampled, left_out = _sample(records, config)
    # grouped: Record, in the groups that the plan has; plan: one BatchPlan
    grouped, plan = method.plan_batches(config, prepared, sampled)
    # rows: the method's; from here on everything of them is releasable
    # sizes: (BatchId, int), facts: BatchFacts, counted: (field of the report, int); all restricted
    rows, sizes, facts, counted = grouped | 'Generate' >> method.transform(config, prepared, plan)
    columns = method.columns_with_labels(config)
    totals = rows | 'Corpus' >> WriteCorpus(plan, output, config.output.resolved_shards, columns)
    render = functools.partial(render_released, config, prepared, software_versions(), charge)
    _ = totals | 'Report' >> WriteReports(plan, render, output)
    # The curator's own
    restrict = functools.partial(render_restricted, config)
    _ = records | 'Restricted' >> WriteRestricted(
        rejected, sizes, facts, counted, left_out, plan, restrict, work_dir
    )
    if config.input.keep_rejected:
        _ = rejected | 'Rejected' >> KeepRejected(work_dir)


def _read(
    root: beam.Pipeline, config: JobConfig, files: Sequence[str] | None
) -> tuple[beam.PCollection[Record], beam.PCollection[Rejection]]:
    """The records and the rows that are none; nothing of a run that follows from an earlier release."""
    if config.method.reads_records:
        rules = record_rules(config.input, config.budget.unit)
        return root | 'Read' >> ReadRecords(str(config.input.input), rules, files)
    records = root | 'NoRecords' >> beam.Create([], reshuffle=False).with_output_types(Record)
    return records, root | 'NoneRejected' >> beam.Create([], reshuffle=False).with_output_types(Rejection)


def _sample(
    records: beam.PCollection[Record], config: JobConfig
) -> tuple[beam.PCollection[Record], beam.PCollection[int]]:
    """Records -> those of the run's sample of units, and the number of the others."""
    if config.input.sample_rate == 1:
        nothing = beam.Create([], reshuffle=False).with_output_types(int)
        return records, records.pipeline | 'NoneLeftOut' >> nothing
    return records | 'Sample' >> SampleUnits(config.input.sample_rate, config.output.resolved_work_dir)
