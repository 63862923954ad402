"""The component-wise median of clipped logits: its loss is known after the run only (CL 4.2; METHOD 5).

CL = the paper on clusters and the median. `median_range.py` computes the medians, and how far one unit
can move them.
"""

from __future__ import annotations

import typing
from typing import Any, ClassVar

from etils import epy

from models.privacy.aggregates import aggregate, median_range
from models.privacy.candidates import Candidates
from models.privacy.facts import Facts, RhoStage, StatementWords
from models.privacy.public_numbers import PublicNumbers
from models.privacy.sampling import MAX_CLIP_OVER_TEMPERATURE

with epy.lazy_imports():
    import jax


@typing.final
class Median(aggregate.Aggregate):
    """The component-wise median of clipped logits: its loss is known only after the run (METHOD 5)."""

    name: ClassVar[str] = 'median'
    summary: ClassVar[str] = 'the component-wise median of the private logits, clipped; no price in advance'
    default_clip_bound: ClassVar[float] = 6.0  # CL appendix E.2
    default_temperature: ClassVar[float] = 1.5  # CL section 5
    default_public_top_k: ClassVar[int | None] = None
    # An empty batch predicts what the public prompt predicts (METHOD 2).
    reads_public_logits: ClassVar[bool] = True
    takes_reference: ClassVar[bool] = False
    has_price_in_advance: ClassVar[bool] = False
    largest_clip_over_temperature: ClassVar[float] = MAX_CLIP_OVER_TEMPERATURE

    def tally(
        self,
        logits: tuple[jax.Array, ...],
        is_private: tuple[jax.Array, ...],
        candidates: Candidates,
        params: PublicNumbers,
    ) -> median_range.Medians:
        """The medians, and how far one unit can move them."""
        return median_range.medians(
            logits,
            is_private,
            candidates.public_logits,
            params.clip_bound,
            params.change,
            candidates.counted,
        )

    def combine(self, tallied: Any, candidates: Candidates, params: PublicNumbers) -> jax.Array:
        """The medians, `[C]` (CL equation 3). An empty batch gives the clipped public logits."""
        return tallied.middle

    def sensitivity(self, params: PublicNumbers) -> float:
        """None is known in advance.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "Expected an aggregate of bounded sensitivity, got aggregate='median'. "
            'Its loss is known after the run only: see models/privacy/ex_post.py.'
        )

    def event(self, params: PublicNumbers) -> None:
        """None: the cost of a token depends on the records."""

    def facts(self, params: PublicNumbers) -> Facts:
        """Facts for a report about a loss that is known only afterwards (CL 4.2; METHOD 5)."""
        places = 'two places' if params.change.value > 1 else 'one place'
        return Facts(
            statement='ex-post',
            statement_words=StatementWords(
                guarantee=(
                    'The text of this corpus has no (ε, δ) guarantee. Its privacy loss is data-dependent and '
                    'ex-post: an ε that depends on the records and on the text that came out, and that '
                    'bounds how much more or less likely this very text would have been with one {one} '
                    'added or removed. It became known after the run and is not published: it is computed '
                    'from the private records. The curator holds it.'
                ),
                accounting=(
                    'Data-dependent ex-post accounting (Clustering improves differentially private '
                    'inference, Definition 2 and Theorem 2): the loss of a token follows from the medians '
                    'of its batch and from how far one context could have moved them. The losses of a '
                    "batch's tokens add up, and the run's loss is that of its largest batch, since batches "
                    'hold disjoint contexts. The curator computes it after the run; nothing of it is in '
                    'this report. Noisy counts, where there are any, are priced in advance in '
                    'zero-concentrated differential privacy (zCDP).'
                ),
                limits=(
                    'It promises nothing in advance: a second run with the same settings, or the same run on '
                    'other records, may lose more.',
                    'It is about one {one}, and says nothing of several together.',
                ),
            ),
            stages=(
                RhoStage(
                    name='Private tokens',
                    rho=None,
                    explanation=(
                        'Sampling private tokens from the component-wise medians of the clipped private '
                        'logits of a batch. The cost depends on the records and the text; the curator holds '
                        'it.'
                    ),
                    formula='ε = max(−Σ log α, Σ log β)',
                    numbers='',
                ),
            ),
            why_no_sensitivity=(
                'How far one unit moves a median depends on the other records. That is why the loss is known '
                'afterwards only.'
            ),
            on_replacement='losses are computed for that',
            assumptions_enforced=(
                'Logits are clipped before their medians are taken; a batch too small to have neighbours on '
                'both sides of its median counts with the whole clip range, and an empty one predicts what '
                'the public prompt does.',
                f'The range of the medians that one change can cause ({places} from the middle) is computed '
                'exactly, for every private token.',
                *aggregate.candidate_facts(params),
            ),
            assumptions_of_curator=(
                'The data-dependent loss, of the run, of a batch or of a token, is told to nobody who may '
                'not see the records.',
            ),
            symbols=(
                'log α and log β the most that one context can have lowered or raised the odds of a token',
            ),
            sources=('CL: Clustering improves differentially private inference, sections 4 and 5.',),
        )

    def token_losses(
        self, tallied: Any, allowed: jax.Array, index: jax.Array, params: PublicNumbers
    ) -> tuple[jax.Array, jax.Array]:
        """−log α and log β of the token (CL appendix B; METHOD 5)."""
        return median_range.token_losses(tallied, allowed, index, params.temperature)
