"""Individual accounting: what one context gives at one step, and whether it can still pay (METHOD 4d).

Every context is charged the sharpest bound proved on its own influence, and sits out what its own budget
does not cover. Prices are upper bounds in float32; what a context has spent is private to the curator.
C is the number of a step's candidates, m the rows of one micro-batch.

Source: README step 2b; Feldman and Zrnic 2021, "Individual privacy accounting via a Rényi filter".
"""

from __future__ import annotations

import dataclasses
import math
import typing
from typing import NamedTuple

from etils import epy

if typing.TYPE_CHECKING:
    from models.privacy.params import MechanismParams

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp
    import numpy as np

# Votes are whole multiples of this, in nats: their sums are exact, in whatever order.
QUANTUM = 2.0**-16
# Newton's steps towards the threshold of a price, each of which is a lower bound of it.
_STEPS = 12
_ROUNDING = 2.0**-24  # of one float32 operation


class Votes(NamedTuple):
    """What the contexts of one micro-batch would give to a step, and what it would cost each.

    Attributes:
        counts: `[m, C]` int32, votes in quanta.
        prices: `[m]` float32, zCDP ρ, never below the exact one.
    """

    counts: jax.Array
    prices: jax.Array


class Receipt(NamedTuple):
    """What a step was paid. Private to the curator.

    Attributes:
        charged: `[m]` float32 for every micro-batch; 0 for whom sat out.
        voted: `[m]` bool for every micro-batch.
    """

    charged: tuple[jax.Array, ...]
    voted: tuple[jax.Array, ...]


def most_contexts(clip_bound: float) -> int:
    """The most contexts of a batch whose votes add up within 32 bits."""
    return (2**31 - 1) // vote_limit(clip_bound)


def vote_limit(clip_bound: float) -> int:
    """c in quanta, rounded down."""
    return math.floor(clip_bound / QUANTUM)


def votes_of(differences: jax.Array, public: jax.Array, allowed: jax.Array, params: MechanismParams) -> Votes:
    """The votes of some contexts and their prices.

    Formal guarantees: a row's votes and price are a function of it and of public values; a vote is in
    [−c, c], whatever the row holds; the price is at least that of METHOD 4d for these very votes, and 0
    where all of them are.

    Args:
        differences: `[m, C]` float32, z − log p of each context less a constant of its own, in nats; NaN
            where it says nothing, and infinite where float32 does not reach so far.
        public: `[C]` float32, log p on the allowed tokens.
        allowed: `[C]` bool, never none.
        params: With individual accounting.
    """
    limit = vote_limit(params.clip_bound)
    says = allowed & ~jnp.isnan(differences)
    counts = jnp.where(says, jnp.round(jnp.where(says, differences, 0.0) / QUANTUM), 0.0)
    counts = jnp.clip(counts, -limit, limit).astype(jnp.int32)
    return Votes(counts, prices(counts, public, allowed, params))


def prices(counts: jax.Array, public: jax.Array, allowed: jax.Array, params: MechanismParams) -> jax.Array:
    """Upper bounds of ρ_i = ½ E_i/(sτ)², `[m]` float32.

        E_i = sup { E_q[u²] : q ∝ p^{1/τ} e^v, |v| <= R },  R(x) = (c₂ + (ω−1) |u(x)|/s)/τ

    where METHOD has c for |u(x)|, which is never smaller (README step 2b). With a = 2 the tilt has room
    for another context's vote as well: |u(x)| + c.

    The supremum is that of a threshold λ: v = R where u² > λ and −R elsewhere, and λ itself where
    F(λ) = Σ p^{1/τ} e^v (u² − λ) is 0. Newton's steps come to it from below. Then λ is inflated, and
    F(λ) <= 0, which proves E_i <= λ, is checked with what float32 may have lost. Where that fails the
    price is that of the largest vote, which bounds every E_q.

    Args:
        counts: `[m, C]` int32, 0 where not allowed.
        public: `[C]` float32, log p on the allowed tokens.
        allowed: `[C]` bool.
        params: With individual accounting.
    """
    assert params.omega is not None and params.shift_bound is not None
    sizes = jnp.abs(counts).astype(jnp.float32) * QUANTUM
    squares = jnp.square(sizes)
    scores = jnp.where(allowed, public, -jnp.inf) / params.temperature
    base = jnp.exp(scores - scores.max())
    others = (params.change.value - 1) * params.clip_bound
    reach = (sizes + others) * ((params.omega - 1) / params.batch_size)
    radius = jnp.exp((params.shift_bound + reach) / params.temperature)
    high, low = base * radius, base / radius

    def tilted(threshold: jax.Array) -> jax.Array:
        return jnp.where(squares > threshold[:, None], high, low)

    def step(_: int, threshold: jax.Array) -> jax.Array:
        weights = tilted(threshold)
        return (weights * squares).sum(axis=-1) / weights.sum(axis=-1)

    threshold = jax.lax.fori_loop(0, _STEPS, step, jnp.zeros(len(counts), jnp.float32))
    # What sums of C terms, exponentials and squares lose at most, relative to sums of positive terms.
    lost = (counts.shape[-1] + 256) * _ROUNDING
    threshold *= 1 + max(2.0**-11, 4 * lost)
    weights, gap = tilted(threshold), squares - threshold[:, None]
    gained = jnp.where(gap > 0, weights * gap, 0.0).sum(axis=-1)
    missed = jnp.where(gap > 0, 0.0, weights * -gap).sum(axis=-1)
    size = (weights * (squares + threshold[:, None])).sum(axis=-1)
    proved = gained + lost * size <= missed
    largest = jnp.where(allowed, squares, 0.0).max(axis=-1)
    bound = jnp.where(proved | (largest == 0), jnp.minimum(threshold, largest), largest)
    # Two products of float32, rounded up.
    return bound * (0.5 / (params.batch_size * params.temperature) ** 2) * (1 + 2.0**-21)


def spend(spent: jax.Array, prices: jax.Array, params: MechanismParams) -> tuple[jax.Array, jax.Array]:
    """Who votes at a step, `[m]` bool, and what each has spent after it, `[m]` float32.

    Formal guarantee: for every context the exact sum of what it was charged is at most `spent`, and that
    at most B; who votes is a function of a context's own prices.

    Args:
        spent: `[m]` float32, before the step.
        prices: `[m]` float32.
        params: With individual accounting.
    """
    assert params.context_budget is not None
    budget = np.float32(params.context_budget)
    if float(budget) > params.context_budget:
        budget = np.nextafter(budget, np.float32(0))
    # A price that is no number buys nothing: its total is none either, and no comparison of it holds.
    total = jnp.where(prices == 0, spent, jnp.nextafter(spent + prices, jnp.float32(jnp.inf)))
    voted = total <= budget
    return voted, jnp.where(voted, total, spent)


class Spending(NamedTuple):
    """What the contexts of one batch spent, token by token, on the host. Private to the curator.

    Attributes:
        charged: `[tokens, contexts]` float32, ρ; 0 for whom sat out.
        voted: `[tokens, contexts]` bool.
    """

    charged: np.ndarray
    voted: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSpending:
    """What the contexts of one batch spent. Restricted to the curator: its `repr` shows nothing.

    Attributes:
        batch_id: `str` of the planned batch.
        spent: ρ of every context, in rising order.
        voters: Contexts that voted, for every token in order.
        first_silent: Place in the stream of the first token at which a context sat out; None where
            none ever did.
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
