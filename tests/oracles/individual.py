"""METHOD 4d by brute force: the price of a context, and the exact law of a whole token stream.

The envelope is (c₂ + (ω−1) |u(x)|/s)/τ at token x: METHOD has c for |u(x)|, which is never smaller, and its
proof needs no more than this.
Symbols are METHOD's: c₂ is `c2`, B `budget`, ω `omega`; `a` is 2 where a unit may replace a context.
`Individual` holds the right mechanism and, through its last fields, the wrong ones that
`tests/models/privacy/individual_enumeration_test.py` must reject.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Literal

import mpmath
import numpy as np

from models.privacy.params import MechanismParams
from tests.oracles.aggregates import allowed_tokens, log_softmax
from tests.oracles.stopping import Stop, stopped

DIGITS = 50

Filter = Literal['right', 'none', 'one step late', "another's spending"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Individual:
    """METHOD 4d's settings in its symbols; the last seven fields spoil it on purpose.

    Attributes:
        s: Divisor.
        c: Clip bound.
        c2: Bound of the shift.
        tau: τ.
        budget: B.
        omega: ω.
        a: 2 where a unit may replace a context, else 1.
        max_tokens: Cap on all tokens, which alone ends a stream.
        max_example_tokens: Length cap of one example.
        stop: What ends an example, but for its length.
        top_k: K, or None for the whole vocabulary.
        filter: Wrong but for 'right': who votes.
        has_envelope: False is wrong: prices look no further than c₂/τ.
        at_true_average: Wrong: a price is that of what is sampled from when all vote.
        clamps_votes: False is wrong: the vote is what was priced before it was clamped.
        clamps_shift: False is wrong: the shift is not clamped.
        divide_by_true_size: Wrong: the sum is divided by the number of contexts, at least 1.
        priced_share: Other than 1 is wrong: that share of every vote is priced.
    """

    s: float
    c: float
    c2: float
    tau: float
    budget: float
    omega: float
    a: int = 1
    max_tokens: int
    max_example_tokens: int
    stop: Stop = frozenset()
    top_k: int | None = None
    filter: Filter = 'right'
    has_envelope: bool = True
    at_true_average: bool = False
    clamps_votes: bool = True
    clamps_shift: bool = True
    divide_by_true_size: bool = False
    priced_share: float = 1.0

    @classmethod
    def of(cls, params: MechanismParams, stop: Stop = frozenset()) -> 'Individual':
        """The right mechanism with a run's settings."""
        replaces = params.unit == 'example' and params.examples_per_context > 1
        return cls(
            s=params.batch_size,
            c=params.clip_bound,
            c2=params.shift_bound,
            tau=params.temperature,
            budget=params.context_budget,
            omega=params.omega,
            a=2 if replaces else 1,
            max_tokens=params.max_batch_tokens,
            max_example_tokens=params.max_example_tokens,
            stop=stop,
            top_k=params.public_top_k,
        )

    @property
    def rho(self) -> float:
        """What the stream of a batch costs: a² B."""
        return self.a**2 * self.budget

    def radii(self, u: Sequence[float]) -> list[mpmath.mpf]:
        """(c₂ + (ω−1) |u(x)|/s)/τ for every token; without the envelope c₂/τ.

        Where a unit may replace a context the other's vote, up to c, tilts as well.
        """
        with mpmath.workdps(DIGITS):
            share = (mpmath.mpf(self.omega) - 1) / self.s if self.has_envelope else mpmath.mpf(0)
            other = (self.a - 1) * mpmath.mpf(self.c)
            return [(self.c2 + share * (abs(mpmath.mpf(float(x))) + other)) / self.tau for x in u]


