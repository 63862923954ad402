"""Individual accounting by brute force: the price of a context, and the exact law of a whole token stream.

Symbols are those of models/privacy/METHOD.md 4d: c₂ is `c2`, B `budget`, ω `omega`; `a` is 2 where a
unit may replace a context.
`Individual` holds the right mechanism and, through its last fields, the wrong ones that
`tests/models/privacy/individual_enumeration_test.py` must reject.
"""

import dataclasses
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
    """The settings in METHOD's symbols; the last nine fields spoil it on purpose.

    Attributes:
        s: Divisor.
        c: Clip bound.
        c2: Up to here a shift counts in full.
        tau: τ.
        budget: B.
        omega: ω.
        a: 2 where a unit may replace a context, else 1.
        max_tokens: Cap on all tokens, which alone ends a stream.
        max_example_tokens: Length cap of one example.
        stop: Texts that end an example, but for its length.
        top_k: K, or None for the whole vocabulary.
        filter: Wrong but for 'right': who votes.
        grows: False is wrong: prices leave out e^{k₁ h + k₂ h²}.
        at_true_average: Wrong: a price is that of what is sampled from when all vote.
        clamps_votes: False is wrong: the vote is what was priced before it was clamped.
        centres_votes: False is wrong: the mean of a vote may be negative.
        flattens: False is wrong: a shift beyond c₂ counts in full.
        divide_by_true_size: Wrong: the sum is divided by the number of contexts, at least 1.
        priced_share: Other than 1 is wrong: that share of every vote is priced.
        masks_late: Wrong: votes and prices read the K best of all tokens, and what is sampled is masked.
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
    grows: bool = True
    at_true_average: bool = False
    clamps_votes: bool = True
    centres_votes: bool = True
    flattens: bool = True
    divide_by_true_size: bool = False
    priced_share: float = 1.0
    masks_late: bool = False

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
        """The cost of the stream of a batch: a² B."""
        return self.a**2 * self.budget


def individual_price(u: Sequence[float], log_p: Sequence[float], mechanism: Individual) -> mpmath.mpf:
    """ρ_i = ½ min_λ { λ + e^b Σ π (a² − λ)⁺ e^{k₁ h + k₂ h²} } of one context at one step, in 50 digits.

    Args:
        u: Votes on the allowed tokens.
        log_p: Log-probabilities of the reference on them, up to a constant.
        mechanism: The settings.
    """
    with mpmath.workdps(DIGITS):
        tau, omega, scale = (
            mpmath.mpf(mechanism.tau),
            mpmath.mpf(mechanism.omega),
            mechanism.s * mechanism.tau,
        )
        weights = [mpmath.exp(mpmath.mpf(float(log)) / tau) for log in log_p]
        pi = [weight / mpmath.fsum(weights) for weight in weights]
        sizes = [abs(mpmath.mpf(float(x))) / scale for x in u]
        gain = mpmath.exp(mechanism.c2 / tau)
        sigma = mpmath.sqrt(gain * mpmath.fsum(p * x**2 * mpmath.exp(x) for p, x in zip(pi, sizes)))
        other = mpmath.mpf(0)
        if mechanism.a == 2:
            eta = 2 * mpmath.mpf(mechanism.c) / scale
            other = eta + mpmath.sqrt(gain) * eta * mpmath.exp(eta)
            sigma *= mpmath.exp(eta / 2)
        k1, k2 = (omega + 1) / 3 + mpmath.mpf(1) / 12, omega**2 / 8
        if not mechanism.grows:
            k1 = k2 = mpmath.mpf(0)
        weights = []
        for p, x in zip(pi, sizes, strict=True):
            h = x + sigma + other
            weights.append(gain * p * mpmath.exp(k1 * h + k2 * h**2))
        largest = max(sizes) ** 2
        powers = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14)
        levels = [largest * share for share in (0, *(mpmath.mpf(2) ** -power for power in powers))]
        levels.append(sizes[pi.index(max(pi))] ** 2)
        return (
            min(
                level + mpmath.fsum(w * (x**2 - level) for w, x in zip(weights, sizes) if x**2 > level)
                for level in levels
            )
            / 2
        )


def reference_mean(public: np.ndarray) -> np.ndarray:
    """`[..., V]` geometric mean of `[M, ..., V]` public rows, as logits (METHOD 4c)."""
    return np.mean([log_softmax(row.astype(np.float64)) for row in public], axis=0)


def individual_votes(
    logits: np.ndarray, public: np.ndarray, allowed: np.ndarray, mechanism: Individual
) -> np.ndarray:
    """u_i = d_i − E_π[d_i] with d_i = clamp(log p_i − log p, −c, c), `[n, V]`; 0 where not allowed.

    A row that is not finite votes nothing.

    Args:
        logits: `[n, V]`.
        public: `[V]`.
        allowed: `[V]` bool.
        mechanism: The settings.
    """
    votes = np.zeros(logits.shape)
    log_p, c = log_softmax(public[allowed].astype(np.float64)), mechanism.c
    pi = np.exp(log_softmax(log_p / mechanism.tau))
    for row, found in zip(logits[:, allowed].astype(np.float64), votes, strict=True):
        if np.isfinite(row).all():
            difference = log_softmax(row) - log_p
            clamped = np.minimum(np.maximum(difference, -c), c)
            mean = (pi * clamped).sum() if mechanism.centres_votes else 0.0
            found[allowed] = (clamped if mechanism.clamps_votes else difference) - mean
    return votes


def link(shift: np.ndarray, c2: float, tau: float) -> np.ndarray:
    """τ l(w/τ) of a shift w in nats: in full up to c₂, then by the logarithm of a square."""
    flat = np.array([w if w <= c2 else c2 + 2 * tau * np.log1p((w - c2) / tau / 2) for w in shift.ravel()])
    return np.maximum(flat.reshape(shift.shape), -15 * tau)


@dataclasses.dataclass(frozen=True)
class IndividualSteps:
    """The mechanism's input at every prefix of an example: `[N]` prefixes, `[T]` types of context.

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


