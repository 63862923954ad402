"""The mean of clipped logits (PP equation 1 and Algorithm 1, line 13; METHOD 4).

PP = Amin et al. 2024.
"""

from __future__ import annotations

import typing
from typing import Any, ClassVar

from etils import epy

from models.privacy import events, whole_numbers
from models.privacy.aggregates import aggregate, clipping
from models.privacy.candidates import Candidates
from models.privacy.facts import Facts
from models.privacy.public_numbers import PublicNumbers
from models.privacy.sampling import MAX_CLIP_OVER_TEMPERATURE

with epy.lazy_imports():
    import jax


@typing.final
class Mean(aggregate.Aggregate):
    """(1/s) Σ clip(z): each context votes with its clipped logits."""

    name: ClassVar[str] = 'mean'
    summary: ClassVar[str] = 'the average of the private logits, clipped'
    default_clip_bound: ClassVar[float] = 10.0  # PP section 5
    default_temperature: ClassVar[float] = 2.0  # PP section 5: 1.5 to 2.25
    default_public_top_k: ClassVar[int | None] = None
    reads_public_logits: ClassVar[bool] = False
    takes_reference: ClassVar[bool] = False
    has_price_in_advance: ClassVar[bool] = True
    largest_clip_over_temperature: ClassVar[float] = MAX_CLIP_OVER_TEMPERATURE

    def tally(
        self,
        logits: tuple[jax.Array, ...],
        is_private: tuple[jax.Array, ...],
        candidates: Candidates,
        params: PublicNumbers,
    ) -> whole_numbers.Limbs:
        """Σ clip(z), `[C]`, in quanta; a context adds at most c in absolute value to any component."""
        return aggregate.sum_over_contexts(
            lambda rows: clipping.clip_logits(rows, params.clip_bound, candidates.counted),
            logits,
            is_private,
            params.clip_bound,
        )

    def combine(self, tallied: Any, candidates: Candidates, params: PublicNumbers) -> jax.Array:
        """(1/s) Σ clip(z), `[C]`: divided by the public s. An empty batch gives the zero vector."""
        return aggregate.average(tallied, params)

    def sensitivity(self, params: PublicNumbers) -> float:
        """c/s, or 2c/s (METHOD 1)."""
        return aggregate.bounded_sensitivity(params)

    def event(self, params: PublicNumbers) -> events.ZCDpEvent:
        """zCDP of ½ (c/(sτ))² (PP Lemma 4), 4 times that if a unit may replace a context."""
        return aggregate.exponential_mechanism_event(self.sensitivity(params), params.temperature)

    def facts(self, params: PublicNumbers) -> Facts:
        """Facts about the clipped mean for a report (PP equation 1)."""
        return aggregate.bounded_facts(
            self,
            params,
            explanation=(
                'Sampling at most r private tokens per batch from the clipped average of its private logits.'
            ),
            quantity='Any component of the average private logits, in nats',
            enforced=(
                'Logits are clipped before they are averaged, and sums are divided by the public expected '
                'batch size, whatever a batch holds.',
                *aggregate.candidate_facts(params),
            ),
        )
