"""Costs as Gaussian mechanisms with a chance of failure, and the filter that adds them up."""

import math

import numpy as np
import pytest

from models.privacy import events
from models.privacy.accounting import gaussian, losses, normal_pair
from tests.oracles import gaussian_filter as twin
from tests.oracles import losses as losses_twin
from tests.oracles import subsampled

EPSILONS = np.linspace(0, 6, 61)


def sgd(q: float, z: float, steps: int) -> events.SelfComposedDpEvent:
    step = events.PoissonSampledDpEvent(
        sampling_probability=q, event=events.GaussianDpEvent(noise_multiplier=z)
    )
    return events.SelfComposedDpEvent(event=step, count=steps)


def shifted(rho: float, epsilon: float) -> float:
    return losses_twin.delta_of_gaussian(math.sqrt(0.5 / rho), epsilon)


# ------------------------------------------------------------------ a run as a Gaussian mechanism


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('q, z, steps', [(0.0117, 0.573, 30), (0.05, 1.0, 40), (0.3, 2.0, 5)])
@pytest.mark.parametrize('failure', [1e-4, 1e-7])
def test_sampled_steps_are_within_the_gaussian_but_for_the_failure(
    q: float, z: float, steps: int, failure: float
) -> None:
    """By the losses of a step on a grid, in both directions; a tenth less is too little, as is no failure."""
    rho = gaussian.gaussian_rho([sgd(q, z, steps)], failure)
    assert rho is not None
    exact = [subsampled.delta_of_steps(q, z, steps, epsilon) for epsilon in EPSILONS]

    def is_enough(rho: float, failure: float) -> bool:
        return all(
            delta <= failure + shifted(rho, epsilon) + 1e-12
            for delta, epsilon in zip(exact, EPSILONS, strict=True)
        )

    assert is_enough(rho, failure) and not is_enough(0.9 * rho, failure)
    # The whole of what is left out lies in the tail, where the Gaussian has less.
    assert not is_enough(rho, 0.0)


def test_a_smaller_failure_takes_a_larger_shift() -> None:
    found = [gaussian.gaussian_rho([sgd(0.0117, 0.573, 30)], failure) for failure in (1e-3, 1e-5, 1e-7)]
    assert None not in found and found == sorted(found)  # type: ignore[type-var]
    # Less than the library leaves out, and nothing is known.
    assert gaussian.gaussian_rho([sgd(0.0117, 0.573, 30)], 0.0) is None


def test_gaussian_and_discrete_noise_need_no_failure_and_add_up() -> None:
    votes = events.DiscreteGaussianVectorDpEvent(noise_multiplier=4.0, sensitivity=1024, cells=4)
    counts = events.DiscreteGaussianDpEvent(sigma=5.0)
    parts = [events.GaussianDpEvent(noise_multiplier=2.0), counts, votes, events.ZCDpEvent(rho=0.0)]
    assert not gaussian.needs_failure(parts) and gaussian.needs_failure([*parts, sgd(0.1, 1.0, 2)])
    by_hand = math.fsum(
        1 / (2 * multiplier**2)
        for multiplier in (2.0, *map(losses.dominating_noise_multiplier, (counts, votes)))
        if multiplier is not None
    )
    assert gaussian.gaussian_rho(parts, 0.0) == pytest.approx(by_hand, rel=1e-12)
    assert by_hand > 1 / 8 + 1 / 50 + 1 / 32
    twice = events.SelfComposedDpEvent(event=events.ComposedDpEvent(events=tuple(parts)), count=2)
    assert gaussian.gaussian_rho([twice], 0.0) == pytest.approx(2 * by_hand, rel=1e-12)
    # All of a batch in every step is no sample.
    whole = gaussian.gaussian_rho([sgd(1.0, 2.0, 3)], 0.0)
    assert whole == pytest.approx(3 / 8, rel=1e-12) and not gaussian.needs_failure([sgd(1.0, 2.0, 3)])
    both = gaussian.gaussian_rho([*parts, sgd(0.05, 1.0, 40)], 1e-6)
    alone = gaussian.gaussian_rho([sgd(0.05, 1.0, 40)], 1e-6)
    assert both is not None and alone is not None and both == pytest.approx(by_hand + alone, rel=1e-12)


