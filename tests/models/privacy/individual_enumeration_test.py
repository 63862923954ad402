"""Individual accounting by enumeration: every stream of a small batch, exactly, and every neighbour.

The distribution under test is that of our own functions: `mechanism.tally`, `settle` and `aggregate` give,
in float32 and compiled, the scores at every prefix of every stream, with what each context has spent on the
way there. What is shown: for all neighbours in a family of adversarial contexts, in both directions, the
Rényi divergence of order α is at most αB for orders up to ω, and 4αB where a context may be replaced.
Mechanisms that are wrong in one place break it (`oracles.Individual`).
"""

import dataclasses
import functools
import itertools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.privacy import accounting, mechanism
from models.privacy.candidates import Narrowed
from models.privacy.params import MechanismParams
from tests import oracles, samples

pytestmark = pytest.mark.heavy

ALPHAS = (1.0001, 1.01, 1.1, 1.5, 2.0, 4.0, 8.0, 16.0)  # and ω
# float32 moves a log-probability by some 1e-6, hence a divergence by less than this share of its bound.
SLACK = 2e-4


class Family(typing.NamedTuple):
    """Types of context with their logits at every prefix, and the reference's M rows.

    Attributes:
        logits: `[types, N, V]` float32, raw.
        reference: `[M, N, V]` float32, raw.
        index: Prefix to its number in `logits`.
        largest: Most contexts of a batch.
    """

    logits: np.ndarray
    reference: np.ndarray
    index: dict[tuple[int, ...], int]
    largest: int = 3

    @property
    def vocab(self) -> int:
        return self.logits.shape[-1]

    @property
    def public(self) -> np.ndarray:
        return oracles.reference_mean(self.reference)

    def datasets(self) -> list[tuple[int, ...]]:
        types = range(len(self.logits))
        return [d for size in range(self.largest + 1) for d in itertools.combinations(types, size)]

    def added(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Pairs (a dataset, the same with one context more)."""
        types = range(len(self.logits))
        smaller = (d for d in self.datasets() if len(d) < self.largest)
        return [(d, tuple(sorted((*d, x)))) for d in smaller for x in types if x not in d]

    def replaced(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Pairs of datasets that differ in the content of one context."""
        return [(a, b) for a, b in itertools.combinations(self.datasets(), 2)
                if len(a) == len(b) and len(set(a) - set(b)) == 1]  # fmt: skip


def adversarial(vocab: int, length: int, c: float, rows: int = 1) -> Family:
    """Contexts: to and from one token, huge, mixed, broken, like the reference, mild, to a rare token."""
    index = oracles.prefixes(vocab, length)
    shape = (len(index), vocab)
    rng = np.random.default_rng(vocab * 100 + length)
    reference = rng.normal(0, 1.5, (rows, *shape)).astype(np.float32)
    public = oracles.reference_mean(reference)
    towards = np.where(np.arange(vocab) == 0, c, -c) * np.ones(shape)
    huge = rng.choice([3e38, -3e38, 1e30, -1e30, 0.0], shape)
    mixed = public + rng.choice([c, -c, 0.0, 1e-30, 2 * c], shape)
    broken = rng.normal(0, 4, shape)
    broken[rng.random(len(index)) < 0.5, -1] = np.nan
    broken[0, 0] = np.inf
    mild = public + rng.normal(0, 0.2 * c, shape)
    rare = public + c * (public == public.min(axis=-1, keepdims=True))
    # The reference's own logits, so that with one row the vote is 0 in float32 as well.
    same = reference[0] if rows == 1 else public
    types = np.stack([towards, -towards, huge, mixed, broken, same, mild, rare])
    return Family(types.astype(np.float32), reference, index)


# V, length cap of an example, tokens of the stream, s, c, c₂, τ, ω, stop tokens, K, M rows of the reference.
CASES = {
    'mild': (3, 3, 3, 60, 1.0, 0.3, 1.0, 8.0, (), 3, 1),
    'one context is all': (3, 2, 3, 1, 0.1, 0.3, 0.7, 4.0, (), 3, 1),
    'examples end and start again': (3, 2, 4, 40, 0.8, 0.1, 2.0, 16.0, (2,), 3, 1),
    'a long stream': (2, 3, 6, 50, 0.5, 0.01, 1.0, 12.0, (), 2, 1),
    'the best 2': (4, 2, 3, 20, 0.5, 0.5, 1.5, 6.0, (), 2, 1),
    'a reference of three': (3, 2, 3, 30, 0.3, 0.1, 0.7, 20.0, (1,), 3, 3),
}
# B, in what a context pays that gives c to one of two tokens and takes it from the other.
WORTH = (0.6, 1.3, 2.2)


def case(name: str, worth: float, **changes: typing.Any) -> tuple[Family, MechanismParams, frozenset[int]]:
    vocab, length, tokens, s, c, c2, tau, omega, stop, top_k, rows = CASES[name]
    params = MechanismParams(
        aggregate='difference',
        accounting='individual',
        batch_size=s,
        clip_bound=c,
        shift_bound=c2,
        temperature=tau,
        context_budget=1.0,
        omega=omega,
        public_top_k=top_k,
        max_example_tokens=length,
        max_batch_tokens=tokens,
    )
    params = dataclasses.replace(params, **changes)
    unit = float(oracles.individual_price([c, -c], [0, 0], oracles.Individual.of(params)))
    params = dataclasses.replace(params, context_budget=worth * unit)
    return adversarial(vocab, length, c, rows), params, frozenset(stop)


Logs = dict[tuple[int, ...], np.ndarray]


def twins(family: Family, settings: oracles.Individual) -> Logs:
    """The exact log-probability of every stream, for every dataset, by the slow twin."""
    steps = oracles.individual_steps(family.logits, family.public, settings)
    return {
        d: oracles.individual_log_distribution(steps, d, settings, family.index) for d in family.datasets()
    }


@functools.partial(jax.jit, static_argnames=('params', 'narrows'))
def _step(
    logits: jax.Array,
    reference: jax.Array,
    allowed: jax.Array,
    held: jax.Array,
    spent: jax.Array,
    params: MechanismParams,
    narrows: bool,
) -> tuple[jax.Array, jax.Array]:
    """Scores `[D, P, V]` and what is spent `[D, P, types]`, of D datasets at P prefixes."""
    vocab = logits.shape[-1]

    def at(
        rows: jax.Array, public: jax.Array, here: jax.Array, members: jax.Array, before: jax.Array
    ) -> tuple:
        mask = Narrowed(lambda: here, lambda tokens: here[tokens]) if narrows else here
        votes = mechanism.tally(public, (rows,), (members,), mask, params)
        votes, (after,), _ = mechanism.settle(votes, (before,), params)
        found = votes.candidates
        tokens = jnp.arange(vocab) if found.tokens is None else found.tokens
        scores = jnp.where(found.allowed, mechanism.aggregate(votes, params) / params.temperature, -jnp.inf)
        return jnp.full(vocab, -jnp.inf).at[tokens].set(scores), after

    over_prefixes = jax.vmap(at, in_axes=(1, 1, 0, None, 0))
    return jax.vmap(over_prefixes, in_axes=(None, None, None, 0, 0))(logits, reference, allowed, held, spent)


def ours(
    family: Family, params: MechanismParams, stop: frozenset[int], masks: np.ndarray | None = None
) -> tuple[Logs, np.ndarray]:
    """The same by our functions, and what each type has spent at the end `[D, streams, types]`.

    With narrowed masks `[N, V]` a token that is alone is given, and not priced.
    """
    settings, datasets = oracles.Individual.of(params, stop), family.datasets()
    allowed = np.ones(family.public.shape, bool) if masks is None else masks
    held = np.zeros((len(datasets), len(family.logits)), bool)
    for row, dataset in enumerate(datasets):
        held[row, list(dataset)] = True
    most = family.vocab ** (params.max_batch_tokens - 1)
    # One program for all steps: what is beyond a step's prefixes is computed and dropped.
    spent = np.zeros((len(datasets), most, len(family.logits)), np.float32)
    total = np.zeros((len(datasets), 1))
    streams: list[tuple[int, ...]] = [()]
    for _ in range(params.max_batch_tokens):
        places = [family.index[oracles.example_of(stream, settings)] for stream in streams]
        padded = np.resize(places, most)
        rows, public = family.logits[:, padded], family.reference[:, padded]
        narrows = masks is not None
        scores, after = map(np.array, _step(rows, public, allowed[padded], held, spent, params, narrows))
        is_forced = allowed[padded].sum(axis=1) == 1
        after[:, is_forced] = spent[:, is_forced]
        scores[:, is_forced] = np.where(allowed[padded][is_forced], 0.0, -np.inf)
        logs = oracles.log_softmax(scores.astype(np.float64)[:, : len(streams)])
        total = (total[:, :, None] + logs).reshape(len(datasets), -1)
        paid = np.repeat(after[:, : len(streams)], family.vocab, axis=1)
        spent[:, : min(most, paid.shape[1])] = paid[:, :most]
        streams = [(*stream, token) for stream in streams for token in range(family.vocab)]
    assert (paid[np.broadcast_to(~held[:, None], paid.shape)] == 0).all()
    return dict(zip(datasets, total, strict=True)), paid


def possible(logs: Logs) -> Logs:
    """Without streams that no dataset can give; there is none that only some can."""
    may = np.isfinite(logs[()])
    assert all((np.isfinite(found) == may).all() for found in logs.values())
    return {d: found[may] for d, found in logs.items()}


def worst_excess(
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]], logs: Logs, rho: float, omega: float
) -> float:
    """Largest D_α over αρ, over pairs, both directions and orders up to ω."""
    orders = [alpha for alpha in ALPHAS if alpha < omega] + [omega]
    logs = possible(logs)
    return max(
        oracles.renyi(p, q, alpha) / (rho * alpha)
        for a, b in pairs
        for p, q in ((logs[a], logs[b]), (logs[b], logs[a]))
        for alpha in orders
    )


