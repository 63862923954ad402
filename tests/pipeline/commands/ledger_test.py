"""`dp-corpus ledger` and `plan` with a ledger, as a user or a schedule meets them."""

import csv
import io
import json
import pathlib
import typing

import pytest
import typer.testing

from models.privacy import accounting
from models.privacy.accounting import RunCost
from pipeline import main, methods
from pipeline.asked.config import job_config
from pipeline.ledger import released
from pipeline.ledger.budget import BudgetExceeded
from pipeline.ledger.ledger import Ledger
from pipeline.methods.predict import plan as plan_lib
from pipeline.run import charge
from pipeline.settings.job_config import JobConfig
from tests.command_line import in_a_process, in_this_process

PLAN = (
    'plan', '--delta', '1e-6', '--aggregate', 'mean', '--batches-per-label', '1', '--dataset', 'visits',
)  # fmt: skip


def ledger(*arguments: str) -> typer.testing.Result:
    return typer.testing.CliRunner().invoke(main.app, ['ledger', *arguments], env={'COLUMNS': '120'})


@pytest.fixture
def where(tmp_path: pathlib.Path) -> str:
    """A ledger of two datasets, with runs on one."""
    where = str(tmp_path / 'ledger.db')
    assert (
        ledger(
            'add', 'visits', '--ledger', where, '--rho', '1', '--delta', '1e-6', '--unit', 'example'
        ).exit_code
        == 0
    )
    assert (
        ledger(
            'add', 'mails', '--ledger', where, '--epsilon', '3', '--delta', '1e-5', '--unit', 'user'
        ).exit_code
        == 0
    )
    for run_id, rho in (('one', 0.25), ('two', 0.5)):
        Ledger.open(where).reserve(
            'visits', run_id=run_id, unit='example', cost=RunCost.of_rho({'generation': rho}), identity='i',
            key_commitment='k',
        )  # fmt: skip
    return where


def test_add_makes_the_ledger_where_there_is_none_and_says_so(tmp_path: pathlib.Path) -> None:
    where = str(tmp_path / 'ledger.db')
    arguments = ('--ledger', where, '--epsilon', '3', '--delta', '1e-6', '--unit', 'user')
    first, second = ledger('add', 'a', *arguments), ledger('add', 'b', *arguments)
    assert first.output.startswith(f'New ledger: {where}') and 'New ledger' not in second.output
    assert 'one user' in second.output
    assert [account.dataset.name for account in Ledger.open(where).accounts()] == ['a', 'b']
    assert isinstance(ledger('add', 'a', *arguments).exception, ValueError)


def test_add_makes_no_file_for_what_is_no_dataset(tmp_path: pathlib.Path) -> None:
    where = tmp_path / 'ledger.db'
    refused = ledger('add', 'a', '--ledger', str(where), '--delta', '1e-6', '--unit', 'user')
    assert 'either rho or epsilon' in str(refused.exception)
    assert not where.exists()


def test_show_says_what_is_spent_and_left(where: str) -> None:
    text = ledger('show', 'visits', '--ledger', where).output
    assert 'mails' not in text
    for words in ('Budget', '75 % spent', '1  one', '2  two', 'Charged', '█' * 30 + '░' * 10):
        assert words in text, words
    everything = ledger('show', '--ledger', where).output
    assert 'mails' in everything and 'No run was charged yet' in everything


def test_show_as_json(where: str) -> None:
    found = json.loads(ledger('show', '--ledger', where, '--json').output)
    mails, visits = found['datasets']
    assert (mails['dataset'], mails['epsilon_budget'], mails['runs']) == ('mails', 3.0, [])
    assert (visits['rho_spent'], visits['rho_left'], visits['unit']) == (0.75, 0.25, 'example')
    assert visits['epsilon_spent'] == accounting.epsilon_from_rho(0.75, 1e-6)
    assert [(run['run_id'], run['number']) for run in visits['runs']] == [('one', 1), ('two', 2)]
    assert [run['rho_by_stage'] for run in visits['runs']] == [{'generation': 0.25}, {'generation': 0.5}]


