"""Individual accounting: the vote of one context at one step, its price, and its budget (METHOD 4d).

Every context pays the sharpest proved bound on its own influence. A context does not vote at a step that
its budget does not cover. Prices are upper bounds in float32; what a context has spent is private to the
curator.
C is the number of a step's candidates, m the rows of one micro-batch.

Source: README step 2b; Feldman and Zrnic 2021, "Individual privacy accounting via a Rényi filter".
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

from etils import epy

from models.privacy.public_numbers import PublicNumbers

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp
    import numpy as np

# Votes are whole multiples of this, in nats, so their sums are exact in any order.
QUANTUM = 2.0**-16
# Votes of 2c are exact in float32 up to here.
LARGEST_CLIP = 2.0**7
# s τ up to here keeps squares of votes, and their differences, normal in float32.
LARGEST_SCALE = 2.0**30
# Most that a price loses where the product of a share and a square falls below the range of float32.
_LEAST_PRICE = 2.0**-100
# The values of λ that a price tries, as shares of the context's largest a².
LEVELS = (0.0, *(2.0**-power for power in (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14)))
# All votes together lower a score by at most this, in units of the temperature: the sampler's range.
LARGEST_FALL = 15.0
_ROUNDING = 2.0**-24  # of one float32 operation


class Votes(NamedTuple):
    """The votes of the contexts of one micro-batch at a step, and the price of each.

    Attributes:
        counts: `[m, C]` int32, votes in quanta.
        prices: `[m]` float32, zCDP ρ, never below the exact price.
    """

    counts: jax.Array
    prices: jax.Array


class Receipt(NamedTuple):
    """Payments of the contexts for a step. Private to the curator.

    Attributes:
        charged: `[m]` float32 for every micro-batch; 0 for a context that did not vote.
        voted: `[m]` bool for every micro-batch.
    """

    charged: tuple[jax.Array, ...]
    voted: tuple[jax.Array, ...]


def most_contexts(clip_bound: float) -> int:
    """The largest number of contexts whose votes add up within 32 bits."""
    return (2**31 - 1) // (2 * vote_limit(clip_bound))


def vote_limit(clip_bound: float) -> int:
    """c in quanta, rounded down."""
    return math.floor(clip_bound / QUANTUM)


def votes_of(differences: jax.Array, public: jax.Array, allowed: jax.Array, params: PublicNumbers) -> Votes:
    """The votes of some contexts and their prices.

    A vote is the difference, clipped to [−c, c], minus its mean under p^{1/τ}. The votes of others can then
    not make a token that a context favours likelier than `prices` assumes (README step 2b).

    Formal guarantees: a row's votes and price are a function of that row and of public values; votes lie
    in [−2c, 2c], whatever the row holds, and their mean under p^{1/τ} is not negative; the price is at
    least that of step 2b for exactly these votes, and 0 if all of them are 0.

    Args:
        differences: `[m, C]` float32, z − log p of each context minus a constant of its own, in nats; NaN
            for no vote, infinite beyond the range of float32.
        public: `[C]` float32, log p on the allowed tokens.
        allowed: `[C]` bool, at least one.
        params: With individual accounting.
    """
    limit = vote_limit(params.clip_bound)
    says = allowed & ~jnp.isnan(differences)
    clipped = jnp.where(says, jnp.round(jnp.where(says, differences, 0.0) / QUANTUM), 0.0)
    clipped = jnp.clip(clipped, -limit, limit)
    shares = _shares(public, allowed, params)
    # At most the mean, whatever rounding the shares and sums lose; 0 if all votes are 0.
    loss = 2 * _lost(len(shares)) * (shares * jnp.abs(clipped)).sum(axis=-1, keepdims=True)
    mean = jnp.floor((shares * clipped).sum(axis=-1, keepdims=True) - loss)
    counts = jnp.where(allowed, clipped - jnp.maximum(mean, -limit), 0.0).astype(jnp.int32)
    return Votes(counts, prices(counts, public, allowed, params))


def prices(counts: jax.Array, public: jax.Array, allowed: jax.Array, params: PublicNumbers) -> jax.Array:
    """Upper bounds on the cost of each context's votes at this step, ρ, `[m]` float32.

        ρ  =  ½ min over λ of  λ + e^{c₂/τ} Σ π (a² − λ)⁺ e^{k₁ h + k₂ h²}      π ∝ p^{1/τ} where allowed
        a  =  |u|/(sτ),   h = a + √(e^{c₂/τ} Σ π a² e^a),   k₁ = (ω+1)/3 + 1/12,   k₂ = ω²/8

    README step 2b has the proof, for any λ >= 0. The values tried are shares of a context's own largest a²,
    and the a² of the likeliest token. If a unit may replace a context, h includes the largest vote of the
    other context.

    Args:
        counts: `[m, C]` int32, votes in quanta, 0 where not allowed, whose mean under π is not negative.
        public: `[C]` float32, log p on the allowed tokens.
        allowed: `[C]` bool.
        params: With individual accounting.
    """
    assert params.omega is not None and params.shift_bound is not None
    scale, gain = params.batch_size * params.temperature, math.exp(params.shift_bound / params.temperature)
    shares = _shares(public, allowed, params)
    sizes = jnp.abs(counts).astype(jnp.float32) * (QUANTUM / scale)
    lost = _lost(len(shares))
    moment = (shares * jnp.square(sizes) * jnp.exp(sizes)).sum(axis=-1, keepdims=True)
    spread = jnp.sqrt(gain * (1 + 2 * lost) * moment)
    if params.change.value > 1:
        other = 2 * params.clip_bound / scale
        spread = spread * math.exp(other / 2) + other * (1 + math.sqrt(gain) * math.exp(other))
    height = sizes + spread
    first, second = growth(params.omega)
    weights = gain * shares * jnp.exp(height * (first + second * height))
    # Rounded up, so that a difference from it is not too small either.
    squares = jnp.square(sizes) * (1 + 8 * _ROUNDING)
    largest = squares.max(axis=-1)

    def bound(level: jax.Array) -> jax.Array:
        above = jnp.maximum(squares - level[:, None], 0.0)
        # Votes below the level cost nothing, whatever their weight.
        return level + jnp.where(above > 0, weights * above, 0.0).sum(axis=-1)

    # Much of π is often one token's.
    levels = [*(share * largest for share in LEVELS), squares[:, jnp.argmax(shares)]]
    least = functools.reduce(jnp.minimum, map(bound, levels))
    return jnp.where(largest > 0, least * (0.5 * (1 + 4 * lost)) + _LEAST_PRICE, 0.0)


def growth(omega: float) -> tuple[float, float]:
    """k₁ and k₂ of README step 2b, by which a price grows with the size of a vote."""
    return (omega + 1) / 3 + 1 / 12, omega**2 / 8


def largest_growth(params: PublicNumbers) -> float:
    """The largest k₁ h + k₂ h² of any votes."""
    assert params.omega is not None and params.shift_bound is not None
    largest = 2 * params.clip_bound / (params.batch_size * params.temperature)
    spread = math.exp((params.shift_bound / params.temperature + largest) / 2) * largest
    height = largest + spread * math.exp((params.change.value - 1) * largest / 2)
    height += (params.change.value - 1) * (largest + spread * math.exp(largest / 2))
    first, second = growth(params.omega)
    return height * (first + second * height)


def flattened(shift: jax.Array, whole: float) -> jax.Array:
    """The flattened shift of the scores: l(w) = w up to b, and b + 2 log(1 + (w − b)/2) beyond.

    e^l is convex and rises by no more than its square root allows; step 2b needs only that. Scores fall by
    no more than the sampler resolves.

    Args:
        shift: w, in units of the temperature.
        whole: b > 0, in the same.
    """
    beyond = jnp.maximum(shift - whole, 0.0)
    return jnp.maximum(jnp.minimum(shift, whole) + 2 * jnp.log1p(beyond / 2), -LARGEST_FALL)


def _shares(public: jax.Array, allowed: jax.Array, params: PublicNumbers) -> jax.Array:
    """π ∝ p^{1/τ} on the allowed tokens, `[C]` float32."""
    return jax.nn.softmax(jnp.where(allowed, public, -jnp.inf) / params.temperature)


def _lost(terms: int) -> float:
    """The largest relative rounding error of a sum of so many positive terms, each of some operations."""
    return (terms + 256) * _ROUNDING


def spend(spent: jax.Array, prices: jax.Array, params: PublicNumbers) -> tuple[jax.Array, jax.Array]:
    """The contexts that vote at a step, `[m]` bool, and the spending of each after it, `[m]` float32.

    Formal guarantee: for every context the exact sum of its charges is at most `spent`, which is at most B.
    Whether a context votes is a function of its own prices.
    """
    assert params.context_budget is not None
    budget = np.float32(params.context_budget)
    if float(budget) > params.context_budget:
        budget = np.nextafter(budget, np.float32(0))
    # If a price is NaN, so is its total, and the comparison is false: the context does not vote.
    total = jnp.where(prices == 0, spent, jnp.nextafter(spent + prices, jnp.float32(jnp.inf)))
    voted = total <= budget
    return voted, jnp.where(voted, total, spent)


class Spending(NamedTuple):
    """Spending of the contexts of one batch, token by token, on the host. Private to the curator.

    Attributes:
        charged: `[tokens, contexts]` float32, ρ; 0 for a context that did not vote.
        voted: `[tokens, contexts]` bool.
    """

    charged: np.ndarray
    voted: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSpending:
    """Spending of the contexts of one batch. Restricted to the curator: its `repr` shows nothing.

    Attributes:
        batch_id: `str` of the planned batch.
        spent: ρ of every context, in rising order.
        voters: Contexts that voted, for every token in order.
        first_silent: Place in the stream of the first token at which a context did not vote; None if
            every context voted on every token.
    """

    batch_id: str
    spent: tuple[float, ...] = dataclasses.field(repr=False)
    voters: tuple[int, ...] = dataclasses.field(repr=False)
    first_silent: int | None = dataclasses.field(repr=False)

    @classmethod
    def of(cls, batch_id: str, spending: Spending) -> BatchSpending:
        """The summary of a batch's spending."""
        silent = np.flatnonzero(~spending.voted.all(axis=1))
        return cls(
            batch_id=batch_id,
            spent=tuple(sorted(spending.charged.astype(np.float64).sum(axis=0).tolist())),
            voters=tuple(spending.voted.sum(axis=1).tolist()),
            first_silent=int(silent[0]) if len(silent) else None,
        )
