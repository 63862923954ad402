"""Training and votes with one price: against slow twins, the noise that is solved for, and wrong scales."""

import dataclasses
import math

import pytest

from models.privacy import text_votes
from models.privacy.accounting import subsampled
from models.privacy.tuned_votes import TunedVotesParams, solve_noise_multiplier
from tests.oracles import losses as by_hand

PARAMS = TunedVotesParams(
    units=2000,
    expected_batch_size=100,
    tuning_steps=6,
    clip_norm=1.0,
    noise_multiplier=1.2,
    noise_scale=4.0,
    nearest=3,
)
DELTA = 1e-5


@pytest.mark.parametrize('noise_scale', [3.0, 8.0])
def test_epsilon_is_the_slow_twins(noise_scale: float) -> None:
    params = dataclasses.replace(PARAMS, noise_scale=noise_scale, nearest=1)
    epsilon = params.epsilon(DELTA)
    # A table of which a unit moves one cell by one vote; noise of whole votes is as good as of small parts.
    of_votes = by_hand.losses_of_cells([1], noise_scale)

    def exact(at: float) -> float:
        return by_hand.delta_with_steps(of_votes, noise_scale, 0.05, 1.2, 6, at)

    # An upper bound, and no looser than a thousandth; noise of another scale is far beyond either.
    assert exact(epsilon * 1.001) < DELTA < exact(epsilon * 0.99)
    for wrong in (0.9, 1.1):
        other = dataclasses.replace(params, noise_scale=wrong * noise_scale).epsilon(DELTA)
        assert not math.isclose(other, epsilon, rel_tol=0.005)


def test_both_stages_cost_more_than_either_and_less_than_the_sum() -> None:
    alone = subsampled.epsilon_of_event(PARAMS.tuning.event, DELTA), PARAMS.votes.epsilon(DELTA)
    assert max(alone) < PARAMS.epsilon(DELTA) < sum(alone)


@pytest.mark.parametrize('unit', ['example', 'user'])
@pytest.mark.parametrize('epsilon', [0.5, 1.0, 8.0])
def test_the_noise_that_is_solved_for_is_the_least(epsilon: float, unit: text_votes.Unit) -> None:
    noise = text_votes.solve_noise_scale(epsilon=0.6 * epsilon, delta=DELTA, rounds=1, nearest=40)
    params = dataclasses.replace(PARAMS, noise_scale=noise, nearest=40, unit=unit)
    z = solve_noise_multiplier(params, epsilon=epsilon, delta=DELTA)
    assert dataclasses.replace(params, noise_multiplier=z).epsilon(DELTA) <= epsilon
    assert dataclasses.replace(params, noise_multiplier=0.997 * z).epsilon(DELTA) > epsilon
    # Whatever noise the mechanism had before.
    again = dataclasses.replace(params, noise_multiplier=7.0)
    assert solve_noise_multiplier(again, epsilon=epsilon, delta=DELTA) == z


def test_votes_that_take_all_of_epsilon_are_refused() -> None:
    of_votes = PARAMS.votes.epsilon(DELTA)
    with pytest.raises(ValueError, match='left for the steps.*--vote-noise'):
        solve_noise_multiplier(PARAMS, epsilon=of_votes, delta=DELTA)


@pytest.mark.parametrize(
    ('changed', 'said'),
    [
        ({'noise_scale': 0.0}, 'noise_scale > 0'),
        ({'noise_multiplier': math.inf}, 'noise_multiplier > 0'),
        ({'expected_batch_size': 3000}, 'units=2000'),
        ({'nearest': 0}, 'nearest >= 1'),
        ({'examples_per_context': 2}, 'examples_per_context=1'),
    ],
)
def test_numbers_that_have_no_guarantee_are_refused(changed: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        dataclasses.replace(PARAMS, **changed)
