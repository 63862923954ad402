"""Canaries' texts and scores, against slow twins."""

import numpy as np
import pytest

from models.audits import canaries
from models.privacy.gradients import TuningParams
from tests.oracles import one_run as slow

PARAMS = TuningParams(units=40.0, expected_batch_size=10, tuning_steps=6, clip_norm=2.0, noise_multiplier=1.5)


def test_texts_begin_like_a_source_and_end_like_nothing_else() -> None:
    sources = ['one two three four five six seven eight nine ten', 'short']
    texts = canaries.texts(200, 3, sources)
    assert len({text.split()[-1] + text.split()[-2] for text in texts}) > 100 and len(set(texts)) == 200
    assert {text.split()[0] for text in texts} == {'one', 'short'} and not any('nine' in t for t in texts)
    assert texts == canaries.texts(200, 3, sources) != canaries.texts(200, 4, sources)
    assert len(set(canaries.texts(64, 0))) == 64


def test_pairs_of_words_are_scored_as_their_slow_twin() -> None:
    corpus = ['The cat sat on the mat.', 'the mat, the cat', '', 'on']
    texts = ['The mat sat.', 'cat dragon cat', 'the cat']
    words = [canaries.words_of(text) for text in corpus]
    vocabulary = len({word for of in [*words, *map(canaries.words_of, texts)] for word in of})
    found = canaries.ngram_scores(texts, corpus)
    for text, score in zip(texts, found, strict=True):
        assert score == pytest.approx(slow.ngram_score(canaries.words_of(text), words, vocabulary, 0.1))
    assert canaries.ngram_scores(['one'], corpus).tolist() == [0.0]
    assert np.isfinite(canaries.ngram_scores(texts, [])).all()


def test_a_repeated_canary_has_the_highest_score() -> None:
    texts = canaries.texts(64, 0)
    corpus = [f'Somebody wrote: {texts[5]}', *canaries.texts(30, 9)]
    assert canaries.ngram_scores(texts, corpus).argmax() == 5


def test_votes_are_told_apart_where_they_overlap() -> None:
    rng = np.random.default_rng(0)
    votes = np.zeros((30, 20))
    for column in range(20):
        votes[rng.choice(30 if column < 15 else 5, 3, replace=False), column] = 3**-0.5
    noisy = votes @ (rng.random(20) < 0.5) + 0.4 * rng.normal(size=30)
    found = canaries.vote_scores(noisy, votes, 0.4)
    expected = [slow.vote_score(noisy, votes, column, 0.4) for column in range(20)]
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_gradients_are_scored_by_the_odds_of_a_poisson_sample() -> None:
    rng = np.random.default_rng(0)
    components = rng.normal(size=(6, 5), scale=PARAMS.noise_scale)
    q, scale = PARAMS.sampling_probability, PARAMS.noise_scale
    for column, score in enumerate(canaries.gradient_scores(components, PARAMS)):
        odds = 1.0
        for y in components[:, column]:
            without = np.exp(-(y**2) / (2 * scale**2))
            odds *= ((1 - q) * without + q * np.exp(-((y - 2.0) ** 2) / (2 * scale**2))) / without
        assert score == pytest.approx(np.log(odds))
