"""Records -> the batch plan -> one batch for every planned batch (METHOD 1 to 3).

What crosses a shuffle is kept small: keyed hashes and texts that are cut to what a
prompt can use, never whole records, and nothing pickled. Packing the rows of a batch
within each bundle saved a third of the time and no memory at a million records
(tests/benchmarks/records_benchmark.py), which is not worth its state.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from models import batching
from models.batching import BatchPlan, Candidate, Clustering, GroupName, Row, UnitContext
from models.conditions import Conditions
from models.privacy import counts
from models.privacy.params import Unit
from models.records import Batch, BatchId, Record
from transforms.durable import draw_once, guarded, read_file, read_key

# A batch's key in a shuffle: (group, index). Plain integers have a deterministic coder.
BatchKey = tuple[int, int]
# One row, or none: the element that makes a planned batch emit.
_Rows = tuple[BatchKey, list[Row]]


# --- Counting --------------------------------------------------------------------


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class CountContexts(beam.PTransform):
    """Records -> one list of the true counts of each cell, in the order of `labels`.

    Counts contexts: records under the `example` unit, units under the `user` unit, each
    in the cell of the group that its context joins: the cell of its label or, with
    clusters, of its (label, cluster). One unit counts in one cell, by 1 (under the
    `example` unit with k > 1, records are counted one by one). Private: only `DrawPlan`
    and `DrawClustering` may read the result.

    Attributes:
        labels: The declared labels, or a single None. Records of other labels are not counted.
        work_dir: The curator's folder, where workers read the run key.
        unit: The unit of privacy.
        centers: Number K of centres: counts each label's clusters 0 to K-1, one label
            after another. None counts labels alone.
    """

    labels: tuple[str | None, ...]
    work_dir: str
    unit: Unit = 'example'
    centers: int | None = None

    def __post_init__(self) -> None:
        batching.check_labels(self.labels)
        if self.centers is not None and self.centers < 1:
            raise ValueError(
                f'Expected centers >= 1, got centers={self.centers!r}. Leave it out to count labels alone.'
            )

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[list[int]]:
        if self.unit == 'user':
            groups = (
                records
                | 'KeyByUnit' >> beam.ParDo(KeyByUnit(self.work_dir, text_limit=0), self.labels)
                # (unit hash, (record hash, '', label, cluster))
                | 'FirstOfUnit' >> beam.CombinePerKey(SmallestRecords(1))
                # (unit hash, (label, cluster, ['']))
                | 'GroupOfUnit' >> beam.MapTuple(lambda _, context: context[:2])
            )
        else:
            groups = records | 'GroupOfRecord' >> beam.Map(lambda record: (record.label, record.cluster))
        # (label, cluster)
        return groups | 'CountPerCell' >> beam.CombineGlobally(_CountPerCell(self.labels, self.centers))


class _CountPerCell(beam.CombineFn):
    """(label, cluster) -> counts in the declared order; zeros for an empty input."""

    def __init__(self, labels: Sequence[str | None], centers: int | None) -> None:
        self._first_cells = {label: order * (centers or 1) for order, label in enumerate(labels)}
        self._centers = centers

    def create_accumulator(self) -> list[int]:
        return [0] * (len(self._first_cells) * (self._centers or 1))

    def add_input(self, accumulator: list[int], group: GroupName) -> list[int]:
        label, cluster = group
        cell = self._first_cells.get(label)
        if cell is not None:
            accumulator[cell if self._centers is None else cell + self._checked(cluster)] += 1
        return accumulator

    def _checked(self, cluster: int | None) -> int:
        if cluster is None or not 0 <= cluster < (self._centers or 0):
            raise RuntimeError(
                f'Expected every record in one of centers={self._centers} clusters, got one in another or '
                'in none. Embed records before they are counted, with the same centres.'
            )
        return cluster

    def merge_accumulators(self, accumulators: Iterable[list[int]]) -> list[int]:
        return [sum(cells) for cells in zip(self.create_accumulator(), *accumulators, strict=True)]

    def extract_output(self, accumulator: list[int]) -> list[int]:
        return accumulator


# --- The plan --------------------------------------------------------------------


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class DrawPlan(beam.PTransform):
    """The true counts (a single list) -> the single `BatchPlan` of the run.

    The noise is drawn once in the life of a work directory: see `draw_plan`.

    Attributes:
        plan_path: Where the batch plan is kept, `plan.json` in the work directory, on any
            filesystem that Beam knows.
        labels: The declared labels, or a single None.
        rho: zCDP cost of the noisy counts.
        batch_size: Expected batch size s.
        unit: The unit of privacy.
        examples_per_context: At most k records share one context.
        clustering: The single element of `DrawClustering`, where the counts are per
            (label, cluster); None where they are per label.
        conditions: The single element of `transforms.condition.DrawConditions`; None where examples are
            given no values.
    """

    plan_path: str
    labels: tuple[str | None, ...]
    rho: float
    batch_size: int
    unit: Unit = 'example'
    examples_per_context: int = 1
    clustering: beam.PCollection[Clustering] | None = None
    conditions: beam.PCollection[Conditions] | None = None

    def __post_init__(self) -> None:
        batching.check_labels(self.labels)
        counts.gaussian_scale(self.rho)

    def expand(self, true_counts: beam.PCollection[list[int]]) -> beam.PCollection[BatchPlan]:
        # Under the user unit a context is counted once, however many records it holds.
        records_per_count = self.examples_per_context if self.unit == 'example' else 1
        return true_counts | 'Draw' >> beam.Map(
            draw_plan,
            self.plan_path,
            labels=self.labels,
            rho=self.rho,
            contexts_per_batch=self.batch_size * records_per_count,
            clustering=None if self.clustering is None else beam.pvalue.AsSingleton(self.clustering),
            conditions=None if self.conditions is None else beam.pvalue.AsSingleton(self.conditions),
        ).with_output_types(BatchPlan)


def draw_plan(
    true_counts: Sequence[int],
    path: str,
    *,
    labels: tuple[str | None, ...],
    rho: float,
    contexts_per_batch: int,
    clustering: Clustering | None = None,
    conditions: Conditions | None = None,
) -> BatchPlan:
    """The batch plan with as many batches of a group as its noisy count fills: see `draw_plan_of`.

    Args:
        true_counts: As `draw_plan_of` has it, like the others.
        path: The batch plan's file.
        labels: The declared labels, or a single None.
        rho: zCDP cost of the noisy counts.
        contexts_per_batch: s, or s k where k > 1 records without unit ids share a context.
        clustering: The centres that each label keeps; None without clusters.
        conditions: The noisy counts of cells; None where examples are given no values.

    Raises:
        ValueError: As `draw_plan_of`.
    """
    return draw_plan_of(
        true_counts,
        path,
        labels=labels,
        rho=rho,
        batches_of=lambda noisy: tuple(counts.batches_for(count, contexts_per_batch) for count in noisy),
        clustering=clustering,
        conditions=conditions,
    )


def draw_plan_of(
    true_counts: Sequence[int],
    path: str,
    *,
    labels: tuple[str | None, ...],
    rho: float,
    batches_of: Callable[[Sequence[int]], tuple[int, ...]],
    clustering: Clustering | None = None,
    conditions: Conditions | None = None,
) -> BatchPlan:
    """Reads the batch plan at `path`, or draws the noise and writes it there first: see `draw_once`.

    Args:
        true_counts: True counts of contexts, one for each label in the order of `labels`, or
            with a clustering one for each centre of each label; private.
        path: The batch plan's file.
        labels: The declared labels, or a single None.
        rho: zCDP cost of the noisy counts.
        batches_of: Noisy counts of the groups -> the number of batches of each.
        clustering: The centres that each label keeps; None without clusters.
        conditions: The noisy counts of cells; None where examples are given no values.

    Raises:
        ValueError: The batch plan at `path` is of other labels, another cost, another
            clustering or other conditions, or the counts are of other cells.
    """

    def draw() -> str:
        noisy = counts.noisy_counts(_counts_of_groups(true_counts, labels, clustering), rho)
        plan = BatchPlan(
            labels=labels,
            batches_per_group=batches_of(noisy),
            noisy_counts=tuple(noisy),
            contexts_rho=rho,
            clustering=clustering,
            conditions=conditions,
        )
        return plan.to_json()

    plan = BatchPlan.from_json(draw_once(path, draw))
    same_releases = plan.clustering == clustering and plan.conditions == conditions
    if plan.labels != labels or plan.contexts_rho != rho or not same_releases:
        raise ValueError(
            f'Expected the batch plan of this run, got path={path!r} with labels={plan.labels!r}, '
            f'contexts_rho={plan.contexts_rho!r}, not labels={labels!r}, rho={rho!r}; '
            f'same_releases={same_releases}. '
            'Resume with the settings that the run began with, or start a new run in a fresh work directory.'
        )
    return plan


def _counts_of_groups(
    true_counts: Sequence[int], labels: Sequence[str | None], clustering: Clustering | None
) -> list[int]:
    """The counts of the batch plan's groups: of kept centres, where there is a clustering."""
    centers = 1 if clustering is None else clustering.centers
    if len(true_counts) != len(labels) * centers:
        raise ValueError(
            f'Expected {centers} counts for each label, got cells={len(true_counts)}, labels={len(labels)}. '
            'Count with the centres that the clustering was drawn for.'
        )
    if clustering is None:
        return list(true_counts)
    return [
        true_counts[order * centers + cluster]
        for order, kept in enumerate(clustering.kept)
        for cluster in kept
    ]


