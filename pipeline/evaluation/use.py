"""Use: how well a classifier that is trained on synthetic texts alone does on real ones."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping
from typing import final

import numpy as np

from pipeline.evaluation import classifiers
from pipeline.evaluation.classifiers import KINDS, TITLES, Kind, Labelled, Scores
from pipeline.evaluation.measure import (
    Chart,
    Figure,
    Findings,
    Measure,
    NotDefined,
    Progress,
    Series,
)
from pipeline.evaluation.sources import Sources, Texts

# The learning curve: the whole, its half, and so on, at most so many sizes of at least so many texts.
MOST_SIZES = 6
LEAST_SIZE = 20
# Subsets of a size, and shuffles.
DRAWS = 3
# Sources of learning curves.
_OF = {'corpus': 'corpus', 'real': 'records'}
# Comparisons: a name, and the one in the table.
_CEILING, _PUBLIC, _FLOOR = (
    ('real', 'trained on records'),
    ('public', 'trained on the public prompt alone'),
    ('shuffled', 'trained on shuffled labels'),
)


@dataclasses.dataclass(frozen=True)
class _Trial:
    """One training set: of what, of how many texts, and which draw of them."""

    of: str
    size: int
    draw: int = 0


type _Results = Mapping[tuple[Kind, _Trial], Scores]


@final
class Use(Measure):
    """Train on synthetic texts, test on real ones.

    Texts of the corpus whose label no test text has are dropped. A test text whose label no corpus text
    has is an error, and counts as such. What the corpus is compared with is trained on as many texts as
    the corpus has, or all there are.
    """

    name = 'use'
    title = 'Use'
    question = 'How well does a classifier that was trained on the corpus do on real texts?'
    source = 'FT section 4.3.1 (TF-IDF and deep classifiers, corpora of several sizes); PP section 5.2'
    needs = frozenset({'test'})
    needs_labels = True

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        assert sources.test is not None
        test = classifiers.capped(sources, sources.test)
        corpus = classifiers.capped(sources, sources.corpus)
        classes = classifiers.classes_of(test)
        met = collections.Counter(corpus.labels)
        lacking = [label for label in classes if not met[label]]
        if len(classes) - len(lacking) < 2:
            raise NotDefined(
                f'The corpus has {len(classes) - len(lacking)} of the {len(classes)} labels of the test '
                'texts, and a classifier needs two.'
            )
        tests = classifiers.labelled(sources, test, classes)
        trained = classifiers.labelled(sources, corpus, classes)
        most = len(trained)
        real, no_real = _comparison(sources, sources.records, classes, 'records')
        public, no_public = _comparison(sources, sources.public, classes, 'public texts')

        whole, sizes = _Trial('corpus', most), _sizes(most)
        plan = {whole: (trained, np.arange(most))}
        # Trained once, so that other draws of their texts have to be made up.
        once = [whole]
        plan |= _subsets(sources, 'corpus', trained, sizes[:-1])
        if real is not None:
            # The last of the sizes once: the ceiling.
            plan |= _subsets(sources, 'real', real, [size for size in sizes[:-1] if size < len(real)])
            plan |= _subsets(sources, 'real', real, [min(most, len(real))], draws=1)
            once.append(_Trial('real', min(most, len(real))))
        if public is not None:
            plan |= _subsets(sources, 'public', public, [min(most, len(public))], draws=1)
            once.append(_Trial('public', min(most, len(public))))
        for draw in range(DRAWS):
            labels = classifiers.draws(sources, 'shuffle', draw).permutation(trained.labels)
            shuffled = dataclasses.replace(trained, labels=labels)
            plan[_Trial('shuffled', most, draw)] = (shuffled, np.arange(most))
        results = _run(sources, plan, once, tests, len(classes), progress)

        comparisons = ((_CEILING, real, no_real), (_PUBLIC, public, no_public), (_FLOOR, trained, ''))
        figures = [
            *(figure for kind in KINDS for figure in _totals(kind, results[kind, whole])),
            *itertools.chain.from_iterable(
                _compared(name, label, texts, note, most, results)
                for (name, label), texts, note in comparisons
            ),
            Figure(
                name='majority_accuracy',
                label='Accuracy, majority label',
                value=float(np.bincount(tests.labels).max() / len(tests)),
                note='The best answer that is the same for all test texts.',
            ),
            *_counts(most, len(corpus) - most, len(tests), len(lacking)),
            *_by_label(results, whole, classes, lacking),
            *_by_size(results),
        ]
        return Findings(
            settings={
                **classifiers.settings(sources, len(classes)),
                'standard_error': 'bootstrap over test texts and over texts trained on; of smaller sizes '
                'and shuffles, over draws',
                'bootstrap_resamples': classifiers.RESAMPLES,
                'bootstrap_retrained': classifiers.RETRAINED,
                'most_retrained_on': classifiers.MOST_RETRAINED_ON,
                'most_tested_of_retrained': classifiers.MOST_RETESTED,
                'draws': DRAWS,
                'sizes': ', '.join(map(str, sizes)),
            },
            figures=tuple(figures),
            charts=(_curves(results),),
        )


def _comparison(
    sources: Sources, texts: Texts | None, classes: tuple[str, ...], name: str
) -> tuple[Labelled | None, str]:
    """Texts that the corpus is compared with, or None and why."""
    if texts is None:
        return None, f'No {name} were given.'
    if texts.labels is None:
        return None, f'The {name} have no labels.'
    labelled = classifiers.labelled(sources, classifiers.capped(sources, texts), classes)
    if len(np.unique(labelled.labels)) < 2:
        return None, f'The {name} have fewer than two of the labels of the test texts.'
    return labelled, ''


def _sizes(most: int) -> list[int]:
    """Halves of the whole, ascending, the whole last."""
    halves = [most >> power for power in range(MOST_SIZES)]
    return sorted({most, *(size for size in halves if size >= LEAST_SIZE)})


def _subsets(
    sources: Sources, name: str, texts: Labelled, sizes: list[int], draws: int = DRAWS
) -> dict[_Trial, tuple[Labelled, np.ndarray]]:
    """Seeded subsets; the smaller ones of a draw are parts of its larger ones."""
    plan: dict[_Trial, tuple[Labelled, np.ndarray]] = {}
    for draw in range(draws):
        order = classifiers.draws(sources, name, draw).permutation(len(texts))
        plan |= {_Trial(name, size, draw): (texts, order[:size]) for size in sizes}
    return plan


def _run(
    sources: Sources,
    plan: Mapping[_Trial, tuple[Labelled, np.ndarray]],
    once: Collection[_Trial],
    tests: Labelled,
    classes: int,
    progress: Progress,
) -> dict[tuple[Kind, _Trial], Scores]:
    results = {}
    for done, (trial, (texts, rows)) in enumerate(plan.items(), start=1):
        chosen = texts.take(rows)
        for kind in KINDS:
            predicted = classifiers.train(kind, chosen, classes)(tests).argmax(axis=1)
            scored = classifiers.scores(tests.labels, predicted, classes)
            if trial in once:
                rng = classifiers.draws(sources, 'bootstrap')
                scored = classifiers.with_errors(scored, kind, chosen, tests, predicted, rng)
            results[kind, trial] = scored
        progress(done, len(plan))
    return results


def _totals(kind: Kind, scores: Scores) -> list[Figure]:
    return [
        Figure(
            name=f'{kind}_accuracy',
            label=f'Accuracy, {TITLES[kind]}',
            value=scores.accuracy,
            standard_error=scores.accuracy_error,
            better='higher',
        ),
        Figure(
            name=f'{kind}_macro_f1',
            label=f'Macro-F1, {TITLES[kind]}',
            value=scores.macro_f1,
            standard_error=scores.macro_f1_error,
            better='higher',
        ),
    ]


def _compared(
    name: str, label: str, texts: Labelled | None, note: str, most: int, results: _Results
) -> list[Figure]:
    """Figures of a comparison; without a value where there is nothing to train on."""
    if texts is not None and len(texts) < most:
        note = f'Trained on {len(texts)} texts, where the corpus has {most}.'
    figures = []
    for kind in KINDS:
        value, error = _accuracy(results, kind, name, min(most, len(texts or ())))
        figures.append(
            Figure(
                name=f'{kind}_{name}_accuracy',
                label=f'Accuracy, {TITLES[kind]}, {label}',
                value=value,
                standard_error=error,
                note=note,
            )
        )
    return figures


def _accuracy(results: _Results, kind: Kind, name: str, size: int) -> tuple[float | None, float | None]:
    """Mean and its standard error over draws; of one draw, its own error; None of none."""
    trained = [
        scored
        for (its_kind, trial), scored in results.items()
        if (its_kind, trial.of, trial.size) == (kind, name, size)
    ]
    if len(trained) < 2:
        return (trained[0].accuracy, trained[0].accuracy_error) if trained else (None, None)
    values = np.array([each.accuracy for each in trained])
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def _counts(trained: int, dropped: int, tests: int, lacking: int) -> list[Figure]:
    return [
        Figure(name='corpus_texts', label='Texts trained on', value=trained),
        Figure(
            name='dropped_texts',
            label='Corpus texts left out',
            value=dropped,
            better='lower',
            note='Their label is none of the test texts.' if dropped else '',
        ),
        Figure(name='test_texts', label='Texts tested on', value=tests),
        Figure(
            name='lacking_labels',
            label='Labels that the corpus lacks',
            value=lacking,
            better='lower',
            note='Test texts of these labels count as errors.' if lacking else '',
        ),
    ]


def _by_label(results: _Results, whole: _Trial, classes: tuple[str, ...], lacking: list[str]) -> list[Figure]:
    figures = []
    for kind in KINDS:
        figures += [
            Figure(
                name=f'{kind}_f1_by_label/{label}',
                label=f'F1 of {label}, {TITLES[kind]}',
                value=float(f1),
                better='higher',
                note='The corpus has no text of this label.' if label in lacking else '',
            )
            for label, f1 in zip(classes, results[kind, whole].f1, strict=True)
        ]
    return figures


def _curve(results: _Results, kind: Kind, name: str) -> list[tuple[int, float, float | None]]:
    """Size, mean accuracy and its standard error, ascending by size."""
    points = []
    for size in sorted({trial.size for _, trial in results if trial.of == name}):
        value, error = _accuracy(results, kind, name, size)
        assert value is not None
        points.append((size, value, error))
    return points


def _by_size(results: _Results) -> list[Figure]:
    return [
        Figure(
            name=f'{kind}_{name}_accuracy_by_size/{size}',
            label=f'Accuracy, {TITLES[kind]}, {size} texts of the {title}',
            value=value,
            standard_error=error,
        )
        for kind in KINDS
        for name, title in _OF.items()
        for size, value, error in _curve(results, kind, name)
    ]


def _curves(results: _Results) -> Chart:
    series = []
    for kind in KINDS:
        for name, title in _OF.items():
            points = _curve(results, kind, name)
            if points:
                series.append(
                    Series(
                        name=f'{TITLES[kind]}, {title}',
                        x=tuple(float(size) for size, _, _ in points),
                        y=tuple(value for _, value, _ in points),
                        real=name == 'real',
                    )
                )
    return Chart(
        kind='lines',
        title='Accuracy on real texts by how many texts a classifier was trained on',
        x_label='texts trained on',
        y_label='accuracy',
        series=tuple(series),
        together=True,
    )
