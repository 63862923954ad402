"""The largest cap r within a target, and the largest budget B of a context."""

import dataclasses
import itertools
import math
import re

import pytest

from models.privacy import accounting
from models.privacy.params import MechanismParams
from tests import oracles
from tests.oracles import costs

PARAMS = MechanismParams(
    batch_size=255, clip_bound=10.0, temperature=2.0, max_private_tokens=100, max_batch_tokens=1000
)
SPARSE = dataclasses.replace(PARAMS, threshold=0.3, threshold_noise_scale=0.1)


@pytest.mark.parametrize('params', [PARAMS, SPARSE, dataclasses.replace(SPARSE, examples_per_context=2)])
@pytest.mark.parametrize(
    'epsilon, delta, other_rho', [(1, 1e-6, 0.0), (3, 1e-6, 0.01), (10, 1e-9, 0.1), (50, 1e-5, 1.0)]
)
def test_the_solved_cap_fits_and_one_more_does_not(
    params: MechanismParams, epsilon: float, delta: float, other_rho: float
) -> None:
    if accounting.epsilon_from_rho(accounting.rho_per_private_token(params) + other_rho, delta) > epsilon:
        with pytest.raises(ValueError, match='budget for one private token'):
            accounting.solve_max_private_tokens(params, epsilon=epsilon, delta=delta, other_rho=other_rho)
        return
    cap = accounting.solve_max_private_tokens(params, epsilon=epsilon, delta=delta, other_rho=other_rho)
    per_token = accounting.rho_per_private_token(params)
    assert oracles.delta(cap * per_token + other_rho, epsilon) <= delta * (1 + 1e-9)
    assert oracles.delta((cap + 1) * per_token + other_rho, epsilon) > delta


def named_epsilon(error: pytest.ExceptionInfo[ValueError]) -> float:
    found = re.search(r'--epsilon (\S+) is the smallest', str(error.value))
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize('batch_size', [1, 8])
def test_the_smallest_epsilon_that_is_named_buys_one_token_and_less_does_not(batch_size: int) -> None:
    one = dataclasses.replace(PARAMS, batch_size=batch_size)
    target = {'delta': 1e-6, 'other_rho': 0.005}
    with pytest.raises(ValueError) as refused:
        accounting.solve_max_private_tokens(one, epsilon=0.01, **target)
    least = named_epsilon(refused)
    assert accounting.solve_max_private_tokens(one, epsilon=least, **target) == 1
    with pytest.raises(ValueError, match='budget for one private token'):
        accounting.solve_max_private_tokens(one, epsilon=0.99 * least, **target)


@pytest.mark.parametrize('omega', [None, 60.0])
def test_the_smallest_epsilon_of_a_context_buys_one_token_and_less_does_not(omega: float | None) -> None:
    one = dataclasses.replace(DIFFERENCE, batch_size=8)
    target = {'delta': 1e-6, 'other_rho': 0.005, 'omega': omega}
    with pytest.raises(ValueError) as refused:
        accounting.solve_context_budget(one, epsilon=0.3, **target)
    least = named_epsilon(refused)
    budget, _ = accounting.solve_context_budget(one, epsilon=least, **target)
    assert accounting.worst_case_tokens(one, budget) == 1
    with pytest.raises(ValueError, match='budget for one token'):
        accounting.solve_context_budget(one, epsilon=0.98 * least, **target)


# ------------------------------------------------------- the budget of a context

DIFFERENCE = MechanismParams(
    batch_size=64,
    clip_bound=1.0,
    temperature=1.0,
    max_private_tokens=1,
    max_batch_tokens=1,
    aggregate='difference',
)
SLOTS = dataclasses.replace(DIFFERENCE, examples_per_context=2)
TARGETS = [
    pytest.param(params, epsilon, delta, other_rho, id=f'{name}-{epsilon}-{delta}-{other_rho}')
    for (name, params), (epsilon, delta, other_rho) in itertools.product(
        {'records': DIFFERENCE, 'slots': SLOTS}.items(), [(1, 1e-6, 0.005), (3, 1e-5, 0.0), (10, 1e-9, 0.1)]
    )
]


def spent(params: MechanismParams, budget: float, other_rho: float) -> float:
    """ρ of a whole run, as its stages compose."""
    return math.fsum((params.change.value**2 * budget, other_rho))


