"""Records -> the number of those that do not have the structure of the run's examples."""

import dataclasses

import apache_beam as beam

from models.grammars.structure import Structure
from models.records import Record


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class CountOutside(beam.PTransform):
    """Records -> the number of those outside the structure, under its field of the curator's report.

    The single element is private: it is counted without noise, for the curator alone.

    Attributes:
        structure: Structure of the run's examples.
    """

    structure: Structure

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[tuple[str, int]]:
        return (
            records
            | 'OutsideStructure' >> beam.Filter(_is_outside, self.structure)
            | 'CountOutside' >> beam.combiners.Count.Globally()
            | 'NameOutside' >> beam.Map(_named).with_output_types(tuple[str, int])
        )


def _is_outside(record: Record, structure: Structure) -> bool:
    return not structure.holds(record.text)


def _named(count: int) -> tuple[str, int]:
    return 'records_outside_structure', count
