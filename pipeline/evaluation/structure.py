"""Corpora of JSON objects: do texts parse and fit a schema, and has each field values as real texts have?"""

from __future__ import annotations

import collections
import dataclasses
import json
import typing
from collections.abc import Mapping, Sequence

import numpy as np

from models import extras
from pipeline.evaluation import comparison
from pipeline.evaluation.measure import Better, Chart, Figure, Findings, Measure, NotDefined, Progress, Series
from pipeline.evaluation.sources import Sources, Texts

MAX_TEXTS = 10_000
# Share of the real texts, or of the corpus where there are none.
MIN_PARSED = 0.5
# Fields that fewer objects have are left out: keys that are data themselves.
MIN_FIELD_SHARE = 0.01
MAX_FIELDS = 30
# A field has categories if its values are this few, and each occurs this often in the mean.
MAX_CATEGORIES = 30
MIN_TEXTS_PER_CATEGORY = 3
MAX_CHARTS = 12
# Draws behind what two samples of one distribution differ by.
CHANCE_DRAWS = 1000

type Json = None | bool | int | float | str | list[Json] | dict[str, Json]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objects:
    """The objects among a sample of one source's texts.

    Attributes:
        texts: How many were parsed.
        objects: Those that are objects.
        fields: Categories that are present of each field, by its path.
    """

    name: str
    texts: int
    objects: list[dict[str, Json]] = dataclasses.field(repr=False)
    fields: Mapping[str, list[str]] = dataclasses.field(repr=False)

    @property
    def rate(self) -> float:
        """Share of the texts that are objects."""
        return len(self.objects) / self.texts


@typing.final
class Structure(Measure):
    """JSON texts: parse rate, validity, and the distribution of each field of few values.

    Fields of nested objects are named by their path, 'patient.age'; a list counts as one value. The real
    texts, or the corpus if there are none, decide which fields have categories.
    """

    name = 'structure'
    title = 'JSON structure'
    question = 'Do texts parse, fit the schema, and have fields like those of real texts?'
    source = 'PP section 5.3 (parse rate and validity)'

    def __init__(self, schema: Mapping[str, typing.Any] | None = None) -> None:
        """Takes a JSON schema.

        Args:
            schema: What each text has to fit; None to leave validity out.

        Raises:
            MissingExtraError: A library is not installed.
            ValueError: It is no JSON schema.
        """
        self._schema = schema
        if schema is not None:
            extras.need(extras.EVALUATE, use='a JSON schema', only='jsonschema')
            import jsonschema

            try:
                jsonschema.validators.validator_for(schema).check_schema(schema)
            except jsonschema.SchemaError as error:
                raise ValueError(
                    f'Expected a JSON schema, got an error at {error.json_path!r}: {error.message}. '
                    'Mend the schema.'
                ) from None

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        generator = np.random.default_rng(sources.seed)
        real_texts = comparison.real_texts_if_any(sources)
        sides = [
            objects_of(source, generator) for source in (sources.corpus, real_texts) if source is not None
        ]
        corpus, judged = sides[0], sides[-1]
        if judged.rate < MIN_PARSED:
            raise NotDefined(
                f'It needs texts that are JSON objects, got {judged.rate:.0%} of {judged.name}, less than '
                f'{MIN_PARSED:.0%}.'
            )
        progress(1, 2)
        figures = []
        for side, suffix, ending, better in zip(sides, ('', '/real'), ('', ', real'), _BETTER):
            figures.append(
                _share(f'parse_rate{suffix}', f'Texts that are JSON objects{ending}', side.rate, better)
            )
            if self._schema is not None:
                valid = self._valid_share(side)
                figures.append(_share(f'valid{suffix}', f'Texts that fit the schema{ending}', valid, better))
        fields = frequent_fields(judged) if corpus.objects else []
        charts: list[Chart] = []
        for field in fields:
            for side, suffix, ending in zip(sides, ('', '/real'), ('', ', real')):
                missing = 1 - len(side.fields.get(field, ())) / len(side.objects)
                figures.append(
                    _share(f'missing/{field}{suffix}', f'{field}: missing or null{ending}', missing)
                )
            if has_categories(judged.fields[field]):
                of_field, chart = _categories(field, sides, generator)
                figures += of_field
                charts.append(chart)
        return Findings(
            settings={
                'texts_corpus': corpus.texts,
                'texts_real': 0 if real_texts is None else judged.texts,
                'real': 'none' if real_texts is None else judged.name,
                'schema': 'given, formats not checked' if self._schema is not None else 'none',
                'fields': len(fields),
                'most_fields': MAX_FIELDS,
                'least_field_share': MIN_FIELD_SHARE,
                'most_categories': MAX_CATEGORIES,
                'least_texts_per_category': MIN_TEXTS_PER_CATEGORY,
                **comparison.library_versions(*(['jsonschema'] if self._schema is not None else []), 'numpy'),
            },
            figures=tuple(figures),
            charts=tuple(charts[:MAX_CHARTS]),
        )

    def _valid_share(self, parsed: Objects) -> float:
        """Share of all texts that fit; one that is no object fits no schema here."""
        import jsonschema
        import jsonschema_specifications
        import referencing

        validator = jsonschema.validators.validator_for(self._schema)(
            # A registry of its own: the default one fetches what a schema refers to.
            self._schema,
            registry=jsonschema_specifications.REGISTRY,
        )
        try:
            return sum(map(validator.is_valid, parsed.objects)) / parsed.texts
        except referencing.exceptions.Unresolvable as error:
            raise NotDefined(
                f'The schema refers to {error.ref!r}, which is not inside it, and nothing is fetched. Put it '
                'into its $defs.'
            ) from None
        except RecursionError:
            raise NotDefined('The schema has a $ref that leads back to itself. Mend it.') from None


