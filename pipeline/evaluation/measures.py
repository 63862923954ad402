"""The table of measures, in the order of the page."""

from pipeline.evaluation.measure import Measure

MEASURES: dict[str, Measure] = {}


def register(measure: Measure) -> None:
    """Adds a measure to the table.

    Raises:
        ValueError: Its name is taken.
    """
    if measure.name in MEASURES:
        raise ValueError(
            f'Expected a name of its own, got name={measure.name!r}. Taken: {", ".join(MEASURES)}.'
        )
    MEASURES[measure.name] = measure
