"""Near-duplicates: texts of the corpus that share half of their trigrams with a record."""

from __future__ import annotations

import typing
from typing import final

import numpy as np

from pipeline.evaluation import comparison, trigrams, words
from pipeline.evaluation.measure import Chart, Figure, Findings, Measure, NotDefined, Progress, Sample, Series
from pipeline.evaluation.sources import Sources, Texts

THRESHOLD = 0.5
_BINS = 20
_SAMPLES = 3
_NOTE = 'Short texts of a common form share trigrams by chance: compare with what held-out texts give.'


@final
class NearDuplicates(Measure):
    """Texts of the corpus that are duplicates of a record as FT section 4.3.2 counts them, by word trigrams.

    x and y are duplicates if |g(x) ∩ g(y)| ≥ min(|g(x)|, |g(y)|) / 2, for g a text's set of trigrams. The
    paper prints |g(x) ∪ g(y)| ≥ 2 min(|g(x)|, |g(y)|), which any two texts without a common trigram
    satisfy, so that it finds no near-duplicates; it cites Carlini et al. (2021), who compare half of the
    trigrams with the intersection. Every pair is compared. The paper does not say how a text is cut into
    trigrams: here of words, their case folded, without punctuation. A text of fewer than three words has
    none and is left out.
    """

    name = 'near-duplicates'
    title = 'Near-duplicates'
    question = 'How many texts of the corpus share half of their trigrams with a record?'
    source = 'FT, section 4.3.2 (with ∩ for the ∪ of the printed formula, and half the smaller set)'
    needs = frozenset({'records'})

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        corpus, targets = words.read_with_baseline(sources)
        distinct = {id(target.texts): target.texts for target in targets}
        compared, *sets = trigrams.trigram_sets([corpus, *distinct.values()])
        has_trigrams = np.flatnonzero(_sizes(compared))
        if not len(has_trigrams) or any(not _sizes(of_target).any() for of_target in sets):
            raise NotDefined('No text of one of the sources has three words.')
        nearest_of = {}
        for key, of_target in zip(distinct, sets):
            nearest_of[key] = trigrams.nearest(compared[has_trigrams], of_target, trigrams.overlap)
            progress(len(nearest_of), len(distinct))
        figures, series = [], []
        for prefix, what, texts in targets:
            nearest = nearest_of[id(texts)]
            is_duplicate = nearest.similarities >= THRESHOLD
            figures += [
                Figure(
                    name=f'{prefix}near_duplicates',
                    label=f'Texts of the corpus that are near-duplicates of one of {what}',
                    value=float(is_duplicate.mean()),
                    better='neither' if prefix else 'lower',
                    note='' if prefix else _NOTE,
                ),
                Figure(
                    name=f'{prefix}near_duplicates_count',
                    label=f'Number of near-duplicates of one of {what}',
                    value=float(is_duplicate.sum()),
                    better='neither' if prefix else 'lower',
                ),
            ]
            series.append(_histogram(what, nearest.similarities))
        figures.append(
            Figure(
                name='without_trigrams',
                label='Texts of the corpus with fewer than three words, left out',
                value=1 - len(has_trigrams) / len(corpus),
            )
        )
        return Findings(
            settings={
                'trigrams': 'sets, of words, case folded, without punctuation',
                'similarity': 'shared trigrams by the smaller number of trigrams',
                'threshold': THRESHOLD,
                **words.settings_of(sources, corpus, targets),
                **comparison.library_versions('scipy'),
            },
            figures=tuple(figures),
            charts=(
                Chart(
                    kind='bars',
                    title='How much of its trigrams a text of the corpus shares with the nearest real text',
                    x_label='shared trigrams by the smaller number of trigrams',
                    y_label='share of the corpus',
                    series=tuple(series),
                ),
            ),
            samples=_samples(
                corpus.texts, targets[0].texts.texts, has_trigrams, nearest_of[id(targets[0].texts)]
            ),
        )


def _sizes(sets: typing.Any) -> np.ndarray:
    """Number of trigrams of each text, `[n]`."""
    return np.asarray(sets.sum(axis=1))


def _histogram(name: str, similarities: np.ndarray) -> Series:
    """Shares of the texts by similarity; 1 has a bar of its own."""
    bins = np.minimum(np.floor(similarities * _BINS + 1e-6).astype(int), _BINS)
    shares = np.bincount(bins, minlength=_BINS + 1) / len(similarities)
    names = [f'{bin_ / _BINS:.2f}–{(bin_ + 1) / _BINS:.2f}' for bin_ in range(_BINS)]
    return Series(name=name, x=(*names, '1.00'), y=tuple(shares.tolist()))


def _samples(
    corpus: Texts, records: Texts, rows: np.ndarray, nearest: trigrams.Nearest
) -> tuple[Sample, ...]:
    """The nearest pairs."""
    first = np.argsort(-nearest.similarities, kind='stable')[:_SAMPLES]
    return tuple(
        Sample(
            caption=f'{nearest.similarities[place]:.0%} of the trigrams are shared',
            texts=(
                (corpus.name, corpus.texts[rows[place]]),
                (records.name, records.texts[nearest.indices[place]]),
            ),
        )
        for place in first.tolist()
        if nearest.similarities[place] > 0
    )
