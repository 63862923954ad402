"""A budget that is lowered: what outputs could have let in before stays in what the ledger states.

All outputs are enumerated: a run of next to no cost, a fair coin beside it, and where the coin is 1 a run
that takes nearly all that the larger budget has left. Gaussians compose in closed form, so δ of all outputs
together is exact.
"""

import dataclasses
import itertools
import json
import math
import pathlib
from collections.abc import Callable, Sequence

import pytest
import typer.testing

from models.privacy import accounting, report
from models.privacy.accounting import GaussianDpEvent, RunCost
from models.privacy.report import words
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.commands import ledger as commands
from pipeline.ledger import released
from pipeline.ledger.account import Account
from pipeline.ledger.budget import BudgetExceeded, PrivacyFilter
from pipeline.ledger.ledger import Ledger
from pipeline.pages import ledger_page
from pipeline.run import charge as charging
from tests.oracles import losses

DELTA = 1e-5
SMALL = 1e4
FILTERS: tuple[PrivacyFilter, ...] = ('gaussian', 'renyi')


def reserve(ledger: Ledger, name: str, run_id: str, multiplier: float) -> report.LedgerEntry:
    cost = RunCost(stages={'votes_on_texts': GaussianDpEvent(noise_multiplier=multiplier)})
    return ledger.reserve(
        name, run_id=run_id, unit='example', cost=cost, identity='i', key_commitment='k'
    )  # fmt: skip


def histories(ledger: Ledger, kept: PrivacyFilter) -> list[Account]:
    """The accounts of both coins, once the budget of ε = 8 was lowered to 1 on a date."""
    found = []
    for coin in (0, 1):
        name = f'{kept}-{coin}'
        ledger.add_dataset(name, unit='example', delta=DELTA, epsilon=8.0, privacy_filter=kept)
        reserve(ledger, name, 'small', SMALL)
        if coin:
            reserve(ledger, name, 'large', math.sqrt(0.5 / (0.99 * ledger.account(name).rho_left)))
        found.append(ledger.change_budget(name, epsilon=1.0, reason='from the first of January on'))
    return found


def multipliers(account: Account) -> list[float]:
    """Noise multipliers of what was charged."""
    events = [event for run in account.runs for event in run.cost.stages.values()]
    return [event.noise_multiplier for event in events if isinstance(event, GaussianDpEvent)]


def delta_of_all(accounts: Sequence[Account], epsilon: float) -> float:
    """δ at ε of all outputs together: both coins are as likely with a unit as without it.

    So it is the mean over the coins, and of each the runs are one Gaussian whose shifts are as sides of a
    right angle.
    """
    return math.fsum(
        losses.delta_of_gaussian(1 / math.hypot(*(1 / z for z in multipliers(account))), epsilon)
        for account in accounts
    ) / len(accounts)