def individual_steps(
    logits: np.ndarray, public: np.ndarray, mechanism: Individual, masks: np.ndarray | None = None
) -> IndividualSteps:
    """Votes and prices of every type of context at every prefix.

    Args:
        logits: `[T, N, V]`, raw.
        public: `[N, V]`.
        mechanism: The settings.
        masks: `[N, V]` bool, what predictions are narrowed to: their part of the K best of all tokens, or
            their own K best where that is none.
    """
    log_p = np.full(public.shape, -np.inf)
    votes, priced = np.zeros(logits.shape), np.zeros(logits.shape)
    prices = np.zeros(logits.shape[:2])
    everything = np.ones(public.shape[-1], bool)
    for place, row in enumerate(public):
        allowed = allowed_tokens(row, everything, mechanism.top_k, mechanism.s, 0.0)
        mask = everything if masks is None else masks[place]
        if not (allowed & mask).any():
            allowed = allowed_tokens(row, mask, mechanism.top_k, mechanism.s, 0.0)
        if not mechanism.masks_late:
            allowed = allowed & mask
        log_p[place, allowed] = log_softmax(row[allowed].astype(np.float64))
        votes[:, place] = individual_votes(logits[:, place], row, allowed, mechanism)
        clamped = dataclasses.replace(mechanism, clamps_votes=True)
        priced[:, place] = individual_votes(logits[:, place], row, allowed, clamped)
        priced[:, place] *= mechanism.priced_share
        for number, vote in enumerate(priced[:, place]):
            prices[number, place] = individual_price(vote[allowed], log_p[place, allowed], mechanism)
        log_p[place, ~mask] = -np.inf
    return IndividualSteps(log_p, votes, priced, prices)


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
        steps: Steps of all types of context.
        dataset: The types that the batch holds.
        mechanism: The settings.
        index: From the tokens of an example to the number of its prefix.
    """
    members, vocab = list(dataset), steps.log_p.shape[-1]
    divisor = max(1, len(members)) if mechanism.divide_by_true_size else mechanism.s

    def scores(place: int, voters: np.ndarray) -> np.ndarray:
        shift = steps.votes[members, place][voters].sum(axis=0) / divisor
        if mechanism.flattens:
            shift = link(shift, mechanism.c2, mechanism.tau)
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
