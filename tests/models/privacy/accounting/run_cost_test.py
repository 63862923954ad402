"""Costs as events: what they compose to, against dp_accounting and brute force; what is refused."""

import dataclasses
import itertools
import json
import math
import pickle
import typing

import dp_accounting
import mpmath
import pytest
from dp_accounting import rdp

from models.privacy import accounting
from models.privacy.accounting import (
    ComposedDpEvent,
    DiscreteGaussianDpEvent,
    DiscreteGaussianVectorDpEvent,
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    RunCost,
    SelfComposedDpEvent,
    TruncatedZCDpEvent,
    ZCDpEvent,
    curve_of,
)
from tests.oracles import costs

pytestmark = pytest.mark.heavy

DELTA = 1e-6
# Orders so dense that the library's minimum over them is within 1 % of the infimum.
ORDERS = [1 + 10 ** (i / 25) for i in range(-50, 38)] + [float(n) for n in range(32, 400, 5)]


def sampled(q: float, z: float, steps: int) -> SelfComposedDpEvent:
    """DP-SGD: Gaussian sums of Poisson samples, one after the other."""
    step = PoissonSampledDpEvent(sampling_probability=q, event=GaussianDpEvent(noise_multiplier=z))
    return SelfComposedDpEvent(event=step, count=steps)


def of_library(event: DpEvent) -> dp_accounting.DpEvent:
    match event:
        case ZCDpEvent(rho=rho):
            return dp_accounting.ZCDpEvent(rho=rho)
        case GaussianDpEvent(noise_multiplier=z):
            return dp_accounting.GaussianDpEvent(z)
        case PoissonSampledDpEvent(sampling_probability=q, event=gaussian):
            return dp_accounting.PoissonSampledDpEvent(q, of_library(gaussian))
        case SelfComposedDpEvent(event=one, count=count):
            return dp_accounting.SelfComposedDpEvent(of_library(one), count)
    raise TypeError(event)


def library_epsilon(*parts: DpEvent, delta: float = DELTA) -> float:
    accountant = rdp.RdpAccountant(orders=ORDERS)
    for part in parts:
        accountant.compose(of_library(part))
    return accountant.get_epsilon(delta)


def epsilon(*parts: DpEvent, delta: float = DELTA) -> float:
    return RunCost(stages={str(index): part for index, part in enumerate(parts)}).curve.epsilon(delta)


# ------------------------------------------------------------------ against dp_accounting

SAMPLED = [sampled(0.01, 1.0, 1000), sampled(0.001, 0.6, 10_000), sampled(0.2, 4.0, 300)]


@pytest.mark.parametrize('event', SAMPLED)
@pytest.mark.parametrize('delta', [1e-9, 1e-5])
def test_a_sampled_gaussian_is_the_librarys(event: SelfComposedDpEvent, delta: float) -> None:
    ours, theirs = epsilon(event, delta=delta), library_epsilon(event, delta=delta)
    assert theirs * (1 - 1e-2) <= ours <= theirs * (1 + 1e-6)
    # Half the noise, twice the rate or twice the steps give another one.
    gaussian = event.event.event
    for wrong in (
        sampled(event.event.sampling_probability, gaussian.noise_multiplier / 2, event.count),
        sampled(2 * event.event.sampling_probability, gaussian.noise_multiplier, event.count),
        sampled(event.event.sampling_probability, gaussian.noise_multiplier, 2 * event.count),
    ):
        assert epsilon(wrong, delta=delta) > 1.1 * theirs