_BETTER: tuple[Better, Better] = ('higher', 'neither')


def parse_object(text: str) -> dict[str, Json] | None:
    """The JSON object (RFC 8259) that a text is, spaces around it aside; else None."""
    try:
        parsed = json.loads(text, parse_constant=_refuse)
    # A number of thousands of digits, or lists thousands deep.
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _refuse(constant: str) -> typing.NoReturn:
    """NaN and Infinity, which Python reads, are no JSON."""
    raise ValueError(f'Expected JSON, got {constant}. Leave it out.')


def objects_of(texts: Texts, generator: np.random.Generator) -> Objects:
    """Parses the texts of a source, or a sample of `MAX_TEXTS` of them."""
    rows = comparison.drawn(generator, len(texts), min(len(texts), MAX_TEXTS))
    objects = [parsed for row in rows if (parsed := parse_object(texts.texts[row])) is not None]
    fields: dict[str, list[str]] = collections.defaultdict(list)
    for each in objects:
        for path, value in _leaves_of(each).items():
            fields[path].append(_writable(value) if isinstance(value, str) else json.dumps(value))
    return Objects(name=texts.name, texts=len(rows), objects=objects, fields=dict(fields))


def _leaves_of(whole: dict[str, Json]) -> dict[str, Json]:
    """Values that are neither objects nor null, by their path; of two with one path, the last."""
    leaves: dict[str, Json] = {}
    open_objects: list[tuple[str, dict[str, Json]]] = [('', whole)]
    while open_objects:
        prefix, current = open_objects.pop()
        for key, value in current.items():
            if isinstance(value, dict):
                open_objects.append((f'{prefix}{key}.', value))
            elif value is not None:
                leaves[_writable(f'{prefix}{key}')] = value
    return leaves


def _writable(text: str) -> str:
    """The text without halves of surrogate pairs, which JSON may escape and no file may hold."""
    return text.encode('utf-8', 'replace').decode()


def frequent_fields(side: Objects) -> list[str]:
    """Fields that enough objects have, most frequent first."""
    least = max(MIN_FIELD_SHARE * len(side.objects), 2)
    often = [field for field, values in side.fields.items() if len(values) >= least]
    return sorted(often, key=lambda field: (-len(side.fields[field]), field))[:MAX_FIELDS]


def has_categories(values: Sequence[str]) -> bool:
    """True if the values of a field are few and come again."""
    distinct = len(set(values))
    return distinct <= MAX_CATEGORIES and distinct * MIN_TEXTS_PER_CATEGORY <= len(values)


def total_variation(counts: np.ndarray, other: np.ndarray) -> float:
    """Half the sum of the differences of two distributions' shares `[categories]`, from 0 to 1."""
    return float(np.abs(counts / counts.sum() - other / other.sum()).sum() / 2)


def chance_variation(counts: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> float:
    """Mean total variation of two samples of one distribution that are as large as these two.

    What is drawn at random out of both together is compared with what is left.
    """
    together = counts + other
    draws = generator.multivariate_hypergeometric(together, counts.sum(), size=CHANCE_DRAWS)
    return float(np.mean([total_variation(draw, together - draw) for draw in draws]))


def _share(name: str, label: str, value: float | None, better: Better = 'neither', note: str = '') -> Figure:
    return Figure(name=name, label=label, value=value, better=better, note=note)


def _categories(
    field: str, sides: Sequence[Objects], generator: np.random.Generator
) -> tuple[list[Figure], Chart]:
    counters = [collections.Counter(side.fields.get(field, ())) for side in sides]
    # Most frequent first, as the last side has them, which is the real one where there is one.
    known = [category for category, _ in counters[-1].most_common()]
    new = sorted(set(counters[0]) - set(known))
    counts = [np.array([counter[category] for category in [*known, *new]]) for counter in counters]
    figures = []
    if len(counts) == 2:
        variation: float | None = None
        share_of_new: float | None = None
        note = 'The corpus has no such value.'
        if counts[0].sum():
            variation = total_variation(counts[0], counts[1])
            chance = chance_variation(counts[0], counts[1], generator)
            note = (
                'Share of values that would have to change. Two samples of the same texts differ by '
                f'{chance:.3f} in the mean.'
            )
            share_of_new = float(counts[0][len(known) :].sum() / counts[0].sum())
        figures = [
            _share(f'total_variation/{field}', f'{field}: total variation', variation, 'lower', note),
            _share(
                f'new_categories/{field}', f'{field}: values that no real text has', share_of_new, 'lower'
            ),
        ]
    names = [*known, 'others'] if new else known
    series = []
    for side, of_side in zip(sides, counts):
        bars = np.append(of_side[: len(known)], of_side[len(known) :].sum()) / max(of_side.sum(), 1)
        series.append(Series(name=side.name, x=tuple(names), y=tuple(bars[: len(names)].tolist())))
    return figures, Chart(
        kind='bars',
        title=f'Values of {field}',
        x_label=field,
        y_label='Share of values',
        series=tuple(series),
    )
