"""The whole job on one screen."""

import functools
from collections.abc import Sequence
from typing import Any

import apache_beam as beam

from models.privacy import report
from models.records import Record
from pipeline import methods
from pipeline.methods.solved import Run
from pipeline.run.identity import software_versions
from pipeline.run.record_rules import record_rules
from pipeline.run.render import render_released, render_restricted
from transforms.read import ReadRecords, Rejection
from transforms.restricted import KeepRejected, WriteRestricted
from transforms.units import SampleUnits
from transforms.write import WriteCorpus, WriteReports


def build(
    root: beam.Pipeline,
    run: Run,
    prepared: Any,
    charge: report.LedgerEntry | None = None,
    files: Sequence[str] | None = None,
) -> None:
    """The graph of one run: read -> assign batches -> generate -> write and report.

    `prepared` is the result of its method's `prepare`, `charge` the ledger's entry, and `files` are the input
    files that were looked at.
    """
    method, work_dir, output = methods.of(run), run.work_dir, run.output
    # Workers get the run without its ledger, and every function of theirs is one of this run.
    run = run.for_workers()

    # records: Record, rejected: Rejection
    records, rejected = _read(root, run, files)
    # sampled: Record, left_out: one int, restricted, or none where all are taken
    sampled, left_out = _sample(records, run)
    # made.rows and made.plan are releasable; the others are the curator's.
    made = method.generate(run, prepared, sampled)
    totals = made.rows | 'Corpus' >> WriteCorpus(made.plan, output, run.shards, run.columns)
    render = functools.partial(render_released, run, prepared, software_versions(), charge)
    _ = totals | 'Report' >> WriteReports(made.plan, render, output)
    # The curator's own
    restrict = functools.partial(render_restricted, run)
    _ = records | 'Restricted' >> WriteRestricted(
        rejected, made.sizes, made.facts, made.counted, left_out, made.plan, totals, restrict, work_dir
    )
    if run.input.keep_rejected:
        _ = rejected | 'Rejected' >> KeepRejected(work_dir)


def _read(
    root: beam.Pipeline, run: Run, files: Sequence[str] | None
) -> tuple[beam.PCollection[Record], beam.PCollection[Rejection]]:
    """The records and the rows that are none; nothing of a run that follows from an earlier release."""
    if run.method.reads_records:
        rules = record_rules(run.input, run.budget.unit)
        return root | 'Read' >> ReadRecords(str(run.input.input), rules, files)
    records = root | 'NoRecords' >> beam.Create([], reshuffle=False).with_output_types(Record)
    return records, root | 'NoneRejected' >> beam.Create([], reshuffle=False).with_output_types(Rejection)


def _sample(
    records: beam.PCollection[Record], run: Run
) -> tuple[beam.PCollection[Record], beam.PCollection[int]]:
    """Records -> those of the run's sample of units, and the number of the others."""
    if run.input.sample_rate == 1:
        nothing = beam.Create([], reshuffle=False).with_output_types(int)
        return records, records.pipeline | 'NoneLeftOut' >> nothing
    return records | 'Sample' >> SampleUnits(run.input.sample_rate, run.work_dir)
