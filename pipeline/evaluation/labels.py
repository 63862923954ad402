"""Labels: whether a synthetic text is of the label that it carries."""

from __future__ import annotations

import dataclasses
import math
from typing import final

import numpy as np

from pipeline.evaluation import classifiers
from pipeline.evaluation.classifiers import KINDS, TITLES, Kind, Labelled
from pipeline.evaluation.measure import (
    Chart,
    Figure,
    Findings,
    Measure,
    NotDefined,
    Progress,
    Sample,
    Series,
)
from pipeline.evaluation.sources import Sources

MOST_SAMPLES = 6
# Rows and columns of the confusion matrix, the labels that the corpus has most of.
MOST_CELLS = 30
_OTHERS = '(others)'


@dataclasses.dataclass(frozen=True)
class _Verdict:
    """What one judge says of the corpus and of real texts that it was not trained on.

    Attributes:
        corpus: Probabilities of labels, `[n, K]`.
        wrong: Whether it would label a text of the corpus otherwise, `[n]`.
        errs: Whether it labels a real text wrongly, `[m]`.
    """

    corpus: np.ndarray
    wrong: np.ndarray
    errs: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Share:
    """A share of texts, or a difference of two, and its standard error."""

    value: float
    error: float


@final
class Labels(Measure):
    """Classifiers trained on real texts judge the labels of synthetic ones.

    They are trained on the records where these have labels, else on one half of the test texts, and their
    own error is that on the test texts, or the other half. A judge that errs calls right labels wrong:
    what counts is how much more often it disagrees with the corpus than with real texts of the same labels.
    It also agrees with a text that repeats a record which it was trained on.
    """

    name = 'labels'
    title = 'Labels'
    question = 'Is a text of the label that it carries?'
    source = 'FT section 3.2 (faulty labels)'
    needs = frozenset({'test'})
    needs_labels = True

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        train, check, classes, name = _real(sources)
        if len(np.unique(train.labels)) < 2:
            raise NotDefined(f'The {name} have fewer than two labels, and a judge needs two.')
        capped = classifiers.capped(sources, sources.corpus)
        corpus = classifiers.labelled(sources, capped, classes)
        if not len(check):
            raise NotDefined(f'No text is left to check a judge on that is trained on {name}.')
        if not len(corpus):
            raise NotDefined(f'No text of the corpus has a label of the {name}.')

        verdicts: dict[Kind, _Verdict] = {}
        for done, kind in enumerate(KINDS, start=1):
            judge = classifiers.train(kind, train, len(classes))
            probabilities = judge(corpus)
            verdicts[kind] = _Verdict(
                corpus=probabilities,
                wrong=probabilities.argmax(axis=1) != corpus.labels,
                errs=judge(check).argmax(axis=1) != check.labels,
            )
            progress(done, len(KINDS))
        best = min(KINDS, key=lambda kind: verdicts[kind].errs.mean())
        verdict = verdicts[best]
        present = [int(place) for place in np.unique(corpus.labels)]
        # The most frequent first, so that a large matrix shows the labels that count.
        order = sorted(present, key=lambda place: (-int((corpus.labels == place).sum()), place))

        figures = [
            *(
                figure
                for kind in KINDS
                for figure in _totals(kind, verdicts[kind], corpus, check, kind == best)
            ),
            Figure(name='corpus_texts', label='Texts judged', value=len(corpus)),
            Figure(
                name='unknown_texts',
                label='Texts whose label the judge does not know',
                value=len(capped) - len(corpus),
                better='lower',
                note='Not judged.' if len(capped) > len(corpus) else '',
            ),
            Figure(name='judge_texts', label='Real texts that judges are trained on', value=len(train)),
            Figure(name='check_texts', label='Real texts that judges are checked on', value=len(check)),
            *(_wrong_of_label(place, classes, verdict, corpus, check) for place in present),
        ]
        return Findings(
            settings={
                **classifiers.settings(sources, len(classes)),
                'judges_trained_on': name,
                'judge_by_label': TITLES[best],
                'standard_error': 'binomial over texts',
            },
            figures=tuple(figures),
            charts=(
                _bars(verdict, corpus, check, order[:MOST_CELLS], classes),
                _cells(verdict, corpus, order, classes),
            ),
            samples=_samples(verdict, corpus, classes),
        )


def _real(sources: Sources) -> tuple[Labelled, Labelled, tuple[str, ...], str]:
    """What judges are trained on and checked on, their labels, and what the former is called."""
    assert sources.test is not None
    test = classifiers.capped(sources, sources.test)
    if sources.records is not None and sources.records.labels is not None:
        records = classifiers.capped(sources, sources.records)
        classes = classifiers.classes_of(records)
        train, check = (classifiers.labelled(sources, each, classes) for each in (records, test))
        return train, check, classes, 'records'
    classes = classifiers.classes_of(test)
    known = classifiers.labelled(sources, test, classes)
    # Every other text of each label, the first to train on: no label is without a judge.
    order = classifiers.draws(sources, 'halves').permutation(len(known))
    order = order[np.argsort(known.labels[order], kind='stable')]
    ranked = known.labels[order]
    odd = (np.arange(len(known)) - np.searchsorted(ranked, ranked)) % 2 == 1
    return known.take(order[~odd]), known.take(order[odd]), classes, 'one half of the test texts'


