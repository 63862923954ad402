"""The price of a run against mpmath at 50 digits and against the dp-accounting library."""

import dataclasses
import itertools
import math

import dp_accounting
import mpmath
import pytest
from dp_accounting import rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from models.privacy import accounting
from models.privacy.params import MechanismParams
from tests import oracles

PARAMS = MechanismParams(
    batch_size=255, clip_bound=10.0, temperature=2.0, max_private_tokens=100, max_batch_tokens=1000
)
SPARSE = dataclasses.replace(PARAMS, threshold=0.3, threshold_noise_scale=0.1)

RHOS = [1e-8, 1e-6, 3e-5, 1e-3, 0.02, 0.5, 3.0, 40.0, 1e3]
DELTAS = [1e-15, 1e-9, 1e-6, 1e-3, 0.3]
EPSILONS = [0.0, 1e-4, 1e-2, 0.3, 2.0, 10.0, 90.0, 500.0]

rhos = st.floats(-18, 7).map(math.exp)
epsilons = st.floats(0, 500)
deltas = st.floats(-34.5, -1.2).map(math.exp)


# ------------------------------------------------------------------- rho


@pytest.mark.parametrize('sigma', [None, 0.1, 0.3])
@pytest.mark.parametrize('examples_per_context, factor', [(1, 1), (4, 2)])
@pytest.mark.parametrize('s, c, tau', [(1, 0.01, 3.0), (127, 10.0, 1.5), (255, 10.0, 2.25), (2047, 9.0, 2.0)])
def test_rho_is_theorem_1(
    s: int, c: float, tau: float, sigma: float | None, examples_per_context: int, factor: int
) -> None:
    params = dataclasses.replace(
        PARAMS,
        batch_size=s,
        clip_bound=c,
        temperature=tau,
        threshold=None if sigma is None else 0.3,
        threshold_noise_scale=sigma,
        examples_per_context=examples_per_context,
    )
    expected = oracles.rho_per_private_token(s, c, tau, sigma, factor)
    assert accounting.rho_per_private_token(params) == pytest.approx(float(expected), rel=1e-14)
    assert accounting.generation_rho(params) == pytest.approx(float(100 * expected), rel=1e-14)
    parts = accounting.aggregate_rho(params) + accounting.sparse_vector_rho(params)
    assert accounting.rho_per_private_token(params) == parts
    assert (accounting.sparse_vector_rho(params) == 0) == (sigma is None)


@pytest.mark.parametrize('params', [PARAMS, SPARSE])
def test_replace_costs_four_times_and_a_user_does_not(params: MechanismParams) -> None:
    shared = dataclasses.replace(params, examples_per_context=3)
    user = dataclasses.replace(shared, unit='user')
    assert accounting.generation_rho(shared) == pytest.approx(
        4 * accounting.generation_rho(params), rel=1e-14
    )
    assert accounting.generation_rho(user) == accounting.generation_rho(params)


def test_the_papers_settings_cost_what_the_paper_says() -> None:
    # PP Theorem 1 by hand: ½ (10/(255·2))² + 2/(255·0.1)² = 0.000192234... + 0.003075740...
    assert accounting.rho_per_private_token(SPARSE) == pytest.approx(
        0.00019223375624759708 + 0.0030757400999615534
    )


@pytest.mark.parametrize('params', [PARAMS, SPARSE])
def test_the_difference_aggregate_costs_what_the_mean_does(params: MechanismParams) -> None:
    difference = dataclasses.replace(params, aggregate='difference')
    assert accounting.generation_rho(difference) == accounting.generation_rho(params)


def test_the_median_has_no_price_in_advance() -> None:
    median = dataclasses.replace(SPARSE, aggregate='median')
    for price in (accounting.aggregate_rho, accounting.rho_per_private_token, accounting.generation_rho):
        with pytest.raises(ValueError, match='median'):
            price(median)
    with pytest.raises(ValueError, match='median'):
        accounting.solve_max_private_tokens(median, epsilon=3.0, delta=1e-6, other_rho=0.0)


@pytest.mark.parametrize('examples_per_context, factor', [(1, 2), (4, 4)])
@pytest.mark.parametrize('aggregate', ['mean', 'median', 'difference'])
def test_a_run_of_the_test_has_a_pure_cost_for_every_aggregate(
    aggregate: str, examples_per_context: int, factor: int
) -> None:
    params = dataclasses.replace(SPARSE, aggregate=aggregate, examples_per_context=examples_per_context)
    assert accounting.sparse_vector_pure_cost(params) == pytest.approx(factor / (255 * 0.1), rel=1e-14)
    assert accounting.sparse_vector_rho(params) == accounting.sparse_vector_pure_cost(params) ** 2 / 2
    plain = dataclasses.replace(params, threshold=None, threshold_noise_scale=None)
    assert accounting.sparse_vector_pure_cost(plain) == 0


# ------------------------------------------------- zCDP to (epsilon, delta)


