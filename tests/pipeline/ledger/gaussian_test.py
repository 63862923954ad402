"""A dataset whose budget is kept as a Gaussian mechanism: what it takes, refuses and says."""

import dataclasses
import json
import math
import pathlib

import pytest
import typer.testing

from models.privacy import accounting, report
from models.privacy.accounting import (
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    RunCost,
    SelfComposedDpEvent,
    TruncatedZCDpEvent,
    ZCDpEvent,
)
from models.privacy.report import words
from models.privacy.text_votes import TextVoteParams
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.commands import ledger as commands
from pipeline.ledger.budget import BudgetExceeded, NotGaussian
from pipeline.ledger.ledger import Ledger
from pipeline.pages import ledger_page
from pipeline.run import charge as charging
from tests.pipeline.pages import every_page

# The recipe of docs/measured.md: 30 steps, then one round of votes, on 5,452 records.
DELTA = 7.77e-5
VOTES = TextVoteParams(rounds=1, noise_scale=3.57, nearest=4).event


def sgd(q: float = 0.0117, z: float = 0.573, steps: int = 30) -> DpEvent:
    step = PoissonSampledDpEvent(sampling_probability=q, event=GaussianDpEvent(noise_multiplier=z))
    return SelfComposedDpEvent(event=step, count=steps)


@pytest.fixture
def where(tmp_path: pathlib.Path) -> str:
    where = str(tmp_path / 'ledger.db')
    Ledger.create(where).add_dataset(
        'visits', unit='example', delta=DELTA, epsilon=3.3, privacy_filter='gaussian'
    )
    return where


def reserve(where: str, run_id: str, event: DpEvent, key: str = 'k') -> report.LedgerEntry:
    return Ledger.open(where).reserve(
        'visits', run_id=run_id, unit='example', cost=RunCost(stages={'stage': event}), identity='i',
        key_commitment=key,
    )  # fmt: skip


def test_training_and_votes_fit_a_budget_that_one_order_would_need_twice_as_large(where: str) -> None:
    training, both = reserve(where, 'train', sgd()), reserve(where, 'votes', VOTES)
    assert isinstance(both, report.GaussianLedgerEntry) and isinstance(training, report.GaussianLedgerEntry)
    events = [sgd(), VOTES]
    assert training.epsilon_after == accounting.epsilon_of_events(events[:1], DELTA)
    assert both.epsilon_after == accounting.epsilon_of_events(events, DELTA) < both.epsilon_bound == 3.3
    assert training.failure > 0 == both.failure and both.failure_after == training.failure < DELTA / 2
    # At one order, the same two runs and the smallest budget that holds the first.
    other = Ledger.open(where)
    at_order = other.add_dataset('at-one-order', unit='example', delta=DELTA, epsilon=3.3)
    needed = at_order.sufficient_epsilon(RunCost(stages={'stage': sgd()}))
    assert needed is not None and needed > 2 * 3.02
    gaussian = other.add_dataset(
        'small', unit='example', delta=DELTA, epsilon=1.0, privacy_filter='gaussian'
    ).sufficient_epsilon(RunCost(stages={'stage': sgd()}))
    assert gaussian is not None and 2.9 < gaussian < 3.1


def test_votes_of_an_epsilon_fit_a_budget_that_is_hardly_larger(where: str) -> None:
    """Their noise is that of a Gaussian at all of δ, and the filter keeps half of that."""
    ledger = Ledger.open(where)
    ledger.add_dataset('one', unit='example', delta=DELTA, epsilon=1.0, privacy_filter='gaussian')
    run = job_config(
        method='evolve', input='in.csv', output='out', records=5_452, delta=DELTA, epsilon=1.0,
        candidates=20, examples=10, dataset='one', ledger=where,
    )  # fmt: skip
    asked = charging.ask(methods.solve(run))
    assert not asked.fits and asked.sufficient_epsilon is not None and 1.0 < asked.sufficient_epsilon < 1.07
    assert '--epsilon 0.9' in ' '.join(text for _, text in asked.rows(DELTA))
    ledger.change_budget('one', epsilon=asked.sufficient_epsilon, reason='a test')
    answer = charging.ask(methods.solve(run))
    assert answer.fits and answer.privacy_filter == 'gaussian'
    assert answer.epsilon_together == answer.epsilon <= 1.0
    assert answer.rho == ledger.account('one').price(methods.solve(run).cost)


def test_each_further_training_takes_a_smaller_share_of_what_is_kept_for_failures(where: str) -> None:
    light = [sgd(z=4.0, steps=3)] * 4
    found = [reserve(where, f'run-{place}', event) for place, event in enumerate(light)]
    failures = [entry.failure for entry in found if isinstance(entry, report.GaussianLedgerEntry)]
    first = DELTA / 2 * 6 / math.pi**2
    assert failures == pytest.approx([first / place**2 for place in (1, 2, 3, 4)], rel=1e-12)
    # A smaller failure is dearer.
    assert [entry.rho for entry in found] == sorted(entry.rho for entry in found)
    # Resumed, each is what it was.
    assert [reserve(where, f'run-{place}', event) for place, event in enumerate(light)] == found


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('scale', [15.0, 15.955, 15.96, 1e4])
def test_a_run_that_is_within_delta_alone_has_an_entry(tmp_path: pathlib.Path, scale: float) -> None:
    """ε is 0, or next to it where losses are rounded upwards: no reason to refuse what was charged."""
    where = str(tmp_path / 'ledger.db')
    Ledger.create(where).add_dataset(
        'visits', unit='example', delta=0.025, epsilon=2.0, privacy_filter='gaussian'
    )
    for run_id, event in (
        ('votes', TextVoteParams(rounds=1, noise_scale=scale, nearest=1).event),
        ('train', sgd(q=1e-3, z=scale, steps=2)),
    ):
        entry = reserve(where, run_id, event)
        assert 0 <= entry.epsilon_after < 0.02


