"""The package for Python and the command line are one way through the code: same plans, errors, results."""

import inspect
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dp_corpus
from launch.demo import records as demo_records
from pipeline.asked import config
from tests.command_line import in_this_process
from tests.one_model import one_model
from tests.samples import assert_import_leaves

PLAN: dict[str, Any] = {'epsilon': 1.0, 'records': 10_000, 'labels': ['a', 'b'], 'label_field': 'ward'}
PLAN_FLAGS = ('--epsilon', '1', '--records', '10000', '--labels', 'a,b', '--label-field', 'ward')


@pytest.fixture(scope='module', autouse=True)
def _one_model() -> Iterator[None]:
    with one_model():
        yield


@pytest.mark.run
def test_the_import_is_instant() -> None:
    heavy = (
        'jax',
        'tensorflow',
        'apache_beam',
        'gemma',
        'sklearn',
        'sqlalchemy',
        'pandas',
        'pyarrow',
    )
    assert_import_leaves('dp_corpus', *heavy)


def test_a_plan_is_the_commands() -> None:
    done = in_this_process('plan', '--json', *PLAN_FLAGS)
    plan = dp_corpus.plan(**PLAN)
    assert json.loads(plan.to_json()) == json.loads(done.stdout)
    shown = in_this_process('plan', *PLAN_FLAGS).stdout
    assert plan.guarantee() in shown and plan.guarantee() in plan._repr_html_()


def test_a_file_of_settings_serves_and_keywords_win(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'run.toml'
    path.write_text('epsilon = 2.0\nrecords = 10000\nlabels = ["a", "b"]\nlabel_field = "ward"\n')
    assert dp_corpus.plan(config=path, epsilon=1.0) == dp_corpus.plan(**PLAN)
    assert dp_corpus.plan(config=path, epsilon=None) != dp_corpus.plan(**PLAN)


ERRORS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    'nothing is spent': (lambda: dp_corpus.plan(delta=1e-6), ('plan', '--delta', '1e-6')),
    'out of range': (
        lambda: dp_corpus.plan(epsilon=-1, delta=1e-6),
        ('plan', '--epsilon', '-1', '--delta', '1e-6'),
    ),
    'of another method': (
        lambda: dp_corpus.plan(epsilon=1, delta=1e-6, rounds=3),
        ('plan', '--epsilon', '1', '--delta', '1e-6', '--rounds', '3'),
    ),
    'no file of settings': (
        lambda: dp_corpus.plan(config=pathlib.Path('none.toml')),
        ('plan', '--config', 'none.toml'),
    ),
    'no input': (
        lambda: dp_corpus.generate(epsilon=1, delta=1e-6),
        ('generate', '--epsilon', '1', '--delta', '1e-6'),
    ),
    'an input that is not there': (
        lambda: dp_corpus.fine_tune(input='none.csv', output='o', epsilon=1, delta=1e-6),
        ('fine-tune', '--input', 'none.csv', '--output', 'o', '--epsilon', '1', '--delta', '1e-6'),
    ),
    'no output of a refined corpus': (
        lambda: dp_corpus.refine('texts', input='none.csv', epsilon=1, delta=1e-6),
        ('refine', 'texts', '--input', 'none.csv', '--epsilon', '1', '--delta', '1e-6'),
    ),
    'no run there': (lambda: dp_corpus.load('nowhere'), ('report', 'nowhere')),
}


@pytest.mark.parametrize('case', ERRORS)
def test_errors_are_exceptions_with_the_texts_of_the_command_line(case: str) -> None:
    call, arguments = ERRORS[case]
    with pytest.raises((ValueError, FileNotFoundError)) as raised:
        call()
    done = in_this_process(*arguments)
    assert done.returncode == 2
    assert done.stderr.removeprefix('Error: ').startswith(str(raised.value))


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match='got record=5. Did you mean records?'):
        dp_corpus.plan(epsilon=1, record=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match='got examples_per_label=4'):
        dp_corpus.fine_tune(examples_per_label=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match='got method='):
        dp_corpus.refine('texts', method='predict')  # type: ignore[call-arg]


def test_help_names_every_setting_with_its_default() -> None:
    parameters = inspect.signature(dp_corpus.generate).parameters
    known = config.all_settings()
    assert set(known) <= set(parameters)
    assert parameters['method'].default is None and parameters['unit'].default == 'example'
    assert inspect.signature(dp_corpus.evaluate).parameters['text_field'].default == 'text'


def test_the_names_of_the_package_are_there() -> None:
    from pipeline.ledger.ledger import Ledger

    assert dp_corpus.Ledger is Ledger and 'Ledger' in dir(dp_corpus)
    with pytest.raises(AttributeError, match='Leger'):
        dp_corpus.Leger  # noqa: B018


@pytest.mark.first
@pytest.mark.run
def test_a_run_a_second_one_that_has_no_budget_and_what_is_read_back(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = demo_records.demo_records(40)
    pathlib.Path('messages.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    settings: dict[str, Any] = {
        'input': pathlib.Path('messages.jsonl'), 'label_field': 'label', 'labels': ['Billing', 'Delivery'],
        'batches_per_label': 1, 'batch_size': 8, 'aggregate': 'mean', 'max_private_tokens': 8, 'delta': 1e-3,
        'max_prompt_tokens': 64, 'max_example_tokens': 8,
    }  # fmt: skip
    ledger = dp_corpus.Ledger.create('budget.db')
    # Room for one run.
    budget = 1.2 * getattr(dp_corpus.plan(**settings), 'epsilon')  # noqa: B009 - of this method's plans
    ledger.add_dataset('messages', unit='example', delta=1e-3, epsilon=budget)
    settings |= {'dataset': 'messages', 'ledger': 'budget.db'}
    plan = dp_corpus.plan(**settings)
    assert plan.budget is not None and plan.budget.fits
    run = dp_corpus.generate(**settings, output=tmp_path / 'corpus', quiet=True)
    # The same call again resumes, and pays nothing twice.
    assert dp_corpus.generate(**settings, output=tmp_path / 'corpus', quiet=True) == run
    with pytest.raises(dp_corpus.BudgetExceeded, match='messages'):
        dp_corpus.generate(**settings, output='another', quiet=True)
    assert ledger.account('messages').epsilon_spent == pytest.approx(run.report.epsilon)

    loaded = dp_corpus.load(tmp_path / 'corpus')
    assert loaded == run and json.loads(loaded.report.to_json()) == json.loads(
        in_this_process('report', run.output, '--json').stdout
    )
    assert list(run.frame['text']) == run.corpus['text'] == run.table['text'].to_pylist() != []
    assert set(run.frame['label']) <= {'Billing', 'Delivery'}
    assert pathlib.Path(run.page).read_text() == run.page.html
    assert run.report.guarantee[:40] in ' '.join(run._repr_html_().split())

    found = dp_corpus.evaluate(run, only='surface', output='evaluation', quiet=True)
    assert [result.measure for result in found.report.corpora[0].measures] == ['surface']
    assert set(found.frame['measure']) == {'surface'} and found.frame['value'].notna().any()
    assert pathlib.Path(found.page).read_text() == found.page.html
    assert found.report.audience in ' '.join(found._repr_html_().split())
