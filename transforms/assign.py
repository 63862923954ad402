"""Records -> the plan of batches -> one batch for every planned one (METHOD 1 and 2).

What crosses a shuffle is kept small: keyed hashes and texts that are cut to what a
prompt can use, never whole records, and nothing pickled. Packing the rows of a batch
within each bundle saved a third of the time and no memory at a million records
(tests/benchmarks/records_benchmark.py), which is not worth its state.
"""

import dataclasses
import itertools
import pathlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from models import batching
from models.batching import BatchPlan, Candidate, Row
from models.privacy import counts
from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from models.records import Batch, BatchId, Record

# A batch's key in a shuffle: (group, index). Plain integers have a deterministic coder.
BatchKey = tuple[int, int]
# One row, or none: the element that makes a planned batch emit.
_Rows = tuple[BatchKey, list[Row]]


# --- Counting --------------------------------------------------------------------


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class CountContexts(beam.PTransform):
    """Records -> one list of the true counts of each group, in the order of `labels`.

    Counts contexts: records under the `example` unit, units under the `user` unit, each
    in the group that its context joins. Private: only `DrawPlan` may read the result.

    Attributes:
        labels: The declared labels, or a single None. Records of others are not counted.
        run_key_path: File of the run key, in the work directory.
        unit: The unit of privacy.
    """

    labels: tuple[str | None, ...]
    run_key_path: str
    unit: Unit = 'example'

    def __post_init__(self) -> None:
        batching.check_labels(self.labels)

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[list[int]]:
        if self.unit == 'user':
            groups = (
                records
                | 'KeyByUnit' >> beam.ParDo(_KeyByUnit(self.run_key_path, text_limit=0), self.labels)
                # (unit hash, (record hash, '', label))
                | 'FirstOfUnit' >> beam.CombinePerKey(_SmallestRecords(1))
                # (unit hash, (label, ['']))
                | 'LabelOfUnit' >> beam.MapTuple(lambda _, context: context[0])
            )
        else:
            groups = records | 'LabelOfRecord' >> beam.Map(lambda record: record.label)
        # label
        return groups | 'CountPerLabel' >> beam.CombineGlobally(_CountPerLabel(self.labels))


