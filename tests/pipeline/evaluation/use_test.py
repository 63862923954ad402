"""Use: known corpora reach known accuracies, and what is lacking is an error, a note or a reason."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from models.clustering.embedder import TfidfEmbedder
from pipeline.evaluation import classifiers, use
from pipeline.evaluation.classifiers import KINDS
from pipeline.evaluation.measure import Figure, Findings, NotDefined
from pipeline.evaluation.sources import Sources, Texts
from pipeline.evaluation.use import Use

pytestmark = pytest.mark.heavy

WORDS = {
    'sport': ('match', 'goal', 'coach', 'league', 'striker', 'referee', 'stadium', 'keeper'),
    'money': ('bank', 'share', 'profit', 'market', 'loan', 'bond', 'trader', 'merger'),
    'science': ('orbit', 'cell', 'protein', 'comet', 'fossil', 'quantum', 'vaccine', 'telescope'),
}
COMMON = ('said', 'today', 'after', 'their', 'report', 'people', 'later', 'week', 'added', 'first')


def real(count: int, seed: int, name: str, labels: tuple[str, ...] = tuple(WORDS)) -> Texts:
    """Texts of ten words, two of which tell the label and one in five of these another label's."""
    rng = np.random.default_rng(seed)
    texts, own = [], []
    for _ in range(count):
        label = labels[rng.integers(len(labels))]
        telling = [label if rng.random() > 0.2 else labels[rng.integers(len(labels))] for _ in range(2)]
        words = [*rng.choice(COMMON, 8), *(rng.choice(WORDS[each]) for each in telling)]
        texts.append(' '.join(rng.permutation(words)))
        own.append(label)
    return Texts(name=name, texts=tuple(texts), labels=tuple(own))


EMBEDDER = TfidfEmbedder.fit(
    [*real(300, 99, 'public').texts], max_terms=100, min_texts=1, dimensions=20, seed=0
)
TEST = real(300, 1, 'test')
CORPUS = real(240, 2, 'corpus')


def measure(corpus: Texts = CORPUS, test: Texts = TEST, **others: Any) -> Findings:
    return Use().measure(
        Sources(corpus=corpus, test=test, embedder=EMBEDDER, **others), lambda done, total: None
    )


def relabelled(texts: Texts, labels: tuple[str, ...]) -> Texts:
    return Texts(name=texts.name, texts=texts.texts, labels=labels)


def figure(findings: Findings, name: str) -> Figure:
    (found,) = (each for each in findings.figures if each.name == name)
    return found


def value(findings: Findings, name: str) -> float:
    found = figure(findings, name).value
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def _few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use, 'MOST_SIZES', 3)
    monkeypatch.setattr(classifiers, 'RETRAINED', 2)


# --- Standard errors -------------------------------------------------------------


