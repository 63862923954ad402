"""Tests of the noisy counts, against the exact distribution computed in plain Python."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from models.privacy import counts
from tests.oracles import goodness_of_fit
from tests.oracles import text_votes as oracle
from tests.samples import noise_source

DRAWS = 20_000
# The chi-square test calls a right sampler wrong with this probability; at 20,000 draws
# a scale that is 10% off gives p-values below 1e-30.
FALSE_ALARM = 1e-7


@pytest.mark.parametrize('rho', [0.5, 0.005])
def test_noise_is_the_discrete_gaussian_of_its_rho(rho: float) -> None:
    scale = 1 / math.sqrt(2 * rho)
    draws = np.array(counts.noisy_counts([0] * DRAWS, rho, noise_source()))
    assert goodness_of_fit.discrete_gaussian(draws, scale) > FALSE_ALARM
    for wrong in (0.9 * scale, 1.1 * scale):
        assert goodness_of_fit.discrete_gaussian(draws, wrong) < FALSE_ALARM


def test_a_unit_in_one_cell_costs_one_discrete_gaussian_exactly() -> None:
    """All outputs of two and of three cells, all neighbours; a unit in two cells would cost more."""
    scale, reach = counts.gaussian_scale(0.7), 12
    pmf = np.exp(oracle.log_mass(scale, reach))
    room = np.pad(pmf, 1)  # outputs from one below the noise's reach to one above it

    def outputs(true_counts: tuple[int, ...]) -> np.ndarray:
        """Probability of every output, of counts 0 or 1."""
        found = np.ones(())
        for count in true_counts:
            found = np.multiply.outer(found, np.roll(room, count))
        return found

    def divergence(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
        return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())

    for epsilon in (0.0, 0.5, 1.5, 3.0):
        single = divergence(outputs((1,)), outputs((0,)), epsilon)
        for cells in (2, 3):
            before = outputs((0,) * cells)
            for place in range(cells):
                after = outputs(tuple(int(cell == place) for cell in range(cells)))
                for pair in ((before, after), (after, before)):
                    assert divergence(*pair, epsilon) == pytest.approx(single, rel=1e-9, abs=1e-15)
            twice = outputs((1, 1) + (0,) * (cells - 2))
            assert divergence(twice, before, epsilon) > 1.2 * single


@pytest.mark.parametrize('rho', [0.0, -1.0, math.inf, math.nan])
def test_rho_must_be_positive(rho: float) -> None:
    with pytest.raises(ValueError, match='rho > 0, got rho='):
        counts.noisy_counts([1], rho, noise_source())


def test_scale_is_the_one_whose_price_is_rho() -> None:
    assert counts.gaussian_scale(0.005) == pytest.approx(10)
    assert counts.gaussian_scale(0.5) == pytest.approx(1)


def test_variance_is_the_one_whose_price_is_rho_to_the_last_bit() -> None:
    for rho in (0.005, 0.1, 1e-300):
        assert 1 / (2 * counts.gaussian_variance(rho)) == Fraction(rho)
        assert 7**2 / (2 * counts.gaussian_variance(rho, 7)) == Fraction(rho)
    assert counts.gaussian_variance(0.005) == pytest.approx(counts.gaussian_scale(0.005) ** 2)


def test_the_price_of_clustering_is_split_into_halves_that_add_up() -> None:
    first, second = counts.split_rho(0.005)
    assert first == second == 0.0025 and first + second == 0.005
    # Theorem 4 of Canonne, Kamath and Steinke: 1/(2σ²) for each histogram.
    scale = counts.gaussian_scale(first)
    assert scale == pytest.approx(1 / math.sqrt(0.005))
    assert 2 * (1 / (2 * scale**2)) == pytest.approx(0.005)
    for rho in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match='rho > 0'):
            counts.split_rho(rho)


def slow_largest(noisy_counts: list[int], number: int) -> tuple[int, ...]:
    """Slow twin of `largest_cells`: a cell stays if fewer than k' others stand before it."""
    return tuple(
        cell
        for cell, count in enumerate(noisy_counts)
        if sum(other > count or (other == count and place < cell) for place, other in enumerate(noisy_counts))
        < number
    )


def test_the_largest_cells_are_kept_and_ties_go_to_the_smaller_index() -> None:
    assert counts.largest_cells([3, -1, 3, 7, 3], 3) == (0, 2, 3)
    for cells in range(1, 5):
        for noisy in itertools.product((-1, 0, 2), repeat=cells):
            for number in range(1, cells + 1):
                assert counts.largest_cells(noisy, number) == slow_largest(list(noisy), number)


@pytest.mark.parametrize('number', [0, -1, 4])
def test_no_more_cells_are_kept_than_there_are(number: int) -> None:
    with pytest.raises(ValueError, match=f'between 1 and 3 cells, got number={number}'):
        counts.largest_cells([1, 2, 3], number)


@pytest.mark.parametrize(
    ('noisy', 'batch_size', 'k', 'batches'),
    [
        (1000, 100, 1, 10), (1049, 100, 1, 10), (1051, 100, 1, 11), (1000, 100, 2, 5),
        (3, 100, 1, 1), (0, 9, 1, 1), (-70, 9, 1, 1),
    ],
)  # fmt: skip
def test_batches_follow_the_noisy_count(noisy: int, batch_size: int, k: int, batches: int) -> None:
    assert counts.batches_for(noisy, batch_size, k) == batches
