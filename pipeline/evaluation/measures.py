"""The table of measures, in the order of the page. A new measure is a file and a line here."""

from pipeline.evaluation.copies import Copies
from pipeline.evaluation.holdout import Holdout
from pipeline.evaluation.in_context.in_context import InContext
from pipeline.evaluation.labels import Labels
from pipeline.evaluation.mauve_score import Mauve
from pipeline.evaluation.measure import Measure
from pipeline.evaluation.near_duplicates import NearDuplicates
from pipeline.evaluation.structure import Structure
from pipeline.evaluation.surface import Surface
from pipeline.evaluation.use import Use

MEASURES: dict[str, Measure] = {}


def register(measure: Measure) -> None:
    """Adds a measure to the end of the table.

    Raises:
        ValueError: Another measure has its name.
    """
    if measure.name in MEASURES:
        raise ValueError(
            f'Expected a name of its own, got name={measure.name!r}. Taken: {", ".join(MEASURES)}.'
        )
    MEASURES[measure.name] = measure


for _measure in (
    Use(),
    InContext(),
    Labels(),
    Mauve(),
    Surface(),
    Structure(),
    NearDuplicates(),
    Copies(),
    Holdout(),
):
    register(_measure)
