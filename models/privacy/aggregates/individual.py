"""The difference aggregate under individual accounting (METHOD 4d)."""

from __future__ import annotations

import typing
from typing import Any, ClassVar

from etils import epy

from models.privacy import events, individual
from models.privacy.aggregates import aggregate, clipping
from models.privacy.candidates import Candidates
from models.privacy.facts import Facts, Reproduction, RhoStage, Sensitivity
from models.privacy.numbers import format_exact
from models.privacy.public_numbers import PublicNumbers
from models.privacy.sampling import MAX_CLIP_OVER_TEMPERATURE

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp


@typing.final
class IndividualDifference(aggregate.Aggregate):
    """log p + (1/s) Σ u_i, over the contexts that can pay for their votes u_i, flattened beyond c₂.

    It is the difference with `accounting='individual'`, not a value of the `aggregate` setting.
    `models/privacy/individual.py` computes votes and prices.
    """

    name: ClassVar[str] = 'difference'
    summary: ClassVar[str] = 'the reference and what contexts add to it, each charged what it gives'
    # The cheapest way to half of the distance, of public text.
    default_clip_bound: ClassVar[float] = 1.4
    default_temperature: ClassVar[float] = 1.0
    default_public_top_k: ClassVar[int | None] = 1024
    default_shift_bound: ClassVar[float] = 0.4
    reads_public_logits: ClassVar[bool] = True
    takes_reference: ClassVar[bool] = True
    has_price_in_advance: ClassVar[bool] = True
    largest_clip_over_temperature: ClassVar[float] = MAX_CLIP_OVER_TEMPERATURE / 2

    def tally(
        self,
        logits: tuple[jax.Array, ...],
        is_private: tuple[jax.Array, ...],
        candidates: Candidates,
        params: PublicNumbers,
    ) -> tuple[individual.Votes, ...]:
        """The vote of every context and its price; nothing is added up yet."""
        public = clipping.log_probabilities(candidates.public_logits, candidates.counted)
        return tuple(
            individual.votes_of(
                jnp.where(private[:, None], _differences(rows, public, candidates.counted), jnp.nan),
                public,
                candidates.allowed,
                params,
            )
            for rows, private in zip(logits, is_private, strict=True)
        )

    def most_contexts(self, params: PublicNumbers) -> int:
        """The largest number of contexts whose votes add up within 32 bits."""
        return individual.most_contexts(params.clip_bound)

    def open_accounts(self, rows: tuple[int, ...]) -> tuple[jax.Array, ...]:
        """Nothing spent yet."""
        return tuple(jnp.zeros(count, jnp.float32) for count in rows)

    def charge(
        self, tallied: Any, accounts: Any, params: PublicNumbers
    ) -> tuple[jax.Array, tuple[jax.Array, ...], individual.Receipt]:
        """Sums the votes of the contexts that can pay, `[C]` int32 in quanta, and charges these contexts."""
        total = jnp.int32(0)
        after, charged, voted = [], [], []
        for votes, spent in zip(tallied, accounts, strict=True):
            pays, left = individual.spend(spent, votes.prices, params)
            # Exact: one context more or less changes the sum by its own votes, bit by bit.
            total = total + jnp.where(pays[:, None], votes.counts, 0).sum(axis=0)
            after.append(left)
            charged.append(jnp.where(pays, votes.prices, 0.0))
            voted.append(pays)
        return total, tuple(after), individual.Receipt(tuple(charged), tuple(voted))

    def combine(self, tallied: Any, candidates: Candidates, params: PublicNumbers) -> jax.Array:
        """log p + τ l(w/τ) with w = (1/s) Σ u, `[C]`, from the sum that `charge` returned."""
        assert params.shift_bound is not None
        tau = params.temperature
        public = clipping.log_probabilities(candidates.public_logits, candidates.counted)
        shift = tallied.astype(jnp.float32) * (individual.QUANTUM / (params.batch_size * tau))
        return public + tau * individual.flattened(shift, params.shift_bound / tau)

    def allowed(self, mask: jax.Array, public_logits: jax.Array, params: PublicNumbers) -> jax.Array:
        """The K best of the mask, within what the sampler resolves, whatever the shift."""
        kept = aggregate.top_k(mask, public_logits, params.public_top_k)
        logits = jnp.where(mask, public_logits, -jnp.inf)
        return kept & (logits >= logits.max() - _widest(params))

    def sensitivity(self, params: PublicNumbers) -> float:
        """2c/s, or 4c/s (METHOD 1): the most that a context can move a score. Prices use tighter bounds."""
        return 2 * aggregate.bounded_sensitivity(params)

    def event(self, params: PublicNumbers) -> None:
        """None: only the whole stream has a price, a token has none (`accounting.generation_event`)."""

    def facts(self, params: PublicNumbers) -> Facts:
        """Facts about individual accounting for a report (METHOD 4d)."""
        assert params.context_budget is not None
        event = accounting_of(params)
        budget, omega = format_exact(params.context_budget), format_exact(event.omega)
        four = '4·' if params.change.value > 1 else ''
        return Facts(
            stages=(
                RhoStage(
                    name='Private tokens',
                    rho=event.rho,
                    explanation=(
                        'Sampling every token from the reference plus the average of what the private '
                        'prompts add to it. Each context pays for what it adds itself, and stops voting '
                        'when it has spent B.'
                    ),
                    formula=f'{four}B',
                    numbers=f'{four}{budget}',
                    omega=params.omega,
                ),
            ),
            sensitivities=(
                Sensitivity(
                    quantity='Any component of the scores, by any context, in nats',
                    value=self.sensitivity(params),
                    formula=f'{"4" if four else "2"}c/s',
                ),
            ),
            on_replacement='one context leaves and another comes, which costs 4 B',
            assumptions_enforced=(
                "Each private prompt's log-probabilities are compared with the reference's. The differences "
                'are clipped, made to be of no negative mean under the reference, divided by the public '
                'expected batch size and added up; what they lift a score by is flattened beyond c₂.',
                "A context's price is an upper bound on its own influence on the token, a function of its "
                'own prompt and of released text; it votes where what it has spent and this price are at '
                'most B.',
                'What contexts have spent, and which of them vote, leaves no trace in what is released.',
                *aggregate.candidate_facts(params),
            ),
            limits=(f'The bound on Rényi divergences holds for orders up to ω = {omega}, and for no other.',),
            symbols=(
                'B what one context may spend, in ρ',
                'ω the largest Rényi order at which that is a bound',
                'c₂ up to where all votes together lift a score in full, in nats; beyond it ever less',
            ),
            sources=(
                'Feldman and Zrnic (2021), individual privacy accounting via a Rényi filter.',
                'Bun, Dwork, Rothblum and Steinke (2018), truncated CDP.',
                'InvisibleInk, arXiv 2507.02974 (clipped differences).',
            ),
            reproduction=Reproduction(
                settings=(
                    f'B = {params.context_budget!r}  # what one context may spend',
                    f'omega = {params.omega!r}  # largest Rényi order',
                ),
                cost='change ** 2 * B',
                largest_order='omega',
            ),
        )


def accounting_of(params: PublicNumbers) -> events.TruncatedZCDpEvent:
    """The whole stream of a batch: (B, ω)-truncated zCDP, or (4B, ω) if a unit may replace a context."""
    assert params.context_budget is not None and params.omega is not None
    return events.TruncatedZCDpEvent(rho=params.change.value**2 * params.context_budget, omega=params.omega)


def _widest(params: PublicNumbers) -> float:
    """The largest distance of a token below the best public logit, in nats, with resolvable scores."""
    return 2 * MAX_CLIP_OVER_TEMPERATURE * params.temperature


def _differences(logits: jax.Array, public: jax.Array, counted: jax.Array | None) -> jax.Array:
    """log p_i − log p of each row, `[m, C]` float32; NaN throughout where the row is not finite."""
    finite = clipping.row_tops(logits, counted)[1]
    return jnp.where(finite, clipping.log_probabilities(logits, counted) - public, jnp.nan)