@pytest.fixture(params=FILTERS)
def of_both(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> tuple[list[Account], Ledger]:
    ledger = Ledger.create(str(tmp_path / 'ledger.db'))
    return histories(ledger, request.param), ledger


def test_all_outputs_are_within_the_largest_budget_that_stood(of_both: tuple[list[Account], Ledger]) -> None:
    accounts, _ = of_both
    assert [len(account.runs) for account in accounts] == [1, 2]
    for account in accounts:
        # The same of both coins: a statement that depended on the coin would itself be an output.
        assert account.epsilon_bound == pytest.approx(8.0, rel=1e-6)
        assert delta_of_all(accounts, account.epsilon_bound) <= DELTA
        # An open twin states the budget that stands, and is told: of one coin in two it is true.
        assert account.dataset.epsilon_budget == 1.0
        assert delta_of_all(accounts, account.epsilon_budget) > 0.17
    # Nor is the bound much larger than it has to be.
    largest = math.sqrt(0.5 / accounts[0].rho_bound)
    assert losses.delta_of_gaussian(largest, 8.0) > DELTA / 40


def test_at_the_order_all_outputs_are_within_the_largest_budget(tmp_path: pathlib.Path) -> None:
    """The Rényi divergence that the filter bounds, over both coins; that of the lower budget is told."""
    accounts = histories(Ledger.create(str(tmp_path / 'ledger.db')), 'renyi')
    (order,) = {account.dataset.order for account in accounts}
    of_coin = [math.fsum(0.5 * order / z**2 for z in multipliers(account)) for account in accounts]
    mean = math.fsum(math.exp((order - 1) * divergence) for divergence in of_coin) / 2
    together = math.log(mean) / (order - 1)
    for account in accounts:
        assert together <= order * account.rho_bound
        assert together > 10 * order * account.dataset.rho_budget


@pytest.mark.parametrize('kept', FILTERS)
def test_the_bound_is_the_largest_since_the_first_charge_in_any_order_of_changes(
    tmp_path: pathlib.Path, kept: PrivacyFilter
) -> None:
    ledger = Ledger.create(str(tmp_path / 'ledger.db'))
    for place, changes in enumerate(itertools.permutations((2.0, 4.0, 6.0))):
        name = f'visits-{place}'
        ledger.add_dataset(name, unit='example', delta=DELTA, epsilon=9.0, privacy_filter=kept)
        # Before the first charge no output decided anything: a change costs nothing.
        ledger.change_budget(name, epsilon=3.0, reason='nothing was charged')
        assert ledger.account(name).epsilon_bound == pytest.approx(3.0, rel=1e-6)
        reserve(ledger, name, 'first', SMALL)
        stood = [3.0]
        for turn, epsilon in enumerate(changes):
            stood.append(epsilon)
            changed = ledger.change_budget(name, epsilon=epsilon, reason='another')
            # Raised and lowered again with no run in between: outputs could have let one in.
            assert changed.epsilon_bound == pytest.approx(max(stood), rel=1e-6)
            if turn == 1:
                entry = reserve(ledger, name, 'second', SMALL)
                assert entry.epsilon_bound == pytest.approx(max(stood), rel=1e-6)
        # A report's statement stays.
        assert reserve(ledger, name, 'second', SMALL) == entry
        assert ledger.account(name) == Ledger.open(ledger.where).account(name)


def test_another_delta_states_the_same_bound_at_it(tmp_path: pathlib.Path) -> None:
    """A divergence at one order holds at every δ at once, so that may follow outputs."""
    ledger = Ledger.create(str(tmp_path / 'ledger.db'))
    accounts = histories(ledger, 'renyi')
    for delta in (1e-12, 1e-3):
        changed = [
            ledger.change_budget(account.dataset.name, epsilon=1.0, delta=delta, reason='another δ')
            for account in accounts
        ]
        (stated,) = {account.epsilon_bound for account in changed}
        (order,) = {account.dataset.order for account in changed}
        assert stated == accounting.epsilon_at_order(order, order * changed[0].rho_bound, delta)
        assert delta_of_all(changed, stated) <= delta < delta_of_all(changed, 1.0)


def test_lowering_refuses_later_runs(of_both: tuple[list[Account], Ledger]) -> None:
    accounts, ledger = of_both
    z = math.sqrt(0.5 / (0.5 * accounts[0].rho_bound))
    with pytest.raises(BudgetExceeded):
        reserve(ledger, accounts[0].dataset.name, 'late', z)


# ------------------------------------------------------------------ where it is said


def test_everything_that_states_a_guarantee_states_that_of_the_largest(
    of_both: tuple[list[Account], Ledger],
) -> None:
    (account, _), ledger = of_both
    name = account.dataset.name
    entry = reserve(ledger, name, 'second', SMALL)
    assert entry.rho_bound > 10 * entry.rho_budget and entry.epsilon_budget == 1.0
    account = ledger.account(name)
    shown = report.format_up(account.epsilon_bound)
    said = words.macro('all_runs', entry, 'record')
    assert 'the largest budget since the first of them was charged bounds all of them' in said
    assert f'ε = {shown} at this δ' in said and 'the smaller one that stands now' in said
    assert 'ε = 1 ' not in said

    run = typer.testing.CliRunner().invoke
    said = run(commands.app, ['show', name, '--ledger', ledger.where]).stdout
    assert f'all runs together are (ε = {shown}, δ = 1e-5)-differentially private: within the largest' in said
    (facts,) = json.loads(run(commands.app, ['show', name, '--ledger', ledger.where, '--json']).stdout)[
        'datasets'
    ]
    assert (facts['epsilon_bound'], facts['rho_bound']) == (account.epsilon_bound, account.rho_bound)
    assert facts['rho_budget'] < facts['rho_bound'] == facts['runs'][1]['rho_bound']
    table = released.to_csv(ledger.accounts(), ledger.events())
    assert repr(account.epsilon_bound) in table
    page = ledger_page.render_html(account, ledger.events(name))
    assert f'ε\xa0=\xa0{shown}' in page and 'Lowering the budget refuses later runs' in page

    asked = charging.ask(methods.solve(job_config(
            method='evolve', input='in.csv', output='out', run_id='next', records=5_000, delta=DELTA,
            epsilon=0.1, candidates=20, examples=10, dataset=name, ledger=ledger.where,
        )))  # fmt: skip
    assert asked.epsilon_bound == account.epsilon_bound
    rows = ' '.join(text for _, text in asked.rows(DELTA))
    assert f'the budget before it was lowered holds: ε = {shown}' in rows


def test_a_budget_that_was_not_lowered_is_the_bound(tmp_path: pathlib.Path) -> None:
    ledger = Ledger.create(str(tmp_path / 'ledger.db'))
    for kept in FILTERS:
        ledger.add_dataset(kept, unit='example', delta=DELTA, epsilon=8.0, privacy_filter=kept)
        reserve(ledger, kept, 'small', SMALL)
        account = ledger.account(kept)
        assert account.epsilon_bound == 8.0 and account.lowered_from is None
        said = typer.testing.CliRunner().invoke(commands.app, ['show', kept, '--ledger', ledger.where]).stdout
        assert '(ε = 8, δ = 1e-5)-differentially private: within the budget.' in said
        assert 'argest budget' not in ledger_page.render_html(account, ledger.events(kept))


@pytest.mark.parametrize(
    'wrong',
    [
        lambda entry: {'rho_bound': 0.5 * entry.rho_budget},
        lambda entry: {'epsilon_bound': entry.epsilon_budget},
        lambda entry: {'rho_bound': 2 * entry.rho_bound},
    ],
)
def test_an_entry_whose_bound_is_less_than_it_was_is_refused(
    of_both: tuple[list[Account], Ledger], wrong: Callable[[report.LedgerEntry], dict[str, float]]
) -> None:
    (account, _), ledger = of_both
    entry = reserve(ledger, account.dataset.name, 'second', SMALL)
    with pytest.raises(ValueError, match='Expected the largest budget since the first charge'):
        dataclasses.replace(entry, **wrong(entry))