@pytest.mark.parametrize('kind', KINDS)
def test_the_error_is_as_far_as_corpora_of_that_size_differ(
    kind: classifiers.Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20 corpora of 30 texts, each on test texts of its own. The test texts alone explain little of it."""
    monkeypatch.setattr(classifiers, 'RETRAINED', 10)
    accuracies, errors, tests_alone = [], [], []
    for seed in range(20):
        sources = Sources(
            corpus=real(30, 100 + seed, 'corpus'), test=real(300, 200 + seed, 'test'), embedder=EMBEDDER
        )
        assert sources.test is not None
        classes = classifiers.classes_of(sources.test)
        texts, tests = (
            classifiers.labelled(sources, each, classes) for each in (sources.corpus, sources.test)
        )
        predicted = classifiers.train(kind, texts, 3)(tests).argmax(axis=1)
        rng = np.random.default_rng(seed)
        found = classifiers.scores(classifiers.confusion(tests.labels, predicted, 3), rng)
        widened = found.widened(*classifiers.retrained_errors(kind, texts, tests, 3, rng))
        assert found.accuracy_error is not None and widened.accuracy_error is not None
        accuracies.append(found.accuracy)
        tests_alone.append(found.accuracy_error)
        errors.append(widened.accuracy_error)
    # The deviation of 20 values is right to a sixth; resamples hold two thirds of their texts.
    spread = np.std(accuracies, ddof=1)
    assert 0.6 < np.mean(errors) / spread < 1.8
    assert np.mean(tests_alone) / spread < 0.6


def test_of_many_texts_fewer_are_retrained_on_and_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifiers, 'RETRAINED', 10)
    sources = Sources(corpus=real(400, 5, 'corpus'), test=TEST, embedder=EMBEDDER)
    texts, tests = (classifiers.labelled(sources, each, tuple(sorted(WORDS))) for each in (CORPUS, TEST))
    whole = classifiers.retrained_errors('head', texts, tests, 3, np.random.default_rng(0))
    monkeypatch.setattr(classifiers, 'MOST_RETRAINED_ON', 60)
    scaled = classifiers.retrained_errors('head', texts, tests, 3, np.random.default_rng(0))
    # Four times fewer texts vary about twice as much, and are scaled by two.
    assert 0.4 < scaled[0] / whole[0] < 2.5


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


def test_identical_texts_reach_what_their_own_labels_allow() -> None:
    clear = Texts(
        name='corpus',
        texts=tuple(f'{word} {other}' for words in WORDS.values() for word in words for other in COMMON),
        labels=tuple(label for label, words in WORDS.items() for _ in words for _ in COMMON),
    )
    findings = measure(clear, clear)
    assert {value(findings, f'{kind}_{what}') for kind in KINDS for what in ('accuracy', 'macro_f1')} == {1.0}


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
    constant = metrics.f1_score(test.labels, ['sport'] * 6, average='macro', zero_division=0)
    assert value(findings, 'majority_macro_f1') == pytest.approx(constant)


# --- Scores against an independent implementation ----------------------------------


@pytest.mark.first
def test_scores_are_those_of_scikit_learn_and_of_a_hand() -> None:
    true = np.array([0, 0, 0, 1, 1, 2, 2, 3])
    predicted = np.array([0, 0, 1, 1, 2, 2, 0, 0])
    found = classifiers.scores(classifiers.confusion(true, predicted, 4), np.random.default_rng(0))
    assert found.accuracy == pytest.approx(4 / 8) == metrics.accuracy_score(true, predicted)
    # True positives 2, 1, 1, 0; true plus predicted texts 3 + 4, 2 + 2, 2 + 2, 1 + 0.
    np.testing.assert_allclose(found.f1, [4 / 7, 1 / 2, 1 / 2, 0])
    np.testing.assert_allclose(found.f1, metrics.f1_score(true, predicted, average=None))
    assert found.macro_f1 == pytest.approx((4 / 7 + 1 / 2 + 1 / 2) / 4)
    np.testing.assert_array_equal(
        classifiers.confusion(true, predicted, 4), metrics.confusion_matrix(true, predicted)
    )


def test_the_bootstrap_of_cells_is_that_of_texts() -> None:
    rng = np.random.default_rng(5)
    true = rng.integers(3, size=400)
    predicted = np.where(rng.random(400) < 0.7, true, rng.integers(3, size=400))
    found = classifiers.scores(classifiers.confusion(true, predicted, 3), rng)
    again = []
    for _ in range(400):
        rows = rng.integers(400, size=400)
        again.append(metrics.f1_score(true[rows], predicted[rows], average='macro'))
    assert found.accuracy_error == pytest.approx(
        math.sqrt(found.accuracy * (1 - found.accuracy) / 400), rel=0.3
    )
    # A standard deviation over 200 draws is within 30 % of another's but once in some 10,000 times.
    assert found.macro_f1_error == pytest.approx(np.std(again), rel=0.3)


def test_one_test_text_has_a_score_and_no_error() -> None:
    found = classifiers.scores(np.array([[1, 0], [0, 0]]), np.random.default_rng(0))
    assert (found.accuracy, found.accuracy_error, found.macro_f1_error) == (1.0, None, None)


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


def test_progress_comes_to_its_end() -> None:
    told: list[tuple[int, int]] = []
    Use().measure(
        Sources(corpus=CORPUS, test=TEST, embedder=EMBEDDER), lambda done, total: told.append((done, total))
    )
    assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))


def test_figures_have_names_of_their_own() -> None:
    names = [each.name for each in measure(records=real(240, 3, 'records')).figures]
    assert len(set(names)) == len(names)
