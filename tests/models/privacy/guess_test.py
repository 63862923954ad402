"""The largest guess after a release: Bayes' rule never passes it, one pair of worlds reaches it."""

import doctest
import fractions
import math
import random

import pytest

from models.privacy import guess
from tests.oracles import guess as oracle

PRIORS = (
    fractions.Fraction(1, 100),
    fractions.Fraction(1, 10),
    fractions.Fraction(1, 2),
    fractions.Fraction(9, 10),
)
RATIOS = (fractions.Fraction(1), fractions.Fraction(11, 10), fractions.Fraction(3), fractions.Fraction(200))


def worlds(outputs: int, seed: int) -> tuple[fractions.Fraction, ...]:
    drawn = random.Random(seed)
    weights = [drawn.randint(1, 30) for _ in range(outputs)]
    return tuple(fractions.Fraction(weight, sum(weights)) for weight in weights)


@pytest.mark.parametrize('prior', PRIORS)
def test_no_output_moves_a_guess_further(prior: fractions.Fraction) -> None:
    for seed in range(40):
        one, other = worlds(4, seed), worlds(4, seed + 1000)
        ratio = max(max(a / b, b / a) for a, b in zip(one, other, strict=True))
        found = guess.guess_after(float(prior), math.log(ratio))
        for value in oracle.guesses(prior, one, other):
            assert found.least * (1 - 1e-12) <= value <= found.most * (1 + 1e-12)


@pytest.mark.parametrize('prior', PRIORS)
@pytest.mark.parametrize('ratio', RATIOS)
def test_an_answer_that_may_be_a_lie_moves_it_so_far(
    prior: fractions.Fraction, ratio: fractions.Fraction
) -> None:
    one, other = oracle.worst(ratio, fractions.Fraction(0))
    reached = oracle.guesses(prior, one, other)
    found = guess.guess_after(float(prior), math.log(ratio))
    assert math.isclose(float(max(reached)), found.most, rel_tol=1e-12)
    assert math.isclose(float(min(reached)), found.least, rel_tol=1e-12)
    assert math.isclose(float(1 - max(reached)), found.most_complement, rel_tol=1e-12)
    assert math.isclose(float(1 - min(reached)), found.least_complement, rel_tol=1e-12)


@pytest.mark.parametrize('prior', PRIORS)
def test_with_delta_nobody_is_right_more_often_than_one_who_is_told_with_probability_delta(
    prior: fractions.Fraction,
) -> None:
    for seed in range(40):
        one, other = worlds(4, seed), worlds(4, seed + 1000)
        for ratio in RATIOS:
            delta = oracle.delta_between(ratio, one, other)
            bound = oracle.chance_to_be_right(prior, *oracle.worst(ratio, delta))
            assert oracle.chance_to_be_right(prior, one, other) <= bound
            # The same as a formula, for a guess of one half: e^ε/(1 + e^ε), and the rest of it times delta.
            if prior == fractions.Fraction(1, 2):
                most = ratio / (1 + ratio)
                assert bound == most + delta * (1 - most)


def test_what_a_unit_says_is_two_steps_away() -> None:
    for seed in range(40):
        one, without, other = (worlds(4, seed + 1000 * place) for place in range(3))
        for ratio in RATIOS:
            delta = max(
                oracle.delta_between(ratio, one, without), oracle.delta_between(ratio, without, other)
            )
            epsilon = math.log(ratio)
            twice, added = guess.of_contents(epsilon, float(delta) or 1e-300)
            assert math.isclose(twice, math.log(ratio**2), abs_tol=1e-12)
            assert float(oracle.delta_between(ratio**2, one, other)) <= added * (1 + 1e-12)


def test_large_numbers_stay_numbers() -> None:
    found = guess.guess_after(0.01, 5000.0)
    assert (found.least, found.most, found.most_complement) == (0.0, 1.0, 0.0)
    assert guess.of_contents(5000.0, 1e-6) == (10_000.0, 1.0)
    near = guess.guess_after(0.5, 40.0)
    assert near.most == 1.0 and 0 < near.most_complement < 1e-17


@pytest.mark.parametrize(
    ('prior', 'epsilon'), [(0.0, 1.0), (1.0, 1.0), (math.nan, 1.0), (0.5, -1.0), (0.5, math.nan)]
)
def test_what_is_no_guess_is_refused(prior: float, epsilon: float) -> None:
    with pytest.raises(ValueError, match='Expected'):
        guess.guess_after(prior, epsilon)


def test_docstring_examples() -> None:
    assert doctest.testmod(guess).failed == 0
