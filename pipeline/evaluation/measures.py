"""The table of measures, in the order of the page. A new measure is a file and a line here."""

import json
import pathlib

from models import extras
from models.decoders import family
from pipeline.evaluation.copies import Copies
from pipeline.evaluation.holdout import Holdout
from pipeline.evaluation.in_context.in_context import InContext
from pipeline.evaluation.labels import Labels
from pipeline.evaluation.mauve_score import Mauve
from pipeline.evaluation.measure import Measure
from pipeline.evaluation.near_duplicates import NearDuplicates
from pipeline.evaluation.settings import EvaluationSettings
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
    # The verdict rests on these.
    Use(),
    Labels(),
    Mauve(),
    Holdout(),
    Surface(),
    Structure(),
    NearDuplicates(),
    Copies(),
    # It takes minutes.
    InContext(),
):
    register(_measure)


def measures_of(settings: EvaluationSettings) -> list[Measure]:
    """The measures that settings ask for, in the order of the table.

    Raises:
        ValueError: No measure has such a name, a file is no JSON Schema, or weights are of another model.
        FileNotFoundError: There is no such file.
    """
    table = dict(MEASURES)
    if settings.json_schema is not None:
        table[Structure.name] = Structure(_json_of(settings.json_schema))
    if (in_context := settings.in_context) is not None:
        extras.need(extras.GEMMA, use=f'in_context_model={in_context.model!r}')
        decoders, files = family.family_of(in_context.model), in_context.files
        decoders.check_files(in_context.model, files)
        # Loads native libraries now: the caller holds back what they print, and cannot while progress shows.
        decoders.load_tokenizer(in_context.model, files.tokenizer).encode_batch(['.'])
        table[InContext.name] = InContext(in_context)
    names = tuple(table) if settings.only is None else settings.only
    if not names or set(names) - set(table):
        raise ValueError(
            f'Expected names of measures, got only={",".join(names)!r}. Choose from: {", ".join(table)}.'
        )
    return [measure for name, measure in table.items() if name in names]


def _json_of(path: str) -> dict[str, object]:
    """The JSON object in a file; `Structure` checks that it is a schema."""
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
    except ValueError as error:
        raise ValueError(f'Expected JSON, got json_schema={path!r}: {error}. Mend it.') from error
    if not isinstance(content, dict):
        raise ValueError(f'Expected a JSON object, got json_schema={path!r} with another value. Mend it.')
    return content
