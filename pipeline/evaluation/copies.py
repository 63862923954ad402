"""Copies: the longest run of words that a text of the corpus shares with a record, by an exact search."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

import numpy as np

from pipeline.evaluation import comparison, words
from pipeline.evaluation.measure import (
    Better,
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
from pipeline.evaluation.words import WordedTexts

_SAMPLES = 3
_QUANTILE = 0.99


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LongestRuns:
    """For each text the longest run of words that it has in common with any of others.

    Attributes:
        lengths: In words, `[n]` int64; 0 where no word is common.
        starts: Its first word in the text, `[n]` int64; of runs as long, the first.
        others: The text it is found in, `[n]` int64; -1 where there is none.
    """

    lengths: np.ndarray = dataclasses.field(repr=False)
    starts: np.ndarray = dataclasses.field(repr=False)
    others: np.ndarray = dataclasses.field(repr=False)


@final
class Copies(Measure):
    """Longest common substrings of words between each text of the corpus and any record.

    All places of all texts are sorted by prefix doubling (Manber and Myers 1993: Suffix arrays), and the
    records next to a place in that order have its longest match.
    """

    name = 'copies'
    title = 'Copies'
    question = 'What is the longest passage that a text of the corpus repeats word for word from a record?'
    source = 'Longest common substring; order of suffixes after Manber and Myers (1993)'
    needs = frozenset({'records'})

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        corpus, targets = words.read_with_baseline(sources)
        if not all(len(source.ids) for source in (corpus, *(target.texts for target in targets))):
            raise NotDefined('No text of one of the sources has a word.')
        progress(1, 2)
        distinct = {id(target.texts): target.texts for target in targets}
        runs_of = dict(zip(distinct, longest_runs(corpus, list(distinct.values()))))
        progress(2, 2)
        records, longest = targets[0].texts, runs_of[id(targets[0].texts)]
        sizes = np.diff(corpus.bounds)
        first = np.argsort(-longest.lengths, kind='stable')[:_SAMPLES].tolist()
        figures = [
            *_figures('', 'a record', longest, sizes, 'lower'),
            Figure(
                name='longest_characters',
                label='Characters of the longest run shared with a record',
                value=float(len(_run(corpus, longest, first[0]))),
                better='lower',
            ),
        ]
        for target in targets[1:]:
            runs = runs_of[id(target.texts)]
            figures += _figures(target.prefix, f'one of {target.what}', runs, sizes, 'neither')
        return Findings(
            settings={
                'unit': 'words, case folded, without punctuation',
                'quantile': _QUANTILE,
                **words.settings_of(sources, corpus, targets),
                **comparison.library_versions('numpy'),
            },
            figures=tuple(figures),
            charts=(
                Chart(
                    kind='lines',
                    title='Texts of the corpus that repeat so many words in a row from a real text',
                    x_label='words in a row',
                    y_label='share of the corpus with at least so many',
                    series=tuple(
                        _at_least(target.what, runs_of[id(target.texts)].lengths) for target in targets
                    ),
                ),
            ),
            samples=tuple(
                Sample(
                    caption=f'{longest.lengths[text]} words in a row are in both',
                    texts=(
                        ('in both', _run(corpus, longest, text)),
                        (corpus.texts.name, corpus.texts.texts[text]),
                        (records.texts.name, records.texts.texts[longest.others[text]]),
                    ),
                )
                for text in first
                if longest.lengths[text] > 0
            ),
        )


def longest_runs(ones: WordedTexts, targets: Sequence[WordedTexts]) -> list[LongestRuns]:
    """The longest run of words that each text has in common with any text of each target.

    Exact. For w words, time is w log w times the logarithm of the longest run.
    """
    ends = np.cumsum([len(source.ids) + len(source) for source in (ones, *targets)])
    row = _with_ends([ones, *targets])
    places = np.arange(ends[0])
    levels = _levels(row, places)
    # Place in the order of suffixes, as far as any run goes.
    order = np.argsort(levels[-1], kind='stable')
    positions = np.empty_like(order)
    positions[order] = np.arange(len(order))
    runs = []
    for target, start, end in zip(targets, ends[:-1], ends[1:]):
        is_target = (order >= start) & (order < end)
        before = np.maximum.accumulate(np.where(is_target, np.arange(len(order)), -1))[positions[places]]
        after_reversed = np.maximum.accumulate(np.where(is_target[::-1], np.arange(len(order)), -1))[::-1]
        after = (len(order) - 1 - after_reversed)[positions[places]]
        # The other side's, where there is none on a side.
        before, after = np.where(before < 0, after, before), np.where(after >= len(order), before, after)
        neighbours = np.stack([order[before], order[after]])
        lengths = np.stack([_common(levels, places, neighbour) for neighbour in neighbours])
        nearer = lengths.argmax(axis=0)
        runs.append(_of_texts(ones, target, lengths.max(axis=0), neighbours[nearer, places] - start))
    return runs


def _with_ends(sources: Sequence[WordedTexts]) -> np.ndarray:
    """Words of all texts one after another, each text closed by a number of its own, which no run crosses."""
    words_total = max(int(source.ids.max(initial=-1)) for source in sources) + 1
    rows, closed = [], words_total
    for source in sources:
        rows.append(np.insert(source.ids, source.bounds[1:], np.arange(closed, closed + len(source))))
        closed += len(source)
    return np.concatenate(rows)


def _levels(row: np.ndarray, places: np.ndarray) -> list[np.ndarray]:
    """Ranks of places by the 2^j words that follow, for each j up to where no run is shared.

    Args:
        row: Words and ends, `[p]`.
        places: Those of the texts that are compared with all others.

    Returns:
        One `[p]` int32 for each j: equal for equal words, else ordered like them.
    """
    # A rank is the number of places before; a place whose rank no other has is never sorted again.
    levels = [_refined(np.zeros(len(row), np.int64), row, np.arange(len(row)))]
    while True:
        ranks = levels[-1]
        in_places = np.zeros(len(row), bool)
        in_places[ranks[places]] = True
        if not in_places[ranks[len(places) :]].any():
            return [level.astype(np.int32) for level in levels]
        step = 1 << (len(levels) - 1)
        tied = np.flatnonzero(np.bincount(ranks)[ranks] > 1)
        # Tied places are at least `step` before the end, which is a number of its own.
        levels.append(_refined(ranks, ranks[tied + step], tied))


def _refined(ranks: np.ndarray, keys: np.ndarray, tied: np.ndarray) -> np.ndarray:
    """Ranks in which those of tied places are told apart by a key of each, 0 or more."""
    base = int(keys.max(initial=0)) + 1
    kinds, kind_of, counts = np.unique(ranks[tied] * base + keys, return_inverse=True, return_counts=True)
    before = np.cumsum(counts) - counts
    _, first, class_of = np.unique(kinds // base, return_index=True, return_inverse=True)
    refined = ranks.copy()
    refined[tied] += (before - before[first][class_of])[kind_of]
    return refined


def _common(levels: Sequence[np.ndarray], ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The number of words that follow alike from each place of two rows of places."""
    lengths = np.zeros(len(ones), np.int64)
    for level in range(len(levels) - 2, -1, -1):
        # Never out of the row: two places that are alike so far have a word or an end after that.
        ranks = levels[level]
        lengths += (ranks[ones + lengths] == ranks[others + lengths]).astype(np.int64) << level
    return lengths


