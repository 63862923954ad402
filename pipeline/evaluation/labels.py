"""Labels: whether a synthetic text is of the label that it carries."""

from __future__ import annotations

import dataclasses
import math
from typing import final

import numpy as np

from pipeline.evaluation import classifiers
from pipeline.evaluation.classifiers import KINDS, TITLES, Kind, Labelled
from pipeline.evaluation.measure import Figure, Findings, Measure, NotDefined, Progress, Sample
from pipeline.evaluation.sources import Sources

MOST_SAMPLES = 6


@dataclasses.dataclass(frozen=True)
class _Verdict:
    """One judge's answers on the corpus and on real texts that it was not trained on.

    Attributes:
        corpus: Probabilities of labels, `[n, K]`.
        wrong: Whether it would label a text of the corpus otherwise, `[n]`.
        errs: Whether it labels a real text wrongly, `[m]`.
    """

    corpus: np.ndarray
    wrong: np.ndarray
    errs: np.ndarray


@final
class Labels(Measure):
    """Classifiers trained on real texts judge the labels of synthetic ones.

    They are trained on the records where these have labels, else on one half of the test texts, and their
    own error is that on the test texts, or the other half. A judge that errs calls right labels wrong, and
    agrees with a text that repeats a record which it was trained on.
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

        figures = [
            *(figure for kind in KINDS for figure in _totals(kind, verdicts[kind], kind == best)),
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
            *(_wrong_of_label(place, classes, verdict, corpus, check) for place in np.unique(corpus.labels)),
        ]
        return Findings(
            settings={
                **classifiers.settings(sources, len(classes)),
                'judges_trained_on': name,
                'judge_by_label': TITLES[best],
                'standard_error': 'binomial over texts',
            },
            figures=tuple(figures),
            samples=_samples(verdict, corpus, classes),
        )


def _real(sources: Sources) -> tuple[Labelled, Labelled, tuple[str, ...], str]:
    """Texts that judges are trained on and checked on, their labels, and the name of the former."""
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


def _totals(kind: Kind, verdict: _Verdict, best: bool) -> list[Figure]:
    (wrong, wrong_error), (errs, errs_error) = _share(verdict.wrong), _share(verdict.errs)
    return [
        Figure(
            name=f'{kind}_label_accuracy',
            label=f'Labels that the judge agrees with, {TITLES[kind]}',
            value=1 - wrong,
            standard_error=wrong_error,
            better='higher',
        ),
        Figure(
            name=f'{kind}_judge_accuracy',
            label=f"The judge's own accuracy on real texts, {TITLES[kind]}",
            value=1 - errs,
            standard_error=errs_error,
            note='The better judge; figures by label and texts are of this one.' if best else '',
        ),
    ]


def _share(which: np.ndarray) -> tuple[float, float]:
    """Share of the texts, and its standard error."""
    share = float(which.mean())
    return share, math.sqrt(share * (1 - share) / len(which))


def _wrong_of_label(
    place: int, classes: tuple[str, ...], verdict: _Verdict, corpus: Labelled, check: Labelled
) -> Figure:
    share, error = _share(verdict.wrong[corpus.labels == place])
    errs = verdict.errs[check.labels == place]
    return Figure(
        name=f'judged_wrong_by_label/{classes[place]}',
        label=f'Judged wrong of {classes[place]}',
        value=share,
        standard_error=error,
        better='lower',
        note=f'Of {len(errs)} real texts of this label {errs.mean():.1%} are.'
        if len(errs)
        else 'No real text of this label to check the judge on.',
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
