"""Records -> true counts: of contexts, for steps that add noise (METHOD 2 and 3), and for the curator."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apache_beam as beam

from models import batch_plan
from models.batch_plan import GroupName
from models.grammars.structure import Structure
from models.privacy.params import Unit
from models.records import Record
from transforms.units import KeyByUnit, SmallestRecords


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class CountContexts(beam.PTransform):
    """Records -> one list with the true count of every cell, in the order of `labels`.

    It counts contexts: records under the `example` unit, units under the `user` unit. Without clusters a
    label is one cell; with clusters each (label, cluster) is. One unit counts in one cell, by 1. Under the
    `example` unit with k > 1 each record still counts by 1. The result is private: only steps that add
    noise may read it (`DrawPlan`, `ClusterRecords`, `DrawConditions`, `DrawLabelMix`).

    Attributes:
        labels: The declared labels, or a single None. Records of other labels are not counted.
        centers: Number K of centres. The clusters 0 to K-1 of the first label are counted first, then
            those of the next label. None counts labels alone.
    """

    labels: tuple[str | None, ...]
    work_dir: str
    unit: Unit = 'example'
    centers: int | None = None

    def __post_init__(self) -> None:
        batch_plan.check_labels(self.labels)
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
                f'Expected every record in one of centers={self._centers} clusters, got one in another or in '
                'none. Embed the records before they are counted, with the same centres.'
            )
        return cluster

    def merge_accumulators(self, accumulators: Iterable[list[int]]) -> list[int]:
        return [sum(cells) for cells in zip(self.create_accumulator(), *accumulators, strict=True)]

    def extract_output(self, accumulator: list[int]) -> list[int]:
        return accumulator


def count_records(
    records: beam.PCollection[Record], field: str, holds: Callable[..., bool], *public: Any
) -> beam.PCollection[tuple[str, int]]:
    """Records -> the number of those for which `holds(record, *public)`, under a field for the curator.

    The single element is private: it is counted without noise, for the curator alone.
    """
    return (
        records
        | f'Filter {field}' >> beam.Filter(holds, *public)
        | f'Count {field}' >> beam.combiners.Count.Globally()
        | f'Name {field}' >> beam.Map(_named, field).with_output_types(tuple[str, int])
    )


def _named(count: int, field: str) -> tuple[str, int]:
    return field, count


def count_outside(
    records: beam.PCollection[Record], structure: Structure
) -> beam.PCollection[tuple[str, int]]:
    """The number of records that do not have the structure of the run's examples, as of `count_records`."""
    return count_records(records, 'records_outside_structure', _is_outside, structure)


def _is_outside(record: Record, structure: Structure) -> bool:
    return not structure.holds(record.text)
