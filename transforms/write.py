"""Rows -> the sharded corpus and the files that describe it. What a row holds is its method's business."""

import dataclasses
import functools
import io
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from pyarrow import parquet

from models import attributes
from models.batching import BatchPlan
from models.privacy.report import BatchFacts
from models.records import BatchId
from transforms.durable import remove_temporaries, write_file
from transforms.read import Rejection
from transforms.run_files import DATA_FOLDER, REJECTED

# The column of a label's declared words.
LABEL_WORDS = 'label_words'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """What a method's corpus consists of. All but what labels add to it is the same for every run.

    Attributes:
        row: Type of a row, a frozen dataclass whose fields are the schema's columns, all of them
            outputs that JSON can hold. `batch_id`, the `str` of a planned batch, decides its shard.
        schema: The columns on disk.
        order: Fields that sort the rows of a shard, and tell any two of them apart.
        totals: Dataclass of whole numbers that add up over shards.
        count: Totals of the rows of one shard.
        meanings: Type and meaning of each column, for people.
        label_words: Declared words of labels, which fill a column beside that of the label; empty for
            none.
        attributes: Columns of attributes, behind these, of which every label has a value each; none where
            it is one value.
    """

    row: Callable[..., Any]
    schema: pa.Schema
    order: tuple[str, ...]
    totals: type
    count: Callable[[Sequence[Any]], Any]
    meanings: Mapping[str, tuple[str, str]]
    label_words: Mapping[str | None, str] = dataclasses.field(default_factory=dict)
    attributes: tuple[str, ...] = ()

    def with_label_words(self, words: Mapping[str | None, str]) -> 'Columns':
        """With a column of declared words after that of the label; the same without any words."""
        if not words or 'label' not in self.schema.names:
            return self
        meaning = 'What the run declares to call the label; null where it declares no words for it.'
        return dataclasses.replace(self._with_text(LABEL_WORDS, meaning), label_words=words)

    def with_attributes(self, names: Sequence[str]) -> 'Columns':
        """With a column for the value of each attribute of a label after that of the label."""
        if not names or 'label' not in self.schema.names:
            return self
        found = self
        for name in reversed(names):  # each comes before those that were put in
            found = found._with_text(name, 'The value of this attribute in the label.')
        return dataclasses.replace(found, attributes=tuple(names))

    def _with_text(self, name: str, meaning: str) -> 'Columns':
        """With one more column of texts after that of the label."""
        place = self.schema.names.index('label') + 1
        meanings = list(self.meanings.items())
        return dataclasses.replace(
            self,
            schema=self.schema.insert(place, pa.field(name, pa.string())),
            meanings=dict([*meanings[:place], (name, ('string', meaning)), *meanings[place:]]),
        )

    def values(self, row: Any) -> dict[str, Any]:
        """A row's value in each column on disk."""
        added = {LABEL_WORDS: self.label_words.get(row.label)} if self.label_words else {}
        if self.attributes:
            added |= zip(self.attributes, attributes.values_of(row.label), strict=True)
        own = (name for name in self.schema.names if name not in added)
        return {name: getattr(row, name) for name in own} | added


# File name -> content, for one folder.
Files = Mapping[str, bytes]
# Rejected rows by reason, contexts by batch, records read, facts of batches, further counts of records by
# the report's field, records that the sample left out, plan -> the files.
RenderRestricted = Callable[
    [dict[str, int], dict[BatchId, int], int, list[BatchFacts], dict[str, int], int | None, BatchPlan], Files
]


def shard_name(shard: int, shards: int) -> str:
    """`train-00000-of-00008.parquet`."""
    return f'train-{shard:05d}-of-{shards:05d}.parquet'


def shard_of(batch_id: str, plan: BatchPlan, shards: int) -> int:
    """The shard of a batch: shards are runs of batches in the plan's order, about equally long."""
    group, index = (int(part) for part in batch_id.split('-'))
    place = sum(plan.batches_per_group[:group]) + index
    return place * shards // sum(plan.batches_per_group)


