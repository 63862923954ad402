"""Votes on texts against slow twins in fractions, and their noise against the exact distribution."""

import dataclasses
import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

from models.privacy import accounting, text_votes
from models.privacy.text_votes import QUANTA_PER_VOTE, TextVoteParams
from tests.oracles import goodness_of_fit
from tests.oracles import normal_pair as gaussian
from tests.oracles import text_votes as oracle
from tests.samples import noise_source

DRAWS = 20_000
# The chi-square test calls a right sampler wrong with this probability. At 20,000 draws a scale that is 10 %
# off gives a statistic that a right one passes with less than 1e-30.
FALSE_ALARM = 1e-7


def squared(quanta: np.ndarray) -> int:
    return sum(int(each) ** 2 for each in quanta)


# --------------------------------------------------------------------------------- settings and prices


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'rounds': 0}, 'rounds >= 1, got rounds=0'),
        ({'rounds': 2.0}, 'rounds=2.0'),
        ({'rounds': True}, 'rounds=True'),
        ({'noise_scale': 0.0}, 'noise_scale=0.0'),
        ({'noise_scale': -1.0}, 'noise_scale=-1.0'),
        ({'noise_scale': math.nan}, 'noise_scale=nan'),
        ({'noise_scale': math.inf}, 'noise_scale=inf'),
        ({'nearest': 0}, 'nearest=0'),
        ({'unit': 'group'}, "unit='group'"),
        ({'examples_per_context': 2}, 'Give --unit user for votes of several records'),
        ({'unit': 'user', 'examples_per_context': 0}, 'examples_per_context=0'),
    ],
)
def test_settings_without_a_guarantee_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextVoteParams(**({'rounds': 2, 'noise_scale': 1.0} | changes))


def test_rounds_add_up_and_the_event_says_the_same() -> None:
    params = TextVoteParams(rounds=6, noise_scale=20.0, nearest=4)
    assert params.rho == pytest.approx(6 / (2 * 400), rel=1e-15)
    assert params.rho_under_replacement == 2 * params.rho
    curve = accounting.curve_of(params.event)
    assert curve.is_zcdp and curve.rho == pytest.approx(params.rho, rel=1e-15)
    assert params.quantum == 2.0**-10


@pytest.mark.parametrize('nearest', [1, 100])
@pytest.mark.parametrize(
    ('epsilon', 'delta', 'rounds'),
    [(0.01, 1e-6, 3), (0.5, 1e-6, 1), (1.0, 1e-5, 10), (2.0, 0.011, 1), (4.0, 1e-12, 8), (10.0, 1e-5, 2)],
)
def test_noise_of_an_epsilon_stays_within_it_and_no_less_would(
    epsilon: float, delta: float, rounds: int, nearest: int
) -> None:
    """By the exact curve of the Gaussian mechanism; a scale 0.1 % less is above it."""
    scale = text_votes.solve_noise_scale(epsilon=epsilon, delta=delta, rounds=rounds, nearest=nearest)
    assert float(f'{scale:.6g}') == scale
    stated = TextVoteParams(rounds=rounds, noise_scale=scale, nearest=nearest).epsilon(delta)
    assert epsilon * (1 - 1e-4) < stated <= epsilon
    # Their pair has hardly less noise than votes have, so the curve of the very scale is below, and hardly.
    assert gaussian.delta_of_gaussian(scale / math.sqrt(rounds), epsilon) <= delta
    assert gaussian.delta_of_gaussian(0.998 * scale / math.sqrt(rounds), epsilon) > delta


@pytest.mark.parametrize(
    ('scale', 'rounds', 'delta', 'stated'),
    [(2 * math.sqrt(2), 5, 1e-5, 3.3414), (12.7919, 10, 1e-5, 0.9150), (586.616, 3, 1e-6, 0.00896)],
)
def test_votes_are_stated_as_the_gaussian_that_they_are(
    scale: float, rounds: int, delta: float, stated: float
) -> None:
    params = TextVoteParams(rounds=rounds, noise_scale=scale)
    assert params.epsilon(delta) == pytest.approx(stated, abs=1e-4)
    exact = gaussian.epsilon_of_gaussian(scale / math.sqrt(rounds), delta)
    assert exact <= params.epsilon(delta) < exact * (1 + 1e-6)
    # 1 % less noise, and a round more, are told.
    for wrong in (dataclasses.replace(params, noise_scale=0.99 * scale),
                  dataclasses.replace(params, rounds=rounds + 1)):  # fmt: skip
        assert wrong.epsilon(delta) > exact * 1.005


@pytest.mark.parametrize('scale', [0.02, 0.1])
def test_where_noise_is_too_little_for_the_gaussian_zcdp_is_stated(scale: float) -> None:
    params = TextVoteParams(rounds=2, noise_scale=scale)
    assert params.epsilon(1e-5) == accounting.epsilon_from_rho(params.rho, 1e-5)


