"""Records -> the run's sample, and one row for each unit with the records that represent it (METHOD 1)."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import apache_beam as beam

from models import batching
from models.batching import Candidate, UnitContext
from models.finetuning.units import Row
from models.records import BatchId, Record
from transforms.durable import guarded, read_key


class KeyedDoFn(beam.DoFn):
    """Reads the run key once per worker, and keeps the text of errors in the work directory."""

    def __init__(self, work_dir: str, *, expected: str, name: str) -> None:
        self._work_dir = work_dir
        self._expected = expected
        self._name = name

    def setup(self) -> None:
        self._key = read_key(self._work_dir)  # a `RunKey` refuses to be pickled

    def _guarded[T](self, work: Callable[[], T]) -> T:
        return guarded(work, expected=self._expected, work_dir=self._work_dir, name=self._name)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class SampleUnits(beam.PTransform):
    """Records -> (records of the sample, number of the other records), two PCollections.

    The run key and the unit alone decide whether a unit is in the sample (`batching.is_sampled`), so a
    resumed run has the same one. The number is a single element, for the curator's report.

    Attributes:
        rate: Public probability that a unit is in the sample, in (0, 1].
    """

    rate: float
    work_dir: str

    # Beam has no type hint for two outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, records: beam.PCollection[Record]
    ) -> tuple[beam.PCollection[Record], beam.PCollection[int]]:
        # Each record is hashed twice, since tagged outputs have no types, and so no `RecordCoder`.
        kept, others = (
            records
            | name >> beam.ParDo(_OfSample(self.rate, self.work_dir, inside)).with_output_types(Record)
            for name, inside in (('Keep', True), ('LeaveOut', False))
        )
        return kept, others | 'CountLeftOut' >> beam.combiners.Count.Globally()


class _OfSample(KeyedDoFn):
    """record -> the record, if it is inside the sample or, with `inside=False`, outside of it."""

    def __init__(self, rate: float, work_dir: str, inside: bool) -> None:
        super().__init__(work_dir, expected='every record in the sample or outside of it', name='sample')
        self._rate, self._inside = rate, inside

    def process(self, record: Record) -> Iterator[Record]:
        if self._guarded(lambda: batching.is_sampled(self._key, record, self._rate)) == self._inside:
            yield record


class KeyByUnit(KeyedDoFn):
    """record -> (unit hash, candidate) under the `user` unit.

    A record without a unit id, or whose label is not declared, drops out.
    """

    def __init__(self, work_dir: str, text_limit: int | None) -> None:
        super().__init__(work_dir, expected='every record to find its batch', name='assign')
        self._text_limit = text_limit

    def process(self, record: Record, labels: tuple[str | None, ...]) -> Iterator[tuple[bytes, Candidate]]:
        # Undeclared labels drop out first: they may not win the unit's group.
        unit = record.unit
        if record.label in labels and unit is not None:
            digest, of_unit = self._guarded(
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


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class SelectUnits(beam.PTransform):
    """Records -> one row for each unit: its keyed hash, its label and its texts (METHOD 1).

    A user is represented by the k records with the smallest keyed hashes, all of one label, as in
    private prediction.

    Attributes:
        labels: The declared labels, or a single None; records of other labels drop out.
        of_users: True if a unit is a user.
        k: The largest number of records of one unit.
        text_limit: Number of characters of a text that are kept; None keeps all.
    """

    labels: tuple[str | None, ...]
    work_dir: str
    of_users: bool
    k: int
    text_limit: int | None = None

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[Row]:
        if not self.of_users:
            return records | 'HashRecord' >> beam.ParDo(
                _HashRecord(self.labels, self.work_dir, self.text_limit)
            ).with_output_types(Row)
        return (
            records
            | 'KeyByUnit' >> beam.ParDo(KeyByUnit(self.work_dir, self.text_limit), self.labels)
            # (unit hash, (record hash, text, label, cluster))
            | 'FormUnits' >> beam.CombinePerKey(SmallestRecords(self.k))
            # (unit hash, (label, cluster, [text]))
            | 'Row' >> beam.Map(_row_of_user).with_output_types(Row)
        )


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class CountUnits(beam.PTransform):
    """Units -> the number of those of each label, under the name of the label's first batch; private."""

    labels: tuple[str | None, ...]

    def expand(self, units: beam.PCollection[Row]) -> beam.PCollection[tuple[BatchId, int]]:
        return (
            units
            | 'LabelOfUnit' >> beam.Map(_group_of, self.labels).with_output_types(int)
            | 'CountUnits' >> beam.combiners.Count.PerElement()
            | 'NameGroups' >> beam.MapTuple(_first_batch).with_output_types(tuple[BatchId, int])
        )


def _group_of(row: Row, labels: tuple[str | None, ...]) -> int:
    return labels.index(row[1])


def _first_batch(group: int, count: int) -> tuple[BatchId, int]:
    return BatchId(group=group, index=0), count


def _row_of_user(element: tuple[bytes, UnitContext]) -> Row:
    digest, (label, _, texts) = element
    return digest, label, list(texts)


class _HashRecord(KeyedDoFn):
    """record -> row, where each record is a unit."""

    def __init__(self, labels: tuple[str | None, ...], work_dir: str, text_limit: int | None) -> None:
        super().__init__(work_dir, expected='every record to have its hash', name='select')
        self._labels, self._text_limit = labels, text_limit

    def process(self, record: Record) -> Iterator[Row]:
        if record.label in self._labels:
            digest = self._guarded(lambda: batching.record_hash(self._key, record))
            yield digest, record.label, [record.text[: self._text_limit]]
