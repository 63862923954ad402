"""The arithmetic of a budget: exact sums, a stated slack, and what a run's report is told."""

import dataclasses
import math
import typing
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.privacy import accounting, report
from models.privacy.accounting import RunCost
from pipeline.ledger.account import Account
from pipeline.ledger.budget import BudgetExceeded, Charge, Dataset

DELTA = 1e-6


def account(rho_budget: float = 1.0, **changes: typing.Any) -> Account:
    arguments: dict[str, typing.Any] = {
        'name': 'visits', 'unit': 'example', 'rho_budget': rho_budget, 'delta': DELTA, 'epsilon_budget': None,
        'created': 'then',
    }  # fmt: skip
    return Account(dataset=Dataset(**(arguments | changes)), runs=())


def charge(rho: float, run_id: str = 'a', **changes: typing.Any) -> Charge:
    arguments: dict[str, typing.Any] = {
        'run_id': run_id, 'unit': 'example', 'cost': RunCost.of_rho({'generation': rho}), 'identity': 'i',
        'key_commitment': 'k',
    }  # fmt: skip
    return Charge(**(arguments | changes))


def charged(costs: list[float], rho_budget: float = 1.0) -> Account:
    result = account(rho_budget)
    for index, cost in enumerate(costs):
        result = result.with_charge(charge(cost, f'run-{index}'), at='then')
    return result


@pytest.mark.parametrize('count', [3, 7, 10, 60])
def test_decimal_costs_fill_a_decimal_budget_and_not_one_more(count: int) -> None:
    full = charged([0.1] * count, rho_budget=float(f'{count / 10:g}'))
    assert not full.fits(1e-9) and full.fits(1e-15)
    with pytest.raises(BudgetExceeded):
        full.with_charge(charge(0.1, 'late'), at='then')


@given(
    st.lists(st.floats(min_value=1e-9, max_value=10), min_size=1, max_size=40),
    st.floats(min_value=1e-6, max_value=100),
)
def test_what_was_let_in_is_within_the_budget(costs: list[float], budget: float) -> None:
    held = account(budget)
    for index, cost in enumerate(costs):
        fits = held.fits(cost)
        try:
            held = held.with_charge(charge(cost, f'run-{index}'), at='then')
        except BudgetExceeded:
            assert not fits
        else:
            assert fits
    exact = sum((Fraction(run.rho) for run in held.runs), Fraction(0))
    assert exact <= Fraction(budget) * (1 + Fraction(1e-12))
    refused = [cost for index, cost in enumerate(costs) if held.run(f'run-{index}') is None]
    # Each of them was refused for what was spent then, which is no more than is spent now.
    assert all(not held.fits(cost) for cost in refused)
    for run in held.runs:
        held.entry(run)  # an entry checks its own numbers


def test_a_sum_that_drifts_in_floating_point_is_exact() -> None:
    # A running sum of floats would never feel the small ones beside the large one.
    held = charged([1.0, *[1e-17] * 200], rho_budget=1 + 2.5e-12)
    assert held.rho_spent == math.fsum([1.0, *[1e-17] * 200]) > 1.0


def test_an_entry_is_of_the_runs_up_to_its_own() -> None:
    held = charged([0.25, 0.125, 0.5])
    entry = held.entry(held.runs[1])
    assert (entry.run_number, entry.rho_before, entry.rho, entry.rho_after) == (2, 0.25, 0.125, 0.375)
    assert entry.epsilon_after == accounting.epsilon_from_rho(0.375, DELTA)
    assert entry == charged([0.25, 0.125]).entry(held.runs[1])


def test_what_is_left_pays_for_a_run() -> None:
    held = charged([0.25, 0.125])
    assert held.rho_left == 0.625
    assert held.fits(accounting.rho_from_epsilon(held.epsilon_left, DELTA))
    assert held.epsilon_spent == accounting.epsilon_from_rho(0.375, DELTA)
    lowered = dataclasses.replace(held, dataset=dataclasses.replace(held.dataset, rho_budget=0.1))
    assert lowered.rho_left == lowered.epsilon_left == 0 and not lowered.fits(1e-9)


def test_the_budget_in_epsilon_is_as_it_was_given() -> None:
    assert account(1.0).epsilon_budget == accounting.epsilon_from_rho(1.0, DELTA)
    assert account(1.0, epsilon_budget=7.5).epsilon_budget == 7.5


def test_a_cost_is_the_exact_sum_of_its_stages() -> None:
    stages = {'a': 0.1, 'b': 0.2, 'c': 0.3}
    assert charge(0, cost=RunCost.of_rho(stages)).cost.curve.rho == math.fsum(stages.values())
    with pytest.raises(ValueError, match='not all free'):
        charge(0, cost=RunCost.of_rho({'a': 0.0}))
    with pytest.raises(ValueError, match='Expected stages'):
        charge(0, cost=RunCost.of_rho({}))


def test_a_refusal_says_what_is_left_and_whom_to_ask() -> None:
    said = str(BudgetExceeded('visits', 1.0, 0.75, 0.5, delta=1e-6))
    asked, left = (accounting.epsilon_from_rho(rho, 1e-6) for rho in (0.5, 0.25))
    assert f'rho=0.5 (ε = {report.format_up(asked)} by itself)' in said
    assert f'left=0.25 (ε = {report.format_down(left)} by itself) of budget=1' in said
    assert 'no token is sampled, and nothing is charged' in said
    over = str(BudgetExceeded('visits', 1.0, 1.5, 0.5, delta=1e-6))
    assert 'left=0 (ε = 0 by itself)' in over
