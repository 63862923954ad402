"""Individual accounting in a ledger, from a run's settings to what all runs are together."""

import pathlib
import typing

import pytest

from models.privacy import accounting, report
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.account import Account
from pipeline.ledger.budget import BudgetExceeded, reaching
from pipeline.ledger.ledger import Ledger
from pipeline.methods.predict import plan
from pipeline.run import charge
from pipeline.settings.job_config import JobConfig
from tests.oracles import costs

DELTA = 1e-6
ALONE: dict[str, typing.Any] = {'dataset': None, 'ledger': None}
KNOWN: dict[str, typing.Any] = {'unit': 'example', 'identity': 'i', 'key_commitment': 'k'}


def config(where: str, **settings: typing.Any) -> JobConfig:
    given = {'delta': DELTA, 'aggregate': 'difference', 'dataset': 'visits', 'ledger': where}
    return job_config(**(given | settings))


@pytest.fixture
def where(tmp_path: pathlib.Path) -> str:
    path = str(tmp_path / 'ledger.db')
    Ledger.create(path).add_dataset('visits', unit='example', delta=DELTA, epsilon=8.0)
    return path


def reserve(run: JobConfig, run_id: str) -> report.LedgerEntry:
    ledger = Ledger.open(str(run.budget.ledger))
    return ledger.reserve('visits', run_id=run_id, cost=methods.solve(run).cost, **KNOWN)


def account(where: str) -> Account:
    """As another program finds it."""
    return Ledger.open(where).account('visits')


def test_rho_adds_up_and_the_smallest_order_counts(where: str) -> None:
    """Three runs, one of them of worst-case accounting: epsilon is the twin's at orders up to the least ω."""
    runs = {
        'early': config(where, epsilon=1.0),
        'alike': config(where, accounting='worst-case', max_private_tokens=2_000),
        'late': config(where, epsilon=3.0, omega=6.0),
    }
    entries = {name: reserve(run, name) for name, run in runs.items()}
    of = {name: plan.plan_run(methods.solve(run)) for name, run in runs.items()}
    held = account(where)
    assert [run.omega for run in held.runs] == [of['early'].omega, None, 6.0]
    assert of['early'].omega > 6 and held.omega == 6.0
    rho = sum(each.rho_total for each in of.values())
    assert held.rho_spent == pytest.approx(rho)
    orders = costs.grid(0.05, 5.0, 400)
    expected = float(costs.epsilon(costs.zcdp(rho, 6.0), DELTA, orders))
    assert expected * (1 - 1e-4) <= held.epsilon_spent <= expected * (1 + 1e-9)
    # Neither orders above the least ω count, nor does epsilon add up.
    assert held.epsilon_spent < sum(each.epsilon for each in of.values())
    first = entries['early']
    assert isinstance(first, report.MixedLedgerEntry) and first.rho == pytest.approx(of['early'].rho_total)
    assert first.epsilon_after == pytest.approx(of['early'].epsilon, rel=1e-9)
    assert entries['late'].epsilon_after == pytest.approx(held.epsilon_spent)


def add_charge(where: str, share: float, omega: float | None) -> Account:
    """The dataset once a part of its budget in rho is spent."""
    rho = share * account(where).dataset.rho_budget
    event = (
        accounting.ZCDpEvent(rho=rho)
        if omega is None
        else accounting.TruncatedZCDpEvent(rho=rho, omega=omega)
    )
    cost = accounting.RunCost(stages={'generation': event})
    Ledger.open(where).reserve('visits', run_id='before', cost=cost, **KNOWN)
    return account(where)


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('spent', [0.0, 0.2, 0.9])
@pytest.mark.parametrize('before', [None, 1.2], ids=['zCDP', 'truncated'])
@pytest.mark.parametrize('times', [None, 1.0, 3.0], ids=['chosen', 'least', 'larger'])
def test_a_run_that_asks_for_all_that_is_left_fits(
    where: str, spent: float, before: float | None, times: float | None
) -> None:
    """With orders that were chosen for it, and with any that were given and reach the ledger's."""
    order = account(where).dataset.order
    held = account(where)
    if spent:
        held = add_charge(where, spent, None if before is None else before * order)
    omega = None if times is None else reaching(times * order)
    if spent == 0.9 and times == 1.0:
        # Its best order lies so far above that no rho gives so small an epsilon: a larger one takes it all.
        with pytest.raises(ValueError, match=r'--epsilon (\S+) is the smallest that pays') as refused:
            methods.solve(config(where, epsilon=held.epsilon_left, omega=omega))
        smallest = float(str(refused.value).partition('--epsilon ')[2].split()[0])
        run = config(where, epsilon=smallest, omega=omega)
        assert (
            smallest > held.epsilon_left
            and charge.ask(methods.solve(run)).epsilon_left_up_to_omega > smallest
        )
    else:
        run = config(where, epsilon=held.epsilon_left, omega=omega)
    assert charge.ask(methods.solve(run)).fits
    # A larger epsilon takes all that is left where the orders are too small for this one, and no other does.
    most = accounting.epsilon_from_rho(held.rho_left, DELTA, largest_order=methods.solve(run).params.omega)
    assert most >= held.epsilon_left * (1 - 1e-12)
    whole = charge.ask(methods.solve(config(where, epsilon=most, omega=methods.solve(run).params.omega)))
    assert whole.fits and whole.rho_left < 1e-4 * held.rho_left
    over = charge.ask(
        methods.solve(config(where, epsilon=1.01 * most, omega=methods.solve(run).params.omega))
    )
    assert not over.fits and over.epsilon_left_up_to_omega == pytest.approx(most)
    (setting,) = over.fitting
    assert setting.name == 'epsilon' and 0.99 * most < setting.value <= most and setting.omega is None
    reserve(run, 'whole')


