"""The holdout test: is the corpus closer to the records that it was made from than to others like them?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import final

import numpy as np
from scipy import stats

from pipeline.evaluation import comparison, trigrams, words
from pipeline.evaluation.measure import Chart, Figure, Findings, Measure, NotDefined, Progress, Sample, Series
from pipeline.evaluation.sources import Sources, Texts
from pipeline.evaluation.words import WordedTexts

# Share of false alarms: how often the test warns of a corpus that is no closer to the records.
LEVEL = 0.01
PERMUTATIONS = 9_999
# With fewer different texts on a side, hardly any difference is visible at this level.
LEAST_TEXTS = 20
# The nearest of all real texts, among which records are counted: a few copies stand out among the
# first, a habit of many small ones further down.
_FIRST_TOP, _TOP_RATIO, _LARGEST_TOP_SHARE = 8, 2**0.5, 0.25
# Products of vectors differ in their last bits with a row's place, and no place may decide a rank.
_COSINE_DIGITS = 4
_BLOCK_ROWS = 256
_SAMPLES = 5
_NOTE = (
    f'Below {LEVEL} the corpus is closer to the records than chance explains, and that is a mistake to look '
    'for. It is evidence of mistakes alone: no value of it proves privacy. Records and held-out texts have '
    'to be alike, split by a keyed hash of whole units, or their difference is what it finds. Where a unit '
    'has many like texts it is exact with --unit-field alone, which takes one text of each.'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HoldoutTest:
    """The result of the test.

    Attributes:
        p_value: How often chance alone makes the records as near or nearer. Exact: of corpora that are no
            closer to the records, at most a share α has a p-value below α.
        p_of_shift: For each similarity, one-sided Mann-Whitney, normal approximation; not corrected.
        p_of_top: For each similarity, of records being most of the nearest texts, the least over all
            numbers of nearest texts; not corrected.
    """

    p_value: float
    p_of_shift: Mapping[str, float]
    p_of_top: Mapping[str, float]


@final
class Holdout(Measure):
    """A test of records being nearer to the corpus than held-out texts, by permuting which is which.

    Records and held-out texts are drawn in equal number. Texts that are equal but for case and
    punctuation count once on their side, and not at all where they are on both: otherwise one phrase
    that many records repeat would count as many. Each text that is left has two similarities with its
    nearest text in the corpus: Jaccard's of word trigrams, and the cosine of embeddings. `holdout_test`
    says whether those of the records are higher.

    Where units are known there is one text of each, drawn by the seed, and none of a unit that is on both
    sides: what is permuted has to be exchangeable, and whole units are what a split draws.
    """

    name = 'holdout'
    title = 'Holdout test'
    question = 'Is the corpus closer to the records it was made from than to others like them?'
    source = (
        'Membership by distance to the closest synthetic text (Chen et al. 2020: GAN-Leaks); '
        'least p-value over statistics under permutation (Westfall and Young 1993)'
    )
    needs = frozenset({'records', 'test'})

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        if sources.records is None or sources.test is None:
            raise NotDefined('There are no records, or no held-out texts.')
        records_of, test_of, shared_units = _one_of_each_unit(sources)
        if not (len(records_of) and len(test_of)):
            raise NotDefined('No unit is on one side alone.')
        corpus, records, test = _read(sources, records_of, test_of)
        kept_records, kept_test, on_both = _different(records, test)
        least = min(len(kept_records), len(kept_test))
        if least < LEAST_TEXTS:
            raise NotDefined(
                f'It takes {LEAST_TEXTS} different records and as many different held-out texts, without '
                f'those that are both; there are {least}.'
            )
        progress(1, 4)
        is_record = np.arange(len(kept_records) + len(kept_test)) < len(kept_records)
        real = ((records, kept_records), (test, kept_test))
        texts = tuple(source.texts.texts[index] for source, kept in real for index in kept.tolist())
        corpus_sets, *real_sets = trigrams.trigram_sets(
            [corpus, *(source.take(kept) for source, kept in real)]
        )
        by_trigrams = [trigrams.nearest(sets, corpus_sets, trigrams.jaccard) for sets in real_sets]
        progress(2, 4)
        vectors = np.concatenate([sources.vectors(source.texts)[kept] for source, kept in real])
        by_embedding = _nearest_by_cosine(vectors, sources.vectors(corpus.texts))
        progress(3, 4)
        nearest = {
            'trigrams': trigrams.Nearest(
                similarities=np.concatenate([side.similarities for side in by_trigrams]),
                indices=np.concatenate([side.indices for side in by_trigrams]),
            ),
            'embedding': by_embedding,
        }
        similarities = {name: neighbours.similarities for name, neighbours in nearest.items()}
        result = holdout_test(similarities, is_record, seed=sources.seed, permutations=PERMUTATIONS)
        progress(4, 4)
        shares = {name: _share_as_near(values, is_record) for name, values in similarities.items()}
        return Findings(
            settings={
                'level': LEVEL,
                'permutations': PERMUTATIONS,
                'statistics': 'Mann-Whitney, and records among the nearest texts, of both similarities',
                'trigram_similarity': "Jaccard's, of sets of word trigrams, without case and punctuation",
                'embedding_similarity': 'cosine',
                **comparison.embedder_settings(sources),
                'equal_texts': 'once on their side; left out where they are on both',
                'most_texts_of_a_source': words.MOST_TEXTS,
                'most_words_of_a_source': words.MOST_WORDS,
                'corpus_texts': len(corpus),
                'texts_on_each_side': len(records),
                'seed': sources.seed,
                **comparison.library_versions('scipy'),
            },
            figures=(
                Figure(
                    name='p_value',
                    label='p-value of records being nearer to the corpus than held-out texts',
                    value=result.p_value,
                    better='higher',
                    note=_NOTE,
                ),
                *(
                    figure
                    for name, values in similarities.items()
                    for figure in _figures(name, values, is_record, result)
                ),
                Figure(name='records_compared', label='Different records', value=float(len(kept_records))),
                Figure(name='test_compared', label='Different held-out texts', value=float(len(kept_test))),
                Figure(
                    name='on_both_sides',
                    label='Texts left out, for they are records and held-out texts',
                    value=float(on_both),
                    note='Many of them say that the split did not keep equal texts together.',
                ),
                Figure(
                    name='units_on_both_sides',
                    label='Units left out, for they have records and held-out texts',
                    value=None if shared_units is None else float(shared_units),
                    note='Of a split by whole units there is none. Not known without --unit-field.',
                ),
            ),
            charts=tuple(_chart(name, values, is_record) for name, values in similarities.items()),
            samples=_samples(texts, corpus.texts, nearest, shares, is_record),
        )


def holdout_test(
    similarities: Mapping[str, np.ndarray],
    is_record: np.ndarray,
    *,
    seed: int,
    permutations: int,
) -> HoldoutTest:
    """A test of records having higher similarities than held-out texts, with any of several statistics.

    For each similarity there is the sum of the records' ranks, for a general shift, and the number of
    records among the k nearest texts for growing k, for a few copies. Each gives a one-sided p-value:
    normal, and hypergeometric. The least of them is compared with its own distribution over permutations
    of which texts are records, and so nothing is gained by having looked at many.

    Args:
        similarities: Of each text with its nearest in the corpus, `[n]` each; of equal ones none counts
            before the other.
        is_record: Which of the texts are records, `[n]` bool, some and not all.
        seed: Of the permutations.
        permutations: How many. No p-value is below 1 / (permutations + 1).
    """
    shifts = {name: _Shift(values, is_record) for name, values in similarities.items()}
    tops = {name: _Top(values, is_record) for name, values in similarities.items()}
    statistics: list[_Shift | _Top] = [*shifts.values(), *tops.values()]
    observed = [statistic.log_p(is_record[np.newaxis])[0] for statistic in statistics]
    rng = np.random.default_rng(seed)
    as_low = 0
    for start in range(0, permutations, _BLOCK_ROWS):
        rows = min(_BLOCK_ROWS, permutations - start)
        permuted = rng.permuted(np.tile(is_record, (rows, 1)), axis=1)
        lowest = np.min([statistic.log_p(permuted) for statistic in statistics], axis=0)
        as_low += int((lowest <= min(observed) + 1e-9).sum())
    return HoldoutTest(
        p_value=(1 + as_low) / (1 + permutations),
        p_of_shift={name: float(np.exp(p)) for name, p in zip(shifts, observed)},
        p_of_top={name: float(np.exp(p)) for name, p in zip(tops, observed[len(shifts) :])},
    )


class _Shift:
    """The sum of the records' ranks, by its normal approximation with ties."""

    def __init__(self, values: np.ndarray, is_record: np.ndarray) -> None:
        ranks = stats.rankdata(values)
        records, total = int(is_record.sum()), len(values)
        self._centred = ranks - ranks.mean()
        # Variance of the sum of a sample without replacement.
        self._deviation = float(
            np.sqrt(np.square(self._centred).sum() * records * (total - records) / (total * (total - 1)))
        )

    def log_p(self, is_record: np.ndarray) -> np.ndarray:
        """Log of the p-value for each row of `[b, n]`."""
        if not self._deviation:
            return np.zeros(len(is_record))
        return stats.norm.logsf(is_record.astype(np.float64) @ self._centred / self._deviation)


