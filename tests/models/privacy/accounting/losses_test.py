"""Losses of several releases together: the Gaussian that dominates a discrete one on many cells, and sums."""

import functools
import itertools
import math

import numpy as np
import pytest

from models.privacy import events
from models.privacy.accounting import curve_of, losses
from models.privacy.text_votes import TextVoteParams
from tests.oracles import losses as twin
from tests.oracles import normal_pair

EPSILONS = np.concatenate([np.linspace(-2, 0, 9)[:-1], np.linspace(0, 4, 33)])


def table(scale: float, moved: tuple[int, ...]) -> events.DiscreteGaussianVectorDpEvent:
    """The event of noise of this scale, where a unit moves cells by this."""
    length = math.ceil(math.hypot(*moved))
    return events.DiscreteGaussianVectorDpEvent(
        noise_multiplier=scale / length, sensitivity=length, cells=len(moved)
    )


def sgd(q: float = 0.064, z: float = 1.0, steps: int = 40) -> events.SelfComposedDpEvent:
    step = events.PoissonSampledDpEvent(
        sampling_probability=q, event=events.GaussianDpEvent(noise_multiplier=z)
    )
    return events.SelfComposedDpEvent(event=step, count=steps)


def bound(event: events.DiscreteGaussianVectorDpEvent) -> float:
    found = losses.noise_multiplier_of_vector(event)
    assert found is not None
    return found


def exceeds(exact: list[float], noise_multiplier: float) -> bool:
    """True if any of these δ at `EPSILONS` is more than that of a Gaussian mechanism."""
    return any(
        delta > twin.delta_of_gaussian(noise_multiplier, epsilon) + 1e-14
        for delta, epsilon in zip(exact, EPSILONS, strict=True)
    )


# Vectors of whole length, so that the sensitivity is what the unit moves the cells by.
MOVED = [(2.0, (1,)), (2.0, (2,)), (4.0, (2, 2, 1)), (5.0, (4, 2, 2, 1)), (6.0, (3, 4)), (9.0, (2,) * 4)]


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('scale, moved', MOVED)
def test_a_gaussian_dominates_discrete_noise_on_every_cell(scale: float, moved: tuple[int, ...]) -> None:
    """At every ε, negative ones too, by listing all outputs; and the multiplier s/Δ alone does not."""
    exact = [twin.delta_of_losses(twin.losses_of_cells(moved, scale), scale, e) for e in EPSILONS]
    event = table(scale, moved)
    assert not exceeds(exact, bound(event))
    assert exceeds(exact, event.noise_multiplier)


def test_it_dominates_whatever_a_unit_moves_within_its_length_and_cells() -> None:
    scale, length, cells = 4.0, 3, 3
    dominating = bound(
        events.DiscreteGaussianVectorDpEvent(noise_multiplier=scale / length, sensitivity=length, cells=cells)
    )
    tried = 0
    for moved in itertools.product(range(length + 1), repeat=cells):
        if 0 < sum(by**2 for by in moved) <= length**2:
            listed = twin.losses_of_cells(moved, scale)
            assert not exceeds([twin.delta_of_losses(listed, scale, e) for e in EPSILONS], dominating), moved
            tried += 1
    assert tried == 28
    # A vector that is longer is told.
    listed = twin.losses_of_cells((3, 2, 0), scale)
    assert exceeds([twin.delta_of_losses(listed, scale, e) for e in EPSILONS], dominating)


def test_both_directions_are_one_since_the_noise_is_symmetric() -> None:
    there, back = twin.losses_of_cells((2, 1), 3.0), twin.losses_of_cells((-2, -1), 3.0)
    assert there.keys() == back.keys()
    assert all(there[loss] == pytest.approx(back[loss], rel=1e-12) for loss in there)


def test_votes_on_texts_have_hardly_less_than_their_own_noise() -> None:
    for scale, nearest, records in ((2.0, 1, 1), (3.57, 4, 1), (20.0, 16, 8)):
        params = TextVoteParams(
            rounds=3, noise_scale=scale, nearest=nearest, unit='user', examples_per_context=records
        )
        event = params.event.event
        assert event.cells == nearest * records and event.sensitivity * params.quantum == 1
        assert scale * (1 - 1e-6) < bound(event) < scale
        assert curve_of(params.event).rho == params.rho