@pytest.mark.parametrize('rho', [1e-3, 0.1, 2.0])
@pytest.mark.parametrize('event', SAMPLED)
def test_a_mixture_is_the_librarys_sum_at_each_order(event: SelfComposedDpEvent, rho: float) -> None:
    """The curves add up, then they are converted: no sum of epsilons and no sum of rho is the same."""
    parts = (ZCDpEvent(rho=rho), event, GaussianDpEvent(noise_multiplier=5.0))
    ours, theirs = epsilon(*parts), library_epsilon(*parts)
    assert theirs * (1 - 1e-2) <= ours <= theirs * (1 + 1e-6)
    assert ours < epsilon(parts[0]) + epsilon(event) + epsilon(parts[2])
    assert epsilon(ZCDpEvent(rho=2 * rho), event) > epsilon(ZCDpEvent(rho=rho), event) * 1.001
    # δ is the inverse.
    curve = curve_of(ComposedDpEvent(events=parts))
    assert curve.delta(ours) == pytest.approx(DELTA, rel=0.05)


@pytest.mark.first
@pytest.mark.parametrize(
    ('q', 'z', 'order'), [(0.01, 1.0, 8), (0.1, 2.0, 2.5), (0.3, 0.8, 3), (0.02, 1.5, 17)]
)
def test_one_step_is_the_divergence_of_its_definition(q: float, z: float, order: float) -> None:
    step = curve_of(PoissonSampledDpEvent(sampling_probability=q, event=GaussianDpEvent(noise_multiplier=z)))
    found, expected = order * step.rho_at(order), float(costs.sampled_gaussian(q, z, order))
    # The library's sum for fractional orders is an upper bound, and a close one.
    assert expected * (1 - 1e-9) <= found <= expected * (1 + (1e-8 if float(order).is_integer() else 0.05))
    assert not expected * 0.8 < order * curve_of(sampled(q, z, 2)).rho_at(order) < expected * 1.2


@pytest.mark.parametrize(('q', 'z', 'order'), [(0.2, 0.3, 1.01), (0.5, 0.3, 1.2), (0.02, 0.3, 1.2)])
def test_where_the_librarys_sum_does_not_converge_the_next_whole_order_bounds_it(
    q: float, z: float, order: float
) -> None:
    step = PoissonSampledDpEvent(sampling_probability=q, event=GaussianDpEvent(noise_multiplier=z))
    alone = dp_accounting.rdp.RdpAccountant(orders=[order]).compose(of_library(step))
    assert math.isinf(alone.rdp[0])
    found, next_order = order * curve_of(step).rho_at(order), math.ceil(order)
    assert found == pytest.approx(next_order * curve_of(step).rho_at(next_order), rel=1e-12)
    assert float(costs.sampled_gaussian(q, z, order)) <= found < math.inf


# ------------------------------------------------------------------ truncated zCDP


@pytest.mark.parametrize('omega', [1.5, 3.0, 12.0, 80.0, 5e3])
@pytest.mark.parametrize('rho', [1e-4, 0.05, 1.3, 20.0])
def test_truncated_zcdp_is_the_infimum_over_its_orders(rho: float, omega: float) -> None:
    found = epsilon(TruncatedZCDpEvent(rho=rho, omega=omega))
    orders = costs.grid(1e-4, omega - 1, 4000)
    expected = float(costs.epsilon(costs.zcdp(rho, omega), DELTA, orders))
    assert expected * (1 - 1e-4) - 1e-12 <= found <= expected * (1 + 1e-9)
    # A wrong scale and a wrong ω are told apart where they matter.
    curve = costs.zcdp(2 * rho, omega)
    assert float(costs.epsilon(curve, DELTA, orders)) > found + 0.9 * rho
    whole = accounting.epsilon_from_rho(rho, DELTA)
    assert found >= whole
    if omega < accounting.optimal_order(rho, DELTA):
        assert found > whole
        assert found == pytest.approx(accounting.epsilon_at_order(omega, omega * rho, DELTA), rel=1e-12)
        assert epsilon(TruncatedZCDpEvent(rho=rho, omega=1 + 2 * (omega - 1))) < found * (1 - 1e-4)
    else:
        assert found == whole


