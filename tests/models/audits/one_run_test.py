"""The bounds of one-run auditing against slow twins, on mechanisms whose ε is known, and on broken ones."""

import dataclasses
import functools
import math

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from jax_privacy import auditing
from scipy import stats

from models.audits import one_run
from models.audits.one_run import Guesses
from tests.oracles import one_run as slow

MU, DELTA = 1.0, 1e-5


def curve(strength: float, epsilons: np.ndarray) -> np.ndarray:
    return np.asarray(GaussianPrivacyLoss(1 / (strength * MU)).get_delta_for_epsilon(epsilons))


GUARANTEE = one_run.Guarantee(epsilon=one_run.epsilon_at(curve, 1.0, DELTA), delta=DELTA, curve=curve)


def examined(
    canaries: int, seed: int, mu: float = MU, guarantee: one_run.Guarantee = GUARANTEE
) -> one_run.Bounds:
    """The bounds from canaries that move one number by μ, under noise of scale 1."""
    coins = one_run.coins(canaries, seed)
    scores = np.random.default_rng(seed).normal(size=canaries) + mu * coins
    return one_run.bounds(scores, coins, guarantee)


@pytest.mark.parametrize('count, right', [(20, 20), (20, 17), (40, 29), (62, 61), (2, 2)])
@pytest.mark.parametrize('delta', [1e-6, 1e-3])
def test_the_bound_for_any_mechanism_is_where_the_odds_are_the_significance(
    count: int, right: int, delta: float
) -> None:
    found = one_run.epsilon_of_any(Guesses(64, count, right), delta, 0.05)
    if found == 0:
        assert slow.p_value(64, count, right, 0.0, delta) > 0.05
    else:
        assert slow.p_value(64, count, right, found - 1e-4, delta) <= 0.05
        assert slow.p_value(64, count, right, found + 1e-4, delta) >= 0.05


def trade_off(epsilons: np.ndarray, deltas: np.ndarray, false: float) -> float:
    """f(α): the least rate of misses at a rate of false alarms, one pair (ε, δ) after another."""
    pairs = zip(epsilons.tolist(), deltas.tolist(), strict=True)
    return max(0.0, *(max(1 - d - math.exp(e) * false, math.exp(-e) * (1 - d - false)) for e, d in pairs))


@pytest.mark.parametrize('count', [40, 64, 200])
def test_the_bound_of_a_curve_is_its_slow_twin(count: int) -> None:
    epsilons = one_run.EPSILONS[::8]
    deltas = curve(0.3, epsilons)
    f = functools.partial(trade_off, epsilons, deltas)
    answers = set()
    for right in range(count, count // 2, -max(1, count // 24)):
        expected = slow.contradicts(f, 256, count, right, 0.01)
        assert one_run.contradicts(Guesses(256, count, right), epsilons, deltas, 0.01) == expected
        answers.add(expected)
    assert answers == {False, True}


def test_the_bound_of_a_gaussian_curve_is_the_librarys() -> None:
    """Ours takes the curve at some ε alone and rounds down to a step of the noise."""
    guesses = Guesses(1024, 128, 115)
    right, wrong = np.repeat([1.0, 0.0], [115, 1]), np.repeat([1.0, 0.0], [13, 1024 - 128 - 1])
    library = auditing.CanaryScoreAuditor(right, wrong).epsilon_one_run_fdp(
        0.01, DELTA, threshold_strategy=auditing.Explicit(1.0)
    )
    ours = one_run.epsilon_of_curve([guesses], GUARANTEE, 0.01)
    assert 0.88 * library <= ours <= library * 1.0001


def test_the_epsilon_of_a_curve_is_where_its_delta_is() -> None:
    found = one_run.epsilon_at(curve, 2.0, DELTA)
    assert float(curve(2.0, np.array([found]))[0]) == pytest.approx(DELTA, rel=1e-4)
    assert one_run.epsilon_at(curve, 1e-6, DELTA) == 0.0


def test_a_right_claim_is_hardly_ever_contradicted() -> None:
    """A Gaussian against its own curve: each bound may fail once in twenty; of 30 runs here none does."""
    for seed in range(30):
        found = examined(512, seed)
        assert found.epsilon_at_least <= GUARANTEE.epsilon and not found.contradicts, seed


def test_a_tight_claim_is_contradicted_as_often_as_the_significance_says() -> None:
    """Randomised response, where the bound for any mechanism is exact: all guesses, at 5 %.

    400 runs of at most 5 % each: more than 36 would be a chance of 1 in 1,000.
    """
    epsilon, canaries, alarms = 1.0, 256, 0
    keeps = math.exp(epsilon) / (1 + math.exp(epsilon))
    rng = np.random.default_rng(0)
    for right in rng.binomial(canaries - 2, keeps, size=400).tolist():
        found = one_run.epsilon_of_any(Guesses(canaries, canaries - 2, right), 1e-12, 0.05)
        alarms += found > epsilon
    assert 3 <= alarms <= 36


@pytest.mark.parametrize('canaries, mu', [(2048, 4 * MU), (64, 30.0)])
def test_more_than_was_claimed_is_noticed(canaries: int, mu: float) -> None:
    weak = dataclasses.replace(GUARANTEE, epsilon=0.5 if canaries == 64 else GUARANTEE.epsilon)
    found = examined(canaries, 0, mu, weak)
    assert found.epsilon_at_least > weak.epsilon and found.area > 0.95 and found.contradicts
    assert found.epsilon_of_any <= found.most


def test_scores_without_information_show_nothing() -> None:
    coins = one_run.coins(512, 0)
    for scores in (np.zeros(512), np.full(512, np.nan)):
        found = one_run.bounds(scores, coins, GUARANTEE)
        assert found.epsilon_at_least == 0 and found.area == 0.5 and not found.contradicts
        assert len(found.scores_in) == coins.sum() and len(found.scores_out) == (~coins).sum()


def test_guesses_follow_from_scores_alone() -> None:
    scores = np.arange(64.0)
    upper = scores >= 32
    for guesses in one_run.guesses_of(scores, upper):
        assert guesses.right == guesses.count <= 62
    for right, wrong in zip(
        one_run.guesses_of(scores, upper), one_run.guesses_of(scores, ~upper), strict=True
    ):
        assert (right.count, wrong.right) == (wrong.count, 0)


def test_coins_are_fair_and_of_their_seed() -> None:
    coins = one_run.coins(4096, 7)
    assert stats.binomtest(int(coins.sum()), 4096).pvalue > 1e-3
    assert (coins == one_run.coins(4096, 7)).all() and (coins != one_run.coins(4096, 8)).any()
    with pytest.raises(ValueError, match=r'canaries >= 64, got canaries=63.*give 512'):
        one_run.check_canaries(63)
