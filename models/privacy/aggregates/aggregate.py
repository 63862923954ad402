"""The interface of an aggregate: how it combines votes, what it needs and costs, and what it may sample.

An aggregate is a strategy without state. The compiled loop of `models/generate/loop.py` calls it through
`models/privacy/mechanism.py`, its event gives the price, and a report states its facts. V is the size of
the vocabulary, C the number of candidates of a step (`models/privacy/candidates.py`), m the rows of one
micro-batch.

PP = Amin et al. 2024.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar

from etils import epy

from models.privacy import candidates, events, whole_numbers
from models.privacy.candidates import Candidates
from models.privacy.facts import Facts, Reproduction, RhoStage, Sensitivity
from models.privacy.numbers import format_exact
from models.privacy.public_numbers import PublicNumbers

# `--help` lists the aggregates, and answers at once.
with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# A vote is at most 2^22 quanta: as fine as float32 is near c, but for two bits.
VOTE_BITS = 22


class Aggregate(abc.ABC):
    """One way to combine the votes of a batch.

    An implementation is final, has no state and reads nothing but its arguments: `params`
    are public, `tallied` is not. `tests/contracts/aggregate_test.py` holds
    every registered aggregate to the guarantees below.

    Attributes:
        name: The value of the `aggregate` setting.
        summary: One line for people, without a full stop.
        default_clip_bound: c where the settings name none, in nats.
        default_temperature: τ where the settings name none.
        default_public_top_k: K where the settings name none; None for the whole vocabulary.
        reads_public_logits: Whether decoding has to run the public prompt for it.
        takes_reference: Whether votes are differences from the public rows. Only then can public texts
            be the reference, and can each context be charged for what it adds (METHOD 4c, 4d).
        has_price_in_advance: Whether a private token has a price that is known before the run.
            Otherwise the loss is a function of records and output (METHOD 5), known
            afterwards and to the curator alone.
        largest_clip_over_temperature: The largest c/τ at which the scores of a batch of s contexts stay
            in the range that the sampler resolves.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    default_clip_bound: ClassVar[float]
    default_temperature: ClassVar[float]
    default_public_top_k: ClassVar[int | None]
    reads_public_logits: ClassVar[bool]
    takes_reference: ClassVar[bool]
    has_price_in_advance: ClassVar[bool]
    largest_clip_over_temperature: ClassVar[float]

    @abc.abstractmethod
    def tally(
        self,
        logits: tuple[jax.Array, ...],
        is_private: tuple[jax.Array, ...],
        candidates: Candidates,
        params: PublicNumbers,
    ) -> Any:
        """Tallies the votes of one step: any pytree of arrays that `charge` and `combine` understand.

        Formal guarantees: a row that is not private changes nothing; a row, whatever it holds, does not
        change what the other rows add; how the rows are cut into micro-batches changes nothing; a column
        that is not counted changes nothing in the others.

        Args:
            logits: `[m, C]` raw logits of the candidates for every micro-batch.
            is_private: `[m]` bool for every micro-batch.
            candidates: The step's candidates; rows are centred over the `counted` ones.
            params: The mechanism.
        """

    def most_contexts(self, params: PublicNumbers) -> int:
        """The largest number of contexts whose votes `tally` adds up exactly."""
        return whole_numbers.MOST_CONTEXTS

    def open_accounts(self, rows: tuple[int, ...]) -> Any:
        """The accounts that the loop carries: what each row has spent. None without individual accounting."""
        return None

    def charge(self, tallied: Any, accounts: Any, params: PublicNumbers) -> tuple[Any, Any, Any]:
        """Charges the rows for one step: the tally for `combine`, the accounts after it, a receipt or None.

        The loop calls it once for every sampled token. With individual accounting a row that cannot pay
        does not vote at this step. Otherwise nothing happens.
        """
        return tallied, accounts, None

    @abc.abstractmethod
    def combine(self, tallied: Any, candidates: Candidates, params: PublicNumbers) -> jax.Array:
        """The scores that a private token is sampled from, `[C]` float32, before the temperature.

        Formal guarantees, for the counted candidates: the scores are finite, whatever the private rows
        hold; with `has_price_in_advance`, one unit moves any component by at most `sensitivity(params)`.
        For a batch without contexts the result is a function of public values.
        """

    def allowed(self, mask: jax.Array, public_logits: jax.Array, params: PublicNumbers) -> jax.Array:
        """The candidates that may be sampled, `[C]` bool: a subset of `mask`, empty only if `mask` is.

        Formal guarantee: the result is a function of its arguments. They are public, so it costs nothing.

        Args:
            mask: `[C]` bool, what the step's constraint allows.
            public_logits: `[C]` of the public prompt; zeros where it is not run.
            params: The mechanism; `public_top_k` keeps the K best tokens of the mask.
        """
        return top_k(mask, public_logits, params.public_top_k)

    @abc.abstractmethod
    def sensitivity(self, params: PublicNumbers) -> float:
        """The most that one unit can move any component of `combine`, in nats.

        Raises:
            ValueError: Nothing bounds it before the run.
        """

    @abc.abstractmethod
    def event(self, params: PublicNumbers) -> events.DpEvent | None:
        """The privacy event of sampling one private token; None without a price in advance."""

    @abc.abstractmethod
    def facts(self, params: PublicNumbers) -> Facts:
        """Facts for a report: cost, sensitivity, assumptions and limits."""

    def token_losses(
        self, tallied: Any, allowed: jax.Array, index: jax.Array, params: PublicNumbers
    ) -> tuple[jax.Array, jax.Array] | None:
        """−log α and log β of a private token, scalars; None where a price is known in advance.

        For every neighbouring batch, the log ratio of the token's probabilities under this batch and the
        neighbour lies between log α and log β. Only the curator may see the two numbers.

        Args:
            tallied: The result of `tally`.
            allowed: `[C]` bool, the candidates that could be sampled.
            index: Index of the sampled candidate among the C.
            params: The mechanism.
        """
        return None