class _Top:
    """Records among the k texts of highest similarity, for several k; equal ones go together."""

    def __init__(self, values: np.ndarray, is_record: np.ndarray) -> None:
        records, total = int(is_record.sum()), len(values)
        order = np.argsort(-values, kind='stable')
        most = total * _LARGEST_TOP_SHARE
        wanted = [
            round(_FIRST_TOP * _TOP_RATIO**power)
            for power in range(64)
            if _FIRST_TOP * _TOP_RATIO**power <= most
        ]
        # Each k grows to take in all that are as near as the k-th.
        sizes = sorted({int((values >= values[order[size - 1]]).sum()) for size in wanted})
        self._sizes = [size for size in sizes if size <= total / 2]
        self._order = order[: max(self._sizes, default=0)]
        self._tables = [_log_tail(total, records, size) for size in self._sizes]

    def log_p(self, is_record: np.ndarray) -> np.ndarray:
        """Log of the least p-value for each row of `[b, n]`."""
        lowest = np.zeros(len(is_record))
        if not self._sizes:
            return lowest
        counts = np.add.reduceat(
            is_record[:, self._order], [0, *self._sizes[:-1]], axis=1, dtype=np.int64
        ).cumsum(axis=1)
        for column, table in enumerate(self._tables):
            np.minimum(lowest, table[counts[:, column]], out=lowest)
        return lowest


