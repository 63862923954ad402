"""The price of private prediction: PP Theorem 1 at 50 digits."""

import dataclasses

import pytest

from models.privacy import accounting, sparse_vector
from models.privacy.params import MechanismParams
from tests import oracles

PARAMS = MechanismParams(
    batch_size=255, clip_bound=10.0, temperature=2.0, max_private_tokens=100, max_batch_tokens=1000
)
SPARSE = dataclasses.replace(PARAMS, threshold=0.3, threshold_noise_scale=0.1)


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
    assert sparse_vector.pure_cost(params) == pytest.approx(factor / (255 * 0.1), rel=1e-14)
    assert accounting.sparse_vector_rho(params) == sparse_vector.pure_cost(params) ** 2 / 2
    plain = dataclasses.replace(params, threshold=None, threshold_noise_scale=None)
    assert sparse_vector.pure_cost(plain) == 0
