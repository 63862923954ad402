"""The contract of every aggregate, whatever it adds up: the price and the loop rest on it.

Each `check_...` takes the name that an aggregate is registered with, and asserts; its slow twin is
that of `oracles.TWINS`. tests/contracts/aggregate_test.py runs all of them for every registered
aggregate.
"""

import dataclasses
import functools
import itertools
import math
import pickle
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from models.privacy import accounting, mechanism
from models.privacy.aggregates import AGGREGATES
from models.privacy.params import MechanismParams
from tests import oracles, samples

ORDERS = (1.5, 2.0, 4.0, 16.0, 64.0)
# float32 moves a log-probability by some 1e-6, hence a divergence of order 64 by less than this.
SLACK = 2e-4
BROKEN = (
    (np.nan, 0, 0, 0),
    (0, 0, 0, np.nan),
    (np.nan,) * 4,
    (np.inf, 0, 0, 0),
    (np.inf, np.nan, 0, 0),
    (-np.inf, 0, 1, 0),
    (3.4e38, -3.4e38, 0, 0),
)


def params_of(aggregate: str, **changes: object) -> MechanismParams:
    """A mechanism of small numbers with this aggregate, at its own default clip bound or what fits."""
    strategy = AGGREGATES[aggregate]
    settings: dict = {
        'aggregate': aggregate,
        'batch_size': 2,
        'clip_bound': min(strategy.default_clip_bound, 1.5 * strategy.largest_clip_over_temperature, 2.0),
        'temperature': 1.5,
        'max_private_tokens': 4,
        'max_batch_tokens': 8,
    }
    return MechanismParams(**{**settings, **changes})


@functools.partial(jax.jit, static_argnames='params')
def _combined(
    logits: tuple[jax.Array, ...], is_private: tuple[jax.Array, ...], params: MechanismParams
) -> jax.Array:
    return mechanism.aggregate(samples.tally(logits, is_private, params), params)


@functools.partial(jax.jit, static_argnames='params')
def _allowed(rows: jax.Array, mask: jax.Array, params: MechanismParams) -> jax.Array:
    found = samples.tally((rows,), (jnp.arange(len(rows)) > 0,), params, mask).candidates
    whole = jnp.zeros(rows.shape[1], bool)
    return found.allowed if found.tokens is None else whole.at[found.tokens].set(found.allowed)


def scores_of(public: np.ndarray, rows: np.ndarray, params: MechanismParams) -> np.ndarray:
    """`[V]` the aggregate of some contexts' logits `[n, V]`."""
    stacked = jnp.asarray(np.concatenate([public[None], rows]), jnp.float32)
    return np.asarray(_combined((stacked,), (jnp.arange(len(stacked)) > 0,), params))


def check_it_says_what_it_is(name: str) -> None:
    strategy = AGGREGATES[name]
    assert strategy.name == name == params_of(name).aggregate
    assert params_of(name).strategy is strategy
    assert strategy.summary and not strategy.summary.endswith('.')
    assert strategy.default_clip_bound > 0 and strategy.largest_clip_over_temperature > 0
    assert not vars(strategy), 'no state of its own: one object serves every run'
    assert getattr(type(strategy), '__final__', False), 'final: a bound that is overridden is none'
    assert hash(params_of(name)) == hash(pickle.loads(pickle.dumps(params_of(name))))


def check_scores_equal_the_twin(name: str) -> None:
    params, rng = params_of(name), np.random.default_rng(0)
    for rows in (0, 1, 2, 5):
        logits, public = rng.normal(0, 3, (rows, 11)), rng.normal(0, 3, 11)
        if rows > 2:
            logits[1, 3] = np.nan
        expected = oracles.TWINS[name].scores(logits, public, params.batch_size, params.clip_bound)
        np.testing.assert_allclose(scores_of(public, logits, params), expected, rtol=1e-5, atol=1e-5)


def check_padding_and_micro_batches_change_nothing(name: str) -> None:
    params, rng = params_of(name), np.random.default_rng(1)
    public, logits = rng.normal(0, 3, 9), rng.normal(0, 3, (5, 9))
    expected = scores_of(public, logits, params)
    for filling in (0.0, 1e30, np.nan, np.inf, -np.inf):
        first, second = (np.full((4, 9), filling) for _ in range(2))
        first[0], first[1:3], second[1:] = public, logits[:2], logits[2:]
        masks = jnp.array([False, True, True, False]), jnp.array([False, True, True, True])
        parts = jnp.asarray(first, jnp.float32), jnp.asarray(second, jnp.float32)
        np.testing.assert_allclose(_combined(parts, masks, params), expected, rtol=1e-5, atol=1e-5)