@pytest.mark.parametrize('worth', WORTH)
@pytest.mark.parametrize('name', samples.with_first(CASES, 'mild'))
def test_a_stream_costs_at_most_the_budget_of_one_context(name: str, worth: float) -> None:
    family, params, stop = case(name, worth)
    settings = oracles.Individual.of(params, stop)
    event = accounting.generation_event(params)
    assert (event.rho, event.omega) == (params.context_budget, params.omega)
    found, spent = ours(family, params, stop)
    exact = twins(family, settings)
    for dataset in family.datasets():
        assert np.exp(found[dataset]).sum() == pytest.approx(1, abs=1e-9)
        # A vote is rounded to 2⁻¹⁶ nats.
        np.testing.assert_allclose(found[dataset], exact[dataset], rtol=0, atol=2e-4)
    assert spent.max() <= params.context_budget
    # The reference's own vote is 0, or what rounding the mean of three rows leaves.
    assert (spent[..., 5] <= (0 if len(family.reference) == 1 else 1e-10)).all()
    pairs = family.added()
    assert ((), (0,)) in pairs and len(pairs) == 8 + 8 * 7 + 28 * 6
    assert worst_excess(pairs, exact, params.context_budget, params.omega) <= 1 + 1e-9
    assert worst_excess(pairs, found, params.context_budget, params.omega) <= 1 + SLACK
    # Somebody is silent somewhere: the filter is in use.
    unfiltered = possible(twins(family, dataclasses.replace(settings, filter='none')))
    filtered = possible(exact)
    assert worth > 2 or any(np.abs(unfiltered[d] - filtered[d]).max() > 1e-3 for d in family.datasets())


