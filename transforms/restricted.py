"""True counts and rejected rows -> files of the work directory, for the curator alone."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from models.batch_plan import BatchPlan
from models.privacy.report import BatchFacts
from models.records import BatchId
from transforms.durable import write_file
from transforms.read import Rejection
from transforms.run_files import REJECTED
from transforms.write import Files

# Number of rejected rows of each reason, of contexts of each batch, and of records read; facts of batches;
# further numbers of records by the report's field; number of records outside of the sample; plan; and
# totals of the corpus -> files.
RenderRestricted = Callable[
    [dict[str, int], dict[BatchId, int], int, list[BatchFacts], dict[str, int], int | None, BatchPlan, Any],
    Files,
]


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class WriteRestricted(beam.PTransform):
    """True counts -> the curator's report in the work directory. It is never released.

    Runners show metrics to others than the curator, so the counts are elements and no metrics.

    Attributes:
        sizes: Number of contexts of each batch.
        facts: The losses of batches whose price is known only afterwards, or the spending of contexts.
        counted: Further numbers of records, each under its field of the curator's report.
        left_out: Number of records outside of the run's sample; empty for a run without a sample.
        totals: The corpus' totals: the report comes after the corpus, once workers have written down their
            time.
        render: Makes the files: see `RenderRestricted`.
    """

    rejected: beam.PCollection[Rejection]
    sizes: beam.PCollection[tuple[BatchId, int]]
    facts: beam.PCollection[BatchFacts]
    counted: beam.PCollection[tuple[str, int]]
    left_out: beam.PCollection[int]
    plan: beam.PCollection[BatchPlan]
    totals: beam.PCollection[Any]
    render: RenderRestricted
    work_dir: str

    def expand(self, records: beam.PCollection) -> beam.PCollection[None]:
        reasons = (
            self.rejected
            | 'Reason' >> beam.Map(_reason).with_output_types(str)
            | 'CountReasons' >> beam.combiners.Count.PerElement()
        )
        return (
            records
            | 'CountRecords' >> beam.combiners.Count.Globally()
            | 'RenderRestricted'
            >> beam.Map(
                _write_restricted,
                beam.pvalue.AsDict(reasons),
                beam.pvalue.AsList(self.sizes),
                beam.pvalue.AsList(self.facts),
                beam.pvalue.AsDict(self.counted),
                beam.pvalue.AsList(self.left_out),
                beam.pvalue.AsSingleton(self.plan),
                beam.pvalue.AsSingleton(self.totals),
                self.render,
                self.work_dir,
            )
        )


def _reason(rejection: Rejection) -> str:
    return rejection.reason.name.lower()


def _write_restricted(
    records: int,
    reasons: dict[str, int],
    sizes: list[tuple[BatchId, int]],
    facts: list[BatchFacts],
    counted: dict[str, int],
    left_out: list[int],
    plan: BatchPlan,
    totals: Any,
    render: RenderRestricted,
    work_dir: str,
) -> None:
    ordered = sorted(facts, key=lambda of_batch: of_batch.batch_id)
    outside = left_out[0] if left_out else None
    files = render(reasons, dict(sorted(sizes)), records, ordered, counted, outside, plan, totals)
    for name, data in files.items():
        write_file(FileSystems.join(work_dir, name), data)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class KeepRejected(beam.PTransform):
    """Rejected rows -> one JSON lines file in the work directory, if the curator asks for it."""

    work_dir: str

    def expand(self, rejected: beam.PCollection[Rejection]) -> beam.PCollection[None]:
        return (
            rejected.pipeline
            | 'Once' >> beam.Create([None], reshuffle=False)
            | 'WriteRejected' >> beam.Map(_write_rejected, beam.pvalue.AsIter(rejected), self.work_dir)
        )


def _write_rejected(_: None, rejected: Iterable[Rejection], work_dir: str) -> None:
    write_file(FileSystems.join(work_dir, REJECTED), b''.join(_rejected_lines(rejected)))


def _rejected_lines(rejected: Iterable[Rejection]) -> Iterator[bytes]:
    for row in sorted(rejected, key=lambda row: (row.file, row.ordinal)):
        entry = {
            'reason': row.reason.name.lower(),
            'file': row.file,
            'ordinal': row.ordinal,
            # Latin-1 shows every byte and loses none.
            'raw': row.raw.decode('latin-1'),
        }
        yield json.dumps(entry).encode() + b'\n'
