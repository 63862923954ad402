"""Defaults: what follows from public numbers."""

import itertools
import math

import pytest

from models.evolution.defaults import defaults, nearest_for, votes_of_candidate


@pytest.mark.parametrize(
    ('records', 'labels', 'noise_scale', 'candidates', 'low', 'high'),
    [
        # Settings that measured best, and their neighbours that were as good.
        (8000, 4, 3.67, 509, 15, 127),
        (8000, 4, 11.0, 509, 42, 127),
        (5452, 6, 3.57, 416, 13, 34),
        (5452, 6, 10.6, 208, 17, 52),
    ],
)
def test_vote_is_spread_as_was_measured_best(
    records: int, labels: int, noise_scale: float, candidates: int, low: int, high: int
) -> None:
    found = nearest_for(records=records, candidates=candidates, noise_scale=noise_scale, labels=labels)
    assert low <= found <= high


def test_defaults_are_in_range_for_any_public_numbers() -> None:
    grid = itertools.product(
        (1, 50, 8000, 10**7), (1, 6, 77), (1e-4, 0.03, 2.0), (1, 200, 5000), (None, 1, 3)
    )
    for records, labels, rho, examples, rounds in grid:
        found = defaults(records=records, labels=labels, rho=rho, examples=examples, rounds=rounds)
        assert found.rounds == (rounds or 2)
        assert 8 * labels <= found.candidates <= max(2 * examples, 64 * labels)
        assert found.unvoted == examples
        assert 1 <= found.nearest <= max(1, round(found.candidates / 4))


def test_more_noise_spreads_votes_and_shortens_the_list() -> None:
    found = [
        defaults(records=400, labels=4, rho=rho, examples=200, candidates=None) for rho in (1.0, 0.1, 0.01)
    ]
    assert [of.candidates for of in found] == sorted((of.candidates for of in found), reverse=True)
    spread = [
        nearest_for(records=8000, candidates=400, noise_scale=scale, labels=4) for scale in (1.0, 10.0, 100.0)
    ]
    assert spread == sorted(spread)


def test_list_that_was_given_decides_how_far_votes_are_spread() -> None:
    found = defaults(records=8000, labels=4, rho=0.037, examples=200, candidates=160)
    assert (found.candidates, found.nearest) == (160, 10)


def test_votes_of_a_text() -> None:
    assert votes_of_candidate(records=100, candidates=10, nearest=4) == pytest.approx(20)
    assert votes_of_candidate(records=100, candidates=2, nearest=4) == pytest.approx(50 * math.sqrt(2))
