"""The verdict follows from figures by public rules, and each rule has a value on either side of it."""

import dataclasses
import pathlib
from typing import Any

import pytest

from models.privacy.randomness import RunKey
from pipeline.evaluation import of_run, verdict
from pipeline.evaluation.measure import Figure, Findings, MeasureResult
from pipeline.evaluation.settings import EvaluationSettings
from pipeline.evaluation.sources import Sources, Texts
from tests import command_line
from tests.models.evolution.made_up import WordEmbedder

GOOD = {
    'labels/tfidf_label_accuracy': 0.86, 'labels/tfidf_judge_accuracy': 0.9,
    'labels/head_label_accuracy': 0.2, 'labels/head_judge_accuracy': 0.6,
    'use/tfidf_accuracy': 0.8, 'use/tfidf_real_accuracy': 0.9, 'use/majority_accuracy': 0.3,
    'mauve/mauve_clustering': 0.7, 'mauve/mauve_clustering/records': 0.8, 'holdout/p_value': 0.4,
}  # fmt: skip


BAD = GOOD | {'mauve/mauve_clustering': 0.03, 'labels/tfidf_label_accuracy': 0.36, 'holdout/p_value': 0.01}


def verdict_of(figures: dict[str, float]) -> verdict.Verdict:
    by_measure: dict[str, list[Figure]] = {}
    for name, value in figures.items():
        measure, _, figure = name.partition('/')
        by_measure.setdefault(measure, []).append(Figure(name=figure, label='', value=value))
    measured = [
        MeasureResult(
            measure=name, title='', question='', source='', reason=None, failed=False,
            findings=Findings(settings={}, figures=tuple(of_measure)),
        )
        for name, of_measure in by_measure.items()
    ]  # fmt: skip
    corpus = Texts(name='corpus', texts=tuple(f'text {n}' for n in range(30)), labels=('a',) * 30)
    test = Texts(name='test', texts=('real one', 'real two'))
    found = verdict.verdict_of(measured, Sources(corpus=corpus, test=test, embedder=WordEmbedder()))
    assert found is not None
    return found


def colours(**changes: float) -> tuple[str, ...]:
    names = {name.partition('/')[2]: name for name in GOOD}
    names |= {'p_value': 'holdout/p_value', 'likeness': 'mauve/mauve_clustering'}
    return tuple(
        light.colour for light in verdict_of(GOOD | {names[k]: v for k, v in changes.items()}).lights
    )


def test_a_good_corpus_is_green_and_shown_beside_real_texts() -> None:
    found = verdict_of(GOOD)
    assert found.colour == 'green' and [light.colour for light in found.lights] == ['green'] * 3
    assert found.words == (
        '4 of 100 labels look wrong. A classifier that learns from these texts is right on 0.80 of real '
        'ones; guessing is right on 0.30, and one that learns from real texts on 0.90. The texts read like '
        'the records (0.70, where the records themselves have 0.80). They are no nearer to the records than '
        'to others like them. Nothing here speaks against its use.'
    )
    assert len(found.texts) == verdict.BESIDE and found.texts[0].startswith('a: text ')
    assert sorted(found.real) == ['real one', 'real two']
    assert 'text' not in repr(found).replace('texts', '')


@pytest.mark.parametrize(
    ('changes', 'expected'),
    [
        # A judge who is right on 0.9: 0.85 and 0.65 of that.
        ({'tfidf_label_accuracy': 0.766}, ('green', 'green', 'green')),
        ({'tfidf_label_accuracy': 0.764}, ('yellow', 'green', 'green')),
        ({'tfidf_label_accuracy': 0.584}, ('red', 'green', 'green')),
        # From 0.3 to 0.9: three quarters of the way, and 0.4 of it.
        ({'tfidf_accuracy': 0.751}, ('green', 'green', 'green')),
        ({'tfidf_accuracy': 0.749}, ('yellow', 'green', 'green')),
        ({'tfidf_accuracy': 0.539}, ('red', 'green', 'green')),
        ({'likeness': 0.641}, ('green', 'green', 'green')),
        ({'likeness': 0.639}, ('green', 'yellow', 'green')),
        ({'likeness': 0.399}, ('green', 'red', 'green')),
        ({'p_value': 0.05}, ('green', 'green', 'green')),
        ({'p_value': 0.049}, ('green', 'green', 'yellow')),
        ({'p_value': 0.0009}, ('green', 'green', 'red')),
    ],
)
def test_each_rule_has_two_sides(changes: dict[str, float], expected: tuple[str, ...]) -> None:
    assert colours(**changes) == expected


