"""Labels: a judge trained on real texts finds the labels that were changed, and says how often it errs."""

from typing import Any

import numpy as np
import pytest

from pipeline.evaluation import labels as labels_file
from pipeline.evaluation.classifiers import KINDS
from pipeline.evaluation.labels import Labels
from pipeline.evaluation.measure import Findings, NotDefined
from pipeline.evaluation.sources import Texts
from tests.pipeline.evaluation.labelled import figure, findings_of, real, relabelled, value

RECORDS, TEST, CORPUS = real(400, 1, 'records'), real(400, 2, 'test'), real(500, 3, 'corpus')


def measure(corpus: Texts = CORPUS, test: Texts = TEST, **others: Any) -> Findings:
    return findings_of(Labels(), corpus=corpus, test=test, **others)


def flipped(texts: Texts, share: float) -> tuple[Texts, set[int]]:
    """The texts, of a share of which the label is another, and which they are."""
    turned = {'sport': 'money', 'money': 'science', 'science': 'sport'}
    rows = np.random.default_rng(7).choice(len(texts), round(share * len(texts)), replace=False)
    chosen = {int(row) for row in rows}
    own = texts.labels or ()
    return relabelled(
        texts, (turned[label] if row in chosen else label for row, label in enumerate(own))
    ), chosen


@pytest.mark.parametrize('records', [RECORDS, None, Texts(name='records', texts=RECORDS.texts)])
def test_right_labels_are_agreed_with(records: Texts | None) -> None:
    findings = measure(records=records)
    for kind in KINDS:
        assert value(findings, f'{kind}_label_accuracy') > 0.97
        assert value(findings, f'{kind}_judge_accuracy') > 0.97
    trained = 'records' if records is RECORDS else 'one half of the test texts'
    assert findings.settings['judges_trained_on'] == trained
    assert value(findings, 'check_texts') == pytest.approx(400 if records is RECORDS else 200, abs=2)


def test_shuffled_labels_are_chance() -> None:
    own = np.random.default_rng(4).permutation(CORPUS.labels or ())
    findings = measure(relabelled(CORPUS, map(str, own)), records=RECORDS)
    # Four standard errors about a third, of 500 texts.
    assert all(abs(value(findings, f'{kind}_label_accuracy') - 1 / 3) < 0.085 for kind in KINDS)


@pytest.mark.parametrize('share', [0.05, 0.2, 0.4])
def test_the_share_of_changed_labels_is_found(share: float) -> None:
    corpus, rows = flipped(CORPUS, share)
    findings = measure(corpus, records=RECORDS)
    for kind in KINDS:
        assert value(findings, f'{kind}_label_accuracy') == pytest.approx(1 - share, abs=0.03)
    changed = {corpus.texts[row] for row in rows}
    assert len(findings.samples) == labels_file.MOST_SAMPLES
    assert all(
        source == 'corpus' and text in changed for sample in findings.samples for source, text in sample.texts
    )


def test_the_error_of_a_poor_judge_is_told_beside_and_by_label() -> None:
    records, test, corpus = (
        real(600, seed, name, unclear=0.4) for seed, name in ((11, 'records'), (12, 'test'), (13, 'corpus'))
    )
    findings = measure(corpus, test, records=records)
    judge, agreed = figure(findings, 'tfidf_judge_accuracy'), figure(findings, 'tfidf_label_accuracy')
    assert judge.value is not None and agreed.value is not None and judge.value < 0.85
    assert judge.standard_error is not None and agreed.standard_error is not None
    assert abs(judge.value - agreed.value) < 4 * (judge.standard_error + agreed.standard_error) < 0.2
    assert ' real texts of this label ' in figure(findings, 'judged_wrong_by_label/money').note


def test_a_label_that_hides_another_is_named() -> None:
    corpus = relabelled(CORPUS, ('money' if label == 'sport' else label for label in CORPUS.labels or ()))
    findings = measure(corpus, records=RECORDS)
    own = CORPUS.labels or ()
    sport = own.count('sport') / (own.count('sport') + own.count('money'))
    assert value(findings, 'judged_wrong_by_label/money') == pytest.approx(sport, abs=0.02)
    assert value(findings, 'judged_wrong_by_label/science') < 0.03


def test_labels_that_no_judge_knows_are_counted() -> None:
    corpus = relabelled(CORPUS, ('weather',) * 50 + (CORPUS.labels or ())[50:])
    findings = measure(corpus, records=RECORDS)
    assert (value(findings, 'unknown_texts'), value(findings, 'corpus_texts')) == (50, 450)


def test_labels_of_one_text_each_leave_nothing_to_check_on() -> None:
    test = Texts(name='test', texts=('a goal', 'a bank'), labels=('sport', 'money'))
    with pytest.raises(NotDefined, match='No text is left'):
        measure(test=test)


@pytest.mark.parametrize(
    ('sources', 'reason'),
    [
        ({'test': relabelled(TEST, ('sport',) * 400)}, 'fewer than two labels'),
        ({'records': relabelled(RECORDS, ('sport',) * 400)}, 'fewer than two labels'),
        ({'corpus': relabelled(CORPUS, ('weather',) * 500)}, 'No text of the corpus'),
        ({'records': RECORDS, 'test': relabelled(TEST, ('weather',) * 400)}, 'No text is left'),
    ],
)
def test_what_no_judge_can_judge_is_not_defined(sources: dict[str, Texts], reason: str) -> None:
    with pytest.raises(NotDefined, match=reason):
        measure(**sources)


def test_findings_show_texts_of_the_corpus_alone() -> None:
    records, test = (
        Texts(name=each.name, texts=tuple(f'{text} zyzzyva' for text in each.texts), labels=each.labels)
        for each in (RECORDS, TEST)
    )
    corpus, _ = flipped(CORPUS, 0.2)
    assert 'zyzzyva' not in str([sample.texts for sample in measure(corpus, test, records=records).samples])