def largest_mean_square(
    u: Sequence[float], log_p: Sequence[float], tau: float, radii: Sequence[mpmath.mpf | float]
) -> mpmath.mpf:
    """E = sup { E_q[u²] : q ∝ p^{1/τ} e^v, |v| ≤ R }, by trying every threshold set, in 50 digits.

    The supremum of a ratio of two sums over a box is at a corner, and of the corners those are best
    that have +R exactly where u² is above some value.

    Args:
        u: Votes on the allowed tokens.
        log_p: Log-probabilities of the reference on them.
        tau: τ.
        radii: R at each token.
    """
    with mpmath.workdps(DIGITS):
        tokens = sorted(
            (
                (mpmath.mpf(float(x)) ** 2, mpmath.exp(mpmath.mpf(float(log)) / tau), mpmath.exp(radius))
                for x, log, radius in zip(u, log_p, radii, strict=True)
            ),
            key=lambda token: -token[0],
        )
        total = mpmath.fsum(weight / far for _, weight, far in tokens)
        squares = mpmath.fsum(weight / far * square for square, weight, far in tokens)
        best = squares / total
        for square, weight, far in tokens:
            total += (far - 1 / far) * weight
            squares += (far - 1 / far) * weight * square
            best = max(best, squares / total)
        return best


def largest_mean_square_of_all_corners(
    u: Sequence[float], log_p: Sequence[float], tau: float, radii: Sequence[mpmath.mpf | float]
) -> mpmath.mpf:
    """The same by all 2^V corners of the box."""
    with mpmath.workdps(DIGITS):
        best = mpmath.mpf(0)
        for signs in itertools.product((-1, 1), repeat=len(u)):
            weights = [
                mpmath.exp(mpmath.mpf(float(log)) / tau + sign * mpmath.mpf(radius))
                for log, sign, radius in zip(log_p, signs, radii, strict=True)
            ]
            squares = mpmath.fsum(w * mpmath.mpf(float(x)) ** 2 for w, x in zip(weights, u, strict=True))
            best = max(best, squares / mpmath.fsum(weights))
        return best


def individual_price(u: Sequence[float], log_p: Sequence[float], mechanism: Individual) -> mpmath.mpf:
    """ρ_i = ½ E_i/(sτ)² of one context at one step."""
    with mpmath.workdps(DIGITS):
        largest = largest_mean_square(u, log_p, mechanism.tau, mechanism.radii(u))
        return largest / 2 / (mpmath.mpf(mechanism.s) * mechanism.tau) ** 2


def reference_mean(public: np.ndarray) -> np.ndarray:
    """`[..., V]` geometric mean of `[M, ..., V]` public rows, as logits (METHOD 4c)."""
    return np.mean([log_softmax(row.astype(np.float64)) for row in public], axis=0)


def individual_votes(
    logits: np.ndarray, public: np.ndarray, allowed: np.ndarray, c: float | None
) -> np.ndarray:
    """u_i = clamp(z_i − log p − b_i, −c, c) on the allowed tokens, `[n, V]`; 0 elsewhere.

    b_i makes both sides log-probabilities. A row that is not finite votes nothing.

    Args:
        logits: `[n, V]`.
        public: `[V]`.
        allowed: `[V]` bool.
        c: Clip bound; None does not clamp (wrong).
    """
    votes = np.zeros(logits.shape)
    log_p = log_softmax(public[allowed].astype(np.float64))
    for row, found in zip(logits[:, allowed].astype(np.float64), votes, strict=True):
        if np.isfinite(row).all():
            difference = log_softmax(row) - log_p
            found[allowed] = difference if c is None else np.minimum(np.maximum(difference, -c), c)
    return votes


@dataclasses.dataclass(frozen=True)
class IndividualSteps:
    """What the mechanism reads at every prefix of an example: `[N]` prefixes, `[T]` types of context.

    Attributes:
        log_p: `[N, V]`, −∞ where not allowed.
        votes: `[T, N, V]`, what is added up.
        priced: `[T, N, V]`, what is priced.
        prices: `[T, N]`.
    """

    log_p: np.ndarray
    votes: np.ndarray
    priced: np.ndarray
    prices: np.ndarray