def test_the_verdict_is_as_bad_as_its_worst_light() -> None:
    bad = verdict_of(BAD)
    assert bad.colour == 'red' and bad.words.startswith('6 of 10 labels look wrong. ')
    assert 'They do not read like the records (0.03, where the records themselves have 0.80).' in bad.words
    assert bad.words.endswith('Do not use this corpus for training.')


def test_hardly_a_wrong_label_is_none() -> None:
    assert verdict_of(GOOD | {'labels/tfidf_label_accuracy': 0.95}).words.startswith(
        'No label looks wrong. A '
    )


def test_without_labels_or_records_the_other_lights_stay() -> None:
    found = verdict_of({'mauve/mauve_clustering': 0.6})
    assert [light.colour for light in found.lights] == ['unknown', 'yellow', 'unknown']
    assert found.words.startswith('They read somewhat like the records (0.60, of 1).')


# --- The real texts of a run --------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A corpus beside the curator's folder of its run, on the records of a split."""
    monkeypatch.chdir(tmp_path)
    for part in ('records', 'test'):
        (tmp_path / 'sets' / part).mkdir(parents=True)
        (tmp_path / 'sets' / part / 'a.jsonl').write_text('{"body": "A text.", "kind": "x"}\n')
    RunKey.new().write(tmp_path / 'sets' / 'split.key')
    (tmp_path / 'out.curator').mkdir()
    (tmp_path / 'out.curator' / 'config.toml').write_text(
        'input = "sets/records/*.jsonl"\ntext_field = "body"\nlabel_field = "kind"\nattributes = []\n'
        'embedder = "minilm"\nexamples = 3\n'
    )
    return str(tmp_path / 'out')


def test_the_test_part_of_a_run_is_found_by_itself(corpus: str) -> None:
    found = of_run.completed(corpus, EvaluationSettings())
    assert (found.records, found.test) == ('sets/records/*.jsonl', 'sets/test/*.jsonl')
    assert (found.text_field, found.label_field, found.embedder) == ('body', 'kind', 'tfidf')
    assert found.output == f'{corpus}.curator/evaluation'
    pathlib.Path(found.output).mkdir()
    assert of_run.completed(corpus, EvaluationSettings()).output == f'{corpus}.curator/evaluation-2'


@pytest.mark.parametrize('given', [{'test': 'other.jsonl'}, {'records': 'other.jsonl'}])
def test_what_a_flag_names_stays(corpus: str, given: dict[str, Any]) -> None:
    assert of_run.completed(corpus, EvaluationSettings(**given)) == EvaluationSettings(**given)
    kept = EvaluationSettings(text_field='note', output='page')
    found = of_run.completed(corpus, kept)
    assert (found.text_field, found.output) == ('note', 'page')
    assert dataclasses.replace(found, records=None, test=None, label_field=None) == kept


@pytest.mark.parametrize('lost', ['sets/split.key', 'out.curator/config.toml'])
def test_records_without_a_test_part_change_nothing(corpus: str, lost: str) -> None:
    pathlib.Path(lost).unlink()
    assert of_run.completed(corpus, EvaluationSettings()) == EvaluationSettings()


@pytest.mark.heavy
def test_the_first_line_is_the_verdict(corpus: str) -> None:
    del corpus
    done = command_line.in_this_process('evaluate', 'sets/test/*.jsonl', '--text-field', 'body')
    assert done.stdout.startswith('No verdict: it takes real texts that no run has read (--test)')
