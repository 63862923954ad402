"""What a way to combine votes is: how it votes, what it needs, what it costs and what it may sample.

An aggregate is a strategy without a state: the compiled loop of `models/generate.py` calls it
through `models/privacy/mechanism.py`, the price comes from its event, and a report states
its facts. V is the vocabulary size, C the number of a step's candidates
(`models/privacy/candidates.py`), m the rows of one micro-batch.

PP = Amin et al. 2024.
"""

from __future__ import annotations

import abc
import functools
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from etils import epy

from models.privacy import candidates
from models.privacy.facts import Facts, Reproduction, RhoStage, Sensitivity
from models.privacy.numbers import format_exact

if typing.TYPE_CHECKING:
    import numpy as np

    from models.privacy.accounting import events
    from models.privacy.candidates import Candidates
    from models.privacy.params import MechanismParams

# `--help` lists the aggregates, and answers at once.
with epy.lazy_imports():
    import jax
    import jax.numpy as jnp


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
        takes_reference: Whether votes are differences from the public rows, so that public texts can
            stand there and each context can be charged what it adds to them (METHOD 4c, 4d).
        has_price_in_advance: Whether a private token has a price that is known before the run.
            Otherwise the loss is a function of records and output (METHOD 5), known
            afterwards and to the curator alone.
        largest_clip_over_temperature: Up to this c/τ the scores of a batch of s contexts stay in the
            range that the sampler resolves.
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
        params: MechanismParams,
    ) -> Any:
        """What one step has to know of the batch's votes: any pytree of arrays.

        Formal guarantees: a row that is not private changes nothing; whatever a row holds, it
        changes nothing of what the other rows add; how rows are cut into micro-batches
        matters for rounding at most; a column that is not counted changes nothing of the others.

        Args:
            logits: `[m, C]` raw logits of the candidates for every micro-batch.
            is_private: `[m]` bool for every micro-batch.
            candidates: Of which `counted` are the columns that a row is centred over.
            params: The mechanism.
        """

    def open_accounts(self, rows: tuple[int, ...]) -> Any:
        """What the loop carries of what each row has spent: nothing, but for individual accounting.

        Args:
            rows: Rows m of every micro-batch.
        """
        return None

    def charge(self, tallied: Any, accounts: Any, params: MechanismParams) -> tuple[Any, Any, Any]:
        """What `combine` is given, the accounts after the step, and the receipt of it or None.

        Called once for every token that is sampled. With individual accounting those who cannot pay
        sit the step out; otherwise nothing happens.

        Args:
            tallied: What `tally` gave.
            accounts: Of `open_accounts`, or of the step before.
            params: The mechanism.
        """
        return tallied, accounts, None

    @abc.abstractmethod
    def combine(self, tallied: Any, candidates: Candidates, params: MechanismParams) -> jax.Array:
        """The scores that a private token is sampled from, `[C]` float32, before the temperature.

        Formal guarantees, for the counted candidates: finite, whatever the private rows held; where
        `has_price_in_advance`, one unit moves any component by `sensitivity(params)` at most. A
        batch without contexts gives a function of public values.
        """

    @abc.abstractmethod
    def allowed(self, mask: jax.Array, public_logits: jax.Array, params: MechanismParams) -> jax.Array:
        """The candidates that may be sampled, `[C]` bool: of `mask`, and never none of a mask that has some.

        Formal guarantee: a function of its arguments, which are public, and so free.

        Args:
            mask: `[C]` bool, what the step's constraint allows.
            public_logits: `[C]` of the public prompt; zeros where it is not run.
            params: Of which `public_top_k` keeps the K best tokens of the mask.
        """

    @abc.abstractmethod
    def sensitivity(self, params: MechanismParams) -> float:
        """Most that one unit moves any component of `combine`, in nats.

        Raises:
            ValueError: Nothing bounds it before the run.
        """

    @abc.abstractmethod
    def event(self, params: MechanismParams) -> events.DpEvent | None:
        """The privacy event of sampling one private token; None without a price in advance."""

    @abc.abstractmethod
    def facts(self, params: MechanismParams) -> Facts:
        """What a report states of it: cost, sensitivity, what has to hold, what it does not say."""

    @abc.abstractmethod
    def token_losses(
        self, tallied: Any, allowed: jax.Array, index: jax.Array, params: MechanismParams
    ) -> tuple[jax.Array, jax.Array] | None:
        """−log α and log β of a private token, scalars; None where a price is known in advance.

        For every neighbouring batch the log ratio of the token's probabilities under this
        batch and that one lies between log α and log β. Private to the curator.

        Args:
            tallied: What `tally` gave.
            allowed: `[C]` bool, the candidates that could be sampled.
            index: The one that was, among the C.
            params: The mechanism.
        """

    @abc.abstractmethod
    def replayed_scores(
        self,
        logits: np.ndarray,
        public_logits: np.ndarray,
        allowed: np.ndarray,
        batches: Sequence[Sequence[int]],
        params: MechanismParams,
        *,
        clips: bool = True,
        narrows: bool = False,
    ) -> Iterator[np.ndarray]:
        """`combine` of several batches once more, for audits: `[V]` float64 each, slowly, in NumPy.

        Of all V tokens, of which those that are not counted mean nothing. It may call nothing of `tally`
        and `combine`: an audit is to find what is wrong with those.

        Args:
            logits: `[rows, V]` raw logits of contexts.
            public_logits: `[V]`, finite; zeros where the public prompt is not run.
            allowed: `[V]` bool, of `replayed_tokens`: with `public_top_k` rows are centred over these.
            batches: Rows of each batch: a batch, then neighbours of it, with a context more, less or another.
            params: The mechanism.
            clips: False leaves the votes unbounded, a mechanism that is broken on purpose.
            narrows: Whether predictions are taken given that an allowed token comes: rows are centred over
                `allowed` then as well.
        """

    @abc.abstractmethod
    def replayed_tokens(
        self, mask: np.ndarray, public_logits: np.ndarray, params: MechanismParams
    ) -> np.ndarray:
        """The allowed candidates once more, for audits: `[V]` bool, in NumPy, without calling `allowed`.

        Args:
            mask: `[V]` bool.
            public_logits: `[V]`.
            params: Of which `public_top_k` limits the candidates to `candidates.count`.
        """


