"""Near-duplicates: texts of the corpus that share half of their trigrams with a record."""

from __future__ import annotations

import importlib.metadata
import typing
from typing import final

from etils import epy

from pipeline.evaluation import trigrams, words
from pipeline.evaluation.measure import Chart, Figure, Findings, Measure, NotDefined, Progress, Sample, Series
from pipeline.evaluation.sources import Sources, Texts

with epy.lazy_imports():
    import numpy as np

if typing.TYPE_CHECKING:
    import numpy as np

THRESHOLD = 0.5
_BINS = 20
_SAMPLES = 3
_NOTE = 'Short texts of a common form share trigrams by chance: compare with what held-out texts give.'


@final
class NearDuplicates(Measure):
    """Texts of the corpus that are duplicates of a record as FT section 4.3.2 counts them, by word trigrams.

    x and y are duplicates if |g(x) ∩ g(y)| ≥ min(|g(x)|, |g(y)|) / 2, for g a text's set of trigrams. The
    paper prints |g(x) ∪ g(y)| ≥ 2 min(|g(x)|, |g(y)|), which any two texts without a common trigram
    satisfy, and so no near-duplicate is told by; it cites Carlini et al. (2021), who compare half of the
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
        if sources.records is None:
            raise NotDefined('There are no records.')
        corpus, records, *tests = words.read_words(
            [of for of in (sources.corpus, sources.records, sources.test) if of is not None],
            seed=sources.seed,
        )
        equal = min(map(len, (records, *tests)))
        baseline = [of.draw(equal, sources.seed) for of in (records, *tests)] if tests else []
        # Where there are no more records than held-out texts, the first two are the same.
        targets = {id(of): of for of in (records, *baseline)}
        compared, *sets = trigrams.trigram_sets([corpus, *targets.values()])
        has_trigrams = np.flatnonzero(_sizes(compared))
        if not len(has_trigrams) or any(not _sizes(target).any() for target in sets):
            raise NotDefined('No text of one of the sources has three words.')
        nearest_of = {}
        for target, target_sets in zip(targets, sets):
            nearest_of[target] = trigrams.nearest(compared[has_trigrams], target_sets, trigrams.overlap)
            progress(len(nearest_of), len(targets))
        found = [nearest_of[id(of)] for of in (records, *baseline)]
        figures, series = [], []
        kinds = [
            ('', f'all {len(records)} records'),
            ('records_', f'{equal} of the records'),
            ('test_', f'{equal} held-out texts'),
        ]
        for (prefix, what), nearest in zip(kinds, found):
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
                'most_texts_of_a_source': words.MOST_TEXTS,
                'most_words_of_a_source': words.MOST_WORDS,
                'corpus_texts': len(corpus),
                'records': len(records),
                'seed': sources.seed,
                'scipy': importlib.metadata.version('scipy'),
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
            samples=_samples(corpus.texts, records.texts, has_trigrams, found[0]),
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
