"""The price of DP-SGD: against the library, a slow twin, and what a ledger charges for the same event."""

import dp_accounting
import pytest
from dp_accounting import pld

from models.privacy.accounting import curve_of, events, subsampled
from models.privacy.gradients import TuningParams
from tests.oracles import subsampled as twin


def params(**changed: object) -> TuningParams:
    settings: dict[str, object] = {
        'units': 1000.0, 'expected_batch_size': 64, 'tuning_steps': 40, 'clip_norm': 1.0,
        'noise_multiplier': 1.0,
    }  # fmt: skip
    return TuningParams(**(settings | changed))  # type: ignore[arg-type]


def test_epsilon_is_that_of_the_library() -> None:
    event = dp_accounting.PoissonSampledDpEvent(0.064, dp_accounting.GaussianDpEvent(1.0))
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    expected = accountant.compose(event, 40).get_epsilon(1e-4)
    assert subsampled.epsilon_of_event(params().event, 1e-4) == pytest.approx(expected, rel=1e-12)


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


def test_the_twin_is_the_closed_form_of_a_gaussian() -> None:
    import math

    from scipy import stats

    z, epsilon = 2.0, 1.3
    exact = stats.norm.cdf(0.5 / z - epsilon * z) - math.exp(epsilon) * stats.norm.cdf(-0.5 / z - epsilon * z)
    assert twin.delta_of_steps(1.0, z, 1, epsilon) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize('epsilon, steps', [(1.0, 50), (8.0, 20)])
def test_the_solved_noise_fits_and_a_hundredth_less_does_not(epsilon: float, steps: int) -> None:
    z = subsampled.solve_noise_multiplier(sampling_probability=0.05, steps=steps, epsilon=epsilon, delta=1e-4)
    assert subsampled.epsilon_of_steps(0.05, z, steps, 1e-4) <= epsilon
    assert subsampled.epsilon_of_steps(0.05, 0.99 * z, steps, 1e-4) > epsilon


def test_what_a_ledger_charges_is_no_less() -> None:
    event = params().event
    assert curve_of(event).epsilon(1e-4) >= subsampled.epsilon_of_event(event, 1e-4)


def test_other_events_and_targets_are_refused() -> None:
    with pytest.raises(ValueError, match='Expected Poisson-sampled Gaussians'):
        subsampled.epsilon_of_event(events.ZCDpEvent(rho=1.0), 1e-4)
    with pytest.raises(ValueError, match='0 < delta < 1'):
        subsampled.epsilon_of_steps(0.5, 1.0, 1, 0.0)
    with pytest.raises(ValueError, match='finite epsilon > 0'):
        subsampled.solve_noise_multiplier(sampling_probability=0.5, steps=1, epsilon=0.0, delta=1e-4)