@pytest.mark.parametrize(
    'other',
    [
        events.ZCDpEvent(rho=0.01),
        events.TruncatedZCDpEvent(rho=0.01, omega=30.0),
        events.DiscreteGaussianVectorDpEvent(noise_multiplier=0.05, sensitivity=1, cells=3),
    ],
)
def test_what_is_known_otherwise_is_no_gaussian(other: events.DpEvent) -> None:
    assert gaussian.gaussian_rho([sgd(0.05, 1.0, 40), other], 1e-6) is None


@pytest.mark.parametrize('rho', [1e-6, 0.02, 0.5, 8.0, 200.0])
@pytest.mark.parametrize('delta', [1e-12, 1e-5, 1e-2])
def test_epsilon_of_a_gaussian_is_the_least_of_its_closed_form_and_back(rho: float, delta: float) -> None:
    epsilon = normal_pair.epsilon_from_gaussian(rho, delta)
    assert float(normal_pair.delta_of_gaussian(rho, epsilon)) <= delta
    if epsilon > 0:
        assert shifted(rho, epsilon * (1 - 1e-6)) > delta * (1 - 1e-9)
        assert normal_pair.rho_from_gaussian(epsilon, delta) == pytest.approx(rho, rel=1e-6)
        assert (
            normal_pair.epsilon_from_gaussian(normal_pair.rho_from_gaussian(epsilon, delta), delta) <= epsilon
        )


# ------------------------------------------------------------------ the filter, on all outputs


RUNS = [
    twin.randomized_response(0.6),
    twin.rarely_reveals(0.02, twin.randomized_response(0.4)),
    twin.binned_gaussian(0.7),
]


@pytest.mark.parametrize('first', RUNS)
@pytest.mark.parametrize('then', [(RUNS[0], None), (RUNS[1], RUNS[2]), (RUNS[2], RUNS[1])])
def test_what_outputs_let_in_stays_within_the_sums(
    first: twin.Pair, then: tuple[twin.Pair | None, twin.Pair | None]
) -> None:
    """Two runs, the second of which the first's output chooses: every output, every ε, both directions."""
    failure = 0.03
    first_rho = twin.least_rho(first, failure)
    chosen = [0.0 if pair is None else twin.least_rho(pair, failure) for pair in then]
    both = twin.chosen_by_output(first, then)
    assert twin.is_within(both, first_rho + max(chosen), 2 * failure)


def test_a_filter_that_counts_the_cheaper_way_alone_is_told() -> None:
    """A bit that says next to nothing of the unit, and where it is 0 a run that says much."""
    bit, strong = twin.randomized_response(1e-9), twin.randomized_response(1.0)
    both = twin.chosen_by_output(bit, (strong, None))
    whole = twin.least_rho(strong, 0.0)
    assert twin.is_within(both, whole + 1e-6, 0.0)
    assert not twin.is_within(both, 1e-9, 0.0)
    # The shift's mean, half of it, is no bound either where both stay.
    certain = twin.chosen_by_output(bit, (strong, strong))
    assert not twin.is_within(certain, whole / 4, 0.0)


def test_a_failure_that_is_counted_once_is_told() -> None:
    """Two runs that reveal everything with probability s, and else nothing."""
    pair = twin.rarely_reveals(0.03, twin.randomized_response(1e-9))
    both = twin.chosen_by_output(pair, (pair, pair))
    assert twin.is_within(both, 1e-12, 0.06)
    assert not twin.is_within(both, 1e-12, 0.03) and not twin.is_within(both, 0.01, 0.03)


def test_the_losses_of_a_pair_are_within_its_gaussian_and_no_smaller_one() -> None:
    for pair in RUNS:
        rho = twin.least_rho(pair, 0.03)
        assert twin.is_within(pair, rho, 0.03) and not twin.is_within(pair, 0.98 * rho, 0.03)