@pytest.mark.parametrize('rho, epsilon', list(itertools.product(RHOS, EPSILONS)))
def test_delta_equals_the_oracle(rho: float, epsilon: float) -> None:
    expected = oracles.delta(rho, epsilon)
    ours = accounting.delta_from_rho(rho, epsilon)
    if expected < mpmath.mpf(10) ** -290:  # near the end of float64, where no release lives
        assert ours < 1e-289
    else:
        assert ours == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize('rho, delta', list(itertools.product(RHOS, DELTAS)))
def test_epsilon_equals_the_oracle_and_holds(rho: float, delta: float) -> None:
    ours = accounting.epsilon_from_rho(rho, delta)
    # Between these two the oracle's own δ crosses the target: ours is its ε to 1e-9, without
    # a bisection at 50 digits for each of the grid's points.
    assert oracles.delta(rho, ours * (1 + 1e-9)) <= delta
    if ours == 0:
        assert oracles.delta(rho, 0.0) <= delta
    else:
        assert oracles.delta(rho, ours * (1 - 1e-9)) > delta


@pytest.mark.parametrize('rho, delta', [(1e-3, 1e-6), (0.5, 1e-9), (40.0, 1e-15)])
def test_epsilon_equals_a_bisection_of_the_oracle(rho: float, delta: float) -> None:
    assert accounting.epsilon_from_rho(rho, delta) == pytest.approx(
        float(oracles.epsilon(rho, delta)), rel=1e-9
    )


def test_delta_at_the_ends() -> None:
    assert accounting.delta_from_rho(0.0, 0.0) == 0
    assert accounting.delta_from_rho(math.inf, 5.0) == 1
    assert accounting.delta_from_rho(2000.0, 1.0) == 1
    assert accounting.delta_from_rho(1e-8, 500.0) == 0
    assert accounting.epsilon_from_rho(0.0, 1e-9) == 0
    assert accounting.epsilon_from_rho(1e-8, 0.3) == 0


@given(rhos, rhos, epsilons, epsilons)
@settings(max_examples=200, deadline=None)
def test_delta_grows_with_rho_and_falls_with_epsilon(a: float, b: float, e: float, f: float) -> None:
    small, large = sorted((a, b))
    near, far = sorted((e, f))
    slack = 1 + 1e-9
    assert accounting.delta_from_rho(small, e) <= accounting.delta_from_rho(large, e) * slack
    assert accounting.delta_from_rho(a, far) <= accounting.delta_from_rho(a, near) * slack


@given(rhos, rhos, deltas, deltas)
@settings(max_examples=100, deadline=None)
def test_epsilon_grows_with_rho_and_falls_with_delta(a: float, b: float, d: float, e: float) -> None:
    small, large = sorted((a, b))
    strict, loose = sorted((d, e))
    slack = 1 + 1e-9
    assert accounting.epsilon_from_rho(small, d) <= accounting.epsilon_from_rho(large, d) * slack + 1e-12
    assert accounting.epsilon_from_rho(a, loose) <= accounting.epsilon_from_rho(a, strict) * slack + 1e-12


@given(rhos, deltas)
@settings(max_examples=100, deadline=None)
def test_epsilon_is_the_boundary_and_below_the_closed_form(rho: float, delta: float) -> None:
    epsilon = accounting.epsilon_from_rho(rho, delta)
    closed = accounting.epsilon_closed_form(rho, delta)
    assert closed == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1 / delta)), rel=1e-14)
    assert epsilon <= closed
    assert accounting.delta_from_rho(rho, epsilon) <= delta
    if epsilon > 0:
        assert accounting.delta_from_rho(rho, epsilon * (1 - 1e-7)) > delta


@given(st.floats(-4, 5.5).map(math.exp), deltas)
@settings(max_examples=100, deadline=None)
def test_rho_and_epsilon_are_inverses(epsilon: float, delta: float) -> None:
    rho = accounting.rho_from_epsilon(epsilon, delta)
    assert accounting.delta_from_rho(rho, epsilon) <= delta
    assert accounting.epsilon_from_rho(rho, delta) <= epsilon * (1 + 1e-9)
    # The largest such rho, up to 1e-6 of it.
    assert accounting.epsilon_from_rho(rho * (1 + 1e-6), delta) > epsilon


@pytest.mark.parametrize('rho', [1e-14, 1e-12, 1e-10, 1e-6, 1e-2, 1.0, 1e3])
@pytest.mark.parametrize('delta', [1e-13, 1e-6])
def test_the_solvers_end_soon(monkeypatch: pytest.MonkeyPatch, rho: float, delta: float) -> None:
    """No root is stepped up to by single ulps: at most 500 evaluations, however small the price."""
    evaluate, calls = accounting.delta_from_rho, itertools.count(1)

    def counted(rho: float, epsilon: float, *, largest_order: float = math.inf) -> float:
        assert next(calls) <= 500, 'the solver does not end'
        return evaluate(rho, epsilon, largest_order=largest_order)

    monkeypatch.setattr(accounting.conversion, 'delta_from_rho', counted)
    epsilon = accounting.epsilon_from_rho(rho, delta)
    if epsilon > 0:
        assert accounting.rho_from_epsilon(epsilon, delta) == pytest.approx(rho, rel=1e-6)