class _CountPerLabel(beam.CombineFn):
    """Labels -> counts in the declared order; zeros for an empty input."""

    def __init__(self, labels: Sequence[str | None]) -> None:
        self._groups = {label: group for group, label in enumerate(labels)}

    def create_accumulator(self) -> list[int]:
        return [0] * len(self._groups)

    def add_input(self, accumulator: list[int], label: str | None) -> list[int]:
        group = self._groups.get(label)
        if group is not None:
            accumulator[group] += 1
        return accumulator

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
        plan_path: Where the plan is kept, `plan.json` in the work directory, on any
            filesystem that Beam knows.
        labels: The declared labels, or a single None.
        rho: zCDP cost of the noisy counts.
        batch_size: Expected batch size s.
        unit: The unit of privacy.
        examples_per_context: At most k records share one context.
    """

    plan_path: str
    labels: tuple[str | None, ...]
    rho: float
    batch_size: int
    unit: Unit = 'example'
    examples_per_context: int = 1

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
        ).with_output_types(BatchPlan)


def draw_plan(
    true_counts: Sequence[int],
    path: str,
    *,
    labels: tuple[str | None, ...],
    rho: float,
    contexts_per_batch: int,
) -> BatchPlan:
    """Reads the plan at `path`, or draws the noise, writes the plan there, and reads it back.

    A runner may repeat this, after a failure or on a second worker. The plan on disk is
    the one that counts: it is written before anything uses it, whole or not at all, and
    what is returned is what the disk holds, so that a repetition returns the same.

    Args:
        true_counts: True counts of contexts in the order of `labels`; private.
        path: The plan's file.
        labels: The declared labels, or a single None.
        rho: zCDP cost of the noisy counts.
        contexts_per_batch: s, or s k where k > 1 records without unit ids share a context.

    Raises:
        ValueError: The plan at `path` is of other labels or another cost.
    """
    if not FileSystems.exists(path):
        noisy = counts.noisy_counts(true_counts, rho)
        drawn = BatchPlan(
            labels=labels,
            batches_per_group=tuple(counts.batches_for(count, contexts_per_batch) for count in noisy),
            noisy_counts=tuple(noisy),
            contexts_rho=rho,
        )
        temporary = f'{path}.{uuid.uuid4().hex}.tmp'
        with FileSystems.create(temporary) as file:
            file.write(drawn.to_json().encode())
        if FileSystems.exists(path):
            # Another attempt was faster, and its plan may be in use. This draw was never read.
            FileSystems.delete([temporary])
        else:
            FileSystems.rename([temporary], [path])
    plan = read_plan(path)
    if plan.labels != labels or plan.contexts_rho != rho:
        raise ValueError(
            f'Expected the plan of this run, got path={path!r} with labels={plan.labels!r}, '
            f'contexts_rho={plan.contexts_rho!r}, not labels={labels!r}, rho={rho!r}. '
            'Resume with the settings that the run began with, or start a new run in a fresh work directory.'
        )
    return plan


def read_plan(path: str) -> BatchPlan:
    """The plan of batches that a run wrote down."""
    with FileSystems.open(path) as file:
        return BatchPlan.from_json(file.read().decode())


# --- Batches ---------------------------------------------------------------------


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class AssignBatches(beam.PTransform):
    """Records -> one `Batch` for every planned one, an empty one too.

    A batch's content is a function of the run key, the plan and its own records, whatever
    the order and the sharding of the input. A record whose label the plan does not have
    belongs to no batch.

    Attributes:
        plan: The plan itself, or the single element of `DrawPlan`.
        run_key_path: File of the run key, in the work directory. Workers read it there: a
            key in the pipeline would show in runners and in staged files.
        batch_size: Expected batch size s, which is the number of slots under k > 1.
        unit: The unit of privacy.
        examples_per_context: At most k records share one context.
        text_limit: Characters of a text that any prompt could use: texts are cut to it
            before they are shuffled. None leaves them whole.
    """

    plan: BatchPlan | beam.PCollection[BatchPlan]
    run_key_path: str
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
            _KeyByBatch(self.run_key_path, self.text_limit), plan
        ).with_output_types(_Rows)

    def _user_rows(self, records: beam.PCollection[Record], plan: Any) -> beam.PCollection[Any]:
        k = self.examples_per_context
        plan_labels = beam.pvalue.AsSingleton(plan.pvalue | 'Labels' >> beam.Map(lambda plan: plan.labels))
        return (
            records
            | 'KeyByUnit' >> beam.ParDo(_KeyByUnit(self.run_key_path, self.text_limit), plan_labels)
            # (unit hash, (record hash, text, label))
            | 'FormContexts' >> beam.CombinePerKey(_SmallestRecords(k))
            # (unit hash, (label, [text]))
            | 'PlaceContexts' >> beam.Map(_place_context, plan).with_output_types(_Rows)
        )


def _no_rows(plan: BatchPlan) -> Iterator[_Rows]:
    """No rows for every planned batch, so that each one emits."""
    for batch_id in plan.batch_ids():
        yield (batch_id.group, batch_id.index), []


def _place_context(unit: tuple[bytes, tuple[str | None, list[str]]], plan: BatchPlan) -> _Rows:
    """(unit hash, (label, texts)) -> (batch key, [row])."""
    digest, (label, texts) = unit
    batch_id = batching.batch_of(digest, plan.groups[label], plan)
    return (batch_id.group, batch_id.index), [(digest, texts)]


class _KeyedDoFn(beam.DoFn):
    """Holds the run key from setup on; a `RunKey` refuses to be pickled."""

    def __init__(self, run_key_path: str, text_limit: int | None) -> None:
        self._run_key_path = run_key_path
        self._text_limit = text_limit

    def setup(self) -> None:
        self._key = RunKey.read(pathlib.Path(self._run_key_path))


class _KeyByBatch(_KeyedDoFn):
    """record -> (batch key, [row]) under the `example` unit."""

    def process(self, record: Record, plan: BatchPlan) -> Iterator[_Rows]:
        placed = batching.place(self._key, record, plan)
        if placed is not None:
            batch_id, digest = placed
            yield (batch_id.group, batch_id.index), [(digest, [record.text[: self._text_limit]])]


class _KeyByUnit(_KeyedDoFn):
    """record -> (unit hash, candidate) under the `user` unit."""

    def process(self, record: Record, labels: tuple[str | None, ...]) -> Iterator[tuple[bytes, Candidate]]:
        # Undeclared labels drop out first: they may not win the unit's group.
        if record.label in labels and record.unit is not None:
            digest = batching.record_hash(self._key, record)
            candidate = digest, record.text[: self._text_limit], record.label
            yield batching.unit_hash(self._key, record.unit), candidate


class _SmallestRecords(beam.CombineFn):
    """Candidates of one unit -> (label, texts) of its context, in bounded memory."""

    def __init__(self, k: int) -> None:
        self._k = k

    def create_accumulator(self) -> list[Candidate]:
        return []

    def add_input(self, accumulator: list[Candidate], candidate: Candidate) -> list[Candidate]:
        return batching.keep_smallest([*accumulator, candidate], self._k)

    def merge_accumulators(self, accumulators: Iterable[list[Candidate]]) -> list[Candidate]:
        return batching.keep_smallest((one for many in accumulators for one in many), self._k)

    def extract_output(self, accumulator: list[Candidate]) -> tuple[str | None, list[str]]:
        return batching.unit_context(accumulator, self._k)


class _FormBatches(_KeyedDoFn):
    """(batch key, [[row]]) -> batch."""

    def __init__(self, settings: AssignBatches) -> None:
        super().__init__(settings.run_key_path, settings.text_limit)
        self._unit: Unit = settings.unit
        self._slots = settings.batch_size
        self._k = settings.examples_per_context

    def process(self, element: tuple[BatchKey, Iterable[list[Row]]], plan: BatchPlan) -> Iterator[Batch]:
        (group, index), grouped = element
        rows = itertools.chain.from_iterable(grouped)
        yield batching.form_batch(
            self._key,
            BatchId(group=group, index=index),
            rows,
            plan,
            unit=self._unit,
            slots=self._slots,
            k=self._k,
        )
