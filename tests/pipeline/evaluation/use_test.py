"""Use: known corpora reach known accuracies, and what is lacking is an error, a note or a reason."""

import functools
import math
from typing import Any

import numpy as np
import pytest

from pipeline.evaluation import classifiers, use
from pipeline.evaluation.classifiers import KINDS
from pipeline.evaluation.measure import Findings, NotDefined
from pipeline.evaluation.sources import Sources, Texts
from pipeline.evaluation.use import Use
from tests.pipeline.evaluation import labelled
from tests.pipeline.evaluation.labelled import EMBEDDER, WORDS, figure, relabelled, value

pytestmark = pytest.mark.heavy

real = functools.partial(labelled.real, mixed=0.2)
TEST = real(300, 1, 'test')
CORPUS = real(240, 2, 'corpus')


def measure(corpus: Texts = CORPUS, test: Texts = TEST, **others: Any) -> Findings:
    return labelled.findings_of(Use(), corpus=corpus, test=test, **others)


@pytest.fixture(autouse=True)
def _few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use, 'MOST_SIZES', 3)
    monkeypatch.setattr(classifiers, 'RETRAINED', 2)


# --- Standard errors -------------------------------------------------------------


@pytest.mark.parametrize('kind', KINDS)
def test_the_error_is_as_far_as_corpora_of_that_size_differ(
    kind: classifiers.Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 corpora of 20 texts, each on test texts of its own. The test texts alone explain too little."""
    monkeypatch.setattr(classifiers, 'RETRAINED', 10)
    accuracies, errors = [], []
    for seed in range(20):
        texts, tests = labelled_texts(
            *(labelled.real(*of, mixed=0.5) for of in ((20, 100 + seed, 'corpus'), (300, 200 + seed, 'test')))
        )
        scored = scored_with_errors(kind, texts, tests, seed)
        assert scored.accuracy_error is not None
        accuracies.append(scored.accuracy)
        errors.append(scored.accuracy_error)
    # The deviation of 20 values is right to a sixth; resamples hold two thirds of their texts.
    spread = np.std(accuracies, ddof=1)
    assert 0.6 < np.mean(errors) / spread < 1.8
    assert math.sqrt(np.mean(accuracies) * (1 - np.mean(accuracies)) / 300) / spread < 0.8


def labelled_texts(*sources: Texts) -> list[classifiers.Labelled]:
    known = Sources(corpus=sources[0], embedder=EMBEDDER)
    return [classifiers.labelled(known, each, tuple(sorted(WORDS))) for each in sources]


def scored_with_errors(
    kind: classifiers.Kind, texts: classifiers.Labelled, tests: classifiers.Labelled, seed: int = 0
) -> classifiers.Scores:
    predicted = classifiers.train(kind, texts, 3)(tests).argmax(axis=1)
    scored = classifiers.scores(tests.labels, predicted, 3)
    return classifiers.with_errors(scored, kind, texts, tests, predicted, np.random.default_rng(seed))


def test_of_many_texts_fewer_are_retrained_on_and_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifiers, 'RETRAINED', 10)
    texts, tests = labelled_texts(CORPUS, TEST)
    whole = scored_with_errors('head', texts, tests).accuracy_error
    monkeypatch.setattr(classifiers, 'MOST_RETRAINED_ON', 60)
    scaled = scored_with_errors('head', texts, tests).accuracy_error
    # Four times fewer texts vary about twice as much, and are scaled by two.
    assert whole is not None and scaled is not None and 0.4 < scaled / whole < 2.5


def test_the_error_of_the_test_texts_alone_is_binomial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A classifier that no draw of its texts changes: both of its labels have one word each."""
    texts = ('goal',) * 40 + ('bank',) * 40
    own, tests = labelled_texts(
        Texts(name='corpus', texts=texts, labels=('sport',) * 40 + ('money',) * 40),
        Texts(name='test', texts=texts * 5, labels=('sport', 'money', 'money', 'money') * 100),
    )
    found = scored_with_errors('tfidf', own, tests)
    assert found.accuracy_error == pytest.approx(
        math.sqrt(found.accuracy * (1 - found.accuracy) / 400), rel=0.3
    )


def test_one_test_text_has_a_score_and_no_error() -> None:
    texts, tests = labelled_texts(CORPUS, TEST.take([0]))
    assert scored_with_errors('head', texts, tests).accuracy_error is None


# --- What corpora are worth ------------------------------------------------------


def test_a_corpus_of_real_texts_is_as_good_as_records_and_shuffled_labels_are_chance() -> None:
    findings = measure(records=real(240, 3, 'records'), public=real(240, 4, 'public', ('sport', 'money')))
    for kind in KINDS:
        own, ceiling = value(findings, f'{kind}_accuracy'), value(findings, f'{kind}_real_accuracy')
        assert own > 0.75
        assert abs(own - ceiling) < 0.08
        # Three labels, 300 test texts: four standard errors about a third.
        assert abs(value(findings, f'{kind}_shuffled_accuracy') - 1 / 3) < 4 * math.sqrt(2 / 9 / 300)
        # The public texts never say science.
        assert value(findings, f'{kind}_public_accuracy') < own - 0.15


def test_labels_dealt_to_other_texts_are_worth_nothing() -> None:
    turned = {'sport': 'money', 'money': 'science', 'science': 'sport'}
    findings = measure(relabelled(CORPUS, tuple(turned[label] for label in CORPUS.labels or ())))
    assert all(value(findings, f'{kind}_accuracy') < 0.25 for kind in KINDS)


def test_more_texts_are_worth_more() -> None:
    findings = measure()
    curve = [value(findings, f'head_corpus_accuracy_by_size/{size}') for size in (60, 120, 240)]
    assert curve[0] < curve[2] == value(findings, 'head_accuracy')
    (line, _) = (series for series in findings.charts[0].series)
    assert line.x == (60.0, 120.0, 240.0)
    assert line.y[2] == value(findings, 'tfidf_accuracy')


def test_the_majority_label_is_the_best_constant_answer() -> None:
    test = Texts(name='test', texts=TEST.texts[:6], labels=('sport',) * 3 + ('money',) * 2 + ('science',))
    findings = measure(test=test)
    assert value(findings, 'majority_accuracy') == pytest.approx(0.5)


# --- Scores ----------------------------------------------------------------------


def test_scores_are_those_of_a_hand() -> None:
    true = np.array([0, 0, 0, 1, 1, 2, 2, 3])
    predicted = np.array([0, 0, 1, 1, 2, 2, 0, 0])
    scored = classifiers.scores(true, predicted, 5)
    assert scored.accuracy == 4 / 8
    # True positives 2, 1, 1, 0; true plus predicted texts 3 + 4, 2 + 2, 2 + 2, 1 + 0. The fifth has neither.
    np.testing.assert_allclose(scored.f1, [4 / 7, 1 / 2, 1 / 2, 0, np.nan])
    assert scored.macro_f1 == pytest.approx((4 / 7 + 1 / 2 + 1 / 2) / 4)


# --- Labels that differ, and what is not there -------------------------------------


def test_labels_that_the_corpus_lacks_are_errors_and_foreign_ones_are_dropped() -> None:
    corpus = real(240, 2, 'corpus', ('sport', 'money'))
    foreign = ('weather',) * 40 + (corpus.labels or ())[40:]
    findings = measure(relabelled(corpus, foreign))
    assert value(findings, 'dropped_texts') == 40
    assert value(findings, 'corpus_texts') == 200
    assert value(findings, 'lacking_labels') == 1
    share = (TEST.labels or ()).count('science') / len(TEST)
    for kind in KINDS:
        assert value(findings, f'{kind}_f1_by_label/science') == 0.0
        assert figure(findings, f'{kind}_f1_by_label/science').note
        assert value(findings, f'{kind}_accuracy') <= 1 - share
    # As if they had never been there.
    kept = Texts(name='corpus', texts=corpus.texts[40:], labels=foreign[40:])
    assert value(findings, 'tfidf_accuracy') == value(measure(kept), 'tfidf_accuracy')


@pytest.mark.parametrize(
    ('corpus', 'test'),
    [
        (real(30, 1, 'corpus', ('sport',)), TEST),
        (relabelled(CORPUS, ('weather',) * len(CORPUS)), TEST),
        (CORPUS, real(30, 1, 'test', ('money',))),
        (Texts(name='corpus', texts=('one goal',), labels=('sport',)), TEST),
    ],
    ids=['one label', 'foreign labels', 'one label to test', 'one text'],
)
def test_fewer_than_two_common_labels_define_nothing(corpus: Texts, test: Texts) -> None:
    with pytest.raises(NotDefined, match='a classifier needs two'):
        measure(corpus, test)


def test_a_label_of_each_text_is_no_label() -> None:
    names = tuple(f'name {number}' for number in range(classifiers.MOST_LABELS + 1))
    with pytest.raises(NotDefined, match='not a label'):
        measure(test=Texts(name='test', texts=names, labels=names))


def test_comparisons_that_are_not_there_have_no_value_and_say_why() -> None:
    unlabelled = Texts(name='records', texts=CORPUS.texts)
    findings = measure(records=unlabelled, public=real(50, 3, 'public', ('sport',)))
    assert figure(findings, 'tfidf_real_accuracy').value is None
    assert figure(findings, 'tfidf_real_accuracy').note == 'The records have no labels.'
    assert 'fewer than two' in figure(findings, 'head_public_accuracy').note
    assert figure(measure(), 'head_public_accuracy').note == 'No public texts were given.'


def test_fewer_records_than_corpus_texts_are_told() -> None:
    findings = measure(records=real(100, 3, 'records'))
    assert figure(findings, 'tfidf_real_accuracy').note == 'Trained on 100 texts, where the corpus has 240.'
    assert value(findings, 'tfidf_real_accuracy') == value(findings, 'tfidf_real_accuracy_by_size/100')


def test_larger_sources_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifiers, 'MOST_TEXTS', 100)
    findings = measure()
    assert (value(findings, 'corpus_texts'), value(findings, 'test_texts')) == (100, 100)
    assert findings.settings['most_texts'] == 100


def test_any_script_and_marks_alone_have_words() -> None:
    texts = ('好 天', '足 球', '?!', '...', 'สวัสดี', 'x' * 100_000, '𝔘', 'नमस्ते') * 3
    labels = ('a', 'b') * 12
    odd = Texts(name='corpus', texts=texts, labels=labels)
    # The embedder knows no word of them.
    assert value(measure(odd, odd), 'tfidf_accuracy') == 1.0
    assert 0.0 <= value(measure(odd, odd), 'head_accuracy') <= 1.0


def test_the_same_sources_give_the_same_findings_and_another_seed_other_draws() -> None:
    assert measure() == measure()
    shuffled = [value(measure(seed=seed), 'tfidf_shuffled_accuracy') for seed in (0, 1)]
    assert shuffled[0] != shuffled[1]


def test_figures_have_names_of_their_own() -> None:
    names = [each.name for each in measure(records=real(240, 3, 'records')).figures]
    assert len(set(names)) == len(names)
