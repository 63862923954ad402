"""zCDP to (epsilon, delta) and back, against mpmath at 50 digits."""

import itertools
import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.privacy import accounting
from models.privacy.accounting import conversion
from models.privacy.params import MechanismParams
from tests import oracles

PARAMS = MechanismParams(
    batch_size=255, clip_bound=10.0, temperature=2.0, max_private_tokens=100, max_batch_tokens=1000
)

RHOS = [1e-8, 1e-6, 3e-5, 1e-3, 0.02, 0.5, 3.0, 40.0, 1e3]
DELTAS = [1e-15, 1e-9, 1e-6, 1e-3, 0.3]
EPSILONS = [0.0, 1e-4, 1e-2, 0.3, 2.0, 10.0, 90.0, 500.0]

rhos = st.floats(-18, 7).map(math.exp)
epsilons = st.floats(0, 500)
deltas = st.floats(-34.5, -1.2).map(math.exp)


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


def test_delta_at_the_ends() -> None:
    assert accounting.delta_from_rho(0.0, 0.0) == 0
    assert accounting.delta_from_rho(math.inf, 5.0) == 1
    assert accounting.delta_from_rho(2000.0, 1.0) == 1
    assert accounting.delta_from_rho(1e-8, 500.0) == 0
    assert accounting.epsilon_from_rho(0.0, 1e-9) == 0
    assert accounting.epsilon_from_rho(1e-8, 0.3) == 0


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


def test_a_sum_that_another_one_stands_for_is_not_complained_of(caplog: pytest.LogCaptureFixture) -> None:
    found = conversion.sampled_gaussian(0.213333, 0.98772, 1.01)
    assert found == conversion.sampled_gaussian(0.213333, 0.98772, 2.0), 'or nothing was to be complained of'
    assert caplog.text == ''
