"""Records -> one row for each unit of privacy, with the records that represent it (METHOD 1)."""

import dataclasses
from collections.abc import Iterable, Iterator

import apache_beam as beam

from models import batching
from models.batching import Candidate, UnitContext
from models.finetuning.units import Row
from models.records import Record
from transforms.keyed import KeyedDoFn


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
        work_dir: The curator's folder, where workers read the run key.
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