@pytest.mark.parametrize('name', ['mild', 'examples end and start again', 'a reference of three'])
def test_replacing_a_context_costs_four_times(name: str) -> None:
    family, params, stop = case(name, 1.3, examples_per_context=2)
    event = accounting.generation_event(params)
    assert (event.rho, event.omega) == (4 * params.context_budget, params.omega)
    found, _ = ours(family, params, stop)
    exact = twins(family, oracles.Individual.of(params, stop))
    for dataset in family.datasets():
        np.testing.assert_allclose(found[dataset], exact[dataset], rtol=0, atol=2e-4)
    pairs = family.replaced() + family.added()
    assert ((0,), (1,)) in pairs
    assert worst_excess(pairs, exact, event.rho, params.omega) <= 1 + 1e-9
    assert worst_excess(pairs, found, event.rho, params.omega) <= 1 + SLACK


@pytest.mark.parametrize('name', ['mild', 'examples end and start again', 'a reference of three'])
def test_replacing_a_context_breaks_the_price_of_adding_one(name: str) -> None:
    family, params, stop = case(name, 1.3)
    found, _ = ours(family, params, stop)
    assert worst_excess(family.replaced(), found, params.context_budget, params.omega) > 1.3


# --------------------------------------------------------- wrong mechanisms are rejected

