"""Rows -> the sharded corpus, and the files that describe it. The method decides what a row holds."""

import dataclasses
import functools
import io
import json
import operator
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from pyarrow import parquet

from models.batch_plan import BatchPlan
from transforms.columns import Columns
from transforms.durable import remove_temporaries, write_file
from transforms.run_files import DATA_FOLDER

# File name -> content, for one folder.
Files = Mapping[str, bytes]


def shard_name(shard: int, shards: int) -> str:
    """`train-00000-of-00008.parquet`."""
    return f'train-{shard:05d}-of-{shards:05d}.parquet'


def shard_of(batch_id: str, plan: BatchPlan, shards: int) -> int:
    """The shard of a batch: each shard has consecutive batches of the plan, about as many as any other."""
    group, index = (int(part) for part in batch_id.split('-'))
    place = sum(plan.batches_per_group[:group]) + index
    return place * shards // sum(plan.batches_per_group)


def encode_shard(rows: Iterable[Any], columns: Columns) -> bytes:
    """A Parquet file of rows. The bytes do not depend on the order in which the rows come."""
    ordered = sorted(rows, key=operator.attrgetter(*columns.order))
    table = pa.Table.from_pylist([columns.values(row) for row in ordered], schema=columns.schema)
    buffer = io.BytesIO()
    with parquet.ParquetWriter(buffer, columns.schema, compression='zstd') as writer:
        # The readers of `datasets` fail at a row group without rows.
        if ordered:
            writer.write_table(table)
    return buffer.getvalue()


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class WriteCorpus(beam.PTransform):
    """Rows -> sharded Parquet; emits the run's totals.

    The plan and the row decide the row's shard and its place there, so a run that is started again writes
    the same files. Beam's own `WriteToParquet` distributes rows to shards at random.

    Attributes:
        shards: Number of planned batches -> number of files.
    """

    plan: beam.PCollection[BatchPlan]
    output: str
    shards: Callable[[int], int]
    columns: Columns

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[Any]:
        plan = beam.pvalue.AsSingleton(self.plan)
        # A shard without a batch is written, too: readers expect every number.
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
        render: Totals and plan to the files of the corpus folder.
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
    # All shards are written, so no writer needs its temporary files any more, and the folder is published.
    files = render(totals, plan)
    for name in sorted({'', DATA_FOLDER, *(posixpath.dirname(name) for name in files)}):
        remove_temporaries(FileSystems.join(folder, name) if name else folder)
    for name, data in files.items():
        write_file(FileSystems.join(folder, name), data)