def check_scores_are_finite_whatever_a_row_holds(name: str) -> None:
    """A private row, or the public one; an empty batch too, which gives a function of public values."""
    params, rng = params_of(name), np.random.default_rng(2)
    public, logits = rng.normal(0, 3, 4), rng.normal(0, 3, (3, 4))
    for row in BROKEN:
        assert np.isfinite(scores_of(public, np.concatenate([logits, [row]]), params)).all()
        for rows in (logits, logits[:0]):
            found = scores_of(np.array(row), rows, params)
            # A token that is left out may have probability 0.
            stacked = jnp.asarray(np.concatenate([[row], rows]), jnp.float32)
            allowed = np.asarray(_allowed(stacked, np.ones(4, bool), params))
            assert np.isfinite(found[allowed]).all() and allowed.any() and not np.isnan(found).any()


def check_the_mask_is_public(name: str) -> None:
    """Whatever the private rows hold, the same tokens: those of the mask that the public prompt expects.

    In a family of public predictions that are within the range of the sampler.
    """
    rng, vocab = np.random.default_rng(3), 12
    for top_k in (None, 1, 3, vocab, 2 * vocab):
        params = params_of(name, public_top_k=top_k)
        for _ in range(8):
            public = rng.normal(0, 2, vocab).astype(np.float32)
            mask = rng.random(vocab) < 0.5
            mask[rng.integers(vocab)] = True
            private = (rng.normal(0, 9, (3, vocab)), np.full((3, vocab), np.nan), [1e30 * public] * 3)
            found = [
                np.asarray(_allowed(jnp.asarray(np.stack([public, *rows]), jnp.float32), mask, params))
                for rows in private
            ]
            assert (found[0] == found[1]).all() and (found[0] == found[2]).all()
            assert not (found[0] & ~mask).any() and found[0].any()
            wider = params.clip_bound if oracles.TWINS[name].widens_top_k else 0.0
            k = vocab if top_k is None else top_k
            twin = oracles.top_k_plus(public, mask, k, params.batch_size, wider)
            np.testing.assert_array_equal(found[0], twin)
        # The mask of a constraint need not meet the K best of all: then its own best are kept,
        # also where the public prompt predicts nothing.
        worst = np.arange(vocab) == public.argmin()
        for predicted in (public, np.full(vocab, np.nan)):
            rows = jnp.asarray(np.stack([predicted, *private[0]]), jnp.float32)
            np.testing.assert_array_equal(_allowed(rows, worst, params), worst)


def _types(clip_bound: float) -> np.ndarray:
    """Logits of five contexts: pulls to and from one token, huge, at ±c exactly, and broken."""
    c = clip_bound
    return np.array(
        [
            [60, -60, -60, -60],
            [-60, 60, 60, 60],
            [3e38, -3e38, 0, 1e30],
            [c, -c, 2 * c, 0],
            [np.nan, 0, 5, 1],
        ],
        np.float32,
    )


def _datasets(most: int) -> list[tuple[int, ...]]:
    return [d for size in range(most + 1) for d in itertools.combinations(range(5), size)]


def _neighbours(datasets: Sequence[tuple[int, ...]], *, replace: bool) -> list[tuple]:
    """Pairs, in both directions."""
    pairs = [(a, b) for a in datasets for b in datasets if len(b) == len(a) + 1 and set(a) < set(b)]
    if replace:
        pairs += [(a, b) for a, b in itertools.combinations(datasets, 2)
                  if len(a) == len(b) and len(set(a) - set(b)) == 1]  # fmt: skip
    return pairs + [(b, a) for a, b in pairs]


@functools.partial(jax.jit, static_argnames='params')
def _every_dataset(rows: jax.Array, masks: jax.Array, params: MechanismParams) -> tuple:
    """Scores `[D, V]`, and losses `[D, V, 2]` of every token or None, of D subsets of the contexts.

    All V are candidates; last what is counted of them, `[D, V]` bool.
    """

    def one(mask: jax.Array) -> tuple:
        votes = samples.tally((rows,), (jnp.append(False, mask),), params)

        def losses(token: jax.Array) -> jax.Array | None:
            pair = params.strategy.token_losses(votes.tallied, counted, token, params)
            return None if pair is None else jnp.stack(pair)

        everything = jnp.ones(rows.shape[1], bool)
        counted = everything if votes.candidates.counted is None else votes.candidates.counted
        return mechanism.aggregate(votes, params), jax.vmap(losses)(jnp.arange(rows.shape[1])), counted

    return jax.vmap(one)(masks)