def _of_texts(ones: WordedTexts, target: WordedTexts, lengths: np.ndarray, places: np.ndarray) -> LongestRuns:
    """The longest of the runs from all places of each text."""
    starts = ones.bounds[:-1] + np.arange(len(ones))
    # The longest, and of these the first, as one number.
    best = np.maximum.reduceat(lengths * len(lengths) + np.arange(len(lengths))[::-1], starts)
    first = len(lengths) - 1 - best % len(lengths)
    texts = np.repeat(np.arange(len(target)), np.diff(target.bounds) + 1)[places[first]]
    longest = lengths[first]
    return LongestRuns(
        lengths=longest,
        starts=np.where(longest > 0, first - starts, 0),
        others=np.where(longest > 0, texts, -1),
    )


def _run(source: WordedTexts, runs: LongestRuns, text: int) -> str:
    """The longest run of a text, as it stands there."""
    spans = words.spans_of(source.texts.texts[text])
    start, length = int(runs.starts[text]), int(runs.lengths[text])
    return source.texts.texts[text][spans[start][0] : spans[start + length - 1][1]] if length else ''


def _figures(prefix: str, what: str, runs: LongestRuns, sizes: np.ndarray, better: Better) -> list[Figure]:
    """Figures of the runs found in one source."""
    return [
        Figure(
            name=f'{prefix}longest_words',
            label=f'Words of the longest run shared with {what}',
            value=float(runs.lengths.max()),
            better=better,
        ),
        Figure(
            name=f'{prefix}longest_words_99_percent',
            label=f'99 % of the texts share no longer run with {what}',
            value=float(np.quantile(runs.lengths, _QUANTILE, method='inverted_cdf')),
            better=better,
        ),
        Figure(
            name=f'{prefix}mean_words',
            label=f'Mean over the texts of the longest run shared with {what}',
            value=float(runs.lengths.mean()),
            better=better,
        ),
        Figure(
            name=f'{prefix}whole_texts',
            label=f'Texts of the corpus that stand in {what} from their first word to the last',
            value=float(((runs.lengths == sizes) & (sizes > 0)).mean()),
            better=better,
        ),
    ]


def _at_least(name: str, lengths: np.ndarray) -> Series:
    """The share of texts whose run has at least so many words, at the lengths where it changes."""
    values = np.unique(lengths)
    shares = 1 - np.searchsorted(np.sort(lengths), values) / len(lengths)
    return Series(name=name, x=tuple(values.astype(float).tolist()), y=tuple(shares.tolist()))
