"""The price of a context against its formula in 50 digits, and the filter against exact arithmetic.

A price below the exact one would be a broken guarantee, so there is no tolerance on that side.
"""

import dataclasses
import fractions
import functools
import itertools
import math

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from models.privacy import individual, mechanism
from models.privacy.params import MechanismParams
from tests import oracles

pytestmark = pytest.mark.heavy

QUANTUM = individual.QUANTUM
# A price may be this much above the exact one.
MOST_ABOVE = 1e-3
PARAMS = MechanismParams(
    aggregate='difference', accounting='individual', batch_size=16, clip_bound=1.0, shift_bound=0.5,
    temperature=1.0, context_budget=0.05, omega=9.0, public_top_k=64, max_batch_tokens=64,
    max_example_tokens=8,
)  # fmt: skip
# From prices that are next to proportional to u² to those that grow by e^7 with the size of a vote.
SETTINGS = {
    'flat': {'shift_bound': 0.01, 'omega': 1.0625, 'batch_size': 64},
    'usual': {'shift_bound': 0.25, 'omega': 12.0, 'batch_size': 64, 'temperature': 0.8332},
    'tau 2': {'shift_bound': 1.0, 'omega': 9.0, 'batch_size': 8, 'temperature': 2.0},
    'small batch': {},
    'c = 5': {'shift_bound': 3.0, 'omega': 9.0, 'batch_size': 128, 'clip_bound': 5.0},
    'steep': {'shift_bound': 2.45, 'omega': 9.0, 'batch_size': 32, 'temperature': 0.7},
    'replace': {'examples_per_context': 2, 'batch_size': 64},
}  # fmt: skip


def params_of(name: str) -> MechanismParams:
    return dataclasses.replace(PARAMS, **SETTINGS[name])


@functools.partial(jax.jit, static_argnames='params')
def _prices(counts: jax.Array, public: jax.Array, allowed: jax.Array, params: MechanismParams) -> jax.Array:
    return individual.prices(counts, public, allowed, params)


@functools.partial(jax.jit, static_argnames='params')
def _votes_of(
    differences: jax.Array, public: jax.Array, allowed: jax.Array, params: MechanismParams
) -> individual.Votes:
    return individual.votes_of(differences, public, allowed, params)


@functools.partial(jax.jit, static_argnames='params')
def _spend(spent: jax.Array, prices: jax.Array, params: MechanismParams) -> tuple[jax.Array, jax.Array]:
    return individual.spend(spent, prices, params)