def _log_tail(total: int, records: int, size: int) -> np.ndarray:
    """Log of the chance that at least c of `size` texts are records, for c = 0 to `size`."""
    logs = stats.hypergeom.logpmf(np.arange(size + 1), total, records, size)
    return np.minimum(np.logaddexp.accumulate(logs[::-1])[::-1], 0)


def _one_of_each_unit(sources: Sources) -> tuple[Texts, Texts, int | None]:
    """Records and held-out texts to read, and how many units are on both sides; None without units."""
    records, test = sources.records, sources.test
    assert records is not None and test is not None
    if records.units is None or test.units is None:
        return records, test, None
    both = set(records.units) & set(test.units)
    chosen = []
    for source in (records, test):
        assert source.units is not None
        first: dict[str, int] = {}
        for index in np.random.default_rng(sources.seed).permutation(len(source)).tolist():
            first.setdefault(source.units[index], index)
        chosen.append(source.take(sorted(index for unit, index in first.items() if unit not in both)))
    return chosen[0], chosen[1], len(both)


def _read(sources: Sources, records: Texts, test: Texts) -> tuple[WordedTexts, WordedTexts, WordedTexts]:
    """Corpus, and records and held-out texts in equal number."""
    corpus, *real = words.read_words([sources.corpus, records, test], seed=sources.seed)
    records_read, test_read = (source.draw(min(map(len, real)), sources.seed) for source in real)
    return corpus, records_read, test_read


def _different(records: WordedTexts, test: WordedTexts) -> tuple[np.ndarray, np.ndarray, int]:
    """Indices of the first of equal texts on each side, without those on both, and how many these are."""
    sides = [_first_of_equal(source) for source in (records, test)]
    both = sides[0].keys() & sides[1].keys()
    kept = [np.array([index for key, index in side.items() if key not in both], np.int64) for side in sides]
    return kept[0], kept[1], len(both)


