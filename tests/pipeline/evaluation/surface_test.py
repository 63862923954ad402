from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from pipeline.evaluation import surface, words
from pipeline.evaluation.measure import Findings
from pipeline.evaluation.sources import Sources
from pipeline.evaluation.surface import NGrams, Surface, first_words, n_grams
from tests.pipeline.evaluation.placed import plain_sources


def _found(sources: Sources) -> Findings:
    return Surface().measure(sources, lambda done, total: None)


def _values(sources: Sources) -> dict[str, float | None]:
    return {figure.name: figure.value for figure in _found(sources).figures}


def test_n_grams_of_two_texts_by_hand() -> None:
    # a b, b a, a b | a b: nothing reaches from one text into the next.
    texts = [['a', 'b', 'a', 'b'], ['a', 'b']]
    entropy = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    assert n_grams(texts, 2) == NGrams(total=4, distinct=2, entropy=pytest.approx(entropy))
    assert n_grams(texts, 1) == NGrams(total=6, distinct=2, entropy=pytest.approx(1))
    assert n_grams([['a']], 2) == NGrams(total=0, distinct=0, entropy=0.0)


@pytest.mark.parametrize('order', [1, 2, 3])
def test_n_grams_agree_with_scikit_learn(order: int) -> None:
    generator = np.random.default_rng(0)
    texts = [' '.join(generator.choice(list('abcdefgh'), size)) for size in generator.integers(1, 20, 50)]
    counts = np.asarray(
        CountVectorizer(
            ngram_range=(order, order), tokenizer=words.words_of, token_pattern=None, lowercase=False
        )
        .fit_transform(texts)
        .sum(axis=0)
    ).ravel()
    shares = counts / counts.sum()
    found = n_grams([text.split() for text in texts], order)
    assert (found.total, found.distinct) == (counts.sum(), len(counts))
    assert found.entropy == pytest.approx(-(shares * np.log2(shares)).sum())


def test_words_are_cut_at_the_limit() -> None:
    assert first_words([['a', 'b'], ['c', 'd'], ['e']], 3) == [['a', 'b'], ['c']]
    assert first_words([['a']], 3) == [['a']]
    assert first_words([['a']], 0) == []


def test_lengths_of_a_corpus_by_hand() -> None:
    values = _values(plain_sources(['One, two: three.', 'Four', 'Five five']))
    assert values['words_mean'] == 2 and values['words_median'] == 2
    assert values['characters_mean'] == pytest.approx((16 + 4 + 9) / 3)
    assert values['characters_median'] == 9
    # One, two, three, four, five: case does not count.
    assert values['vocabulary'] == 5 and values['distinct_1'] == pytest.approx(5 / 6)
    assert not any(name.endswith('/real') for name in values) and 'words_distance' not in values


def test_the_same_texts_have_the_same_figures_in_any_order() -> None:
    texts = [f'text {number} of {number % 7} and more' for number in range(60)]
    values = _values(plain_sources(texts, test=texts[::-1]))
    assert values['words_distance'] == 0
    for name in [name for name in values if name.endswith('/real')]:
        assert values[name] == pytest.approx(values[name.removesuffix('/real')]), name


def test_a_corpus_of_copies_is_less_varied_and_has_duplicates() -> None:
    generator = np.random.default_rng(1)
    test = [' '.join(generator.choice([f'w{n}' for n in range(50)], 10)) for _ in range(100)]
    values = _values(plain_sources(test[:10] * 10, test=test))
    assert values['duplicates'] == pytest.approx(0.9) and values['duplicates/real'] == 0
    for name in ('distinct_2', 'distinct_3', 'entropy_2', 'entropy_3'):
        assert values[name] < values[f'{name}/real'], name


def test_sides_are_compared_at_one_number_of_texts_and_words() -> None:
    generator = np.random.default_rng(2)

    def texts(size: int, words: int) -> list[str]:
        return [' '.join(f'w{number}' for number in generator.zipf(1.5, words)) for _ in range(size)]

    found = _found(plain_sources(texts(50, 5), test=texts(400, 40)))
    values = {figure.name: figure.value for figure in found.figures}
    assert found.settings['texts_on_each_side'] == 50 and found.settings['words_on_each_side'] == 250
    # Eight times the words would have half the share of distinct ones.
    assert values['distinct_1'] == pytest.approx(values['distinct_1/real'], abs=0.08)
    assert values['words_distance'] == 35


def test_no_more_texts_and_words_than_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface, 'MAX_TEXTS', 20)
    monkeypatch.setattr(surface, 'MAX_WORDS', 30)
    sources = plain_sources([f'{number} b c' for number in range(100)])
    found = _found(sources)
    assert found.settings['texts_on_each_side'] == 20 and found.settings['words_on_each_side'] == 30
    assert {figure.name: figure.value for figure in found.figures}['vocabulary'] == 12
    assert _found(sources) == found


@pytest.mark.parametrize('texts', [['a'], ['!', '?!'], ['数据隐私', 'текст'], ['a ' * 50_000], ['same'] * 30])
def test_unusual_texts_have_figures(texts: list[str]) -> None:
    found = _found(plain_sources(texts, records=texts))
    values = {figure.name: figure.value for figure in found.figures}
    assert values['characters_mean'] == np.mean([len(text) for text in texts])
    assert all(value is None or math.isfinite(value) for value in values.values())
    for series in found.charts[0].series:
        assert sum(series.y) == pytest.approx(1)


def test_marks_alone_have_no_words_to_be_distinct() -> None:
    values = _values(plain_sources(['!', '?!'], test=['some words', 'more']))
    assert values['words_mean'] == 0
    assert values['vocabulary'] is None and values['distinct_1'] is None and values['entropy_1/real'] is None


def test_the_chart_puts_longer_texts_into_the_last_point() -> None:
    sources = plain_sources(['a ' * 10] * 199 + ['a ' * 1000], test=['a ' * 20] * 200)
    corpus, test = _found(sources).charts[0].series
    assert corpus.x == test.x and max(corpus.x) < 20
    assert corpus.y[0] == pytest.approx(0.995) and corpus.y[-1] == pytest.approx(0.005)
    assert test.y[-1] == 1
