"""The public prediction plus the mean of clipped differences from it (METHOD 4b).

After DClip and Top-k+ of InvisibleInk, arXiv 2507.02974; written from METHOD 4b alone.
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
    import jax.numpy as jnp


@typing.final
class Difference(aggregate.Aggregate):
    """z_pub + (1/s) Σ clamp(z − z_pub, −c, c), of log-probabilities: a context votes only if it differs."""

    name: ClassVar[str] = 'difference'
    summary: ClassVar[str] = 'the public prediction plus the average of clipped differences from it'
    default_clip_bound: ClassVar[float] = 1.0  # METHOD 4b: about a tenth of the mean's
    # With so small a c the budget pays for the model's own temperature; a higher one only adds noise.
    default_temperature: ClassVar[float] = 1.0
    default_public_top_k: ClassVar[int | None] = 1024
    reads_public_logits: ClassVar[bool] = True
    takes_reference: ClassVar[bool] = True
    has_price_in_advance: ClassVar[bool] = True
    # The public logits take up range as well.
    largest_clip_over_temperature: ClassVar[float] = MAX_CLIP_OVER_TEMPERATURE / 2

    def tally(
        self,
        logits: tuple[jax.Array, ...],
        is_private: tuple[jax.Array, ...],
        candidates: Candidates,
        params: PublicNumbers,
    ) -> whole_numbers.Limbs:
        """Σ clamp(z − z_pub, −c, c), `[C]`, in quanta; a context adds at most c in size to any component."""
        return aggregate.sum_over_contexts(
            lambda rows: clipping.clip_difference(
                rows, candidates.public_logits, params.clip_bound, candidates.counted
            ),
            logits,
            is_private,
            params.clip_bound,
        )

    def combine(self, tallied: Any, candidates: Candidates, params: PublicNumbers) -> jax.Array:
        """log softmax(z_pub) + (1/s) Σ clamp(…), `[C]`. An empty batch gives the public prediction."""
        public = clipping.log_probabilities(candidates.public_logits, candidates.counted)
        return public + aggregate.average(tallied, params)

    def allowed(self, mask: jax.Array, public_logits: jax.Array, params: PublicNumbers) -> jax.Array:
        """Top-k+ of the mask, within what the sampler resolves.

        `public_top_k` is widened to Top-k+ (METHOD 4b): a token that a shift of 2c/s could lift over the
        K-th token stays in. Tokens so far below the public top that the sampler could not resolve the
        range of scores are left out; together their odds would be at most V e^(2c/τ − 30).
        """
        slack = 2 * params.clip_bound / params.batch_size
        kept = aggregate.top_k(mask, public_logits, params.public_top_k, slack)
        widest = 2 * (MAX_CLIP_OVER_TEMPERATURE * params.temperature - params.clip_bound)
        logits = jnp.where(mask, public_logits, -jnp.inf)
        return kept & (logits >= logits.max() - widest)

    def sensitivity(self, params: PublicNumbers) -> float:
        """c/s, or 2c/s (METHOD 1): only the second term depends on the records."""
        return aggregate.bounded_sensitivity(params)

    def event(self, params: PublicNumbers) -> events.ZCDpEvent:
        """zCDP of ½ (c/(sτ))² (PP Lemma 4; METHOD 4b), 4 times that if a unit may replace a context."""
        return aggregate.exponential_mechanism_event(self.sensitivity(params), params.temperature)

    def facts(self, params: PublicNumbers) -> Facts:
        """Facts about clipped differences for a report (METHOD 4b)."""
        vocabulary = aggregate.candidate_facts(params, ' minus 2c/s (Top-k+)') or (
            'Text is made of tokens within a fixed range below the most likely public one, a function of '
            'public values alone.',
        )
        return aggregate.bounded_facts(
            self,
            params,
            explanation=(
                'Sampling at most r private tokens per batch from the public prediction plus the average of '
                "the private prompts' clipped differences from it."
            ),
            quantity='Any component of the aggregate of clipped differences, in nats',
            enforced=(
                "Each private prompt's log-probabilities are compared with the public prompt's. The "
                'differences are clipped before they are averaged, and sums are divided by the public '
                'expected batch size, whatever a batch holds.',
                *vocabulary,
            ),
            sources=('InvisibleInk, arXiv 2507.02974 (clipped differences, Top-k+).',),
        )