def check_one_token_is_within_its_price(name: str) -> None:
    """By enumeration, for every neighbour of every small batch: adaptive composition needs no more.

    In advance: the Rényi divergence of every order is within the event's, and no score moves by more than
    the sensitivity. Otherwise: no token loses more than it reports.
    """
    strategy = AGGREGATES[name]
    publics = np.array([[0, 0, 0, 0], [1, -2, 0.5, -30], [-8, 3, 0, 1]], np.float32)
    for per_context, clip_bound, k in (
        (1, 0.25, None),
        (1, 2.0, None),
        (2, 2.0, None),
        (1, 0.25, 2),
        (1, 2.0, 2),
    ):
        params = params_of(name, examples_per_context=per_context, clip_bound=clip_bound, public_top_k=k)
        event = strategy.event(params)
        assert (event is not None) == strategy.has_price_in_advance
        types, datasets = _types(clip_bound), _datasets(5)
        pairs = _neighbours(datasets, replace=per_context > 1)
        masks = np.array([[row in d for row in range(5)] for d in datasets])
        for public in publics:
            rows = jnp.asarray(np.concatenate([public[None], types]))
            found = _every_dataset(rows, jnp.asarray(masks), params)
            counted = np.asarray(found[2])
            assert (counted == counted[0]).all() and (k is not None or counted.all())
            kept = counted[0]
            scores = dict(zip(datasets, np.asarray(found[0], np.float64)[:, kept], strict=True))
            assert (found[1] is None) == strategy.has_price_in_advance
            losses = dict(
                zip(datasets, [()] * len(datasets) if event else np.asarray(found[1])[:, kept], strict=True)
            )
            logs = {d: oracles.log_softmax(found / params.temperature) for d, found in scores.items()}
            for a, b in pairs:
                if event is None:
                    ratios = logs[a] - logs[b]
                    assert (-losses[a][:, 0] - SLACK <= ratios).all(), (a, b)
                    assert (ratios <= losses[a][:, 1] + SLACK).all(), (a, b)
                    continue
                moved = np.abs(scores[a] - scores[b]).max()
                assert moved <= strategy.sensitivity(params) * (1 + 1e-5) + 1e-5
                curve = accounting.curve_of(event)
                for order in (order for order in ORDERS if order <= curve.largest_order):
                    found = oracles.renyi(logs[a], logs[b], order)
                    assert found <= order * curve.rho_at(order) * (1 + SLACK) + 1e-6, (a, b, order)


def check_a_price_bounds_what_one_unit_moves_or_there_is_none(name: str) -> None:
    strategy, params = AGGREGATES[name], params_of(name)
    if strategy.has_price_in_advance:
        assert 0 < strategy.sensitivity(params) < math.inf
        assert accounting.rho_per_private_token(params) == accounting.curve_of(strategy.event(params)).rho_at(
            2
        )
        tested = dataclasses.replace(params, threshold=0.5, threshold_noise_scale=0.2)
        assert accounting.rho_per_private_token(tested) > accounting.rho_per_private_token(params)
        cap = accounting.solve_max_private_tokens(params, epsilon=50.0, delta=1e-5, other_rho=0.0)
        run = dataclasses.replace(params, max_private_tokens=cap, max_batch_tokens=cap)
        assert accounting.epsilon_from_rho(accounting.generation_rho(run), 1e-5) <= 50.0
    else:
        for ask in (strategy.sensitivity, accounting.rho_per_private_token, accounting.generation_rho):
            try:
                ask(params)
            except ValueError as error:
                assert name in str(error)
            else:
                raise AssertionError(f'{ask} has a price')
    assert params.is_ex_post == (not strategy.has_price_in_advance)
    assert params.needs_public_logits == strategy.reads_public_logits
    assert params.needs_public_logits or not strategy.takes_reference


def check_its_facts_are_those_of_its_price(name: str) -> None:
    """A report states (ε, δ) exactly where there is a price, and the arithmetic gives that price."""
    strategy = AGGREGATES[name]
    for per_context in (1, 2):
        params = params_of(name, examples_per_context=per_context)
        facts = strategy.facts(params)
        assert (facts.statement == 'differential privacy') == strategy.has_price_in_advance
        (stage,) = facts.stages
        assert stage.explanation and stage.formula
        if not strategy.has_price_in_advance:
            assert stage.rho is None and facts.reproduction is None and facts.why_no_sensitivity
            continue
        rho = accounting.aggregate_rho(params)
        assert stage.rho == params.max_private_tokens * rho
        assert facts.reproduction is not None
        lines = (f's = {params.batch_size}', f'change = {params.change.value}')
        names: dict = {}
        exec('\n'.join((*lines, *facts.reproduction.settings, *facts.reproduction.steps)), names)
        assert math.isclose(eval(facts.reproduction.cost, names), rho, rel_tol=1e-12)
        assert [moved.value for moved in facts.sensitivities] == [strategy.sensitivity(params)]


CHECKS = (
    check_it_says_what_it_is,
    check_scores_equal_the_twin,
    check_padding_and_micro_batches_change_nothing,
    check_scores_are_finite_whatever_a_row_holds,
    check_the_mask_is_public,
    check_one_token_is_within_its_price,
    check_a_price_bounds_what_one_unit_moves_or_there_is_none,
    check_its_facts_are_those_of_its_price,
)
