"""Records -> the noisy counts of their cells, by which examples are given values of declared fields."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam

from models.batching import BatchPlan
from models.conditions import Conditions
from models.grammars.structure import Structure
from models.privacy import counts
from models.privacy.params import Unit
from models.records import Record
from transforms.assign import CountContexts
from transforms.durable import draw_once


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class DrawConditions(beam.PTransform):
    """Records -> the single `Conditions` of the run.

    Counts contexts as labels are counted: one unit counts in one cell, by 1. A record that is no JSON object
    or lacks a field is in no cell and drops out first, as one of an undeclared label does: it may not win its
    unit's cell. The noise is drawn once in the life of a work directory: see `draw_conditions`.

    Attributes:
        path: Where the noisy counts are kept, `conditions.json` in the work directory.
        structure: Whose cells they are.
        labels: The declared labels, or a single None.
        rho: zCDP cost of the noisy counts.
        work_dir: The curator's folder, where workers read the run key.
        unit: The unit of privacy.
    """

    path: str
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
                self.path,
                fields=self.structure.condition_on,
                cells=cells,
                labels=self.labels,
                rho=self.rho,
            ).with_output_types(Conditions)
        )


def _of_one(record: Record, structure: Structure) -> Iterator[Record]:
    return in_cells([record], structure)


def in_cells(records: Iterable[Record], structure: Structure) -> Iterator[Record]:
    """The records that are in a cell, each with it in the place of a cluster, so that it is counted alike."""
    for record in records:
        cell = structure.cell_of(record.text)
        if cell is not None:
            yield dataclasses.replace(record, cluster=cell)


def draw_conditions(
    true_counts: Sequence[int],
    path: str,
    *,
    fields: tuple[str, ...],
    cells: tuple[tuple[str, ...], ...],
    labels: tuple[str | None, ...],
    rho: float,
) -> Conditions:
    """Reads the conditions at `path`, or draws the noise and writes them there first: see `draw_once`.

    Args:
        true_counts: True counts of contexts, one for each cell, one label after another; private.
        path: The conditions' file.
        fields: The properties that examples are given values of.
        cells: Their values in JSON, every combination.
        labels: The declared labels, or a single None.
        rho: zCDP cost of the noisy counts.

    Raises:
        ValueError: The conditions at `path` are of other labels, fields or cells or another cost, or the
            counts are of other cells.
    """
    if len(true_counts) != len(labels) * len(cells):
        raise ValueError(
            f'Expected one count for each of cells={len(cells)} for each label, got '
            f'counts={len(true_counts)}, labels={len(labels)}. Count with the cells of this run.'
        )

    def draw() -> str:
        noisy = counts.noisy_counts(true_counts, rho)
        by_label = tuple(
            tuple(noisy[first : first + len(cells)]) for first in range(0, len(noisy), len(cells))
        )
        return Conditions(fields=fields, cells=cells, noisy_counts=by_label, rho=rho).to_json()

    found = Conditions.from_json(draw_once(path, draw))
    if (found.fields, found.cells, len(found.noisy_counts), found.rho) != (fields, cells, len(labels), rho):
        raise ValueError(
            f'Expected the conditions of this run, got path={path!r} with fields={found.fields!r}, '
            f'cells={len(found.cells)}, labels={len(found.noisy_counts)}, rho={found.rho!r}, not '
            f'fields={fields!r}, cells={len(cells)}, labels={len(labels)}, rho={rho!r}. '
            'Resume with the settings that the run began with, or start a new run in a fresh work directory.'
        )
    return found


def with_conditions(plan: BatchPlan, conditions: Conditions) -> BatchPlan:
    """A batch plan from the config, with the conditions of the run."""
    return dataclasses.replace(plan, conditions=conditions)