Wrong = dict[str, typing.Any]
WRONG: dict[str, tuple[str, float, Wrong]] = {
    'no filter': ('a long stream', 0.6, {'filter': 'none'}),
    'no filter, across examples': ('examples end and start again', 0.6, {'filter': 'none'}),
    'filter one step late': ('a long stream', 0.6, {'filter': 'one step late'}),
    'filter one step late, across examples': (
        'examples end and start again', 0.6, {'filter': 'one step late'},
    ),
    "another's spending": ('examples end and start again', 1.3, {'filter': "another's spending"}),
    'what is added up is not what was clamped and priced': ('mild', 1.3, {'clamps_votes': False}),
    'divisor n': ('mild', 0.6, {'divide_by_true_size': True}),
    'price from the true average': ('one context is all', 1.0, {'at_true_average': True}),
    'price of half of u': ('a long stream', 0.6, {'priced_share': 0.5}),
}  # fmt: skip


@pytest.mark.parametrize('wrong', WRONG)
def test_wrong_mechanisms_break_the_budget(wrong: str) -> None:
    name, worth, changes = WRONG[wrong]
    family, params, stop = case(name, worth)
    right = oracles.Individual.of(params, stop)
    pairs, budget = family.added(), params.context_budget
    assert worst_excess(pairs, twins(family, right), budget, params.omega) <= 1 + 1e-9
    spoilt = twins(family, dataclasses.replace(right, **changes))
    assert worst_excess(pairs, spoilt, budget, params.omega) > 1.2


def rare(log_odds: float, c: float, copies: int) -> Family:
    """Contexts that all raise one rare token of two by c, and say nothing of the other."""
    share = np.exp(-log_odds)
    public = np.log([[share, 1 - share]])
    push = public + [c, 0.0]
    logits = np.stack([push] * copies).astype(np.float32)
    return Family(logits, public[None].astype(np.float32), {(): 0}, copies)


def one_step(family: Family, settings: oracles.Individual) -> oracles.Individual:
    """With exactly the budget that the first context's vote costs, in a mechanism that may be wrong."""
    price = oracles.individual_steps(family.logits, family.public, settings).prices[0, 0]
    return dataclasses.replace(settings, budget=float(price) * (1 + 1e-9))


RARE = oracles.Individual(
    s=4, c=1.0, c2=0.05, tau=0.7, omega=20.0, budget=1.0, max_tokens=1, max_example_tokens=1
)


