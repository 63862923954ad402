"""Labels: a judge trained on real texts finds the labels that were changed, and says how often it errs."""

from typing import Any

import numpy as np
import pytest

from models.clustering.embedder import TfidfEmbedder
from pipeline.evaluation import labels as labels_file
from pipeline.evaluation.classifiers import KINDS
from pipeline.evaluation.labels import Labels
from pipeline.evaluation.measure import Figure, Findings, NotDefined
from pipeline.evaluation.sources import Sources, Texts

WORDS = {
    'sport': ('match', 'goal', 'coach', 'league', 'striker', 'referee', 'stadium', 'keeper'),
    'money': ('bank', 'share', 'profit', 'market', 'loan', 'bond', 'trader', 'merger'),
    'science': ('orbit', 'cell', 'protein', 'comet', 'fossil', 'quantum', 'vaccine', 'telescope'),
}
COMMON = ('said', 'today', 'after', 'their', 'report', 'people', 'later', 'week', 'added', 'first')


def real(count: int, seed: int, name: str, unclear: float = 0.0) -> Texts:
    """Texts of ten words, of which two tell the label, and of a share `unclear` none."""
    rng = np.random.default_rng(seed)
    texts, own = [], []
    for _ in range(count):
        label = tuple(WORDS)[rng.integers(3)]
        telling = COMMON if rng.random() < unclear else WORDS[label]
        texts.append(' '.join(rng.permutation([*rng.choice(COMMON, 8), *rng.choice(telling, 2)])))
        own.append(label)
    return Texts(name=name, texts=tuple(texts), labels=tuple(own))


EMBEDDER = TfidfEmbedder.fit(real(300, 99, 'public').texts, max_terms=100, min_texts=1, dimensions=20, seed=0)
RECORDS, TEST, CORPUS = real(400, 1, 'records'), real(400, 2, 'test'), real(500, 3, 'corpus')


def measure(corpus: Texts = CORPUS, test: Texts = TEST, **others: Any) -> Findings:
    return Labels().measure(
        Sources(corpus=corpus, test=test, embedder=EMBEDDER, **others), lambda done, total: None
    )


def relabelled(texts: Texts, labels: Any) -> Texts:
    return Texts(name=texts.name, texts=texts.texts, labels=tuple(labels))


def flipped(texts: Texts, share: float) -> tuple[Texts, set[int]]:
    """The texts, of a share of which the label is another, and which they are."""
    turned = {'sport': 'money', 'money': 'science', 'science': 'sport'}
    rows = np.random.default_rng(7).choice(len(texts), round(share * len(texts)), replace=False)
    chosen = {int(row) for row in rows}
    own = texts.labels or ()
    return relabelled(
        texts, (turned[label] if row in chosen else label for row, label in enumerate(own))
    ), chosen


def figure(findings: Findings, name: str) -> Figure:
    (found,) = (each for each in findings.figures if each.name == name)
    return found


def value(findings: Findings, name: str) -> float:
    found = figure(findings, name).value
    assert found is not None
    return found


@pytest.mark.parametrize('records', [RECORDS, None, Texts(name='records', texts=RECORDS.texts)])
def test_right_labels_are_agreed_with(records: Texts | None) -> None:
    findings = measure(records=records)
    for kind in KINDS:
        assert value(findings, f'{kind}_label_accuracy') > 0.97
        assert value(findings, f'{kind}_judge_accuracy') > 0.97
    trained = 'records' if records is RECORDS else 'one half of the test texts'
    assert findings.settings['judges_trained_on'] == trained
    assert value(findings, 'check_texts') == pytest.approx(400 if records is RECORDS else 200, abs=2)


def test_the_records_themselves_are_agreed_with() -> None:
    assert value(measure(RECORDS, records=RECORDS), 'tfidf_label_accuracy') == 1.0


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
        assert value(findings, f'{kind}_excess_wrong') == pytest.approx(share, abs=0.02)
    changed = {corpus.texts[row] for row in rows}
    assert len(findings.samples) == labels_file.MOST_SAMPLES
    assert all(
        source == 'corpus' and text in changed for sample in findings.samples for source, text in sample.texts
    )