# ------------------------------------------------------------ the cap r


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


def test_the_solved_cap_does_not_read_the_cap() -> None:
    target = {'epsilon': 3.0, 'delta': 1e-6, 'other_rho': 0.005}
    caps = {
        accounting.solve_max_private_tokens(dataclasses.replace(SPARSE, max_private_tokens=r), **target)
        for r in (1, 7, 10**6)
    }
    assert len(caps) == 1


@pytest.mark.parametrize('other_rho', [0.0, 5.0])
def test_a_budget_too_small_for_one_token_is_refused(other_rho: float) -> None:
    one = dataclasses.replace(PARAMS, batch_size=1)
    with pytest.raises(ValueError, match=r'budget for one private token.*Raise epsilon'):
        accounting.solve_max_private_tokens(one, epsilon=0.5, delta=1e-6, other_rho=other_rho)


# ------------------------------------------------------------- dp-accounting

# RDP orders dense enough that the minimum over them is within 1e-3 of the infimum on the grid below.
ORDERS = [1 + 10 ** (i / 100) for i in range(-300, 500)]


def _library_epsilon(event: dp_accounting.DpEvent, delta: float) -> float:
    accountant = rdp.RdpAccountant(orders=ORDERS)
    accountant.compose(event)
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize(
    'rho, delta', list(itertools.product([1e-5, 1e-3, 0.1, 2.0, 60.0], [1e-12, 1e-6, 1e-2]))
)
def test_epsilon_is_at_most_the_librarys_and_close_to_it(rho: float, delta: float) -> None:
    """The library converts with the same bound, at the orders it is given: never below ours."""
    theirs = _library_epsilon(dp_accounting.ZCDpEvent(rho=rho), delta)
    ours = accounting.epsilon_from_rho(rho, delta)
    assert ours <= theirs * (1 + 1e-12)
    assert theirs <= ours * 1.001


@pytest.mark.parametrize('params, other_rho', [(PARAMS, 0.0), (SPARSE, 0.005)])
def test_the_event_composes_to_the_runs_price(params: MechanismParams, other_rho: float) -> None:
    event = accounting.to_dp_event(params, other_rho=other_rho)
    total = accounting.generation_rho(params) + other_rho

    def rho_of(event: dp_accounting.DpEvent) -> float:
        if isinstance(event, dp_accounting.ZCDpEvent):
            return event.rho
        if isinstance(event, dp_accounting.SelfComposedDpEvent):
            return event.count * rho_of(event.event)
        assert isinstance(event, dp_accounting.ComposedDpEvent)
        return sum(map(rho_of, event.events))

    assert rho_of(event) == pytest.approx(total, rel=1e-14)
    whole = _library_epsilon(dp_accounting.ZCDpEvent(rho=total), 1e-6)
    assert _library_epsilon(event, 1e-6) == pytest.approx(whole, rel=1e-12)


# --------------------------------------------------------------- refusals


@pytest.mark.parametrize('delta', [0.0, 1.0, -1e-6, 2.0, math.nan])
def test_delta_outside_0_and_1_is_refused(delta: float) -> None:
    for call in (
        lambda: accounting.epsilon_from_rho(0.1, delta),
        lambda: accounting.epsilon_closed_form(0.1, delta),
        lambda: accounting.rho_from_epsilon(1.0, delta),
        lambda: accounting.solve_max_private_tokens(PARAMS, epsilon=1.0, delta=delta, other_rho=0.0),
    ):
        with pytest.raises(ValueError, match='0 < delta < 1'):
            call()


@pytest.mark.parametrize('rho, epsilon', [(-1e-9, 1.0), (1.0, -1e-9), (math.nan, 1.0), (1.0, math.nan)])
def test_negative_rho_or_epsilon_is_refused(rho: float, epsilon: float) -> None:
    with pytest.raises(ValueError, match='rho >= 0 and epsilon >= 0'):
        accounting.delta_from_rho(rho, epsilon)


@pytest.mark.parametrize('epsilon', [0.0, -1.0, math.nan])
def test_rho_needs_a_positive_epsilon(epsilon: float) -> None:
    with pytest.raises(ValueError, match='epsilon > 0'):
        accounting.rho_from_epsilon(epsilon, 1e-6)


@pytest.mark.parametrize('rho', [-0.1, math.nan])
def test_epsilon_of_a_bad_rho_is_refused(rho: float) -> None:
    with pytest.raises(ValueError, match='rho'):
        accounting.epsilon_from_rho(rho, 1e-6)