@pytest.mark.first
@pytest.mark.parametrize('log_odds, least', [(4.0, 5.0), (6.0, 12.0), (8.0, 14.0)])
def test_a_price_that_does_not_grow_breaks_the_budget(log_odds: float, least: float) -> None:
    """A rare token that one context raises: at high orders the tilt goes far beyond the batch's shift."""
    family = rare(log_odds, RARE.c, 3)
    right, wrong = one_step(family, RARE), one_step(family, dataclasses.replace(RARE, grows=False))
    assert wrong.budget < right.budget
    pairs = family.added()
    assert worst_excess(pairs, twins(family, right), right.budget, RARE.omega) <= 1 + 1e-9
    assert worst_excess(pairs, twins(family, wrong), wrong.budget, RARE.omega) > least


@pytest.mark.first
def test_a_shift_that_is_not_flattened_breaks_the_budget() -> None:
    """The others alone raise the rare token beyond c₂, where the price does not look."""
    right = dataclasses.replace(RARE, s=2, tau=1.0, omega=1.5)
    family = rare(8.0, RARE.c, 12)
    right = one_step(family, right)
    pairs = family.added()
    assert worst_excess(pairs, twins(family, right), right.budget, right.omega) <= 1 + 1e-9
    spoilt = twins(family, dataclasses.replace(right, flattens=False))
    assert worst_excess(pairs, spoilt, right.budget, right.omega) > 2


def test_votes_that_are_not_centred_break_the_budget() -> None:
    """The others take weight off the common token, and so make the rare one what is drawn."""
    public = np.log([[1e-3, 1 - 1e-3]])
    other, push = np.log([[0.63, 0.37]]), public + [1.0, 0.0]
    logits = np.stack([other] * 9 + [push])
    # Held against what it pays itself, while the others vote whatever that costs them.
    right = dataclasses.replace(RARE, s=2, tau=1.0, omega=1.5, filter='none')
    family = Family(logits.astype(np.float32), public[None].astype(np.float32), {(): 0}, 10)
    pair = [(tuple(range(9)), tuple(range(10)))]
    for settings, low, high in (
        (right, 0.0, 1 + 1e-9),
        (dataclasses.replace(right, centres_votes=False), 10.0, np.inf),
    ):
        price = oracles.individual_steps(family.logits, family.public, settings).prices[9, 0]
        assert low < worst_excess(pair, _laws(family, settings, pair[0]), price, settings.omega) <= high


def _laws(family: Family, settings: oracles.Individual, datasets: typing.Iterable[tuple[int, ...]]) -> Logs:
    """`twins` of some datasets, and of the empty one."""
    steps = oracles.individual_steps(family.logits, family.public, settings)
    return {d: oracles.individual_log_distribution(steps, d, settings, family.index) for d in ((), *datasets)}


@pytest.mark.parametrize('tau', [0.7, 1.0, 2.0])
def test_the_budget_is_nearly_used_up(tau: float) -> None:
    """Votes of ±c on even odds at a small c/s: half of the budget would be broken."""
    settings = dataclasses.replace(RARE, s=50, c2=0.001, tau=tau, omega=2.0, max_tokens=3)
    public = np.zeros((1, 1, 2), np.float32)
    # log-probabilities that lie 1 above and below those of the reference are out of reach together.
    settings = dataclasses.replace(settings, c=0.5)
    family = Family(np.array([[[2.0, -2.0]], [[-2.0, 2.0]]], np.float32), public, {(): 0}, 2)
    one = one_step(family, settings).budget
    for worth, least in ((1.0, 0.99), (3.0, 0.99), (2.999, 0.66)):
        enough = dataclasses.replace(settings, budget=worth * one)
        found = worst_excess(family.added(), twins(family, enough), enough.budget, enough.omega)
        # A divergence so small has fewer digits in float64.
        assert least < found <= 1 + 1e-6
        assert worst_excess(family.added(), twins(family, enough), enough.budget / 2, enough.omega) > 1.2