@pytest.mark.parametrize(
    'rho, omega, e', list(itertools.product([1e-3, 0.3, 5.0], [1.2, 4.0, 40.0], [0.0, 1.0, 9.0]))
)
def test_delta_of_truncated_zcdp_is_the_infimum_over_its_orders(rho: float, omega: float, e: float) -> None:
    found = accounting.delta_from_rho(rho, e, largest_order=omega)
    orders = costs.grid(1e-6, omega - 1, 3000)
    expected = float(costs.delta(costs.zcdp(rho, omega), e, orders))
    assert expected * (1 - 1e-3) <= found <= expected * (1 + 1e-9)
    assert RunCost(stages={'a': TruncatedZCDpEvent(rho=rho, omega=omega)}).curve.delta(e) == found


def test_a_truncated_cost_never_sees_an_order_above_its_own() -> None:
    """The library's orders reach 1000: taken for zCDP, ω = 4 would look far cheaper than it is."""
    event = TruncatedZCDpEvent(rho=0.01, omega=4.0)
    assert epsilon(event) > 3 * library_epsilon(ZCDpEvent(rho=0.01))
    mixed = (event, sampled(0.01, 1.0, 1000))
    curve = curve_of(ComposedDpEvent(events=mixed))
    orders = costs.grid(0.01, 3.0, 120)
    expected = min(accounting.epsilon_at_order(order, order * curve.rho_at(order), DELTA) for order in orders)
    assert epsilon(*mixed) == pytest.approx(expected, rel=1e-4)
    assert curve.rho_at(4.0) < math.inf and curve.rho_at(4.0 + 1e-9) == math.inf
    assert library_epsilon(ZCDpEvent(rho=0.01), mixed[1]) < 0.8 * epsilon(*mixed)


@pytest.mark.parametrize('omega', [2.0, 6.0, 300.0])
@pytest.mark.parametrize('target', [1.0, 8.0, 40.0])
def test_rho_of_a_truncated_target_is_the_largest_that_fits(target: float, omega: float) -> None:
    try:
        rho = accounting.rho_from_epsilon(target, DELTA, largest_order=omega)
    except ValueError as error:
        assert 'Raise --omega' in str(error)
        assert accounting.epsilon_at_order(omega, 0.0, DELTA) >= target
        return
    assert accounting.epsilon_from_rho(rho, DELTA, largest_order=omega) <= target * (1 + 1e-9)
    assert accounting.epsilon_from_rho(rho * (1 + 1e-6), DELTA, largest_order=omega) > target


# ------------------------------------------------------------------ composition


def test_a_cost_of_zcdp_is_one_number() -> None:
    stages = {'centers': ZCDpEvent(rho=0.0), 'noisy_counts': ZCDpEvent(rho=0.1)}
    tokens = SelfComposedDpEvent(event=ZCDpEvent(rho=1e-3), count=613)
    cost = RunCost(stages={**stages, 'generation': tokens})
    curve = cost.curve
    assert curve.rho == math.fsum([0.0, 0.1, 613 * 1e-3])
    assert curve.epsilon(DELTA) == accounting.epsilon_from_rho(curve.rho, DELTA)
    assert curve.is_zcdp and curve.rho_at(7.5) == curve.rho
    assert RunCost.of_rho({'centers': 0.0, 'noisy_counts': 0.1, 'generation': 613 * 1e-3}).curve == curve


@pytest.mark.parametrize('event', [TruncatedZCDpEvent(rho=0.1, omega=9.0), sampled(0.1, 1.0, 3)])
def test_another_cost_is_not_one_number(event: DpEvent) -> None:
    cost = RunCost(stages={'a': ZCDpEvent(rho=0.1), 'b': event})
    assert not cost.curve.is_zcdp