def test_budget_and_settle_write_and_show(where: str) -> None:
    assert (
        'over the budget'
        in ledger('budget', 'visits', '--ledger', where, '--rho', '0.5', '--reason', 'half').output
    )
    assert 'its charge stays' in ledger('settle', 'visits', 'one', '--ledger', where).output
    account = Ledger.open(where).account('visits')
    assert account.dataset.rho_budget == 0.5 and account.runs[0].state == 'settled'
    assert account.rho_spent == 0.75


def test_plot_writes_the_page(where: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / 'budget.html'
    assert ledger('plot', 'visits', '--ledger', where, '--html', str(file)).output.split() == [
        'The', 'page', 'of', 'visits:', str(file)
    ]  # fmt: skip
    assert (
        file.read_text().rstrip()
        == ledger('plot', 'visits', '--ledger', where, '--html', '-').output.rstrip()
    )
    assert '<svg' in file.read_text()


def test_export_holds_every_dataset_run_and_event(where: str, tmp_path: pathlib.Path) -> None:
    found = json.loads(ledger('export', '--ledger', where).output)
    assert list(found) == ['schema', 'schema_version', 'datasets', 'events']
    assert [event['kind'] for event in found['events']] == ['dataset added'] * 2 + ['reserved'] * 2
    assert [len(dataset['runs']) for dataset in found['datasets']] == [0, 2]

    text = ledger('export', '--ledger', where, '--format', 'csv').output
    rows = list(csv.DictReader(io.StringIO(text)))
    assert tuple(rows[0]) == released.COLUMNS
    assert [row['kind'] for row in rows] == [
        'dataset', 'dataset', 'run', 'run', *['event: dataset added'] * 2, *['event: reserved'] * 2
    ]  # fmt: skip
    assert (rows[3]['run_id'], rows[3]['rho'], rows[3]['rho_after']) == ('two', '0.5', '0.75')
    assert json.loads(rows[3]['rho_by_stage']) == {'generation': 0.5}

    file = tmp_path / 'ledger.csv'
    assert ledger('export', '--ledger', where, '--format', 'csv', '--output', str(file)).output == ''
    assert file.read_text() == text


@pytest.mark.parametrize(
    'arguments', [('show',), ('settle', 'visits', 'one'), ('plot', 'visits', '--html', '-'), ('export',)]
)
def test_a_missing_ledger_is_not_made(tmp_path: pathlib.Path, arguments: tuple[str, ...]) -> None:
    missing = tmp_path / 'none.db'
    assert isinstance(ledger(*arguments, '--ledger', str(missing)).exception, ConnectionError)
    assert not missing.exists()


# --- plan and exit codes ---------------------------------------------------------


def config(where: str, **settings: typing.Any) -> JobConfig:
    arguments = {
        'delta': 1e-6,
        'aggregate': 'mean',
        'batches_per_label': 1,
        'dataset': 'visits',
        'ledger': where,
    }
    return job_config(**(arguments | settings))


def test_a_plan_prices_what_the_ledger_charges(where: str) -> None:
    given = config(where, epsilon=2.0, batches_per_label=None)
    answer = charge.ask(methods.solve(given))
    rho = plan_lib.plan_run(methods.solve(given)).rho_total
    assert rho is not None and answer.fits and not answer.is_charged
    assert answer.rho_left == pytest.approx(0.25 - rho, rel=1e-12)
    entry = Ledger.open(where).reserve(
        'visits', run_id='three', unit='example', cost=methods.solve(given).cost, identity='i',
        key_commitment='k',
    )  # fmt: skip
    assert entry.rho == rho
    # The same run again is free; another of the same price no longer fits.
    again = charge.ask(methods.solve(config(where, epsilon=2.0, batches_per_label=None, run_id='three')))
    assert again.fits and again.is_charged and again.rho_left == Ledger.open(where).account('visits').rho_left
    assert charge.ask(methods.solve(config(where, epsilon=4.0))).fits is False


def test_a_plan_for_the_wrong_unit_or_dataset_is_refused(where: str) -> None:
    with pytest.raises(ValueError, match="unit='user'"):
        charge.ask(methods.solve(config(where, epsilon=2.0, dataset='mails')))
    with pytest.raises(ValueError, match='Did you mean visits'):
        charge.ask(methods.solve(config(where, epsilon=2.0, dataset='visit')))
    with pytest.raises(ValueError, match='dataset=None'):
        charge.ask(methods.solve(job_config(delta=1e-6, epsilon=1.0)))


@pytest.mark.parametrize('as_json', [False, True])
def test_a_plan_that_does_not_fit_ends_with_3(where: str, as_json: bool) -> None:
    flags = ('--ledger', where, *(['--json'] if as_json else []))
    fits = in_this_process(*PLAN, '--epsilon', '1', *flags)
    not_fits = in_this_process(*PLAN, '--epsilon', '5', *flags)
    assert (fits.returncode, not_fits.returncode, not_fits.stderr) == (0, 3, '')
    if as_json:
        assert json.loads(fits.stdout)['budget']['fits'] is True
        assert json.loads(not_fits.stdout)['budget']['fits'] is False
    else:
        assert 'visits: fits' in fits.stdout
        assert 'DOES NOT FIT' in not_fits.stdout and '0.25 left now' in not_fits.stdout


@pytest.mark.parametrize(
    'asked, names',
    [
        ({'epsilon': 5.0}, ['epsilon']),
        ({'epsilon': 5.0, 'aggregate': 'difference'}, ['epsilon']),
        ({'context_budget': 2.0, 'aggregate': 'difference', 'delta': 1e-3}, ['context_budget']),
        ({'max_private_tokens': 2_000}, ['max_private_tokens', 'clip_bound', 'aggregate']),
    ],
)
def test_a_plan_that_does_not_fit_names_the_largest_that_does(
    where: str, asked: dict[str, typing.Any], names: list[str]
) -> None:
    answer = charge.ask(methods.solve(config(where, **asked)))
    assert not answer.fits and [setting.name for setting in answer.fitting] == names
    for setting in answer.fitting:
        omega = {} if setting.omega is None else {'omega': setting.omega}
        if setting.name == 'aggregate':
            own = {'accounting': 'worst-case'}
            assert charge.ask(
                methods.solve(config(where, **(asked | own | {'aggregate': setting.value})))
            ).fits
            continue
        assert charge.ask(
            methods.solve(config(where, **(asked | omega | {setting.name: setting.value})))
        ).fits
        whole = setting.name == 'max_private_tokens'
        more = setting.value + 1 if whole else 1.011 * setting.value
        assert not charge.ask(methods.solve(config(where, **(asked | omega | {setting.name: more})))).fits


def test_a_run_that_does_not_fit_is_told_what_would(where: str) -> None:
    ledger, asked = Ledger.open(where), config(where, epsilon=5.0, run_id='large')
    (setting,) = charge.ask(methods.solve(asked)).fitting
    with pytest.raises(BudgetExceeded, match='left=.*To fit, give at most --epsilon') as refused:
        charge.check(ledger, methods.solve(asked, launch=True))
    assert f'--epsilon {setting.value:.10g}' in str(refused.value)


def test_a_delta_that_is_not_below_one_in_n_is_warned_of() -> None:
    flags = ('plan', '--epsilon', '3', '--records', '2888')
    warned = in_this_process(*flags, '--delta', '0.01')
    assert warned.returncode == 0 and 'WARNING' in warned.stdout
    assert 'That is not below 1/n' in ' '.join(warned.stdout.split())
    assert 'WARNING' not in in_this_process(*flags).stdout
    (warning,) = json.loads(in_this_process(*flags, '--delta', '0.01', '--json').stdout)['warnings']
    assert warning.startswith('δ = 0.01 is n^-0.58 for n = 2,888 records (declared)')


@pytest.mark.first
@pytest.mark.run
def test_a_process_ends_with_3_where_a_plan_does_not_fit(where: str) -> None:
    arguments = (*PLAN, '--epsilon', '5', '--ledger', where)
    done, here = in_a_process(*arguments), in_this_process(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (3, here.stdout, '')
    assert here.returncode == 3


def test_a_lost_ledger_ends_with_1(tmp_path: pathlib.Path) -> None:
    done = in_this_process(*PLAN, '--epsilon', '1', '--ledger', str(tmp_path / 'none.db'), '--json')
    assert done.returncode == 1 and json.loads(done.stdout)['exit_code'] == 1
    assert 'which is not there' in done.stderr and 'Traceback' not in done.stderr