@pytest.mark.parametrize('omega', [2.2, 5.0, 8.7, 60.0])
@pytest.mark.parametrize('params, epsilon, delta, other_rho', TARGETS)
def test_the_budget_of_a_context_at_a_given_order_is_the_largest(
    params: MechanismParams, epsilon: float, delta: float, other_rho: float, omega: float
) -> None:
    change = params.change.value
    orders = costs.grid(0.05, omega - 1, 500)
    expected = float(costs.context_budget(epsilon, delta, orders, other_rho=other_rho, change=change))
    target = {'epsilon': epsilon, 'delta': delta, 'other_rho': other_rho}
    if expected <= 0:
        with pytest.raises(
            ValueError, match=r'--epsilon \S+ is the smallest that pays for one.*or leave --omega out'
        ):
            accounting.solve_context_budget(params, **target, omega=omega)
        return
    budget, used = accounting.solve_context_budget(params, **target, omega=omega)
    assert used == omega
    # To 6 digits; and the grid of orders is the twin's.
    assert expected * (1 - 1e-5) <= budget <= expected * (1 + 1e-4)
    assert float(f'{budget:.6g}') == budget
    # Exactly within the target, and as large as that allows.
    rho = spent(params, budget, other_rho)
    assert accounting.epsilon_from_rho(rho, delta, largest_order=omega) <= epsilon
    assert costs.epsilon(costs.zcdp(rho, omega), delta, orders) <= epsilon * (1 + 1e-4)
    more = spent(params, budget * (1 + 2e-5), other_rho)
    assert accounting.epsilon_from_rho(more, delta, largest_order=omega) > epsilon
    # Wrong scales are told apart: counts left out, a replacement taken for a removal, ω taken for no bound.
    others = [costs.context_budget(epsilon, delta, orders, other_rho=0, change=change)] if other_rho else []
    others += [costs.context_budget(epsilon, delta, orders, other_rho=other_rho, change=3 - change)]
    if omega < 0.9 * accounting.optimal_order(rho, delta):
        longer = costs.grid(0.05, 200, 500)
        others += [costs.context_budget(epsilon, delta, longer, other_rho=other_rho, change=change)]
    assert all(abs(float(wrong) / budget - 1) > 1e-3 for wrong in others)


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('batch_size, clip_bound', [(16, 0.5), (64, 1.0), (64, 0.3), (255, 2.0)])
@pytest.mark.parametrize('params, epsilon, delta, other_rho', TARGETS)
def test_the_chosen_order_weighs_the_budget_against_the_growth_of_prices(
    params: MechanismParams,
    epsilon: float,
    delta: float,
    other_rho: float,
    batch_size: int,
    clip_bound: float,
) -> None:
    """By trying many orders: none pays for more than 0.1 % more tokens at the highest price."""
    params = dataclasses.replace(params, batch_size=batch_size, clip_bound=clip_bound)
    change = params.change.value
    share = 2 / 3 * change * clip_bound / (batch_size * params.temperature)

    def at_order(order: float) -> float:
        return float(costs.context_budget(epsilon, delta, [order], other_rho=other_rho, change=change))

    def worth(budget: float, omega: float) -> float:
        return budget * math.exp(-share * (omega - 1))

    orders = costs.grid(0.05, 40, 1000)
    # Up to each order the best one counts.
    largest = list(itertools.accumulate(map(at_order, orders), max))
    budget, omega = accounting.solve_context_budget(params, epsilon=epsilon, delta=delta, other_rho=other_rho)
    best = max(map(worth, largest, orders))
    assert worth(budget, omega) >= best * (1 - 1e-3)
    # Not simply the order at which the target converts best, nor one without regard to the conversion.
    whole = accounting.optimal_order(accounting.rho_from_epsilon(epsilon, delta), delta)
    assert 1 < omega <= whole
    assert worth(largest[0], orders[0]) < best / 2
    if (batch_size, clip_bound) == (64, 1.0):
        assert worth(at_order(whole), whole) < best * (1 - 1e-4)
    assert float(f'{omega:.6g}') == omega  # a setting that people read


@pytest.mark.parametrize('omega', [1.0, 0.5, math.nan])
def test_an_order_that_bounds_nothing_is_refused(omega: float) -> None:
    with pytest.raises(ValueError, match='largest_order > 1'):
        accounting.solve_context_budget(DIFFERENCE, epsilon=3, delta=1e-6, other_rho=0.0, omega=omega)


@pytest.mark.parametrize('params', [DIFFERENCE, SLOTS])
@pytest.mark.parametrize('budget', [1e-3, 0.2, 3.0])
def test_the_order_of_a_given_budget_costs_no_epsilon(params: MechanismParams, budget: float) -> None:
    omega = accounting.omega_of_budget(params, budget, delta=1e-6, other_rho=0.005)
    rho = spent(params, budget, 0.005)
    least = accounting.epsilon_from_rho(rho, 1e-6)
    assert accounting.epsilon_from_rho(rho, 1e-6, largest_order=omega) == pytest.approx(least, rel=1e-12)
    # And a smaller one does.
    less = 1 + 0.95 * (omega - 1)
    assert accounting.epsilon_from_rho(rho, 1e-6, largest_order=less) > least * (1 + 1e-6)


def test_tokens_of_a_worst_case_context_by_hand() -> None:
    assert accounting.worst_case_price(DIFFERENCE) == 2 / 64**2
    assert accounting.worst_case_tokens(DIFFERENCE, 10.5 * 2 / 64**2) == 10
    # The charge for a replacement is 4 B; a context's payment does not change with it.
    assert accounting.worst_case_tokens(SLOTS, 10.5 * 2 / 64**2) == 10
    # The budget for so many pays for all of them, and hardly for more.
    for tokens in (1, 160, 50_000):
        budget = accounting.worst_case_budget(DIFFERENCE, tokens)
        assert tokens <= accounting.worst_case_tokens(DIFFERENCE, budget) <= tokens * 1.01
