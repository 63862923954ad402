"""Corpora of JSON objects: do texts parse and fit a schema, and is each field like that of real texts?"""

from __future__ import annotations

import collections
import typing
from collections.abc import Mapping, Sequence

import numpy as np

from models import extras
from pipeline.evaluation import comparison
from pipeline.evaluation.json_objects import (
    MAX_CATEGORIES,
    MAX_FIELDS,
    MIN_FIELD_SHARE,
    MIN_TEXTS_PER_CATEGORY,
    SCALARS,
    TYPE_SHARE,
    Json,
    Objects,
    category_of,
    frequent_fields,
    json_type,
    kind_of,
    leaves_of,
    numbers_of,
    objects_of,
)
from pipeline.evaluation.measure import (
    Better,
    Chart,
    Figure,
    Findings,
    Measure,
    NotDefined,
    Progress,
    Series,
)
from pipeline.evaluation.sources import Sources

# Of the real texts, or of the corpus where there are none.
MIN_PARSED = 0.5
LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
MAX_CHARTS = 12
# Draws behind what two samples of one distribution differ by.
CHANCE_DRAWS = 1000


@typing.final
class Structure(Measure):
    """JSON texts: parse rate, validity, and the distribution of each field.

    Fields of nested objects are named by their path, 'patient.age'; a list counts as one value. The real
    texts, or the corpus if there are none, decide which fields are numbers and which have categories.
    """

    name = 'structure'
    title = 'JSON structure'
    question = 'Do texts parse, fit the schema, and have fields like those of real texts?'

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
        real_side = comparison.real_texts_if_any(sources)
        corpus = objects_of(sources.corpus, generator)
        real = None if real_side is None else objects_of(real_side, generator)
        judged = real or corpus
        if judged.rate < MIN_PARSED:
            raise NotDefined(
                f'It needs texts that are JSON objects, got {judged.rate:.0%} of {judged.name}, less than '
                f'{MIN_PARSED:.0%}.'
            )
        progress(1, 3)
        figures = [_share('parse_rate', 'Texts that are JSON objects', corpus.rate, 'higher')]
        if real is not None:
            figures.append(_share('parse_rate/real', 'Texts that are JSON objects, real', real.rate))
        if self._schema is not None:
            figures += self._validity(corpus, real)
        progress(2, 3)
        charts: list[Chart] = []
        fields = frequent_fields(judged)
        if corpus.objects:
            known = set(judged.fields)
            if real is not None:
                figures += _overview(corpus, known)
            for field in fields:
                of_field, of_charts = _field(field, corpus, real, generator)
                figures += of_field
                charts += of_charts
            distances = [
                each.value
                for each in figures
                if each.name.startswith('total_variation/') and each.value is not None
            ]
            if distances:
                figures.insert(
                    1,
                    Figure(
                        name='total_variation',
                        label='Total variation of categories, mean over fields',
                        value=float(np.mean(distances)),
                        better='lower',
                    ),
                )
        progress(3, 3)
        return Findings(
            settings={
                'texts_corpus': corpus.texts,
                'texts_real': 0 if real is None else real.texts,
                'real': 'none' if real is None else real.name,
                'schema': 'given, formats not checked' if self._schema is not None else 'none',
                'fields': len(fields),
                'most_fields': MAX_FIELDS,
                'least_field_share': MIN_FIELD_SHARE,
                'most_categories': MAX_CATEGORIES,
                'least_texts_per_category': MIN_TEXTS_PER_CATEGORY,
                'type_share': TYPE_SHARE,
                **comparison.library_versions(
                    *(['jsonschema'] if self._schema is not None else []), 'numpy', 'scipy'
                ),
            },
            figures=tuple(figures),
            charts=tuple(charts[:MAX_CHARTS]),
        )

    def _validity(self, corpus: Objects, real: Objects | None) -> list[Figure]:
        figures = [_share('valid', 'Texts that fit the schema', self._valid_share(corpus), 'higher')]
        if real is not None:
            figures.append(_share('valid/real', 'Texts that fit the schema, real', self._valid_share(real)))
        return figures

    def _valid_share(self, parsed: Objects) -> float:
        """Of all texts; one that is no object fits no schema here."""
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


def total_variation(counts: np.ndarray, other: np.ndarray) -> float:
    """Of the two distributions, from 0 to 1: half the sum of what shares differ by.

    Args:
        counts: `[categories]`, not all zero.
        other: `[categories]`, not all zero.
    """
    return float(np.abs(counts / counts.sum() - other / other.sum()).sum() / 2)