def test_what_workers_compute_with_is_what_was_charged(where: str) -> None:
    """They are told of no ledger, with which larger orders are chosen."""
    run = config(where, epsilon=8.0)
    params = methods.solve(run).params
    assert (
        params.omega
        >= account(where).dataset.order
        > methods.solve(config(where, epsilon=8.0, **ALONE)).params.omega
    )
    assert methods.solve(config(where, epsilon=8.0, omega=params.omega, **ALONE)).params == params
    short = config(where, epsilon=8.0, max_batch_tokens=100)
    assert methods.solve(
        config(where, epsilon=8.0, omega=methods.solve(short).params.omega, max_batch_tokens=100, **ALONE)
    ).params == (methods.solve(short).params)


def test_orders_that_reach_the_ledgers_and_buy_too_much_come_with_what_fits(where: str) -> None:
    """At the given ω epsilon buys so little that it would fit; at the one to give, more than is left."""
    held = add_charge(where, 0.5, None)
    run = config(where, epsilon=1.3 * held.epsilon_left, omega=held.dataset.order - 1.5)
    assert held.fits(methods.solve(run).cost.curve.rho)
    with pytest.raises(ValueError, match=r'To fit, give at most --epsilon \S+ with --omega') as refused:
        charge.ask(methods.solve(run))
    with pytest.raises(ValueError) as of_launch:
        charge.check(Ledger.open(where), methods.solve(run, launch=True))
    assert str(of_launch.value) == str(refused.value)
    words = str(refused.value).split()
    epsilon, omega = (float(words[words.index(flag) + 1].rstrip(',')) for flag in ('--epsilon', '--omega'))
    assert charge.ask(methods.solve(config(where, epsilon=epsilon, omega=omega))).fits
    assert not charge.ask(methods.solve(config(where, epsilon=1.02 * epsilon, omega=omega))).fits


def test_an_order_below_the_ledgers_is_refused_with_the_one_to_give(where: str) -> None:
    """Whatever epsilon asks for; the remedy works."""
    order = account(where).dataset.order
    whole = config(where, epsilon=8.0, omega=order - 0.1)
    with pytest.raises(ValueError, match=r'Give --omega (\S+) or more') as refused:
        charge.ask(methods.solve(whole))
    given = float(str(refused.value).partition('--omega ')[2].split()[0])
    assert order <= given <= order + 0.01
    again = config(where, epsilon=8.0, omega=given)
    answer = charge.ask(methods.solve(again))
    assert answer.fits and answer.rho_left < 1e-4
    reserve(again, 'whole')
    with pytest.raises(BudgetExceeded):
        reserve(config(where, epsilon=0.5), 'more')


def test_a_run_over_the_budget_does_not_fit_whatever_its_orders(where: str) -> None:
    """Its smaller orders are no reason to ask for larger ones, with which it would be refused too."""
    over = config(where, epsilon=12.0, omega=2.5)
    assert methods.solve(over).params.omega < account(where).dataset.order
    assert not charge.ask(methods.solve(over)).fits
    with pytest.raises(BudgetExceeded, match='Ask for less'):
        reserve(over, 'over')
    assert not charge.ask(
        methods.solve(config(where, epsilon=12.0, omega=account(where).dataset.order + 1))
    ).fits
    assert not account(where).runs
