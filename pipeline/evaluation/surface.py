"""Lengths, vocabulary, variety of words, and exact duplicates: measures without a model."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import typing
from collections.abc import Iterable, Sequence

import numpy as np

from pipeline.evaluation import comparison, words
from pipeline.evaluation.measure import Better, Chart, Figure, Findings, Measure, Progress, Series
from pipeline.evaluation.sources import Sources, Texts

MAX_TEXTS = 10_000
# Words of each side, for vocabulary and n-grams.
MAX_WORDS = 500_000
ORDERS = (1, 2, 3)
_BINS = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class NGrams:
    """The n-grams of texts, for one n; none reaches over the end of a text.

    Attributes:
        total: How many there are.
        distinct: How many different ones.
        entropy: Of their distribution, in bits.
    """

    total: int
    distinct: int
    entropy: float


@typing.final
class Surface(Measure):
    """Lengths, vocabulary and variety, each beside those of real texts.

    Vocabulary, entropy and shares of distinct n-grams fall or rise with the size of a sample, and so
    they are taken of as many words of each side, of texts in random order.
    """

    name = 'surface'
    title = 'Lengths and variety'
    question = 'Are texts as long and as varied as real ones, or does the corpus repeat itself?'
    source = 'Li et al. 2016 (distinct-n)'

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        real = comparison.real_texts_if_any(sources)
        sides = [sources.corpus] if real is None else [sources.corpus, real]
        size = min(MAX_TEXTS, *(len(texts) for texts in sides))
        samples = [_sample(texts, size, sources.seed) for texts in sides]
        in_words = [[words.words_of(text) for text in sample] for sample in samples]
        progress(1, 3)
        in_common = min(MAX_WORDS, *(sum(map(len, of_texts)) for of_texts in in_words))
        figures = []
        for place, (sample, of_texts) in enumerate(zip(samples, in_words)):
            figures += _figures(sample, of_texts, in_common, of_real=place == 1)
        progress(2, 3)
        lengths = [np.array([len(of_text) for of_text in of_texts]) for of_texts in in_words]
        if len(lengths) == 2:
            figures.insert(0, _length_distance(lengths[0], lengths[1]))
        chart = _length_chart([texts.name for texts in sides], lengths)
        progress(3, 3)
        return Findings(
            settings={
                'texts_on_each_side': size,
                'words_on_each_side': in_common,
                'unit': 'words, case folded, without punctuation',
                'real': 'none' if real is None else real.name,
                **comparison.library_versions('numpy', 'scipy'),
            },
            figures=tuple(figures),
            charts=(chart,),
        )


def n_grams(texts: Iterable[Sequence[str]], order: int) -> NGrams:
    """Counts the n-grams of texts, each given by its words."""
    from scipy import stats

    counts = collections.Counter(
        itertools.chain.from_iterable(zip(*(text[first:] for first in range(order))) for text in texts)
    )
    total = counts.total()
    entropy = float(stats.entropy(list(counts.values()), base=2)) if total else 0.0
    return NGrams(total=total, distinct=len(counts), entropy=entropy)


def first_words(texts: Iterable[Sequence[str]], limit: int) -> list[Sequence[str]]:
    """The words of the first texts, `limit` in all; the last of these texts may be cut."""
    kept, left = [], limit
    for text in texts:
        if left <= 0:
            break
        kept.append(text[:left])
        left -= len(kept[-1])
    return kept


def _sample(texts: Texts, size: int, seed: int) -> list[str]:
    """Texts in random order, as the words are cut after some of them."""
    order = np.random.default_rng(seed).permutation(len(texts))[:size]
    return [texts.texts[index] for index in order]


def _figures(sample: list[str], in_words: list[list[str]], limit: int, *, of_real: bool) -> list[Figure]:
    suffix, ending = ('/real', ', of real texts') if of_real else ('', '')

    def figure(
        name: str, label: str, value: float | None, note: str = '', better: Better = 'neither'
    ) -> Figure:
        return Figure(
            name=name + suffix,
            label=label + ending,
            value=value,
            better='neither' if of_real else better,
            note=note,
        )

    lengths = [len(of_text) for of_text in in_words]
    in_characters = [len(text) for text in sample]
    grams = {order: n_grams(first_words(in_words, limit), order) for order in ORDERS}
    near = 'Good where it is near that of real texts.'
    return [
        figure('words_mean', 'Words in a text, mean', float(np.mean(lengths))),
        figure('words_median', 'Words in a text, median', float(np.median(lengths))),
        figure('characters_mean', 'Characters in a text, mean', float(np.mean(in_characters))),
        figure('characters_median', 'Characters in a text, median', float(np.median(in_characters))),
        figure(
            'duplicates',
            'Exact duplicates',
            1 - len(set(sample)) / len(sample),
            'Share of texts that are the same as another before them.',
            'lower',
        ),
        figure('vocabulary', 'Different words', float(grams[1].distinct) if limit else None, near),
        *(
            figure(
                f'distinct_{order}',
                f'Distinct-{order}',
                counts.distinct / counts.total if counts.total else None,
                f'Share of n-grams of {order} that are different. {near}',
            )
            for order, counts in grams.items()
        ),
        *(
            figure(
                f'entropy_{order}',
                f'Entropy of n-grams of {order}, in bits',
                counts.entropy if counts.total else None,
                f'{near} Low where the corpus repeats itself.',
            )
            for order, counts in grams.items()
        ),
    ]


def _length_distance(corpus: np.ndarray, real: np.ndarray) -> Figure:
    from scipy import stats

    return Figure(
        name='words_distance',
        label='Distance of lengths, in words',
        value=float(stats.wasserstein_distance(corpus, real)),
        better='lower',
        note='Wasserstein-1: by how many words texts would have to change, in the mean, to be as long.',
    )


def _length_chart(names: list[str], lengths: list[np.ndarray]) -> Chart:
    pooled = np.concatenate(lengths)
    low, high = float(pooled.min()), float(np.quantile(pooled, 0.99))
    edges = np.linspace(low, max(high, low + 1), _BINS + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    series = []
    for name, of_texts in zip(names, lengths):
        counts, _ = np.histogram(np.minimum(of_texts, edges[-1]), edges)
        shares = counts / len(of_texts)
        series.append(Series(name=name, x=tuple(map(float, centres)), y=tuple(map(float, shares))))
    return Chart(
        kind='lines',
        title='Lengths of texts; the last point holds all longer ones',
        x_label='Length, words',
        y_label='Share of texts',
        series=tuple(series),
    )