def worlds(columns: int, params: MechanismParams, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Votes `[m, C]` in quanta, log p `[C]` and the allowed columns: random, and as bad as can be."""
    rng = np.random.default_rng(seed)
    limit = individual.vote_limit(params.clip_bound)
    # Down to where the sampler's range ends.
    spread = min(6.0, 14 * params.temperature)
    public = np.clip(rng.normal(0, spread / 2, columns), -spread, spread).astype(np.float32)
    allowed = rng.random(columns) < 0.8
    allowed[rng.integers(columns)] = True
    rarest, top = (
        int(f(np.where(allowed, public, e))) for f, e in ((np.argmin, np.inf), (np.argmax, -np.inf))
    )
    ends = np.eye(columns, dtype=int)
    rows = [
        np.zeros(columns),
        np.full(columns, limit),
        np.full(columns, -limit),
        limit * rng.choice([-1, 1], columns),
        np.full(columns, 1),
        np.full(columns, 777),  # all tie
        limit * ends[rarest],
        ends[rarest],
        -limit * ends[top],
        limit * ends[top] + ends[rarest],
        rng.normal(0, limit / 3, columns),
        rng.normal(0, limit / 50, columns),
        rng.integers(-3, 4, columns),  # many ties
        limit * 2.0 ** -rng.integers(0, 17, columns),
        np.where(rng.random(columns) < 0.05, limit, rng.normal(0, 9, columns)),
    ]
    counts = np.clip(np.round(np.array(rows)), -limit, limit).astype(np.int32)
    counts[:, ~allowed] = 0
    return counts, public, allowed


def exact_prices(
    counts: np.ndarray, public: np.ndarray, allowed: np.ndarray, params: MechanismParams
) -> list[mpmath.mpf]:
    settings = oracles.Individual.of(params)
    votes = counts[:, allowed].astype(np.float64) * QUANTUM
    return [oracles.individual_price(row, public[allowed], settings) for row in votes]


def share_of(price: np.floating, exact: mpmath.mpf) -> float:
    """The excess of a price over the exact one, relative to it: below 0 where the guarantee is broken."""
    with mpmath.workdps(oracles.DIGITS):
        if exact == 0:
            return 0.0 if price == 0 else math.inf
        return float(mpmath.mpf(float(price)) / exact - 1)


# 50 digits of many columns take seconds.
_WIDE = ('usual', 'steep')
_WORLDS = [(name, columns) for name in SETTINGS for columns in (1, 2, 7, 64)]
_WORLDS += [(name, 1280) for name in _WIDE]


@pytest.mark.parametrize('name, columns', _WORLDS)
def test_a_price_is_never_below_the_exact_one_and_hardly_above(name: str, columns: int) -> None:
    params = params_of(name)
    counts, public, allowed = worlds(columns, params, seed=columns)
    found = np.asarray(_prices(counts, public, allowed, params))
    for price, exact in zip(found, exact_prices(counts, public, allowed, params), strict=True):
        assert 0 <= share_of(price, exact) <= MOST_ABOVE


def test_what_falls_below_the_range_of_floats_is_not_free() -> None:
    """A vote of one quantum for a token that is hardly ever drawn, at the largest s τ: its price is not 0."""
    params = dataclasses.replace(PARAMS, batch_size=4096, temperature=2e5)
    public = np.array([0.0, -28 * params.temperature], np.float32)
    counts, allowed = np.array([[0, 1]], np.int32), np.ones(2, bool)
    (exact,) = exact_prices(counts, public, allowed, params)
    # The open twin: float32 has no such number.
    assert exact > 0 and np.float32(float(exact)) < np.finfo(np.float32).tiny
    (price,) = np.asarray(_prices(counts, public, allowed, params))
    assert exact <= float(price) < 1e-29
    assert not np.asarray(_prices(np.zeros_like(counts), public, allowed, params)).any()


@st.composite
def small_worlds(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    """Votes in quanta and log p of eight tokens."""
    limit = individual.vote_limit(PARAMS.clip_bound)
    votes = st.one_of(st.sampled_from([0, 1, -1, limit, -limit, limit - 1]), st.integers(-limit, limit))
    logs = st.floats(-14, 14, width=32)
    return (
        draw(st.lists(votes, min_size=8, max_size=8)),
        draw(st.lists(logs, min_size=8, max_size=8)),
    )


@hypothesis.given(small_worlds(), st.sampled_from(sorted(SETTINGS)))
@hypothesis.settings(max_examples=300)
def test_no_small_world_is_priced_too_low(world: tuple[list[int], list[float]], name: str) -> None:
    # One program for each of the settings.
    params = dataclasses.replace(params_of(name), clip_bound=PARAMS.clip_bound)
    counts, public = np.array([world[0]], np.int32), np.array(world[1], np.float32)
    allowed = np.ones(8, bool)
    (found,) = np.asarray(_prices(counts, public, allowed, params))
    (exact,) = exact_prices(counts, public, allowed, params)
    assert 0 <= share_of(found, exact) <= MOST_ABOVE


@pytest.mark.first
@pytest.mark.parametrize('name', SETTINGS)
def test_wrong_scales_are_noticed(name: str) -> None:
    """Half of u, no growth, that of adding where a unit may replace, and what float32 alone gives."""
    params = params_of(name)
    counts, public, allowed = worlds(64, params, seed=3)
    exact = exact_prices(counts, public, allowed, params)

    def lowest(prices: np.ndarray) -> float:
        return min(share_of(price, right) for price, right in zip(prices, exact, strict=True))

    assert lowest(np.asarray(_prices(counts, public, allowed, params))) >= 0
    assert lowest(np.asarray(_prices(counts // 2, public, allowed, params))) < -0.7
    near = dataclasses.replace(params, omega=1 + 1e-9)
    assert lowest(np.asarray(_prices(counts, public, allowed, near))) < -1e-4
    assert lowest(_not_rounded_up(counts, public, allowed, params)) < 0
    if params.examples_per_context > 1:
        alone = dataclasses.replace(params, examples_per_context=1)
        assert lowest(np.asarray(_prices(counts, public, allowed, alone))) < -0.1


def _not_rounded_up(
    counts: np.ndarray, public: np.ndarray, allowed: np.ndarray, params: MechanismParams
) -> np.ndarray:
    """Wrong: the formula in float32 and nothing else."""
    scale = params.batch_size * params.temperature
    gain = np.float32(math.exp(params.shift_bound / params.temperature))
    scores = public[allowed] / np.float32(params.temperature)
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    sizes = np.abs(counts[:, allowed]).astype(np.float32) * np.float32(QUANTUM / scale)
    squares = shares * sizes**2
    height = sizes + np.sqrt(gain * (squares * np.exp(sizes)).sum(axis=-1, keepdims=True))
    first, second = map(np.float32, individual.growth(params.omega))
    weights = gain * shares * np.exp(height * (first + second * height))
    bounds = []
    for share in individual.LEVELS:
        level = np.float32(share) * (sizes**2).max(axis=-1, keepdims=True)
        bounds.append(level[:, 0] + (weights * np.maximum(sizes**2 - level, 0)).sum(axis=-1))
    level = sizes[:, [shares.argmax()]] ** 2
    bounds.append(level[:, 0] + (weights * np.maximum(sizes**2 - level, 0)).sum(axis=-1))
    return np.float32(0.5) * np.min(bounds, axis=0)


# ----------------------------------------------------------------- the link


@pytest.mark.parametrize('c2, tau', [(0.01, 0.7), (0.5, 1.0), (3.0, 2.0)])
def test_the_link_is_what_the_proof_needs(c2: float, tau: float) -> None:
    """e^l is convex and 1 at 0, 0 <= l' <= 1, and e^l l'² is at most e^b: in float32, to its rounding."""
    whole = c2 / tau
    shift = np.linspace(-20, 40, 60_001)
    found = np.asarray(individual.flattened(jnp.asarray(shift, jnp.float32), whole), np.float64)
    np.testing.assert_allclose(found, oracles.link(shift * tau, c2, tau) / tau, rtol=2e-6, atol=2e-6)
    assert individual.flattened(jnp.float32(0), whole) == 0
    exact = oracles.link(shift * tau, c2, tau) / tau
    slope = np.diff(exact) / np.diff(shift)
    assert (slope >= -1e-9).all() and (slope <= 1 + 1e-9).all()
    assert (np.exp(exact[1:]) * slope**2 <= np.exp(whole) * (1 + 1e-3)).all()
    # Beyond b it is all used up: a link that is any steeper would break it.
    assert (np.exp(exact[1:]) * slope**2)[shift[1:] > whole + 0.1].min() > np.exp(whole) * (1 - 1e-3)
    assert (np.diff(np.exp(exact), 2) >= -1e-9 * np.exp(exact[2:])).all()


# ----------------------------------------------------------------- votes


@pytest.mark.parametrize('clip_bound', [1.0, 0.3, 1 / 3, 2.0**-16, 5.0])
def test_votes_are_rounded_and_clamped_before_they_are_priced(clip_bound: float) -> None:
    params = dataclasses.replace(PARAMS, clip_bound=clip_bound, batch_size=256)
    rng = np.random.default_rng(1)
    public = rng.normal(0, 2, 64).astype(np.float32)
    allowed = rng.random(64) < 0.7
    differences = rng.normal(0, 2 * clip_bound, (9, 64)).astype(np.float32)
    differences[0, :8] = [3e38, -3e38, 1e-30, 0.49 * QUANTUM, 0.51 * QUANTUM, clip_bound, -clip_bound, 0]
    found = _votes_of(differences, public, allowed, params)
    counts = np.asarray(found.counts)
    assert (np.abs(counts * QUANTUM) <= 2 * clip_bound).all()
    assert (counts[:, ~allowed] == 0).all()
    for row, vote in zip(differences, counts, strict=True):
        clamped = np.clip(row.astype(np.float64), -clip_bound, clip_bound)[allowed]
        constant = clamped - vote[allowed] * QUANTUM
        # Whatever was taken off is the same for all tokens, but for rounding.
        assert np.ptp(constant) <= 2.001 * QUANTUM
    assert (means_of(counts, public, allowed, params) >= 0).all()
    # No more is taken off than it needs, and what float32 may lose of it.
    most = QUANTUM * 2 + 1e-4 * clip_bound
    assert (means_of(counts, public, allowed, params) * QUANTUM <= most).all()
    # Prices are those of the votes that are added up: a vote that rounding doubles costs four times as much.
    assert (np.asarray(found.prices) == np.asarray(_prices(counts, public, allowed, params))).all()
    half = np.where(np.arange(64) == np.flatnonzero(allowed)[0], 0.51 * QUANTUM, 0)[None].astype(np.float32)
    assert np.asarray(_votes_of(half, public, allowed, params).counts).sum() == 1


def means_of(
    counts: np.ndarray, public: np.ndarray, allowed: np.ndarray, params: MechanismParams
) -> np.ndarray:
    """E_π of each row of counts, with π ∝ p^{1/τ} in 50 digits."""
    with mpmath.workdps(oracles.DIGITS):
        tau = mpmath.mpf(params.temperature)
        weights = [mpmath.exp(mpmath.mpf(float(log)) / tau) for log in public[allowed]]
        total = mpmath.fsum(weights)
        return np.array([
            float(mpmath.fsum(int(count) * weight for count, weight in zip(row, weights)) / total)
            for row in counts[:, allowed]
        ])  # fmt: skip


@pytest.mark.parametrize('name, columns', _WORLDS)
def test_the_mean_of_a_vote_under_the_reference_is_not_negative(name: str, columns: int) -> None:
    """In exact arithmetic, of worlds as bad as can be; the wrong reference is noticed."""
    params = params_of(name)
    counts, public, allowed = worlds(columns, params, seed=columns)
    found = _votes_of(counts.astype(np.float32) * np.float32(QUANTUM), public, allowed, params)
    means = means_of(np.asarray(found.counts), public, allowed, params)
    assert (means >= 0).all()
    if columns >= 64 and params.temperature != 1:
        hotter = dataclasses.replace(params, temperature=1.0)
        assert means_of(np.asarray(found.counts), public, allowed, hotter).min() < 0


@pytest.mark.parametrize('broken', [np.nan, np.inf, -np.inf])
def test_a_row_of_logits_that_is_not_finite_votes_and_pays_nothing(broken: float) -> None:
    """Whatever the others do, and wherever the one logit that is no number."""
    rng = np.random.default_rng(6)
    public = jnp.asarray(rng.normal(0, 2, (1, 64)), jnp.float32)
    logits = rng.normal(0, 2, (5, 64)).astype(np.float32)

    @jax.jit
    def settled(rows: jax.Array) -> tuple[mechanism.Votes, individual.Receipt]:
        held = jnp.ones(5, bool)
        votes = mechanism.tally(public, (rows,), (held,), jnp.ones(64, bool), PARAMS)
        votes, _, receipt = mechanism.settle(votes, (jnp.zeros(5, jnp.float32),), PARAMS)
        return votes, receipt

    _, right = settled(logits)
    spoilt = logits.copy()
    spoilt[3, 17] = broken
    votes, receipt = settled(spoilt)
    (charged,), (usual,) = receipt.charged, right.charged
    assert charged[3] == 0 and usual[3] > 0
    np.testing.assert_array_equal(np.delete(charged, 3), np.delete(usual, 3))
    silent = spoilt.copy()
    silent[3] = np.nan
    np.testing.assert_array_equal(votes.tallied, settled(silent)[0].tallied)


def test_differences_out_of_reach_of_float32_are_clamped_like_others() -> None:
    limit = individual.vote_limit(PARAMS.clip_bound)
    public, allowed = np.zeros(4, np.float32), np.ones(4, bool)
    rows = np.array([[np.inf, -np.inf, 0.0, 3e38]], np.float32)
    (found,) = np.asarray(_votes_of(rows, public, allowed, PARAMS).counts).tolist()
    mean = found[2]  # what was taken off, with its sign changed
    assert found == [limit + mean, mean - limit, mean, limit + mean] and abs(mean + limit / 4) < 20


@hypothesis.given(st.integers(0, 2**32 - 1), st.integers(0, 6))
@hypothesis.settings(max_examples=50)
def test_a_price_hangs_on_no_other_row(seed: int, row: int) -> None:
    """Bit by bit, wherever the others are and whatever they hold."""
    rng = np.random.default_rng(seed)
    public, allowed = rng.normal(0, 3, 64).astype(np.float32), rng.random(64) < 0.9
    allowed[0] = True
    own = rng.normal(0, 1, 64).astype(np.float32)
    ours = []
    for _ in range(3):
        others = (rng.normal(0, 1, (7, 64)) * rng.choice([0, 1e-3, 1, 1e30, np.nan], (7, 1))).astype(
            np.float32
        )
        others[row] = own
        found = _votes_of(others, public, allowed, PARAMS)
        ours.append((np.asarray(found.counts)[row].tobytes(), np.asarray(found.prices)[row].tobytes()))
    assert len(set(ours)) == 1


# ----------------------------------------------------------------- the filter


def run_filter(prices: np.ndarray, params: MechanismParams) -> tuple[np.ndarray, np.ndarray]:
    """Who votes at every step, and what is spent after it, both `[steps, m]`, of `[steps, m]` prices."""

    @jax.jit
    def steps(found: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(spent: jax.Array, now: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            voted, after = individual.spend(spent, now, params)
            return after, (voted, after)

        return jax.lax.scan(step, jnp.zeros(found.shape[1], jnp.float32), found)[1]

    voted, spent = map(np.asarray, steps(jnp.asarray(prices, jnp.float32)))
    return voted, spent


def exact_sums(prices: np.ndarray, voted: np.ndarray) -> list[fractions.Fraction]:
    return [
        sum(
            (fractions.Fraction(float(price)) for price in prices[:, row][voted[:, row]]),
            fractions.Fraction(),
        )
        for row in range(prices.shape[1])
    ]


@pytest.mark.parametrize('budget', [0.05, 1.0, 1 / 3, 1e-6, 7.3])
def test_no_context_spends_more_than_its_budget_in_exact_arithmetic(budget: float) -> None:
    params = dataclasses.replace(PARAMS, context_budget=budget)
    rng = np.random.default_rng(4)
    scale = budget * 10.0 ** rng.uniform(-9, 0.5, (1, 40))
    prices = (scale * rng.exponential(1, (1500, 40))).astype(np.float32)
    prices[:, :5] = np.float32(budget) / np.arange(1, 6)  # what would come out at B, in exact arithmetic
    prices[rng.random(prices.shape) < 0.1] = 0
    voted, spent = run_filter(prices, params)
    for row, paid in enumerate(exact_sums(prices, voted)):
        assert paid <= fractions.Fraction(float(spent[-1, row])) <= fractions.Fraction(budget)
    before = np.vstack([np.zeros((1, 40), np.float32), spent[:-1]]).astype(np.float64)
    # Who sits out could not have paid, and a cheaper step may come.
    short = before + prices.astype(np.float64) > budget * (1 - 1e-4)
    assert short[~voted].all() and (~voted).any()
    assert any(not a and b for row in voted.T for a, b in itertools.pairwise(row))


def test_a_sum_that_is_rounded_to_the_nearest_spends_without_end() -> None:
    """The fault that the filter avoids: a price below half of the last bit that nobody ever counts."""
    params = dataclasses.replace(PARAMS, context_budget=1.0)
    prices = np.full((4000, 1), 2.0**-26, np.float32)
    prices[0] = 1 - 2.0**-14
    nearest = functools.reduce(lambda spent, price: np.float32(spent + price), prices[:, 0], np.float32(0))
    assert nearest == prices[0, 0] < exact_sums(prices, np.ones(prices.shape, bool))[0]
    voted, spent = run_filter(prices, params)
    assert exact_sums(prices, voted)[0] <= fractions.Fraction(float(spent[-1, 0])) <= 1
    assert spent[-1, 0] > prices[0, 0] and not voted[-1, 0]


@pytest.mark.parametrize('price', [np.nan, np.inf, 3e38])
def test_a_price_that_cannot_be_paid_buys_no_vote(price: float) -> None:
    voted, spent = _spend(jnp.zeros(2, jnp.float32), jnp.array([price, 0.01], jnp.float32), PARAMS)
    assert voted.tolist() == [False, True]
    assert spent[0] == 0 and spent[1] >= np.float32(0.01)


@pytest.mark.parametrize('worth', [0.5, 1.0, 3.0, 7.9, 100.0])
def test_worst_case_contexts_vote_as_often_as_the_budget_allows_and_no_more(worth: float) -> None:
    limit = individual.vote_limit(PARAMS.clip_bound)
    rng = np.random.default_rng(5)
    public, allowed = rng.normal(0, 2, 64).astype(np.float32), np.ones(64, bool)
    counts = (limit * rng.choice([-1, 1], (6, 64))).astype(np.int32)
    price = np.asarray(_prices(counts, public, allowed, PARAMS))
    # All of them give c to every token, up or down: one price, and that of METHOD.
    worst = float(oracles.individual_price([1.0], [0.0], oracles.Individual.of(PARAMS)))
    np.testing.assert_allclose(price, worst, rtol=MOST_ABOVE)
    params = dataclasses.replace(PARAMS, context_budget=worth * worst)
    voted, _ = run_filter(np.tile(price, (150, 1)), params)
    votes = voted.sum(axis=0)
    assert (votes <= worth).all()
    # A thousandth of the budget is what rounding up may cost, a whole vote where B is a multiple.
    assert (votes >= math.floor(worth * (1 - 2 * MOST_ABOVE))).all()
    # The first ones of the stream: who has nothing left sits out for good.
    assert (np.sort(voted, axis=0)[::-1] == voted).all()


def test_a_context_like_the_reference_votes_for_ever_and_pays_nothing() -> None:
    public, allowed = np.linspace(-9, 0, 64).astype(np.float32), np.ones(64, bool)
    found = _votes_of(np.zeros((3, 64), np.float32), public, allowed, PARAMS)
    assert (np.asarray(found.prices) == 0).all()
    prices = np.tile(np.asarray(found.prices), (500, 1))
    prices[:200, 2] = 0.01  # of which the last one has paid before
    voted, spent = run_filter(prices, PARAMS)
    assert voted[:, :2].all() and (spent[:, :2] == 0).all()
    assert not voted[100, 2] and voted[200:, 2].all() and 0 < spent[-1, 2] <= PARAMS.context_budget