@pytest.mark.parametrize('epsilon', [1e3, 1e5, 1e9])
def test_noise_of_a_huge_epsilon_is_found(epsilon: float) -> None:
    scale = text_votes.solve_noise_scale(epsilon=epsilon, delta=1e-5, rounds=2)
    stated = TextVoteParams(rounds=2, noise_scale=scale).epsilon(1e-5)
    assert epsilon * (1 - 1e-4) < stated <= epsilon


@pytest.mark.parametrize('epsilon', [0.0, -1.0, math.nan])
def test_epsilon_must_be_positive(epsilon: float) -> None:
    with pytest.raises(ValueError, match='epsilon > 0, got epsilon='):
        text_votes.solve_noise_scale(epsilon=epsilon, delta=1e-6, rounds=1)


# ------------------------------------------------------------------------------------------- nearest


@pytest.mark.parametrize('kind', [np.float32, np.float64])
def test_nearest_is_the_twins_on_all_small_rows(kind: type) -> None:
    values = np.array(list(itertools.product((-2, 0, 3), repeat=4)), kind)
    for number in range(1, 6):
        found = text_votes.nearest(values, number)
        assert found.tolist() == [oracle.nearest(row, number) for row in values.tolist()]


def test_equal_candidates_leave_the_vote_to_the_first() -> None:
    assert text_votes.nearest(np.array([[1.0, 5.0, 5.0, 5.0]]), 1).tolist() == [[1]]
    assert text_votes.nearest(np.zeros((1, 4)), 3).tolist() == [[0, 1, 2]]


def test_what_is_not_finite_never_wins() -> None:
    rows = np.array([[math.nan, -1, -2], [math.inf, -math.inf, 0], [math.nan] * 3, [-1, math.nan, 7]])
    found = text_votes.nearest(rows, 2)
    assert found.tolist() == [[1, 2], [2, -1], [-1, -1], [2, 0]]
    assert [[place for place in row if place >= 0] for row in found.tolist()] == [
        oracle.nearest(row, 2) for row in rows.tolist()
    ]


def test_a_row_is_a_function_of_itself_and_the_input_stays_as_it_is() -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(-3, 4, (40, 9)).astype(np.float64)
    before = rows.copy()
    whole = text_votes.nearest(rows, 4)
    assert np.array_equal(rows, before)
    for order in (rng.permutation(40), np.arange(7), np.array([3, 3, 3])):
        assert np.array_equal(text_votes.nearest(rows[order], 4), whole[order])


def test_few_candidates_or_records_are_no_exception() -> None:
    assert text_votes.nearest(np.array([[1.0, 2.0]]), 5).tolist() == [[1, 0]]
    assert text_votes.nearest(np.zeros((3, 0)), 5).shape == (3, 0)
    assert text_votes.nearest(np.zeros((0, 4)), 2).shape == (0, 2)
    with pytest.raises(ValueError, match='number=0'):
        text_votes.nearest(np.zeros((1, 4)), 0)
    with pytest.raises(ValueError, match='similarities'):
        text_votes.nearest(np.zeros(4), 1)


# --------------------------------------------------------------------------------------------- votes


@pytest.mark.parametrize('number', [*range(1, 40), 100, 1024, 2**20, 2**20 + 1])
def test_a_record_gives_every_one_of_its_nearest_as_much_as_the_norm_allows(number: int) -> None:
    indices, quanta = text_votes.votes_of_unit([np.arange(number)])
    assert len(indices) == number and len(set(quanta.tolist())) == 1
    assert squared(quanta) <= QUANTA_PER_VOTE**2 < number * (int(quanta[0]) + 1) ** 2


def test_votes_are_the_twins_and_no_unit_is_longer_than_one_vote() -> None:
    random.seed(11)
    for case in range(400):
        records, number = random.randint(0, 6), random.randint(1, 9)
        pool = range(random.choice((1, 3, 12)))
        named = [random.sample(pool, min(len(pool), random.randint(0, number))) for _ in range(records)]
        indices, quanta = text_votes.votes_of_unit([np.array(each, np.int64) for each in named])
        assert dict(zip(indices.tolist(), quanta.tolist(), strict=True)) == oracle.votes_of_unit(
            named, QUANTA_PER_VOTE
        ), case
        assert indices.dtype == quanta.dtype == np.int64 and sorted(indices.tolist()) == indices.tolist()
        assert squared(quanta) <= QUANTA_PER_VOTE**2 and (quanta >= 0).all()


def test_rounding_to_the_nearest_would_be_longer_than_one_vote() -> None:
    longer = [
        number for number in range(1, 100) if number * round(QUANTA_PER_VOTE / math.sqrt(number)) ** 2 > 2**20
    ]
    assert len(longer) > 20