def read_plan(path: str) -> BatchPlan:
    """The batch plan that a run wrote down."""
    return BatchPlan.from_json(read_file(path).decode())


# --- Batches ---------------------------------------------------------------------


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class AssignBatches(beam.PTransform):
    """Records -> one `Batch` for every planned batch, be it empty.

    A batch's content is a function of the run key, the batch plan and its own records,
    whatever the order and the sharding of the input. A record whose label the batch plan
    does not have belongs to no batch. Where the batch plan has clusters, each record comes
    with its cluster.

    Attributes:
        plan: The batch plan itself, or the single element of `DrawPlan`.
        work_dir: The curator's folder, where workers read the run key.
        batch_size: Expected batch size s; also the number of slots of a batch under k > 1.
        unit: The unit of privacy.
        examples_per_context: At most k records share one context.
        text_limit: Characters of a text that any prompt could use: texts are cut to it
            before they are shuffled. None leaves them whole.
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
            # What a CoGroupByKey does, with types: its tags hide them, and keys and values
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
    """No rows for every planned batch, so that each batch emits."""
    for batch_id in plan.batch_ids():
        yield (batch_id.group, batch_id.index), []


def _place_context(unit: tuple[bytes, UnitContext], plan: BatchPlan) -> Iterator[_Rows]:
    """(unit hash, (label, cluster, texts)) -> (batch key, [row])."""
    digest, (label, cluster, texts) = unit
    group = plan.group_of(label, cluster)
    if group is not None:
        batch_id = batching.batch_of(digest, group, plan)
        yield (batch_id.group, batch_id.index), [(digest, texts)]


class _KeyedDoFn(beam.DoFn):
    """Holds the run key from setup on, and keeps the text of what goes wrong over records."""

    def __init__(self, work_dir: str, text_limit: int | None) -> None:
        self._work_dir = work_dir
        self._text_limit = text_limit

    def setup(self) -> None:
        self._key = read_key(self._work_dir)  # a `RunKey` refuses to be pickled

    def _placed[T](self, work: Callable[[], T]) -> T:
        return guarded(
            work, expected='every record to find its batch', work_dir=self._work_dir, name='assign'
        )


class _KeyByBatch(_KeyedDoFn):
    """record -> (batch key, [row]) under the `example` unit."""

    def process(self, record: Record, plan: BatchPlan) -> Iterator[_Rows]:
        placed = self._placed(lambda: batching.place(self._key, record, plan))
        if placed is not None:
            batch_id, digest = placed
            yield (batch_id.group, batch_id.index), [(digest, [record.text[: self._text_limit]])]


class KeyByUnit(_KeyedDoFn):
    """record -> (unit hash, candidate) under the `user` unit."""

    def process(self, record: Record, labels: tuple[str | None, ...]) -> Iterator[tuple[bytes, Candidate]]:
        # Undeclared labels drop out first: they may not win the unit's group.
        unit = record.unit
        if record.label in labels and unit is not None:
            digest, of_unit = self._placed(
                lambda: (batching.record_hash(self._key, record), batching.unit_hash(self._key, unit))
            )
            yield of_unit, (digest, record.text[: self._text_limit], record.label, record.cluster)


class SmallestRecords(beam.CombineFn):
    """Candidates of one unit -> (label, cluster, texts) of its context, in bounded memory."""

    def __init__(self, k: int) -> None:
        self._k = k

    def create_accumulator(self) -> list[Candidate]:
        return []

    def add_input(self, accumulator: list[Candidate], candidate: Candidate) -> list[Candidate]:
        return batching.keep_smallest([*accumulator, candidate], self._k)

    def merge_accumulators(self, accumulators: Iterable[list[Candidate]]) -> list[Candidate]:
        return batching.keep_smallest((one for many in accumulators for one in many), self._k)

    def extract_output(self, accumulator: list[Candidate]) -> UnitContext:
        return batching.unit_context(accumulator, self._k)


class _FormBatches(_KeyedDoFn):
    """(batch key, [[row]]) -> batch."""

    def __init__(self, settings: AssignBatches) -> None:
        super().__init__(settings.work_dir, settings.text_limit)
        self._unit: Unit = settings.unit
        self._slots = settings.batch_size
        self._k = settings.examples_per_context

    def process(self, element: tuple[BatchKey, Iterable[list[Row]]], plan: BatchPlan) -> Iterator[Batch]:
        (group, index), grouped = element
        rows = itertools.chain.from_iterable(grouped)
        yield self._placed(
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