def quantum(clip_bound: float) -> float:
    """The grid of votes, in nats: the power of two that lies 2^22 times in a number just above c."""
    return 2.0 ** (math.frexp(clip_bound)[1] - VOTE_BITS)


def vote_limit(clip_bound: float) -> int:
    """c in quanta, rounded down: the largest vote."""
    return math.floor(clip_bound / quantum(clip_bound))


def sum_over_contexts(
    vote: Callable[[jax.Array], jax.Array],
    logits: tuple[jax.Array, ...],
    is_private: tuple[jax.Array, ...],
    clip_bound: float,
) -> whole_numbers.Limbs:
    """Σ vote(z) over the private rows of all micro-batches, `[C]` in quanta: a sum, never a mean.

    Every vote is rounded towards zero to a whole number of quanta, in [−c, c].

    Formal guarantee: a row changes a component by its own vote exactly, in whatever order and company, and
    by at most `vote_limit`, whatever `vote` made of it.

    Args:
        vote: Maps `[m, C]` logits to `[m, C]` votes in nats, row by row.
        logits: `[m, C]` for every micro-batch.
        is_private: `[m]` bool for every micro-batch.
        clip_bound: c.
    """
    limit, per_nat = vote_limit(clip_bound), 1 / quantum(clip_bound)
    counts = [
        jnp.where(mask[:, None], jnp.clip((vote(rows) * per_nat).astype(jnp.int32), -limit, limit), 0)
        for rows, mask in zip(logits, is_private, strict=True)
    ]
    return whole_numbers.sum_of_rows(counts, limit)


def average(tallied: whole_numbers.Limbs, params: PublicNumbers) -> jax.Array:
    """The sum of `sum_over_contexts` over the public s, `[C]` float32, in nats.

    It is a function of the whole numbers alone (README step 9).
    """
    return whole_numbers.as_floats(tallied) * (quantum(params.clip_bound) / params.batch_size)


def top_k(mask: jax.Array, public_logits: jax.Array, k: int | None, slack: float = 0.0) -> jax.Array:
    """The tokens of a mask whose public logit is at least that of its K-th best, less a slack; `[C]` bool.

    Ties with the K-th token stay in. A mask of K tokens or fewer is returned whole.

    Args:
        mask: `[C]` bool.
        public_logits: `[C]`.
        k: K; None keeps the mask as it is.
        slack: In nats.
    """
    if k is None or k >= mask.shape[0]:
        return mask
    logits = jnp.where(mask, public_logits, -jnp.inf)
    return mask & (logits >= jax.lax.top_k(logits, k)[0][-1] - slack)


def candidate_facts(params: PublicNumbers, slack: str = '') -> tuple[str, ...]:
    """Facts about `public_top_k` for a report; none if it is not set.

    Args:
        params: The mechanism.
        slack: What the aggregate subtracts from the K-th logit, such as ' minus 2c/s (Top-k+)'.
    """
    k = params.public_top_k
    if k is None:
        return ()
    return (
        f'Text is made of tokens whose public logit is at least the K-th largest{slack} of those that may '
        f'come, K = {k}, and of at most {candidates.most(k)} of them, of equal ones the first in the '
        'vocabulary: a function of public values alone. Each private prompt votes on these tokens alone, '
        'recentred over them.',
    )


def bounded_sensitivity(params: PublicNumbers) -> float:
    """c/s, or 2c/s if a unit may replace a context: votes lie in [−c, c] and are divided by s (METHOD 1)."""
    return params.change.value * params.clip_bound / params.batch_size


def bounded_facts(
    aggregate: Aggregate,
    params: PublicNumbers,
    *,
    explanation: str,
    quantity: str,
    enforced: tuple[str, ...],
    sources: tuple[str, ...] = (),
) -> Facts:
    """The facts of an aggregate whose components one unit moves by at most c/s (PP Lemma 4)."""
    r, s, moved = params.private_token_cap, params.batch_size, aggregate.sensitivity(params)
    two = '2' if params.change.value > 1 else ''
    c, tau = format_exact(params.clip_bound), format_exact(params.temperature)
    return Facts(
        stages=(
            RhoStage(
                name='Private tokens',
                rho=r * exponential_mechanism_event(moved, params.temperature).rho,
                explanation=explanation,
                formula=f'r · ½·({two}c/(s·τ))²',
                numbers=f'{r} · ½·({two + "·" if two else ""}{c}/({s}·{tau}))²',
            ),
        ),
        sensitivities=(Sensitivity(quantity=quantity, value=moved, formula=f'{two}c/s'),),
        on_replacement='both sensitivities of decoding double',
        assumptions_enforced=enforced,
        sources=sources,
        reproduction=Reproduction(
            settings=(
                f'c = {params.clip_bound!r}  # clip bound',
                f'tau = {params.temperature!r}  # temperature',
            ),
            cost='0.5 * (change * c / (s * tau)) ** 2',
        ),
    )


def exponential_mechanism_event(sensitivity: float, temperature: float) -> events.ZCDpEvent:
    """A token from softmax(z/τ), where no component of z moves by more than Δz: zCDP of ½ (Δz/τ)².

    The sample is the exponential mechanism with utility z/τ, of sup-norm sensitivity Δ = Δz/τ.
    It is 2Δ-DP with bounded range, hence (2Δ)²/8-zCDP (PP Lemma 4; Cesar and Rogers 2021).
    """
    return events.ZCDpEvent(rho=0.5 * (sensitivity / temperature) ** 2)
