"""The largest cap r within a target."""

import dataclasses

import pytest

from models.privacy import accounting
from models.privacy.params import MechanismParams
from tests import oracles

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
