from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.spatial import distance

from pipeline.evaluation.measure import Findings, NotDefined
from pipeline.evaluation.sources import Sources, Texts
from pipeline.evaluation.topics import SHOWN_CHARACTERS, Topics, chance_variation, total_variation
from tests.pipeline.evaluation.placed import PlacedEmbedder, blobs, placed_sources

WORDS = ('cat', 'dog', 'fish', 'bird')


def _found(sources: Sources) -> Findings:
    return Topics().measure(sources, lambda done, total: None)


def _values(corpus: np.ndarray, **others: Any) -> dict[str, float | None]:
    return {figure.name: figure.value for figure in _found(placed_sources(corpus, **others)).figures}


def _about(of_corpus: Sequence[int], of_test: Sequence[int] | None = None, *, end: str = '') -> Sources:
    """So many texts about each of `WORDS`, each topic in a place of its own."""
    generator = np.random.default_rng(0)
    places: dict[str, np.ndarray] = {}

    def texts(name: str, counts: Sequence[int], first: int) -> Texts:
        own = []
        for place, (word, count) in enumerate(zip(WORDS, counts)):
            for index, row in enumerate(blobs(generator, count, [place], 8), first):
                own.append(f'the {word} {index}{end}')
                places[own[-1]] = row
        return Texts(name=name, texts=tuple(own))

    corpus = texts('corpus', of_corpus, 0)
    test = None if of_test is None else texts('test', of_test, 1000)
    return Sources(corpus=corpus, test=test, embedder=PlacedEmbedder(places))


def test_total_variation_is_half_the_city_block_distance_of_shares() -> None:
    assert total_variation(np.array([3, 1]), np.array([1, 3])) == 0.5
    assert total_variation(np.array([5, 0]), np.array([0, 2])) == 1
    generator = np.random.default_rng(1)
    a, b = generator.integers(1, 50, (2, 9))
    assert total_variation(a, b) == pytest.approx(distance.cityblock(a / a.sum(), b / b.sum()) / 2)


def test_chance_variation_is_that_of_samples_of_one_distribution() -> None:
    generator = np.random.default_rng(2)
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    drawn = [generator.multinomial(200, shares) for _ in range(2)]
    simulated = [total_variation(*generator.multinomial([200, 400], shares)) for _ in range(2000)]
    found = chance_variation(drawn[0], 2 * drawn[1], generator)
    assert found == pytest.approx(np.mean(simulated), rel=0.1)
    # It falls with the root of the sizes.
    assert chance_variation(100 * drawn[0], 200 * drawn[1], generator) == pytest.approx(found / 10, rel=0.1)


def test_the_same_texts_have_the_same_shares() -> None:
    points = blobs(np.random.default_rng(3), 200, range(4))
    values = _values(points, test=points)
    assert values['total_variation'] == 0 and values['topics_missing'] == 0
    assert values['total_variation_by_chance'] > 0


def test_a_sample_of_the_same_topics_differs_by_what_chance_says() -> None:
    generator = np.random.default_rng(4)
    values = _values(blobs(generator, 1000, range(8)), test=blobs(generator, 1000, range(8)))
    assert values['total_variation'] < 2 * values['total_variation_by_chance']


def test_disjoint_topics_differ_wholly() -> None:
    # Texts of other places lie as far from one centre as from another: all fall to one side of the rest.
    generator = np.random.default_rng(5)
    far = blobs(generator, 200, [5])
    values = _values(far, test=blobs(generator, 200, [0, 1, 2, 3]))
    assert values['total_variation'] > 5 * values['total_variation_by_chance']
    assert values['topics_missing'] > 0


def test_a_missing_topic_is_found_and_named() -> None:
    found = _found(_about([10, 10, 10, 0], [10, 10, 10, 10]))
    assert found.settings['topics'] == 4
    values = {figure.name: figure.value for figure in found.figures}
    assert values['total_variation'] == pytest.approx(0.25) and values['topics_missing'] == 1
    bars = next(chart for chart in found.charts if chart.kind == 'bars')
    assert [series.name for series in bars.series] == ['corpus', 'test']
    corpus, test = (dict(zip(series.x, series.y)) for series in bars.series)
    assert sorted(str(name).split(': ')[1] for name in corpus) == sorted(WORDS)
    shares = {str(name).split(': ')[1]: (corpus[name], test[name]) for name in corpus}
    assert shares['bird'] == (0, 0.25) and shares['dog'] == (pytest.approx(1 / 3), 0.25)


def test_samples_are_texts_of_the_corpus_alone_one_for_a_topic() -> None:
    sources = _about([30, 10, 10, 0], [10, 10, 10, 10])
    samples = _found(sources).samples
    assert len(samples) == 3
    for sample in samples:
        ((name, text),) = sample.texts
        assert name == 'corpus' and text in sources.corpus.texts
        assert sample.caption.split(': ')[1] in text
    # The most overdone topic comes first.
    assert 'cat' in samples[0].texts[0][1]


def test_a_long_text_is_shown_in_part() -> None:
    samples = _found(_about([10, 10, 10, 10], end=' and' * 1000)).samples
    assert [len(sample.texts[0][1]) for sample in samples] == [SHOWN_CHARACTERS + 1] * 4


def test_evenness_needs_no_real_texts() -> None:
    found = _found(_about([20, 20, 20, 20]))
    assert found.settings['clusters_fitted_on'] == 'corpus'
    (evenness,) = found.figures
    assert evenness.name == 'evenness' and 0.8 < evenness.value <= 1
    assert [len(chart.series) for chart in found.charts] == [1, 1]


def test_a_corpus_of_one_topic_is_not_even() -> None:
    values = _values(np.tile(np.eye(8)[0], (100, 1)), test=blobs(np.random.default_rng(6), 100, range(4), 8))
    assert values['evenness'] == 0


def test_the_map_keeps_topics_apart() -> None:
    generator = np.random.default_rng(7)
    found = _found(placed_sources(blobs(generator, 100, [0]), test=blobs(generator, 100, [1])))
    corpus, test = (np.column_stack([series.x, series.y]) for series in found.charts[-1].series)
    assert found.charts[-1].kind == 'points' and corpus.shape == test.shape == (100, 2)
    together, own = np.concatenate([corpus, test]), np.repeat([0, 1], 100)
    apart = distance.squareform(distance.pdist(together))
    np.fill_diagonal(apart, math.inf)
    assert (own[apart.argmin(axis=1)] == own).mean() == 1


def test_a_seed_gives_the_same_findings() -> None:
    generator = np.random.default_rng(8)
    corpus, test = blobs(generator, 90, [0, 1, 2]), blobs(generator, 70, [1, 2, 3])
    first, again = (_found(placed_sources(corpus, test=test, seed=5)) for _ in range(2))
    assert first == again


def test_it_is_not_defined_of_few_or_equal_or_unknown_texts() -> None:
    points = blobs(np.random.default_rng(9), 40, [0, 1])
    with pytest.raises(NotDefined, match='20 or more texts to cluster, got test=19'):
        _found(placed_sources(points, test=points[:19]))
    with pytest.raises(NotDefined, match='All texts of test have the same vector'):
        _found(placed_sources(points, test=np.tile(points[:1], (40, 1))))
    with pytest.raises(NotDefined, match='knows no word of 100% of corpus'):
        _found(placed_sources(0 * points))


def test_a_corpus_of_one_text_beside_real_ones_has_findings() -> None:
    points = blobs(np.random.default_rng(10), 40, [0, 1])
    values = _values(points[:1], test=points)
    assert 0 < values['total_variation'] < 1
