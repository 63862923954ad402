"""Notes on a plan, and the ε that it leads with where releases go in."""

import json
import pathlib
from typing import Any

import pytest

from models.privacy import codec
from models.privacy.report import PrivacyReport, composition
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.plan.planned import planned
from tests.models.privacy.report.samples import released_report
from transforms import run_files

pytestmark = pytest.mark.heavy

ASKED: dict[str, Any] = {'records': 5000, 'epsilon': 1.0, 'delta': 1e-6}


def notes_of(**changes: Any) -> tuple[str, ...]:
    return planned(job_config(**{**ASKED, **changes})).notes


@pytest.fixture
def release(tmp_path: pathlib.Path) -> pathlib.Path:
    """A finished run's folder, with texts."""
    folder = tmp_path / 'first'
    (folder / 'data').mkdir(parents=True)
    (folder / run_files.REPORT).write_text(released_report('first'))
    rows = ''.join(json.dumps({'text': f'A text with the number {n}.'}) + '\n' for n in range(40))
    (folder / 'data' / 'texts.jsonl').write_text(rows)
    return folder


@pytest.mark.parametrize(
    'settings',
    [
        {'method': 'evolve', 'start': 'TEXTS'},
        {'method': 'refine', 'corpus': 'TEXTS'},
        {'method': 'predict', 'reference': 'TEXTS', 'aggregate': 'difference', 'batches_per_label': 1},
        {'method': 'fine-tune', 'warm_start': 'TEXTS'},
    ],
    ids=lambda settings: settings['method'],
)
def test_a_plan_leads_with_all_that_goes_in(release: pathlib.Path, settings: dict[str, Any]) -> None:
    """Files below a release's folder are that release; an adapter is in adapter_run_test.py."""
    texts = str(release / 'data' / 'texts.jsonl')
    given = {name: texts if value == 'TEXTS' else value for name, value in settings.items()}
    config = job_config(**{**ASKED, **given, 'input': str(release.parent / 'in.jsonl')})
    (release.parent / 'in.jsonl').write_text('{"text": "A record."}\n')
    plan = planned(config)
    text = (release / run_files.REPORT).read_text()
    first = codec.read(PrivacyReport, text, 'report', 'Restore it')
    costs = [methods.solve(config).stages or {}, first.method.costs]
    both = composition.epsilon_together(costs, config.delta)
    assert plan.epsilon_together == both > max(getattr(plan, 'epsilon', 0.0), 1.0)
    assert plan.price().startswith(f'ε = {both:.6g} at δ = 1e-06 with what went in; by itself ε = ')
    assert plan.table()[0] == ('Guarantee', plan.price())
    assert plan.notes[0].startswith("Run 'first' went in. On the same records all of it together has ε = ")


def test_nothing_goes_into_a_run_of_public_texts(tmp_path: pathlib.Path) -> None:
    texts = tmp_path / 'texts.jsonl'
    texts.write_text(''.join(json.dumps({'text': f'Text {n}.'}) + '\n' for n in range(40)))
    plan = planned(
        job_config(**ASKED, method='refine', corpus=str(texts), input=str(tmp_path / 'none.jsonl'))
    )
    assert plan.epsilon_together is None and plan.notes == () and plan.price() == plan.guarantee()


OF_USERS = {'unit': 'user', 'unit_field': 'who'}


@pytest.mark.parametrize(
    ('changes', 'said'),
    [
        (
            {'epsilon': 100.0, 'method': 'evolve'},
            'ε = 100 promises little: whoever is half sure that a record',
        ),
        (
            {'epsilon': 100.0, 'method': 'evolve', **OF_USERS},
            'ε = 100 promises little: whoever is half sure that a person',
        ),
        ({'records': 30}, '30 records are few: the noise that hides one of them hides most'),
        ({'records': 30, **OF_USERS}, '30 users are few'),
        ({'epsilon': 50.0, 'typical_words': 40, 'examples': 20}, 'ε = 50 was asked for, and this run uses '),
    ],
)
def test_a_person_is_told(changes: dict[str, Any], said: str) -> None:
    assert any(note.startswith(said) for note in notes_of(**changes)), notes_of(**changes)


def test_an_usual_run_has_no_notes() -> None:
    for method in ('evolve', 'tune-refine', 'fine-tune'):
        assert notes_of(method=method) == ()
