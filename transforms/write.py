"""Synthetic examples -> the sharded corpus and the files that describe it."""

import dataclasses
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from pyarrow import parquet

from models.batching import BatchPlan
from models.privacy.ex_post import BatchLoss
from models.privacy.report import CorpusTotals
from models.records import Batch, BatchId, SyntheticExample
from transforms.durable import remove_temporaries, write_file
from transforms.read import Rejection
from transforms.run_files import DATA_FOLDER, REJECTED

SCHEMA = pa.schema([
    pa.field('text', pa.string(), nullable=False),
    pa.field('label', pa.string()),
    pa.field('batch_id', pa.string(), nullable=False),
    pa.field('index_in_batch', pa.int32(), nullable=False),
    pa.field('private_tokens', pa.int32(), nullable=False),
    pa.field('public_tokens', pa.int32(), nullable=False),
    pa.field('truncated', pa.bool_(), nullable=False),
])  # fmt: skip

# File name -> content, for one folder.
Files = Mapping[str, bytes]
# Rejected rows by reason, contexts by batch, records read, losses, plan -> the files.
RenderRestricted = Callable[[dict[str, int], dict[BatchId, int], int, list[BatchLoss], BatchPlan], Files]


def shard_name(shard: int, shards: int) -> str:
    """`train-00000-of-00008.parquet`."""
    return f'train-{shard:05d}-of-{shards:05d}.parquet'


def shard_of(batch_id: str, plan: BatchPlan, shards: int) -> int:
    """The shard of a batch: shards are runs of batches in the plan's order, about equally long."""
    group, index = (int(part) for part in batch_id.split('-'))
    place = sum(plan.batches_per_group[:group]) + index
    return place * shards // sum(plan.batches_per_group)


def encode_shard(examples: Iterable[SyntheticExample]) -> bytes:
    """A Parquet file of examples, in the order of batch and index: a function of their set."""
    rows = sorted(examples, key=lambda example: (example.batch_id, example.index_in_batch))
    table = pa.Table.from_pylist([dataclasses.asdict(row) for row in rows], schema=SCHEMA)
    buffer = io.BytesIO()
    with parquet.ParquetWriter(buffer, SCHEMA, compression='zstd') as writer:
        # A row group without rows would trip the readers of `datasets`.
        if rows:
            writer.write_table(table)
    return buffer.getvalue()


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class WriteCorpus(beam.PTransform):
    """Synthetic examples -> sharded Parquet; emits the run's `CorpusTotals`.

    Which shard an example goes to, and where in it, is a function of the plan and the
    example, so that a run that is started again writes the same files. Beam's own
    `WriteToParquet` deals rows out to shards by chance.

    Attributes:
        plan: The single plan.
        output: The corpus folder.
        shards: Files.
    """

    plan: beam.PCollection[BatchPlan]
    output: str
    shards: int

    def expand(self, examples: beam.PCollection[SyntheticExample]) -> beam.PCollection[CorpusTotals]:
        plan = beam.pvalue.AsSingleton(self.plan)
        # A shard without a batch is written too: readers count on every number.
        numbers = examples.pipeline | 'Shards' >> beam.Create(range(self.shards), reshuffle=False)
        every = numbers | 'NoExamples' >> beam.Map(_no_examples).with_output_types(tuple[int, bytes])
        keyed = examples | 'KeyByShard' >> beam.Map(_key_by_shard, plan, self.shards).with_output_types(
            tuple[int, bytes]
        )
        return (
            (every, keyed)
            | 'WithEveryShard' >> beam.Flatten()
            | 'GroupByShard' >> beam.GroupByKey()
            | 'WriteShard' >> beam.Map(_write_shard, self.output, self.shards).with_output_types(CorpusTotals)
            | 'AddTotals' >> beam.CombineGlobally(add_totals)
        )


def _key_by_shard(example: SyntheticExample, plan: BatchPlan, shards: int) -> tuple[int, bytes]:
    row = json.dumps(dataclasses.asdict(example), ensure_ascii=False)
    return shard_of(example.batch_id, plan, shards), row.encode()


def _no_examples(shard: int) -> tuple[int, bytes]:
    return shard, b''


