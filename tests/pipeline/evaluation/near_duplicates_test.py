"""Near-duplicates by trigrams: against pairs compared one by one, and what is counted."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from pipeline.evaluation import trigrams, words
from pipeline.evaluation.measure import Findings, NotDefined
from pipeline.evaluation.near_duplicates import NearDuplicates
from pipeline.evaluation.sources import Texts
from tests.pipeline.evaluation.placed import plain_sources
from tests.pipeline.evaluation.texts import figures_of


def measured(corpus: Sequence[str], records: Sequence[str], test: Sequence[str] | None = None) -> Findings:
    return NearDuplicates().measure(plain_sources(corpus, records=records, test=test), lambda *_: None)


def trigrams_of(text: str) -> set[tuple[str, ...]]:
    split = words.words_of(text)
    return {tuple(split[i : i + 3]) for i in range(len(split) - 2)}


def random_texts(seed: int, count: int, kinds: int = 12) -> list[str]:
    """Texts of few kinds of words, so that trigrams are often shared; a common beginning now and then."""
    rng = random.Random(seed)
    return [
        rng.choice(('', 'this is a form that all fill in '))
        + ' '.join(f'w{rng.randrange(kinds)}' for _ in range(rng.randrange(1, 25)))
        for _ in range(count)
    ]


@pytest.mark.parametrize('dense_share', [0.0, 0.005, 2.0])
@pytest.mark.parametrize('similarity', [trigrams.overlap, trigrams.jaccard])
def test_the_nearest_is_that_of_all_pairs(
    similarity: trigrams.Similarity, dense_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigrams, '_BLOCK_ROWS', 16)
    monkeypatch.setattr(trigrams, '_DENSE_SHARE_OF_PAIRS', dense_share)
    ones, others = random_texts(1, 70), random_texts(2, 50)
    read = words.read_words(
        [Texts(name='a', texts=tuple(ones)), Texts(name='b', texts=tuple(others))], seed=0
    )
    found = trigrams.nearest(*trigrams.trigram_sets(read), similarity)
    expected = np.zeros((70, 50))
    for i, one in enumerate(map(trigrams_of, ones)):
        for j, other in enumerate(map(trigrams_of, others)):
            if one and other:
                below = min(len(one), len(other)) if similarity is trigrams.overlap else len(one | other)
                expected[i, j] = len(one & other) / below
    np.testing.assert_allclose(found.similarities, expected.max(axis=1), rtol=1e-6)
    np.testing.assert_array_equal(found.indices, expected.argmax(axis=1))
    assert 0 < expected.max(axis=1).mean() < 1


def test_half_the_trigrams_of_the_smaller_set_are_enough_and_fewer_are_not() -> None:
    record = 'a b c d e f'  # abc bcd cde def
    corpus = [
        'a b c d x y z u v w',  # abc bcd: 2 of 4
        'a b c x y z u v w',  # abc: 1 of 4
        'B, C; D!',  # its only one
        'p q r s t',
        'a b',
    ]
    figures = figures_of(measured(corpus, [record]))
    assert figures['near_duplicates'] == 2 / 4 and figures['near_duplicates_count'] == 2
    assert figures['without_trigrams'] == pytest.approx(1 / 5)


def test_sets_count_a_repeated_trigram_once() -> None:
    # {abc, bca, cab, xyz, ...}: shares abc of 1, as often as it is repeated.
    assert figures_of(measured(['x y a b c ' * 3], ['a b c q r s t u v']))['near_duplicates'] == 0


def test_held_out_texts_are_compared_in_equal_number() -> None:
    corpus = [f'the report of case number {i} is closed' for i in range(10)]
    records = corpus[:4] + [f'alpha{i} beta{i} gamma{i}' for i in range(26)]
    found = measured(corpus, records, [f'delta{i} beta gamma' for i in range(9)] + [corpus[0]])
    figures = figures_of(found)
    assert figures['near_duplicates'] == figures['test_near_duplicates'] == 1.0
    assert [series.name for series in found.charts[0].series] == [
        'all 30 records', '10 records', '10 held-out texts',
    ]  # fmt: skip
    for series in found.charts[0].series:
        assert sum(series.y) == pytest.approx(1) and len(series.x) == len(series.y)
    assert figures_of(measured(corpus, records, ['nothing of this kind']))['test_near_duplicates'] == 0


def test_the_nearest_pairs_are_shown() -> None:
    found = measured(
        ['one two three four five', 'no such words here'], ['a b c', 'zero one two three four five']
    )
    assert [dict(sample.texts) for sample in found.samples] == [
        {'corpus': 'one two three four five', 'records': 'zero one two three four five'}
    ]
    assert found.charts[0].series[0].y[-1] == 0.5


def test_without_three_words_it_is_not_defined() -> None:
    for corpus, records in ((['a b'], ['a b c']), (['a b c'], ['a b']), (['!!!'], ['???'])):
        with pytest.raises(NotDefined, match='three words'):
            measured(corpus, records)
    assert figures_of(measured(['a b c'], ['a b c']))['near_duplicates'] == 1