def chance_variation(counts: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> float:
    """Mean total variation of two samples of one distribution that are as large as these two.

    What is drawn at random out of both together is compared with what is left.
    """
    together = counts + other
    draws = generator.multivariate_hypergeometric(together, counts.sum(), size=CHANCE_DRAWS)
    return float(np.mean([total_variation(draw, together - draw) for draw in draws]))


def _overview(corpus: Objects, known: set[str]) -> list[Figure]:
    strange = sum(not known.issuperset(leaves_of(each)) for each in corpus.objects)
    return [
        _share(
            'unknown_fields',
            'Objects with a field that no real one has',
            strange / len(corpus.objects),
            'lower',
        )
    ]


def _share(name: str, label: str, value: float | None, better: Better = 'neither', note: str = '') -> Figure:
    return Figure(name=name, label=label, value=value, better=better, note=note)


def _field(
    field: str, corpus: Objects, real: Objects | None, generator: np.random.Generator
) -> tuple[list[Figure], list[Chart]]:
    own = corpus.fields.get(field, [])
    figures = [_share(f'missing/{field}', f'{field}: missing or null', corpus.missing(field))]
    if real is not None:
        theirs = real.fields[field]
        figures.append(
            _share(f'missing/{field}/real', f'{field}: missing or null, real', real.missing(field))
        )
        types = {json_type(value) for value in theirs}
        wrong = sum(json_type(value) not in types for value in own)
        figures.append(
            _share(
                f'wrong_type/{field}',
                f'{field}: of a JSON type that no real value has',
                wrong / len(own) if own else None,
                'lower',
            )
        )
    sides = [(corpus.name, own)]
    if real is not None:
        sides.append((real.name, real.fields[field]))
    match kind_of(sides[-1][1]):
        case 'category':
            more, charts = _categories(field, sides, generator)
        case 'number':
            more, charts = _ranges(field, sides)
        case _:
            return figures, []
    return figures + more, charts


def _categories(
    field: str, sides: Sequence[tuple[str, Sequence[Json]]], generator: np.random.Generator
) -> tuple[list[Figure], list[Chart]]:
    counters = [
        collections.Counter(category_of(value) for value in values if json_type(value) in SCALARS)
        for _, values in sides
    ]
    # Most frequent first, as the last side has them, which is the real one where there is one.
    known = [category for category, _ in counters[-1].most_common()]
    new = sorted(set(counters[0]) - set(known))
    counts = [np.array([counter[category] for category in [*known, *new]]) for counter in counters]
    figures = []
    if len(counts) == 2:
        defined = bool(counts[0].sum())
        figures = [
            Figure(
                name=f'total_variation/{field}',
                label=f'{field}: total variation',
                value=total_variation(counts[0], counts[1]) if defined else None,
                better='lower',
                note=(
                    'Share of values that would have to change. Two samples of the same texts differ by '
                    f'{chance_variation(counts[0], counts[1], generator):.3f} in the mean.'
                    if defined
                    else 'The corpus has no such value.'
                ),
            ),
            _share(
                f'new_categories/{field}',
                f'{field}: values that no real text has',
                float(counts[0][len(known) :].sum() / counts[0].sum()) if defined else None,
                'lower',
            ),
        ]
    names = [*known, 'others'] if new else known
    charts = [
        Chart(
            kind='bars',
            title=f'Values of {field}',
            x_label=field,
            y_label='Share of values',
            series=tuple(
                Series(
                    name=side,
                    x=tuple(names),
                    y=tuple(
                        float(count / max(of_side.sum(), 1))
                        for count in [
                            *of_side[: len(known)],
                            *([of_side[len(known) :].sum()] if new else []),
                        ]
                    ),
                )
                for (side, _), of_side in zip(sides, counts)
            ),
        )
    ]
    return figures, charts


def _ranges(field: str, sides: Sequence[tuple[str, Sequence[Json]]]) -> tuple[list[Figure], list[Chart]]:
    from scipy import stats

    numbers = [(side, numbers_of(values)) for side, values in sides]
    figures = []
    for place, (_, of_side) in enumerate(numbers):
        suffix, of = ('/real', ', real') if place else ('', '')
        for name, level in (('lowest', 0.0), ('median', 0.5), ('highest', 1.0)):
            value = float(np.quantile(of_side, level)) if len(of_side) else None
            figures.append(_share(f'{name}/{field}{suffix}', f'{field}: {name}{of}', value))
    if len(numbers) == 2:
        (_, own), (_, theirs) = numbers
        defined = len(own) and len(theirs)
        figures += [
            _share(
                f'outside_range/{field}',
                f'{field}: outside the range of real values',
                float(((own < theirs.min()) | (own > theirs.max())).mean()) if defined else None,
                'lower',
            ),
            Figure(
                name=f'kolmogorov_smirnov/{field}',
                label=f'{field}: Kolmogorov-Smirnov distance',
                value=float(stats.ks_2samp(own, theirs, method='asymp').statistic) if defined else None,
                better='lower',
                note='The most that the shares below a number differ by, whichever number it is.',
            ),
        ]
    chart = Chart(
        kind='lines',
        title=f'Quantiles of {field}',
        x_label='Share of values below',
        y_label=field,
        series=tuple(
            Series(name=side, x=LEVELS, y=tuple(float(value) for value in np.quantile(of_side, LEVELS)))
            for side, of_side in numbers
            if len(of_side)
        ),
    )
    return figures, [chart] if chart.series else []
