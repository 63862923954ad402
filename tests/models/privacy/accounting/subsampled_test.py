"""The price of DP-SGD: against the library, a slow twin, and what a ledger charges for the same event."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld

from models.privacy import counts, events
from models.privacy.accounting import curve_of, subsampled
from models.privacy.gradients import TuningParams
from tests.oracles import normal_pair
from tests.oracles import subsampled as twin

pytestmark = pytest.mark.heavy


def params(**changed: object) -> TuningParams:
    settings: dict[str, object] = {
        'units': 1000.0, 'expected_batch_size': 64, 'tuning_steps': 40, 'clip_norm': 1.0,
        'noise_multiplier': 1.0,
    }  # fmt: skip
    return TuningParams(**(settings | changed))  # type: ignore[arg-type]


@pytest.mark.first
@pytest.mark.parametrize('steps', [1, 40])
def test_epsilon_is_that_of_the_library(steps: int) -> None:
    event = dp_accounting.PoissonSampledDpEvent(0.064, dp_accounting.GaussianDpEvent(1.0))
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    expected = accountant.compose(event, steps).get_epsilon(1e-4)
    assert subsampled.epsilon_of_event(params(tuning_steps=steps).event, 1e-4) == expected


@pytest.mark.parametrize(
    'q, z, steps, delta', [(0.064, 1.0, 40, 1e-4), (1.0, 2.0, 1, 1e-5), (0.5, 1.5, 8, 1e-3)]
)
def test_epsilon_is_an_upper_bound_and_hardly_above_the_twin(
    q: float, z: float, steps: int, delta: float
) -> None:
    epsilon = subsampled.epsilon_of_steps(q, z, steps, delta)
    assert twin.delta_of_steps(q, z, steps, epsilon) <= delta * (1 + 1e-2)
    # 1 % less is too little: the twin tells a wrong scale.
    assert twin.delta_of_steps(q, z, steps, 0.99 * epsilon) > delta
    # And less noise by 5 % is too little noise.
    assert twin.delta_of_steps(q, 0.95 * z, steps, epsilon) > delta * (1 + 1e-2)


@pytest.mark.parametrize('z, steps', [(0.5, 8), (0.1, 4), (0.05, 2), (1.0, 1000), (0.03, 300)])
def test_a_large_epsilon_is_an_upper_bound_and_hardly_above_the_exact_one(z: float, steps: int) -> None:
    """Without sampling the exact one is known; the losses of thousands are far apart, and not millions."""
    exact = normal_pair.epsilon_of_gaussian(z / math.sqrt(steps), 1e-5)
    assert exact * (1 - 1e-9) < subsampled.epsilon_of_steps(1.0, z, steps, 1e-5) < 1.03 * exact
    assert exact / subsampled.interval_of_steps(1.0, z, steps, 1e-5) < 2e5


def test_losses_of_a_usual_epsilon_are_as_far_apart_as_the_librarys() -> None:
    for q, z, steps in ((0.064, 1.0, 40), (0.01, 0.6, 1000), (1.0, 2.0, 10), (0.0005, 0.33, 200)):
        assert subsampled.epsilon_of_steps(q, z, steps, 1e-5) < 9
        assert subsampled.interval_of_steps(q, z, steps, 1e-5) == subsampled.INTERVAL


@pytest.mark.parametrize('epsilon', [50.0, 1e3, 1e9])
@pytest.mark.parametrize('q', [0.002, 0.3])
def test_noise_of_a_huge_epsilon_is_found(q: float, epsilon: float) -> None:
    z = subsampled.solve_noise_multiplier(sampling_probability=q, steps=100, epsilon=epsilon, delta=1e-5)
    assert subsampled.epsilon_of_steps(q, z, 100, 1e-5) <= epsilon
    if z > subsampled._LEAST:
        assert subsampled.epsilon_of_steps(q, 0.99 * z, 100, 1e-5) > epsilon


WITH_COUNTS = [(0.064, 1.0, 40, 1e-4, 0.05), (0.5, 1.5, 8, 1e-3, 0.5), (1.0, 4.0, 2, 1e-3, 0.02)]


@pytest.mark.parametrize('q, z, steps, delta, rho', WITH_COUNTS)
def test_epsilon_with_counts_is_an_upper_bound_and_hardly_above_the_twin(
    q: float, z: float, steps: int, delta: float, rho: float
) -> None:
    sigma = counts.gaussian_scale(rho)
    epsilon = subsampled.epsilon_of_steps(q, z, steps, delta, sigma)
    assert twin.delta_with_counts(q, z, steps, sigma, epsilon) <= delta * (1 + 1e-2)
    assert twin.delta_with_counts(q, z, steps, sigma, 0.99 * epsilon) > delta
    # Without the counts it is too low, and so it is with less of their price than there is.
    alone = subsampled.epsilon_of_steps(q, z, steps, delta)
    assert alone < 0.99 * epsilon and twin.delta_with_counts(q, z, steps, sigma, alone) > 1.1 * delta
    cheap = subsampled.epsilon_of_steps(q, z, steps, delta, counts.gaussian_scale(rho / 2))
    assert twin.delta_with_counts(q, z, steps, sigma, cheap) > 1.03 * delta
    # And a sum of two epsilons, each at half of the delta, is more than that of both together.
    halves = subsampled.epsilon_of_steps(q, z, steps, delta / 2)
    of_counts = float(
        subsampled._losses_of_counts(sigma, subsampled.INTERVAL).get_epsilon_for_delta(delta / 2)
    )
    assert epsilon < halves + of_counts


def test_the_twin_with_counts_is_the_divergence_of_its_definition() -> None:
    """Steps that tell nothing leave the counts alone, and counts that tell nothing the steps."""
    sigma, epsilon = 1.3, 0.7
    masses = {x: math.exp(-(x**2) / (2 * sigma**2)) for x in range(-40, 41)}
    whole = math.fsum(masses.values())
    exact = math.fsum(max(0.0, masses[x] - math.exp(epsilon) * masses[x + 1]) / whole for x in range(-40, 40))
    assert twin.delta_with_counts(1e-9, 1.0, 1, sigma, epsilon) == pytest.approx(exact, rel=1e-3)
    steps = twin.delta_of_steps(0.3, 1.0, 4, epsilon)
    # A sum over more than a thousand counts; more noise would tell less, and take longer.
    assert twin.delta_with_counts(0.3, 1.0, 4, 50.0, epsilon) == pytest.approx(steps, rel=1e-2)


@pytest.mark.parametrize('rho', [1e-9, 1e-4, 0.05, 0.5, 10.0])
def test_counts_alone_cost_what_their_distribution_says(rho: float) -> None:
    """At every price that settings allow, in both directions, from the definition."""
    sigma = counts.gaussian_scale(rho)
    reach = math.ceil(13 * sigma) + 2
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-(x**2) / (2 * sigma**2))
    mass /= mass.sum()
    losses = subsampled._losses_of_counts(sigma, subsampled.INTERVAL)
    for epsilon in (rho / 2, 2 * math.sqrt(rho), rho + 3 * math.sqrt(rho)):
        for one, other in ((mass[:-1], mass[1:]), (mass[1:], mass[:-1])):
            exact = np.maximum(one - math.exp(epsilon) * other, 0).sum()
            found = losses.get_delta_for_epsilon(epsilon)
            # A tenth of what losses are rounded to, which tells where they are as small.
            assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-2) + 1e-5


def test_the_solved_noise_makes_room_for_counts() -> None:
    given = {'sampling_probability': 0.05, 'steps': 30, 'epsilon': 2.0, 'delta': 1e-4}
    sigma = counts.gaussian_scale(0.02)
    z = subsampled.solve_noise_multiplier(**given, sigma=sigma)
    assert subsampled.epsilon_of_steps(0.05, z, 30, 1e-4, sigma) <= 2.0
    assert subsampled.epsilon_of_steps(0.05, 0.99 * z, 30, 1e-4, sigma) > 2.0
    assert twin.delta_with_counts(0.05, z, 30, sigma, 2.0) <= 1e-4 * (1 + 1e-2)
    # The noise that the steps alone would have is too little.
    without = subsampled.solve_noise_multiplier(**given)
    assert without < z and twin.delta_with_counts(0.05, without, 30, sigma, 2.0) > 1.1e-4
    with pytest.raises(ValueError, match='left for the steps, got epsilon=2.0, .* Lower --label-mix-rho'):
        subsampled.solve_noise_multiplier(**given, sigma=counts.gaussian_scale(1.0))


def test_the_twin_is_the_closed_form_of_a_gaussian() -> None:
    from scipy import stats

    z, epsilon = 2.0, 1.3
    exact = stats.norm.cdf(0.5 / z - epsilon * z) - math.exp(epsilon) * stats.norm.cdf(-0.5 / z - epsilon * z)
    assert twin.delta_of_steps(1.0, z, 1, epsilon) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize('epsilon, steps', [(0.2, 30), (1.0, 50), (8.0, 20)])
def test_the_solved_noise_fits_and_a_hundredth_less_does_not(epsilon: float, steps: int) -> None:
    """The search from a rough noise, and for an epsilon too small for one."""
    z = subsampled.solve_noise_multiplier(sampling_probability=0.05, steps=steps, epsilon=epsilon, delta=1e-4)
    assert subsampled.epsilon_of_steps(0.05, z, steps, 1e-4) <= epsilon
    assert subsampled.epsilon_of_steps(0.05, 0.99 * z, steps, 1e-4) > epsilon


@pytest.mark.first
def test_what_a_ledger_charges_is_no_less() -> None:
    for event in (params().event, params(label_mix_rho=0.05).event):
        assert curve_of(event).epsilon(1e-4) >= subsampled.epsilon_of_event(event, 1e-4)
    # With the counts in it, at any order
    steps, both = curve_of(params().event), curve_of(event)
    for order in (1.5, 4.0, 20.0):
        assert both.rho_at(order) == pytest.approx(steps.rho_at(order) + 0.05, rel=1e-12)


def test_the_event_of_a_run_that_counts_labels_is_that_of_counts_and_steps() -> None:
    event = params(label_mix_rho=0.05).event
    assert event == events.ComposedDpEvent(
        events=(events.DiscreteGaussianDpEvent(sigma=counts.gaussian_scale(0.05)), params().event)
    )
    assert params(label_mix_rho=0.05).event_of_steps == params().event
    found = subsampled.epsilon_of_event(event, 1e-4)
    assert found == subsampled.epsilon_of_steps(0.064, 1.0, 40, 1e-4, counts.gaussian_scale(0.05))
    assert found > subsampled.epsilon_of_event(params().event, 1e-4)
    # A mechanism of which no more than ρ is known has no such distribution.
    other = events.ComposedDpEvent(events=(events.ZCDpEvent(rho=0.05), params().event))
    with pytest.raises(ValueError, match='counts before them at most'):
        subsampled.epsilon_of_event(other, 1e-4)


def test_other_events_and_targets_are_refused() -> None:
    with pytest.raises(ValueError, match='Expected Poisson-sampled Gaussians'):
        subsampled.epsilon_of_event(events.ZCDpEvent(rho=1.0), 1e-4)
    with pytest.raises(ValueError, match='0 < delta < 1'):
        subsampled.epsilon_of_steps(0.5, 1.0, 1, 0.0)
    with pytest.raises(ValueError, match='finite epsilon > 0'):
        subsampled.solve_noise_multiplier(sampling_probability=0.5, steps=1, epsilon=0.0, delta=1e-4)