def _totals(kind: Kind, verdict: _Verdict, corpus: Labelled, check: Labelled, best: bool) -> list[Figure]:
    wrong, errs = _share(verdict.wrong), _share(verdict.errs)
    excess = _excess(verdict, corpus, check)
    return [
        Figure(
            name=f'{kind}_label_accuracy',
            label=f'Labels that the judge agrees with, {TITLES[kind]}',
            value=1 - wrong.value,
            standard_error=wrong.error,
            better='higher',
        ),
        Figure(
            name=f'{kind}_judge_accuracy',
            label=f"The judge's own accuracy on real texts, {TITLES[kind]}",
            value=1 - errs.value,
            standard_error=errs.error,
            note='The better judge; figures by label, charts and texts are of this one.' if best else '',
        ),
        Figure(
            name=f'{kind}_excess_wrong',
            label=f"Share judged wrong beyond the judge's own error, {TITLES[kind]}",
            value=excess.value if excess else None,
            standard_error=excess.error if excess else None,
            better='lower',
            note='On real texts with labels as frequent as in the corpus it would be 0. A judge that errs '
            'passes some wrong labels: rather too low than too high.'
            if excess
            else 'No label of the corpus has a real text to check the judge on.',
        ),
    ]


def _share(which: np.ndarray) -> _Share:
    share = float(which.mean())
    return _Share(share, math.sqrt(share * (1 - share) / len(which)))


def _excess(verdict: _Verdict, corpus: Labelled, check: Labelled) -> _Share | None:
    """How much more often labels are judged wrong than on real texts of the same labels.

    Over the labels l that both have: Σ w_l (d_l - e_l), where w_l is the share of l in the corpus, d_l and
    e_l how often the judge disagrees with the corpus and with real texts.
    """
    both = np.intersect1d(corpus.labels, check.labels)
    if not len(both):
        return None
    total = int(np.isin(corpus.labels, both).sum())
    value, variance = 0.0, 0.0
    for place in both:
        own, real = verdict.wrong[corpus.labels == place], verdict.errs[check.labels == place]
        wrong, errs, weight = _share(own), _share(real), len(own) / total
        value += weight * (wrong.value - errs.value)
        variance += weight**2 * (wrong.error**2 + errs.error**2)
    return _Share(value, math.sqrt(variance))


def _wrong_of_label(
    place: int, classes: tuple[str, ...], verdict: _Verdict, corpus: Labelled, check: Labelled
) -> Figure:
    share = _share(verdict.wrong[corpus.labels == place])
    errs = verdict.errs[check.labels == place]
    return Figure(
        name=f'judged_wrong_by_label/{classes[place]}',
        label=f'Judged wrong of {classes[place]}',
        value=share.value,
        standard_error=share.error,
        better='lower',
        note=f'Of {len(errs)} real texts of this label {errs.mean():.1%} are.'
        if len(errs)
        else 'No real text of this label to check the judge on.',
    )


def _bars(
    verdict: _Verdict, corpus: Labelled, check: Labelled, places: list[int], classes: tuple[str, ...]
) -> Chart:
    checked = [place for place in places if (check.labels == place).any()]
    return Chart(
        kind='bars',
        title='Share judged wrong by label, beside the judge on real texts',
        x_label='label',
        y_label='share judged wrong',
        series=(
            Series(
                name='corpus',
                x=tuple(classes[place] for place in places),
                y=tuple(float(verdict.wrong[corpus.labels == place].mean()) for place in places),
            ),
            Series(
                name='real texts',
                x=tuple(classes[place] for place in checked),
                y=tuple(float(verdict.errs[check.labels == place].mean()) for place in checked),
            ),
        ),
    )


def _cells(verdict: _Verdict, corpus: Labelled, order: list[int], classes: tuple[str, ...]) -> Chart:
    """Confusion matrix; judged labels beyond the first rows' are one column."""
    judged = verdict.corpus.argmax(axis=1)
    # The corpus's own labels, then what the judge says beside.
    places = list(dict.fromkeys([*order, *(int(place) for place in np.unique(judged))]))
    columns, rest = places[:MOST_CELLS], places[MOST_CELLS:]
    series = []
    for row in order[:MOST_CELLS]:
        of_row = judged[corpus.labels == row]
        shares = [float((of_row == column).mean()) for column in columns]
        if rest:
            shares.append(float(np.isin(of_row, rest).mean()))
        names = [*(classes[column] for column in columns), *([_OTHERS] if rest else [])]
        series.append(Series(name=classes[row], x=tuple(names), y=tuple(shares)))
    return Chart(
        kind='cells',
        title='Labels of the corpus (rows) and what the judge says (columns), shares of a row',
        x_label='judged label',
        y_label='label in the corpus',
        series=tuple(series),
    )


def _samples(verdict: _Verdict, corpus: Labelled, classes: tuple[str, ...]) -> tuple[Sample, ...]:
    """The texts of whose other label the judge is surest."""
    sure = verdict.corpus.max(axis=1)
    rows = np.flatnonzero(verdict.wrong)
    rows = rows[np.argsort(-sure[rows], kind='stable')][:MOST_SAMPLES]
    return tuple(
        Sample(
            caption=f'Labelled {classes[corpus.labels[row]]}, judged '
            f'{classes[verdict.corpus[row].argmax()]} with probability {sure[row]:.2f}',
            texts=(('corpus', corpus.texts[row]),),
        )
        for row in rows
    )