def encode_shard(rows: Iterable[Any], columns: Columns) -> bytes:
    """A Parquet file of rows, in the columns' order: a function of their set."""
    ordered = sorted(rows, key=operator.attrgetter(*columns.order))
    table = pa.Table.from_pylist([columns.values(row) for row in ordered], schema=columns.schema)
    buffer = io.BytesIO()
    with parquet.ParquetWriter(buffer, columns.schema, compression='zstd') as writer:
        # A row group without rows would trip the readers of `datasets`.
        if ordered:
            writer.write_table(table)
    return buffer.getvalue()


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class WriteCorpus(beam.PTransform):
    """Rows -> sharded Parquet; emits the run's totals.

    Which shard a row goes to, and where in it, is a function of the plan and the row, so that
    a run that is started again writes the same files. Beam's own `WriteToParquet` deals rows
    out to shards by chance.

    Attributes:
        plan: The single plan.
        output: The corpus folder.
        shards: Number of planned batches -> number of files.
        columns: What a row is.
    """

    plan: beam.PCollection[BatchPlan]
    output: str
    shards: Callable[[int], int]
    columns: Columns

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[Any]:
        plan = beam.pvalue.AsSingleton(self.plan)
        # A shard without a batch is written too: readers count on every number.
        every = self.plan | 'NoExamples' >> beam.FlatMap(_no_rows, self.shards).with_output_types(
            tuple[int, bytes]
        )
        keyed = rows | 'KeyByShard' >> beam.Map(_key_by_shard, plan, self.shards).with_output_types(
            tuple[int, bytes]
        )
        return (
            (every, keyed)
            | 'WithEveryShard' >> beam.Flatten()
            | 'GroupByShard' >> beam.GroupByKey()
            | 'WriteShard'
            >> beam.Map(_write_shard, plan, self.output, self.shards, self.columns).with_output_types(
                self.columns.totals
            )
            | 'AddTotals' >> beam.CombineGlobally(functools.partial(add_totals, self.columns.totals))
        )


def _key_by_shard(row: Any, plan: BatchPlan, shards: Callable[[int], int]) -> tuple[int, bytes]:
    text = json.dumps(dataclasses.asdict(row), ensure_ascii=False)
    return shard_of(row.batch_id, plan, shards(sum(plan.batches_per_group))), text.encode()


def _no_rows(plan: BatchPlan, shards: Callable[[int], int]) -> Iterator[tuple[int, bytes]]:
    for shard in range(shards(sum(plan.batches_per_group))):
        yield shard, b''


def _write_shard(
    element: tuple[int, Iterable[bytes]],
    plan: BatchPlan,
    output: str,
    shards: Callable[[int], int],
    columns: Columns,
) -> Any:
    """Writes one shard; returns its totals."""
    shard, texts = element
    rows = [columns.row(**json.loads(text)) for text in texts if text]
    name = shard_name(shard, shards(sum(plan.batches_per_group)))
    path = FileSystems.join(output, DATA_FOLDER, name)
    write_file(path, encode_shard(rows, columns))
    return columns.count(rows)


def add_totals[T](totals: type[T], parts: Iterable[T]) -> T:
    """The sum of totals, field by field."""
    names = [field.name for field in dataclasses.fields(cast(Any, totals))]
    sums = dict.fromkeys(names, 0)
    for part in parts:
        for name in names:
            sums[name] += getattr(part, name)
    return totals(**sums)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class WriteReports(beam.PTransform):
    """The corpus's totals -> the files beside it, once all shards are written.

    Attributes:
        plan: The single plan.
        render: Totals and plan to the files of the corpus folder.
        output: The corpus folder.
    """

    plan: beam.PCollection[BatchPlan]
    render: Callable[[Any, BatchPlan], Files]
    output: str

    def expand(self, totals: beam.PCollection[Any]) -> beam.PCollection[None]:
        plan = beam.pvalue.AsSingleton(self.plan)
        return totals | 'Render' >> beam.Map(_write_rendered, plan, self.render, self.output)


def _write_rendered(
    totals: Any, plan: BatchPlan, render: Callable[[Any, BatchPlan], Files], folder: str
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
        sizes: Contexts of each batch.
        facts: The losses of batches whose price is known afterwards only, or the spending of their
            contexts.
        counted: Further numbers of records, each with the field of the curator's report that it is for.
        left_out: The number of records that the run's sample left out; empty without one.
        plan: The single plan.
        render: Rejected rows by reason, contexts by batch, records read, facts, counted, left_out and
            plan -> the files.
        work_dir: The curator's folder.
    """

    rejected: beam.PCollection[Rejection]
    sizes: beam.PCollection[tuple[BatchId, int]]
    facts: beam.PCollection[BatchFacts]
    counted: beam.PCollection[tuple[str, int]]
    left_out: beam.PCollection[int]
    plan: beam.PCollection[BatchPlan]
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
    render: RenderRestricted,
    work_dir: str,
) -> None:
    ordered = sorted(facts, key=lambda of_batch: of_batch.batch_id)
    outside = left_out[0] if left_out else None
    files = render(reasons, dict(sorted(sizes)), records, ordered, counted, outside, plan)
    for name, data in files.items():
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