@pytest.mark.parametrize('event', [ZCDpEvent(rho=1e-9), TruncatedZCDpEvent(rho=1e-9, omega=50.0)])
def test_a_cost_that_is_known_otherwise_is_refused_by_its_stage_and_charges_nothing(
    where: str, event: DpEvent
) -> None:
    with pytest.raises(NotGaussian, match=r"stages=\['stage'\].*whose noise is Gaussian"):
        reserve(where, 'tokens', event)
    assert Ledger.open(where).account('visits').runs == ()
    logged = Ledger.open(where).events('visits')[-1]
    assert logged.kind == 'refused' and logged.details['rho'] is None
    # The page of a dataset with such a refusal.
    account = Ledger.open(where).account('visits')
    assert 'Gaussian noise explains' in ledger_page.render_html(account, Ledger.open(where).events('visits'))


def test_votes_on_tokens_are_refused_before_a_plan_says_that_they_fit(where: str) -> None:
    run = job_config(
        method='predict', input='in.csv', output='out', records=5_000, delta=DELTA, epsilon=0.5,
        dataset='visits', ledger=where,
    )  # fmt: skip
    with pytest.raises(NotGaussian, match='generation'):
        charging.ask(methods.solve(run))


def test_a_run_that_does_not_fit_names_what_is_left_as_a_gaussian(where: str) -> None:
    reserve(where, 'train', sgd())
    left = Ledger.open(where).account('visits').rho_left
    with pytest.raises(BudgetExceeded) as refused:
        reserve(where, 'again', sgd())
    shown = report.format_down(accounting.epsilon_from_gaussian(left, DELTA / 2))
    assert f'left={report.format_down(left)} (ε = {shown} by itself)' in str(refused.value)
    assert 'Rényi' not in str(refused.value)


def test_an_entry_that_leaves_out_failures_or_says_too_little_is_refused(where: str) -> None:
    entry = reserve(where, 'train', sgd())
    for changed in (
        {'failure': 0.0, 'failure_after': DELTA},
        {'failure': -1e-9},
        {'failure_budget': DELTA},
        {'epsilon_after': 3.3},
        {'rho': entry.rho / 2},
    ):
        with pytest.raises(ValueError, match='do not edit it'):
            dataclasses.replace(entry, **changed)


def test_a_report_of_votes_holds_the_charge_against_their_cost(where: str) -> None:
    """The charge is of the Gaussian that dominates discrete noise, a little more than ρ in zCDP."""
    params = TextVoteParams(rounds=3, noise_scale=12.5, nearest=4, unit='user', examples_per_context=8)
    entry = reserve(where, 'votes', params.event)
    assert params.rho < entry.rho < params.rho * (1 + 1e-4)
    assert every_page.voted(ledger=entry).ledger == entry
    for share in (0.99, 1.01):
        other = dataclasses.replace(
            entry, rho=share * entry.rho, rho_after=share * entry.rho, epsilon_after=0.01
        )
        with pytest.raises(ValueError, match='Expected the ledger to have charged what the run costs'):
            every_page.voted(ledger=other)


def test_what_is_said_of_it(where: str) -> None:
    reserve(where, 'train', sgd())
    entry = reserve(where, 'votes', VOTES)
    said = words.macro('all_runs', entry, 'record')
    multiplier = math.sqrt(0.5 / entry.rho_budget)
    assert f'ε = 3.3 at this δ, kept as a Gaussian mechanism at noise multiplier {multiplier:.6g}' in said
    assert 'zCDP' not in said and 'Rényi' not in said
    shown = typer.testing.CliRunner().invoke(commands.app, ['show', 'visits', '--ledger', where, '--json'])
    (facts,) = json.loads(shown.stdout)['datasets']
    assert (facts['filter'], facts['failure_budget']) == ('gaussian', DELTA / 2)
    assert [run['failure'] for run in facts['runs']] == [entry.failure_after, None]
    account = Ledger.open(where).account('visits')
    page = ledger_page.render_html(account, Ledger.open(where).events('visits'))
    assert 'Costs are kept as those of' in page and 'zCDP' not in page
    assert account.rho_by_stage(account.runs[0]) == {'stage': account.runs[0].rho}


def test_the_command_adds_one_and_says_so(tmp_path: pathlib.Path) -> None:
    place = str(tmp_path / 'l.db')
    given = ['add', 'visits', '--unit', 'example', '--delta', '1e-6', '--epsilon', '2', '--ledger', place]
    added = typer.testing.CliRunner().invoke(commands.app, [*given, '--filter', 'gaussian'])
    assert added.exit_code == 0 and 'Of δ, 5e-7 is kept for what they leave out' in added.stdout
    assert Ledger.open(place).account('visits').dataset.privacy_filter == 'gaussian'
    other = typer.testing.CliRunner().invoke(commands.app, [*given, '--filter', 'normal'])
    assert other.exit_code == 2