def test_more_cells_and_a_coarser_count_give_a_weaker_bound() -> None:
    def multiplier(sensitivity: int, cells: int) -> float:
        return bound(
            events.DiscreteGaussianVectorDpEvent(noise_multiplier=2.0, sensitivity=sensitivity, cells=cells)
        )

    assert multiplier(4, 10_000) < multiplier(4, 4) < multiplier(64, 4) < multiplier(1024, 4) < 2.0


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('q, z, steps', [(0.064, 1.0, 40), (1.0, 2.0, 3)])
def test_steps_and_votes_together_are_an_upper_bound_and_hardly_above_the_twin(
    q: float, z: float, steps: int
) -> None:
    moved, scale, delta = (8, 4, 8), 24.0, 1e-4
    votes = table(scale, moved)
    epsilon = losses.epsilon_of_events([sgd(q, z, steps), votes], delta)
    listed = twin.losses_of_cells(moved, scale)
    assert twin.delta_with_steps(listed, scale, q, z, steps, epsilon) <= delta * (1 + 1e-2)
    assert twin.delta_with_steps(listed, scale, q, z, steps, 0.98 * epsilon) > delta
    # Less noise on the votes than there is, by 10 %, or none of them, is told.
    assert twin.delta_with_steps(twin.losses_of_cells(moved, 0.9 * scale), 0.9 * scale, q, z, steps,
                                 epsilon) > 1.03 * delta  # fmt: skip
    assert losses.epsilon_of_events([sgd(q, z, steps)], delta) < 0.98 * epsilon
    # And Rényi orders say more.
    curves = events.ComposedDpEvent(events=(sgd(q, z, steps), votes))
    assert epsilon < 0.97 * curve_of(curves).epsilon(delta)


def test_a_sum_is_that_of_its_parts_however_they_are_put_together() -> None:
    votes = table(24.0, (8, 4, 8))
    counts = events.DiscreteGaussianDpEvent(sigma=4.0)
    free = events.ZCDpEvent(rho=0.0)
    one = losses.epsilon_of_events([sgd(steps=20), counts, votes, sgd(steps=20), votes, free], 1e-5)
    twice = events.SelfComposedDpEvent(event=votes, count=2)
    other = losses.epsilon_of_events([twice, events.ComposedDpEvent(events=(sgd(steps=40), counts))], 1e-5)
    assert one == other
    without = losses.epsilon_of_events([twice, sgd(steps=40)], 1e-5)
    assert without < one < without + losses.epsilon_of_events([counts], 1e-5)


def test_a_gaussian_alone_is_its_closed_form() -> None:
    found = losses.epsilon_of_events([events.GaussianDpEvent(noise_multiplier=2.0)], 1e-5)
    assert twin.delta_of_gaussian(2.0, found) <= 1e-5 < twin.delta_of_gaussian(2.0, found * (1 - 1e-3))


@pytest.mark.parametrize(
    'other',
    [
        events.ZCDpEvent(rho=0.01),
        events.TruncatedZCDpEvent(rho=0.01, omega=30.0),
        # So little noise that no smoothing of it gives a bound.
        events.DiscreteGaussianVectorDpEvent(noise_multiplier=0.05, sensitivity=1, cells=3),
    ],
)
def test_where_one_has_no_distribution_the_curves_are_what_is_known(other: events.DpEvent) -> None:
    parts = (sgd(), other)
    assert losses.epsilon_of_events(parts, 1e-5) == curve_of(events.ComposedDpEvent(events=parts)).epsilon(
        1e-5
    )


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('rounds', [1, 2])
def test_several_tables_of_votes_are_stated_above_their_exact_losses_and_hardly(rounds: int) -> None:
    """All outputs of all rounds are listed; less noise, or a round that is not counted, is told."""
    moved, scale, delta = (4, 2, 4), 12.0, 1e-4

    def exact(scale: float, times: int) -> dict[int, float]:
        listed = twin.losses_of_cells(moved, scale)
        return functools.reduce(twin.together, [listed] * times)

    votes = events.SelfComposedDpEvent(event=table(scale, moved), count=rounds)
    epsilon = losses.epsilon_of_events([votes], delta)
    assert twin.delta_of_losses(exact(scale, rounds), scale, epsilon) <= delta
    assert twin.delta_of_losses(exact(scale, rounds), scale, 0.99 * epsilon) > delta
    assert twin.delta_of_losses(exact(11.5, rounds), 11.5, epsilon) > delta
    assert twin.delta_of_losses(exact(scale, rounds + 1), scale, epsilon) > delta
    assert epsilon < 0.95 * curve_of(votes).epsilon(delta)


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('noise_multiplier', [0.4, 1.2649, 3.5, 40.0])
@pytest.mark.parametrize('delta', [1e-12, 1e-6, 1e-2])
def test_gaussians_are_those_of_an_independent_accountant(noise_multiplier: float, delta: float) -> None:
    from dp_accounting import pld

    found = losses.epsilon_of_events([events.GaussianDpEvent(noise_multiplier=noise_multiplier)] * 5, delta)
    z = noise_multiplier / math.sqrt(5)
    assert found == pytest.approx(normal_pair.epsilon_of_gaussian(z, delta), rel=1e-9, abs=1e-12)
    one = pld.privacy_loss_distribution.from_gaussian_mechanism(noise_multiplier)
    assert found == pytest.approx(one.self_compose(5).get_epsilon_for_delta(delta), rel=1e-3, abs=1e-4)


def test_stages_that_release_nothing_cost_nothing() -> None:
    assert losses.epsilon_of_events([events.ZCDpEvent(rho=0.0)], 1e-5) == 0.0
