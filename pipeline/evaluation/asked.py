"""What the flags of `dp-corpus evaluate` ask for: which measures, on which texts."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from models import extras, fetched
from models.clustering.centers import ClusterSettings
from models.decoders import device, family
from pipeline.evaluation import evaluation, measures, reading
from pipeline.evaluation.evaluation import Evaluation, OnProgress
from pipeline.evaluation.in_context.in_context import InContext
from pipeline.evaluation.in_context.settings import InContextSettings
from pipeline.evaluation.measure import Measure
from pipeline.evaluation.reading import ReadTexts
from pipeline.evaluation.sources import Sources, Texts
from pipeline.evaluation.structure import Structure


def measures_of(
    only: str | None,
    *,
    json_schema: str | None = None,
    in_context: InContextSettings | None = None,
) -> list[Measure]:
    """The measures that a comma list names, in the order of the table.

    Args:
        only: The comma list of names; None for all measures.
        json_schema: File of a JSON Schema that each text should fit.
        in_context: The decoder for in-context use.

    Raises:
        ValueError: No measure has such a name, a file is no JSON Schema, or weights are of another model.
        FileNotFoundError: There is no such file.
    """
    table = dict(measures.MEASURES)
    if json_schema is not None:
        table[Structure.name] = Structure(_json_of(json_schema))
    if in_context is not None:
        extras.need(extras.GEMMA, use=f'in_context_model={in_context.model!r}')
        own, files = family.family_of(in_context.model), in_context.files
        own.check_files(in_context.model, files)
        # Loads native libraries now: the caller holds back what they print, and cannot while progress shows.
        own.load_tokenizer(in_context.model, files.tokenizer).encode_batch(['.'])
        table[InContext.name] = InContext(in_context)
    if only is None:
        return list(table.values())
    names = listed(only)
    unknown = [name for name in names if name not in table]
    if unknown or not names:
        raise ValueError(f'Expected names of measures, got only={only!r}. Choose from: {", ".join(table)}.')
    return [measure for name, measure in table.items() if name in names]


def listed(text: str) -> tuple[str, ...]:
    """The parts of a comma list."""
    return tuple(part.strip() for part in text.split(',') if part.strip())


def in_context_settings(model: str | None, **given: Any) -> InContextSettings | None:
    """The decoder for in-context use, from the values of flags; None without a model.

    Args:
        model: Its name.
        given: Fields of `InContextSettings`, None where a flag was not given; `labels` as a comma list.

    Raises:
        ValueError: There is a value but no model, or a field refuses its value.
    """
    values = {name: value for name, value in given.items() if value is not None}
    if model is None:
        if values:
            raise ValueError(
                f'Expected a model with {", ".join(values)}, got in_context_model=None. Give '
                '--in-context-model, or leave them out.'
            )
        return None
    if 'labels' in values:
        values['labels'] = listed(values['labels'])
    return InContextSettings(model=model, **values)


def _json_of(path: str) -> dict[str, object]:
    """The JSON object in a file; `Structure` checks that it is a schema."""
    try:
        found = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
    except ValueError as error:
        raise ValueError(f'Expected JSON, got json_schema={path!r}: {error}. Mend it.') from error
    if not isinstance(found, dict):
        raise ValueError(f'Expected a JSON object, got json_schema={path!r} with another value. Mend it.')
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """Which corpora are compared, and with which texts.

    Attributes:
        corpora: (name, place) of each corpus.
        records: Place of the sensitive records, or None.
        test: Place of texts that no run has read, or None.
        public: Place of a corpus of the public prompt alone, or None.
        text_field: Column of texts in files.
        label_field: Column of labels in files, or None.
        attributes: Columns whose values together are the label, in place of one.
        unit_field: Column of units of privacy in the files of `records` and `test`, or None.
        delimiter: Character between columns of CSV files; None where their header lines show it.
        encoding: Encoding of files of text; None where their beginnings show it.
        quoting: Quotes in CSV files.
        embedder: 'tfidf', 'minilm', 'decoder', or a folder of MiniLM weights.
        seed: Of every draw.
        embedder_model: Model whose hidden states 'decoder' takes; the bundled one by default.
    """

    corpora: tuple[tuple[str, str], ...]
    records: str | None
    test: str | None
    public: str | None
    text_field: str
    label_field: str | None
    embedder: str
    seed: int
    embedder_model: str = 'bundled'
    attributes: tuple[str, ...] = ()
    unit_field: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    quoting: str = 'double'

    def __post_init__(self) -> None:
        model = self.embedder_model
        if model == 'bundled':
            return
        if self.embedder != 'decoder':
            raise ValueError(
                f"Expected a model with embedder='decoder' only, got embedder={self.embedder!r}, "
                f'embedder_model={model!r}. Add --embedder decoder, or leave the model out.'
            )
        if family.family_of(model).known_files(model) is None:
            raise ValueError(
                f'Expected a model whose weights are here, got embedder_model={model!r}. Leave it out for '
                f'the bundled one, or give {fetched.MODEL} after dp-corpus models fetch {fetched.MODEL}.'
            )

    def read(self) -> list[tuple[str, ReadTexts]]:
        """(role, texts) of every source.

        Raises:
            ValueError: See `reading.read_source`.
            FileNotFoundError: See `reading.read_source`.
        """
        places = [('corpus', name, place) for name, place in self.corpora]
        for role in ('records', 'test', 'public'):
            if (place := getattr(self, role)) is not None:
                places.append((role, role, place))
        found = []
        for role, name, place in places:
            flag = 'CORPUS' if role == 'corpus' else f'--{role}'
            texts = reading.read_source(
                place,
                name=name,
                flag=flag,
                text_field=self.text_field,
                label_field=self.label_field,
                attributes=self.attributes,
                unit_field=self.unit_field if role in ('records', 'test') else None,
                delimiter=self.delimiter,
                encoding=self.encoding,
                quoting=self.quoting,
            )
            found.append((role, texts))
        return found

    def evaluate(
        self,
        read: Sequence[tuple[str, ReadTexts]],
        chosen: Sequence[Measure],
        on_progress: OnProgress | None = None,
    ) -> Evaluation:
        """Runs the chosen measures on what was read."""
        # Of a large model in the type that is fast here; the fingerprint has it.
        dtype = 'float32' if self.embedder_model == 'bundled' else device.fastest_dtype()
        settings = ClusterSettings.of_embedder(
            self.embedder, model=self.embedder_model, checkpoint=None, tokenizer=None, dtype=dtype
        )
        embedder = settings.load_embedder()
        beside: dict[str, Texts] = {role: one.texts for role, one in read if role != 'corpus'}
        corpora = [
            Sources(corpus=one.texts, embedder=embedder, seed=self.seed, **beside)
            for role, one in read
            if role == 'corpus'
        ]
        return evaluation.evaluate(
            corpora,
            chosen,
            left_out=[(one.texts.name, role, one.left_out) for role, one in read],
            on_progress=on_progress,
        )