def test_curves_add_up_whatever_the_nesting() -> None:
    step = PoissonSampledDpEvent(sampling_probability=0.1, event=GaussianDpEvent(noise_multiplier=2.0))
    flat = RunCost(
        stages={
            'a': TruncatedZCDpEvent(rho=0.25, omega=9.0), 'b': TruncatedZCDpEvent(rho=0.5, omega=5.0),
            'c': SelfComposedDpEvent(event=step, count=7), 'd': ZCDpEvent(rho=0.125),
        }
    )  # fmt: skip
    inner = ComposedDpEvent(events=(flat.stages['b'], SelfComposedDpEvent(event=step, count=3), step))
    nested = RunCost(
        stages={
            'a': ComposedDpEvent(events=(flat.stages['a'], inner)), 'b': sampled(0.1, 2.0, 3),
            'later': ZCDpEvent(rho=0.125),
        }
    )  # fmt: skip
    assert flat.curve == nested.curve
    assert flat.curve == accounting.RenyiCurve(rho=0.875, largest_order=5.0, sampled=((0.1, 2.0, 7),))


def test_sampling_everybody_is_a_gaussian() -> None:
    assert curve_of(sampled(1.0, 2.0, 8)) == curve_of(ZCDpEvent(rho=1.0))


# ------------------------------------------------------------------ JSON and refusals

EVERY_EVENT = RunCost(
    stages={
        'a': ZCDpEvent(rho=1 / 3),
        'b': TruncatedZCDpEvent(rho=0.1, omega=17.5),
        'c': GaussianDpEvent(noise_multiplier=0.7),
        'd': sampled(0.01, 1.1, 1000),
        'counts': DiscreteGaussianDpEvent(sigma=2.5),
        'votes': DiscreteGaussianVectorDpEvent(noise_multiplier=3.5, sensitivity=1024, cells=4),
        'e': ComposedDpEvent(events=(ZCDpEvent(rho=0.2), TruncatedZCDpEvent(rho=1.0, omega=2.0))),
    }
)


def test_every_event_comes_back_from_json() -> None:
    assert RunCost.from_json_object(json.loads(json.dumps(EVERY_EVENT.to_json_object()))) == EVERY_EVENT
    assert pickle.loads(pickle.dumps(EVERY_EVENT)) == EVERY_EVENT
    assert {type(event) for event in EVERY_EVENT.stages.values()} | {PoissonSampledDpEvent} == set(
        typing.get_args(typing.get_args(accounting.DpEvent)[0])
    )


@pytest.mark.first
def test_the_json_of_a_cost_is_this() -> None:
    cost = RunCost(stages={'centers': ZCDpEvent(rho=0.0), 'generation': sampled(0.01, 1.1, 10)})
    assert cost.to_json_object() == {
        'schema': 'dp-corpus/run-cost',
        'schema_version': 1,
        'neighboring_relation': 'add-or-remove-one',
        'stages': {
            'centers': {'kind': 'ZCDpEvent', 'rho': 0.0},
            'generation': {
                'kind': 'SelfComposedDpEvent',
                'event': {
                    'kind': 'PoissonSampledDpEvent',
                    'sampling_probability': 0.01,
                    'event': {'kind': 'GaussianDpEvent', 'noise_multiplier': 1.1},
                },
                'count': 10,
            },
        },
    }


@pytest.mark.parametrize(
    'changes',
    [
        {'schema_version': 2},
        {'schema': 'other'},
        {'neighboring_relation': 'replace-one'},
        {'stages': {}},
        {'stages': {'a': {'kind': 'LaplaceDpEvent', 'noise_multiplier': 1.0}}},
        {'stages': {'a': {'kind': 'ZCDpEvent', 'rho': 0.1, 'xi': 0.2}}},
        {'stages': {'a': {'kind': 'ZCDpEvent'}}},
        {'stages': {'a': {'kind': 'ZCDpEvent', 'rho': 'much'}}},
        {'stages': {'a': {'kind': 'ZCDpEvent', 'rho': -0.1}}},
        {'stages': {'a': {'rho': 0.1}}},
        {'stages': {'a': 0.1}},
    ],
)
def test_an_unknown_cost_is_refused(changes: dict[str, object]) -> None:
    found = RunCost.of_rho({'a': 0.1}).to_json_object() | changes
    with pytest.raises(ValueError, match='Expected'):
        RunCost.from_json_object(found)