def _first_of_equal(source: WordedTexts) -> dict[bytes | str, int]:
    """The first text of each sequence of words; a text without words is its own kind."""
    first: dict[bytes | str, int] = {}
    for index, text in enumerate(source.texts.texts):
        row = source.ids[source.bounds[index] : source.bounds[index + 1]]
        first.setdefault(row.tobytes() if len(row) else text, index)
    return first


def _nearest_by_cosine(ones: np.ndarray, others: np.ndarray) -> trigrams.Nearest:
    """For each unit vector `[n, d]` the nearest of others `[m, d]`."""
    similarities, indices = np.zeros(len(ones)), np.zeros(len(ones), np.int64)
    for start in range(0, len(ones), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        cosines = (ones[block] @ others.T).round(_COSINE_DIGITS)
        indices[block] = cosines.argmax(axis=1)
        similarities[block] = cosines.max(axis=1)
    return trigrams.Nearest(similarities=similarities, indices=indices)


def _share_as_near(values: np.ndarray, is_record: np.ndarray) -> np.ndarray:
    """For each text the share of held-out texts that are as near or nearer, `[n]`."""
    held_out = np.sort(values[~is_record])
    return 1 - np.searchsorted(held_out, values) / len(held_out)


def _figures(name: str, values: np.ndarray, is_record: np.ndarray, result: HoldoutTest) -> tuple[Figure, ...]:
    """Figures of one similarity."""
    ranks = stats.rankdata(values)
    records, held_out = int(is_record.sum()), int((~is_record).sum())
    wins = ranks[is_record].sum() - records * (records + 1) / 2
    return (
        Figure(
            name=f'record_is_nearer/{name}',
            label=f'Chance that a record is nearer than a held-out text, by {name}',
            value=float(wins / (records * held_out)),
            note='One half where neither is.',
        ),
        Figure(
            name=f'beyond_held_out/{name}',
            label=f'Records nearer than any held-out text, by {name}',
            value=float((values[is_record] > values[~is_record].max()).sum()),
            better='lower',
            note='About one by chance.',
        ),
        Figure(
            name=f'p_of_shift/{name}',
            label=f'p-value of a general shift, by {name}',
            value=result.p_of_shift[name],
            note='By itself, not corrected for the other statistics.',
        ),
        Figure(
            name=f'p_of_top/{name}',
            label=f'p-value of records among the nearest texts, by {name}',
            value=result.p_of_top[name],
            note='The least over numbers of nearest texts, not corrected.',
        ),
    )


def _chart(name: str, values: np.ndarray, is_record: np.ndarray) -> Chart:
    """Shares of the texts that are at least so near."""
    places = np.linspace(min(0.0, float(values.min())), 1, 51)
    series = []
    for side, chosen in (('records', values[is_record]), ('held-out texts', values[~is_record])):
        shares = 1 - np.searchsorted(np.sort(chosen), places) / len(chosen)
        series.append(Series(name=side, x=tuple(places.tolist()), y=tuple(shares.tolist())))
    return Chart(
        kind='lines',
        title=f'How near real texts are to the corpus by {name}',
        x_label=f'similarity with the nearest text of the corpus, by {name}',
        y_label='share of texts that are at least so near',
        series=tuple(series),
    )


def _samples(
    texts: tuple[str, ...],
    corpus: Texts,
    nearest: Mapping[str, trigrams.Nearest],
    shares: Mapping[str, np.ndarray],
    is_record: np.ndarray,
) -> tuple[Sample, ...]:
    """The records whose nearness stands out most, and what they are near to."""
    names = list(nearest)
    closest = np.argmin([shares[name] for name in names], axis=0)
    share = np.min([shares[name] for name in names], axis=0)
    similarity = np.max([nearest[name].similarities for name in names], axis=0)
    order = [row for row in np.lexsort((-similarity, share)).tolist() if is_record[row]][:_SAMPLES]
    return tuple(
        Sample(
            caption=(
                f'Similarity by {(name := names[closest[row]])} {nearest[name].similarities[row]:.2f}; '
                f'{shares[name][row]:.2%} of held-out texts are as near'
            ),
            texts=(
                ('records', texts[row]),
                (corpus.name, corpus.texts[nearest[name].indices[row]]),
            ),
        )
        for row in order
    )