def individual_steps(logits: np.ndarray, public: np.ndarray, mechanism: Individual) -> IndividualSteps:
    """Votes and prices of every type of context at every prefix.

    Args:
        logits: `[T, N, V]`, raw.
        public: `[N, V]`.
        mechanism: The settings.
    """
    log_p = np.full(public.shape, -np.inf)
    votes, priced = np.zeros(logits.shape), np.zeros(logits.shape)
    prices = np.zeros(logits.shape[:2])
    everything = np.ones(public.shape[-1], bool)
    for place, row in enumerate(public):
        allowed = allowed_tokens(row, everything, mechanism.top_k, mechanism.s, 0.0)
        log_p[place, allowed] = log_softmax(row[allowed].astype(np.float64))
        clamped = individual_votes(logits[:, place], row, allowed, mechanism.c)
        priced[:, place] = mechanism.priced_share * clamped
        votes[:, place] = clamped
        if not mechanism.clamps_votes:
            votes[:, place] = individual_votes(logits[:, place], row, allowed, None)
        for number, vote in enumerate(priced[:, place]):
            prices[number, place] = individual_price(vote[allowed], log_p[place, allowed], mechanism)
    return IndividualSteps(log_p, votes, priced, prices)


def individual_streams(vocab: int, mechanism: Individual) -> list[tuple[int, ...]]:
    """Every stream of a batch, in the order of `individual_log_distribution`: all have the cap's length."""
    return list(itertools.product(range(vocab), repeat=mechanism.max_tokens))


def example_of(stream: Sequence[int], mechanism: Individual) -> tuple[int, ...]:
    """The tokens of the example that a stream is within."""
    example: tuple[int, ...] = ()
    for token in stream:
        example = (*example, token)
        if stopped(example, mechanism.stop) or len(example) == mechanism.max_example_tokens:
            example = ()
    return example


def _voters(spent: np.ndarray, prices: np.ndarray, mechanism: Individual) -> np.ndarray:
    """`[n]` bool: who votes."""
    if mechanism.filter == 'none':
        return np.ones(len(spent), bool)
    if mechanism.filter == 'one step late':
        return spent <= mechanism.budget
    counted = np.roll(spent, 1) if mechanism.filter == "another's spending" else spent
    return counted + prices <= mechanism.budget


def individual_log_distribution(
    steps: IndividualSteps,
    dataset: Sequence[int],
    mechanism: Individual,
    index: dict[tuple[int, ...], int],
) -> np.ndarray:
    """`[V^T]` exact log-probability of every stream of one batch; what was spent goes on across examples.

    Args:
        steps: Of all types of context.
        dataset: The types that the batch holds.
        mechanism: The settings.
        index: From the tokens of an example to the number of its prefix.
    """
    members, vocab = list(dataset), steps.log_p.shape[-1]
    divisor = max(1, len(members)) if mechanism.divide_by_true_size else mechanism.s

    def scores(place: int, voters: np.ndarray) -> np.ndarray:
        shift = steps.votes[members, place][voters].sum(axis=0) / divisor
        if mechanism.clamps_shift:
            shift = np.clip(shift, -mechanism.c2, mechanism.c2)
        return log_softmax((steps.log_p[place] + shift) / mechanism.tau)

    def prices_at(place: int) -> np.ndarray:
        if not mechanism.at_true_average:
            return steps.prices[members, place]
        sampled = np.exp(scores(place, np.ones(len(members), bool)))
        squares = (steps.priced[members, place] ** 2) @ sampled
        return squares / 2 / (mechanism.s * mechanism.tau) ** 2

    def extend(stream: tuple[int, ...], spent: np.ndarray) -> np.ndarray:
        if len(stream) == mechanism.max_tokens:
            return np.zeros(1)
        place = index[example_of(stream, mechanism)]
        prices = prices_at(place)
        voters = _voters(spent, prices, mechanism)
        log = scores(place, voters)
        after = spent + np.where(voters, prices, 0.0)
        return np.concatenate([log[token] + extend((*stream, token), after) for token in range(vocab)])

    return extend((), np.zeros(len(members)))