def test_two_units_are_never_further_apart_than_replacement_is_charged_for() -> None:
    named = [[], [0], [1], [0, 1], [1, 2, 3], [0, 2]]
    units = [[each] for each in named] + [list(pair) for pair in itertools.product(named, repeat=2)]
    rows = np.zeros((len(units), 4), np.int64)
    for row, unit in zip(rows, units, strict=True):
        indices, quanta = text_votes.votes_of_unit([np.array(each, np.int64) for each in unit])
        row[indices] = quanta
    apart = [squared(one - other) for one, other in itertools.combinations(rows, 2)]
    assert max(apart) == 2 * QUANTA_PER_VOTE**2


def test_a_unit_without_an_embedding_votes_for_nothing() -> None:
    empty, nobody = np.array([], np.int64), np.array([-1, -1])
    for unit in ([], [empty], [nobody], [empty, nobody]):
        indices, quanta = text_votes.votes_of_unit(unit)
        assert indices.size == quanta.size == 0
    # The others of its user vote as if it were not there.
    alone = text_votes.votes_of_unit([np.array([2, 5])])
    beside = text_votes.votes_of_unit([empty, np.array([2, 5, -1]), nobody])
    assert all(np.array_equal(one, other) for one, other in zip(alone, beside, strict=True))


def test_many_records_of_a_user_are_one_vote() -> None:
    indices, quanta = text_votes.votes_of_unit([np.array([3])] * 1000)
    assert (indices.tolist(), quanta.tolist()) == ([3], [QUANTA_PER_VOTE])


# --------------------------------------------------------------------------------------------- noise


@pytest.mark.parametrize('noise_scale', [2 / QUANTA_PER_VOTE, 0.25, 1.0, 40.0])
def test_noise_is_the_discrete_gaussian_of_its_scale(noise_scale: float) -> None:
    draws = text_votes.noisy_votes(np.zeros((10, DRAWS // 10), np.int64), noise_scale, noise_source()).ravel()
    scale = noise_scale * QUANTA_PER_VOTE
    assert goodness_of_fit.discrete_gaussian(draws, scale) > FALSE_ALARM
    for wrong in (0.9 * scale, 1.1 * scale):
        assert goodness_of_fit.discrete_gaussian(draws, wrong) < FALSE_ALARM


def test_cells_rows_and_releases_have_independent_noise() -> None:
    draws = text_votes.noisy_votes(np.zeros((2, DRAWS // 2), np.int64), 1.0, noise_source('one'))
    again = text_votes.noisy_votes(np.zeros((2, DRAWS // 2), np.int64), 1.0, noise_source('other'))
    # Six standard deviations of a correlation of independent draws: odds 2e-9 each.
    limit = 6 / math.sqrt(DRAWS / 4)
    pairs = [(draws[0], draws[1]), (draws[0, ::2], draws[0, 1::2]), (draws.ravel(), again.ravel())]
    assert all(abs(np.corrcoef(one, other)[0, 1]) < limit for one, other in pairs)


@pytest.mark.parametrize('noise_scale', [0.25, 3.57, 40.0])
def test_opendp_has_the_same_price(noise_scale: float) -> None:
    import opendp.prelude as dp

    dp.enable_features('contrib')
    space = dp.vector_domain(dp.atom_domain(T='i64')), dp.l2_distance(T='f64')
    priced = dp.m.make_gaussian(*space, scale=noise_scale * QUANTA_PER_VOTE).map(float(QUANTA_PER_VOTE))
    assert priced == pytest.approx(TextVoteParams(rounds=1, noise_scale=noise_scale).rho, rel=1e-9)


@pytest.mark.parametrize(
    'sums', [np.zeros(3, np.int64), np.zeros((1, 3)), np.zeros((1, 3), np.int32), np.array([[0.5]])]
)
def test_a_table_of_anything_but_whole_quanta_is_refused_and_not_quoted(sums: np.ndarray) -> None:
    with pytest.raises(ValueError, match='int64 quanta, got shape') as caught:
        text_votes.noisy_votes(sums, 1.0, noise_source())
    assert '0.5' not in str(caught.value)


def test_whole_votes_are_exact() -> None:
    assert text_votes.in_votes(np.array([[1024, -512, 1]])).tolist() == [[1.0, -0.5, 2.0**-10]]


@pytest.mark.parametrize('noise_scale', [0.02, 0.25])
@pytest.mark.parametrize('alpha', [1.25, 2.0, 8.0])
def test_a_vote_of_quanta_costs_what_theorem_4_says(noise_scale: float, alpha: float) -> None:
    """Every shift of one cell has D_α of at most α shift²/(2 scale²); over cells both sides add up."""
    scale = noise_scale * QUANTA_PER_VOTE
    for named in ([1], [3], [2, 7], [16]):
        _, quanta = text_votes.votes_of_unit([np.arange(number) for number in named])
        found = math.fsum(oracle.divergence_of_shift(int(each), scale, alpha) for each in quanta)
        exact = alpha * squared(quanta) / (2 * scale**2)
        price = alpha * TextVoteParams(rounds=1, noise_scale=noise_scale).rho
        assert found == pytest.approx(exact, rel=1e-9)
        assert exact <= price
