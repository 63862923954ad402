"""Records and the batch plan -> one batch for every planned batch (METHOD 1 to 3).

Only small elements are shuffled: keyed hashes, and texts that are cut to what a prompt can use. Whole
records are never shuffled, and nothing is pickled. Packing the rows of a batch within each bundle saved a
third of the time and no memory at a million records (measured once), which is not worth its state.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from models import batching
from models.batch_plan import BatchPlan
from models.batching import Row, UnitContext
from models.privacy.params import Unit
from models.records import Batch, BatchId, Record
from transforms.units import KeyByUnit, KeyedDoFn, SmallestRecords

# A batch's key in a shuffle: (group, index). Plain integers have a deterministic coder.
BatchKey = tuple[int, int]
# One row, or none: the element that makes a planned batch emit.
_Rows = tuple[BatchKey, list[Row]]
# Words of an error over a record, and name of the file that keeps its text.
_EXPECTED, _NAME = 'every record to find its batch', 'assign'


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class AssignBatches(beam.PTransform):
    """Records -> one `Batch` for every planned batch, also for a batch without records.

    The content of a batch is a function of the run key, the batch plan and the batch's own records. The
    order and the sharding of the input do not matter. A record whose label is not in the batch plan
    belongs to no batch. Where the batch plan has clusters, each record must carry its cluster.

    Attributes:
        plan: The batch plan, or the PCollection of `DrawPlan`, whose single element it is.
        batch_size: Expected batch size s; also the number of slots of a batch under k > 1.
        text_limit: Number of characters of a text that a prompt can use. Texts are cut to it before they
            are shuffled; None leaves them whole.
    """

    plan: BatchPlan | beam.PCollection[BatchPlan]
    work_dir: str
    batch_size: int
    unit: Unit = 'example'
    examples_per_context: int = 1
    text_limit: int | None = None

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[Batch]:
        plans = self.plan
        if isinstance(plans, BatchPlan):
            plans = records.pipeline | 'Plan' >> beam.Create([plans], reshuffle=False)
        plan = beam.pvalue.AsSingleton(plans)
        planned = plans | 'PlannedBatches' >> beam.FlatMap(_no_rows).with_output_types(_Rows)
        rows = self._user_rows(records, plan) if self.unit == 'user' else self._record_rows(records, plan)
        return (
            # A CoGroupByKey with types: its own tags hide them, and keys and values
            # would go through a coder that guesses.
            (planned, rows)
            | 'WithPlanned' >> beam.Flatten()
            # (batch key, [row] or [])
            | 'GroupByBatch' >> beam.GroupByKey()
            # (batch key, [[row], ..., []])
            | 'FormBatches' >> beam.ParDo(_FormBatches(self), plan).with_output_types(Batch)
        )

    def _record_rows(self, records: beam.PCollection[Record], plan: Any) -> beam.PCollection[Any]:
        return records | 'KeyByBatch' >> beam.ParDo(
            _KeyByBatch(self.work_dir, self.text_limit), plan
        ).with_output_types(_Rows)

    def _user_rows(self, records: beam.PCollection[Record], plan: Any) -> beam.PCollection[Any]:
        k = self.examples_per_context
        plan_labels = beam.pvalue.AsSingleton(plan.pvalue | 'Labels' >> beam.Map(lambda plan: plan.labels))
        return (
            records
            | 'KeyByUnit' >> beam.ParDo(KeyByUnit(self.work_dir, self.text_limit), plan_labels)
            # (unit hash, (record hash, text, label, cluster))
            | 'FormContexts' >> beam.CombinePerKey(SmallestRecords(k))
            # (unit hash, (label, cluster, [text]))
            | 'PlaceContexts' >> beam.FlatMap(_place_context, plan).with_output_types(_Rows)
        )


def _no_rows(plan: BatchPlan) -> Iterator[_Rows]:
    """An empty list of rows for every planned batch, so that each batch emits."""
    for batch_id in plan.batch_ids():
        yield (batch_id.group, batch_id.index), []


def _place_context(unit: tuple[bytes, UnitContext], plan: BatchPlan) -> Iterator[_Rows]:
    """(unit hash, (label, cluster, texts)) -> (batch key, [row])."""
    digest, (label, cluster, texts) = unit
    group = plan.group_of(label, cluster)
    if group is not None:
        batch_id = batching.batch_of(digest, group, plan)
        yield (batch_id.group, batch_id.index), [(digest, texts)]


class _KeyByBatch(KeyedDoFn):
    """record -> (batch key, [row]) under the `example` unit."""

    def __init__(self, work_dir: str, text_limit: int | None) -> None:
        super().__init__(work_dir, expected=_EXPECTED, name=_NAME)
        self._text_limit = text_limit

    def process(self, record: Record, plan: BatchPlan) -> Iterator[_Rows]:
        placed = self._guarded(lambda: batching.place(self._key, record, plan))
        if placed is not None:
            batch_id, digest = placed
            yield (batch_id.group, batch_id.index), [(digest, [record.text[: self._text_limit]])]


class _FormBatches(KeyedDoFn):
    """(batch key, [[row]]) -> batch."""

    def __init__(self, settings: AssignBatches) -> None:
        super().__init__(settings.work_dir, expected=_EXPECTED, name=_NAME)
        self._unit: Unit = settings.unit
        self._slots = settings.batch_size
        self._k = settings.examples_per_context

    def process(self, element: tuple[BatchKey, Iterable[list[Row]]], plan: BatchPlan) -> Iterator[Batch]:
        (group, index), grouped = element
        rows = itertools.chain.from_iterable(grouped)
        yield self._guarded(
            lambda: batching.form_batch(
                self._key,
                BatchId(group=group, index=index),
                rows,
                plan,
                unit=self._unit,
                slots=self._slots,
                k=self._k,
            )
        )