def _write_shard(element: tuple[int, Iterable[bytes]], output: str, shards: int) -> CorpusTotals:
    """Writes one shard; returns its totals."""
    shard, rows = element
    examples = [SyntheticExample(**json.loads(row)) for row in rows if row]
    write_file(FileSystems.join(output, DATA_FOLDER, shard_name(shard, shards)), encode_shard(examples))
    return CorpusTotals(
        examples=len(examples),
        private_tokens=sum(example.private_tokens for example in examples),
        public_tokens=sum(example.public_tokens for example in examples),
        truncated=sum(example.truncated for example in examples),
    )


def add_totals(parts: Iterable[CorpusTotals]) -> CorpusTotals:
    """The sum of totals, field by field."""
    names = [field.name for field in dataclasses.fields(CorpusTotals)]
    sums = dict.fromkeys(names, 0)
    for part in parts:
        for name in names:
            sums[name] += getattr(part, name)
    return CorpusTotals(**sums)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class WriteReports(beam.PTransform):
    """The corpus's totals -> the files beside it, once all shards are written.

    Attributes:
        plan: The single plan.
        render: Totals and plan to the files of the corpus folder.
        output: The corpus folder.
    """

    plan: beam.PCollection[BatchPlan]
    render: Callable[[CorpusTotals, BatchPlan], Files]
    output: str

    def expand(self, totals: beam.PCollection[CorpusTotals]) -> beam.PCollection[None]:
        plan = beam.pvalue.AsSingleton(self.plan)
        return totals | 'Render' >> beam.Map(_write_rendered, plan, self.render, self.output)


def _write_rendered(
    totals: CorpusTotals, plan: BatchPlan, render: Callable[[CorpusTotals, BatchPlan], Files], folder: str
) -> None:
    # All shards are there: what writers left that were killed is nobody's any more, and would be published.
    for place in (folder, FileSystems.join(folder, DATA_FOLDER)):
        remove_temporaries(place)
    for name, data in render(totals, plan).items():
        write_file(FileSystems.join(folder, name), data)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class WriteRestricted(beam.PTransform):
    """True counts -> the curator's report in the work directory. Never for release.

    The counts travel as elements and not as metrics, which runners show.

    Attributes:
        rejected: Rejected rows.
        batches: The batches as they were decoded.
        losses: The losses of a median run's batches; empty for other aggregates.
        plan: The single plan.
        render: Rejected rows by reason, contexts by batch, records read, losses and plan
            -> the files.
        work_dir: The curator's folder.
    """

    rejected: beam.PCollection[Rejection]
    batches: beam.PCollection[Batch]
    losses: beam.PCollection[BatchLoss]
    plan: beam.PCollection[BatchPlan]
    render: RenderRestricted
    work_dir: str

    def expand(self, records: beam.PCollection) -> beam.PCollection[None]:
        reasons = (
            self.rejected
            | 'Reason' >> beam.Map(_reason).with_output_types(str)
            | 'CountReasons' >> beam.combiners.Count.PerElement()
        )
        sizes = self.batches | 'BatchSize' >> beam.Map(_batch_size)
        return (
            records
            | 'CountRecords' >> beam.combiners.Count.Globally()
            | 'RenderRestricted'
            >> beam.Map(
                _write_restricted,
                beam.pvalue.AsDict(reasons),
                beam.pvalue.AsList(sizes),
                beam.pvalue.AsList(self.losses),
                beam.pvalue.AsSingleton(self.plan),
                self.render,
                self.work_dir,
            )
        )


def _reason(rejection: Rejection) -> str:
    return rejection.reason.name.lower()


def _batch_size(batch: Batch) -> tuple[BatchId, int]:
    return batch.batch_id, len(batch.contexts)


def _write_restricted(
    records: int,
    reasons: dict[str, int],
    sizes: list[tuple[BatchId, int]],
    losses: list[BatchLoss],
    plan: BatchPlan,
    render: RenderRestricted,
    work_dir: str,
) -> None:
    ordered = sorted(losses, key=lambda loss: loss.batch_id)
    for name, data in render(reasons, dict(sorted(sizes)), records, ordered, plan).items():
        write_file(FileSystems.join(work_dir, name), data)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class KeepRejected(beam.PTransform):
    """Rejected rows -> one JSON lines file in the work directory, on the curator's request.

    Attributes:
        work_dir: The curator's folder.
    """

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