def sum_over_contexts(
    vote: Callable[[jax.Array], jax.Array], logits: tuple[jax.Array, ...], is_private: tuple[jax.Array, ...]
) -> jax.Array:
    """Σ vote(z) over the private rows of all micro-batches, `[C]`: a sum, never a mean.

    Args:
        vote: From `[m, C]` logits to `[m, C]` votes, row by row, bounded whatever a row holds.
        logits: `[m, C]` for every micro-batch.
        is_private: `[m]` bool for every micro-batch.
    """
    parts = [
        jnp.where(mask[:, None], vote(rows), 0.0).sum(axis=0)
        for rows, mask in zip(logits, is_private, strict=True)
    ]
    return functools.reduce(jnp.add, parts)


def top_k(mask: jax.Array, public_logits: jax.Array, k: int | None, slack: float = 0.0) -> jax.Array:
    """The tokens of a mask whose public logit is at least that of its K-th best, less a slack; `[C]` bool.

    Ties with the K-th stay in. All of a mask that has no more than K.

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


def candidate_facts(params: MechanismParams, slack: str = '') -> tuple[str, ...]:
    """What a report states of `public_top_k`; nothing where it is not set.

    Args:
        params: The mechanism.
        slack: What the aggregate takes off the K-th logit, such as ' minus 2c/s (Top-k+)'.
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


def bounded_sensitivity(params: MechanismParams) -> float:
    """c/s, or 2c/s where a unit may replace a context: votes in [−c, c] over the public s (METHOD 1)."""
    return params.change.value * params.clip_bound / params.batch_size


def bounded_facts(
    aggregate: Aggregate,
    params: MechanismParams,
    *,
    explanation: str,
    quantity: str,
    enforced: tuple[str, ...],
    sources: tuple[str, ...] = (),
) -> Facts:
    """What an aggregate tells whose components one unit moves by c/s at most (PP Lemma 4).

    Args:
        aggregate: With a price in advance, in zCDP.
        params: The mechanism.
        explanation: What is paid for.
        quantity: What one unit moves.
        enforced: What the code sees to.
        sources: Where it was published.
    """
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

    Args:
        sensitivity: Δz, in nats.
        temperature: τ.
    """
    # Prices ask the aggregates, and are not imported before them.
    from models.privacy.accounting import events

    return events.ZCDpEvent(rho=0.5 * (sensitivity / temperature) ** 2)
