"""Records -> the noisy counts of their cells. By these counts, examples are given values of fields."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from models.batch_plan import BatchPlan
from models.conditions import Conditions
from models.grammars.structure import Structure
from models.privacy import counts
from models.privacy.params import Unit
from models.records import Record
from transforms.count import CountContexts
from transforms.durable import draw_once, noise_source
from transforms.run_files import CONDITIONS


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class DrawConditions(beam.PTransform):
    """Records -> the single `Conditions` of the run.

    A cell is a combination of values of the fields. One unit counts in one cell, by 1, as it counts under
    one label. A record that is no JSON object, or that lacks a field, is in no cell. It drops out before a
    unit's cell is chosen, like a record of an undeclared label.

    Attributes:
        structure: The run's, with its fields and their values.
    """

    structure: Structure
    labels: tuple[str | None, ...]
    rho: float
    work_dir: str
    unit: Unit = 'example'

    def __post_init__(self) -> None:
        counts.gaussian_scale(self.rho)

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[Conditions]:
        cells = self.structure.cells
        return (
            records
            # Record, with its cell in the place of a cluster
            | 'CellOfRecord' >> beam.FlatMap(_of_one, self.structure).with_output_types(Record)
            # one list of int, private
            | 'CountCells' >> CountContexts(self.labels, self.work_dir, unit=self.unit, centers=len(cells))
            | 'Draw'
            >> beam.Map(
                draw_conditions,
                self.work_dir,
                fields=self.structure.condition_on,
                cells=cells,
                labels=self.labels,
                rho=self.rho,
            ).with_output_types(Conditions)
        )


def _of_one(record: Record, structure: Structure) -> Iterator[Record]:
    return in_cells([record], structure)


def in_cells(records: Iterable[Record], structure: Structure) -> Iterator[Record]:
    """The records that are in a cell, each with the number of its cell in the field `cluster`."""
    for record in records:
        cell = structure.cell_of(record.text)
        if cell is not None:
            yield dataclasses.replace(record, cluster=cell)


def draw_conditions(
    true_counts: Sequence[int],
    work_dir: str,
    *,
    fields: tuple[str, ...],
    cells: tuple[tuple[str, ...], ...],
    labels: tuple[str | None, ...],
    rho: float,
) -> Conditions:
    """Reads the conditions of a work directory; where there are none, draws the noise and writes them first.

    The true counts are private: one for each cell, one label after another.

    Raises:
        ValueError: The conditions there are of other settings, or the number of counts does not fit them.
    """
    if len(true_counts) != len(labels) * len(cells):
        raise ValueError(
            f'Expected one count for each of cells={len(cells)} for each label, got '
            f'counts={len(true_counts)}, labels={len(labels)}. Count with the cells of this run.'
        )

    def draw() -> str:
        noisy = counts.noisy_counts(true_counts, rho, noise_source(work_dir, CONDITIONS))
        by_label = tuple(
            tuple(noisy[first : first + len(cells)]) for first in range(0, len(noisy), len(cells))
        )
        return Conditions(fields=fields, cells=cells, noisy_counts=by_label, rho=rho).to_json()

    path = FileSystems.join(work_dir, CONDITIONS)
    drawn = Conditions.from_json(draw_once(path, draw))
    if (drawn.fields, drawn.cells, len(drawn.noisy_counts), drawn.rho) != (fields, cells, len(labels), rho):
        raise ValueError(
            f'Expected the conditions of this run, got path={path!r} with fields={drawn.fields!r}, '
            f'cells={len(drawn.cells)}, labels={len(drawn.noisy_counts)}, rho={drawn.rho!r}, not '
            f'fields={fields!r}, cells={len(cells)}, labels={len(labels)}, rho={rho!r}. '
            'Resume with the settings that the run began with, or start a new run in a fresh work directory.'
        )
    return drawn


def with_conditions(plan: BatchPlan, conditions: Conditions) -> BatchPlan:
    """A batch plan from the config, with the conditions of the run."""
    return dataclasses.replace(plan, conditions=conditions)