def test_the_error_of_a_poor_judge_is_not_the_corpus_s() -> None:
    unclear = 0.4
    records, test, clean = (
        real(600, seed, name, unclear) for seed, name in ((11, 'records'), (12, 'test'), (13, 'corpus'))
    )
    found = measure(clean, test, records=records)
    assert value(found, 'tfidf_judge_accuracy') < 0.85
    assert value(found, 'tfidf_label_accuracy') < 0.85
    excess = figure(found, 'tfidf_excess_wrong')
    assert excess.value is not None and excess.standard_error is not None
    assert abs(excess.value) < 4 * excess.standard_error < 0.12
    # Of unclear texts, a changed label is as often judged wrong as the right one: 60 % of 30 %.
    changed, _ = flipped(clean, 0.3)
    assert value(measure(changed, test, records=records), 'tfidf_excess_wrong') == pytest.approx(
        0.18, abs=0.06
    )


def test_excess_weighs_the_judge_s_error_by_the_labels_of_the_corpus() -> None:
    # The judge is right of half the real texts of label 0 and of all of label 1; the corpus has 3 to 1.
    corpus = labels_file.Labelled(
        texts=('',) * 8, labels=np.array([0] * 6 + [1] * 2), vectors=np.zeros((8, 1))
    )
    check = labels_file.Labelled(
        texts=('',) * 6, labels=np.array([0] * 2 + [1] * 4), vectors=np.zeros((6, 1))
    )
    verdict = labels_file._Verdict(
        corpus=np.zeros((8, 2)),
        wrong=np.array([True] * 3 + [False] * 3 + [True, False]),
        errs=np.array([True] + [False] * 5),
    )
    excess = labels_file._excess(verdict, corpus, check)
    assert excess is not None
    # 4/8 judged wrong, where 3/4 · 1/2 are expected.
    assert excess.value == pytest.approx(4 / 8 - 3 / 8)
    # Binomial variances, by hand: w = 3/4 with 1/4/6 + 1/4/2, w = 1/4 with 1/4/2 + 0.
    assert excess.error**2 == pytest.approx((9 / 16) * (1 / 24 + 1 / 8) + (1 / 16) / 8)


def test_the_matrix_shows_where_a_label_went() -> None:
    corpus = relabelled(CORPUS, ('money' if label == 'sport' else label for label in CORPUS.labels or ()))
    findings = measure(corpus, records=RECORDS)
    cells = next(chart for chart in findings.charts if chart.kind == 'cells')
    rows = {series.name: dict(zip(series.x, series.y, strict=True)) for series in cells.series}
    assert set(rows) == {'money', 'science'}
    assert all(sum(row.values()) == pytest.approx(1.0) for row in rows.values())
    own = CORPUS.labels or ()
    sport = own.count('sport') / (own.count('sport') + own.count('money'))
    assert rows['money']['sport'] == pytest.approx(sport, abs=0.02)
    assert rows['science'].get('sport', 0.0) < 0.02
    assert value(findings, 'judged_wrong_by_label/money') == pytest.approx(sport, abs=0.02)


def test_a_large_matrix_has_one_column_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels_file, 'MOST_CELLS', 2)
    cells = next(chart for chart in measure(records=RECORDS).charts if chart.kind == 'cells')
    assert len(cells.series) == 2
    for series in cells.series:
        assert series.x[2:] == ('(others)',)
        assert sum(series.y) == pytest.approx(1.0)


def test_labels_that_no_judge_knows_are_counted() -> None:
    corpus = relabelled(CORPUS, ('weather',) * 50 + (CORPUS.labels or ())[50:])
    findings = measure(corpus, records=RECORDS)
    assert (value(findings, 'unknown_texts'), value(findings, 'corpus_texts')) == (50, 450)


def test_a_corpus_of_one_label_is_judged() -> None:
    findings = measure(relabelled(CORPUS, ('sport',) * 500), records=RECORDS)
    share = (CORPUS.labels or ()).count('sport') / 500
    assert value(findings, 'tfidf_label_accuracy') == pytest.approx(share, abs=0.02)


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


def test_the_same_sources_give_the_same_findings() -> None:
    assert measure() == measure()


def test_findings_show_texts_of_the_corpus_alone() -> None:
    records, test = (
        Texts(name=each.name, texts=tuple(f'{text} zyzzyva' for text in each.texts), labels=each.labels)
        for each in (RECORDS, TEST)
    )
    corpus, _ = flipped(CORPUS, 0.2)
    assert 'zyzzyva' not in str([sample.texts for sample in measure(corpus, test, records=records).samples])