@dataclasses.dataclass(frozen=True)
class Unheard:
    rho: float = 0.0


def test_an_unknown_event_is_refused_everywhere() -> None:
    for use in (curve_of, lambda event: RunCost(stages={'a': event})):
        with pytest.raises(ValueError, match='Unheard'):
            use(Unheard())


@pytest.mark.parametrize('sigma', [0.4, 1.0, 7.0])
def test_a_discrete_gaussian_is_bounded_by_its_rho_and_by_no_less(sigma: float) -> None:
    """From the definition of the divergence, at fractional orders and whole ones, where it is tight."""
    curve = curve_of(DiscreteGaussianDpEvent(sigma=sigma))
    assert curve.is_zcdp and curve.rho == pytest.approx(1 / (2 * sigma**2))
    reach = math.ceil(40 * sigma) + 40
    mass = {x: mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * sigma**2)) for x in range(-reach, reach + 1)}
    whole = mpmath.fsum(mass.values())
    for order in (1.5, 2.0, 5.0):
        powers = (mass[x] ** order * mass[x - 1] ** (1 - order) / whole for x in range(-reach + 1, reach + 1))
        divergence = float(mpmath.log(mpmath.fsum(powers)) / (order - 1))
        assert divergence <= order * curve.rho * (1 + 1e-9)
        if order.is_integer():
            assert divergence == pytest.approx(order * curve.rho, rel=1e-9)


@pytest.mark.parametrize(
    'make',
    [
        lambda: ZCDpEvent(rho=-1e-9),
        lambda: ZCDpEvent(rho=math.nan),
        lambda: DiscreteGaussianDpEvent(sigma=0.0),
        lambda: DiscreteGaussianDpEvent(sigma=math.inf),
        lambda: DiscreteGaussianVectorDpEvent(noise_multiplier=0.0, sensitivity=4, cells=2),
        lambda: DiscreteGaussianVectorDpEvent(noise_multiplier=2.0, sensitivity=0, cells=2),
        lambda: DiscreteGaussianVectorDpEvent(noise_multiplier=2.0, sensitivity=4, cells=2.0),  # type: ignore[arg-type]
        lambda: ZCDpEvent(rho=math.inf),
        lambda: TruncatedZCDpEvent(rho=0.1, omega=1.0),
        lambda: TruncatedZCDpEvent(rho=0.1, omega=math.inf),
        lambda: GaussianDpEvent(noise_multiplier=0.0),
        lambda: PoissonSampledDpEvent(sampling_probability=0.0, event=GaussianDpEvent(noise_multiplier=1.0)),
        lambda: PoissonSampledDpEvent(sampling_probability=1.1, event=GaussianDpEvent(noise_multiplier=1.0)),
        lambda: PoissonSampledDpEvent(sampling_probability=0.5, event=ZCDpEvent(rho=0.1)),  # type: ignore[arg-type]
        lambda: SelfComposedDpEvent(event=ZCDpEvent(rho=0.1), count=0),
        lambda: SelfComposedDpEvent(event=ZCDpEvent(rho=0.1), count=1.5),  # type: ignore[arg-type]
        lambda: ComposedDpEvent(events=()),
        lambda: curve_of(ZCDpEvent(rho=0.1)).rho_at(1.0),
        lambda: accounting.optimal_order(0.0, 1e-6),
        lambda: accounting.epsilon_from_rho(0.1, 1e-6, largest_order=1.0),
    ],
)
def test_what_is_no_cost_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match='Expected'):
        make()


def test_equal_outputs_cost_nothing_at_any_order() -> None:
    assert epsilon(TruncatedZCDpEvent(rho=0.0, omega=2.0)) == 0
    assert mpmath.mpf(accounting.delta_from_rho(0.0, 0.0, largest_order=2.0)) == 0
