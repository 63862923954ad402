"""The public settings of the mechanism, from which batching, decoding and accounting derive.

The numbers and their symbols are in `models/privacy/public_numbers.py`. Here they meet the aggregate that
they name.
"""

import dataclasses
import typing
from typing import Final

from models.privacy import individual
from models.privacy.aggregates import AGGREGATES, INDIVIDUAL_DIFFERENCE, Aggregate
from models.privacy.public_numbers import LARGEST, Accounting, Change, PublicNumbers, Unit, expect

__all__ = ['MAX_GROWTH', 'Accounting', 'Change', 'MechanismParams', 'Unit']

# The largest vote may cost e^this times what its square would. Beyond, nobody could pay for one.
MAX_GROWTH: Final = 20.0


@typing.final
@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismParams(PublicNumbers):
    """The public numbers of one run, checked against its aggregate, and what follows from both.

    It has no field of its own: `PublicNumbers` lists them all.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect(
            self.aggregate in AGGREGATES, f'aggregate among {", ".join(AGGREGATES)}', 'aggregate',
            'Give one of these.',
        )  # fmt: skip
        if self.is_individual:
            self._check_individual()
        most, largest = self.strategy.most_contexts(self), self.strategy.largest_clip_over_temperature
        self._expect(
            self.batch_size <= most, f'batch_size <= {most}, up to where votes add up exactly', 'batch_size',
            'Lower --batch-size or --clip-bound.',
        )  # fmt: skip
        expect(
            self.clip_bound / self.temperature <= largest, f'clip_bound / temperature <= {largest}',
            'clip_bound / temperature', self.clip_bound / self.temperature,
            'Lower --clip-bound or raise --temperature.',
        )  # fmt: skip

    def _check_individual(self) -> None:
        self._expect(
            AGGREGATES[self.aggregate].takes_reference, "aggregate='difference' with individual accounting",
            'aggregate', "Give accounting='worst-case': its votes span the clip range at every token.",
        )  # fmt: skip
        self._expect(
            self.public_top_k is not None, 'public_top_k with individual accounting', 'public_top_k',
            'Give the number of tokens that may be voted on, such as 1024.',
        )  # fmt: skip
        self._expect(
            self.threshold is None, 'no threshold with individual accounting', 'threshold',
            'Leave it out: a token on which contexts and reference agree costs next to nothing.',
        )  # fmt: skip
        self._expect(
            self.omega is not None and 1 < self.omega <= LARGEST, f'omega > 1, at most {LARGEST:g}', 'omega',
            'It is the largest Rényi order of the guarantee.',
        )  # fmt: skip
        assert self.shift_bound is not None
        scale = self.batch_size * self.temperature
        expect(
            scale <= individual.LARGEST_SCALE,
            f'batch_size * temperature <= {individual.LARGEST_SCALE:g} with individual accounting',
            'batch_size * temperature', scale, 'Lower --temperature.',
        )  # fmt: skip
        smallest, most = individual.QUANTUM, individual.LARGEST_CLIP
        self._expect(
            smallest <= self.clip_bound <= most,
            f'clip_bound from {smallest:g} to {most:g} with individual accounting', 'clip_bound',
            'Votes are whole multiples of the first, and exact in float32 up to the second.',
        )  # fmt: skip
        largest, shift = self.strategy.largest_clip_over_temperature, self.shift_bound / self.temperature
        expect(
            shift <= largest, f'shift_bound / temperature <= {largest}', 'shift_bound / temperature', shift,
            'Lower --shift-bound or raise --temperature.',
        )  # fmt: skip
        steepest = individual.largest_growth(self)
        expect(
            steepest <= MAX_GROWTH, f'prices that grow by e^{MAX_GROWTH:g} at most with the size of a vote',
            'growth', round(steepest, 1),
            'Lower --omega, --clip-bound or --shift-bound, or raise --batch-size or --temperature.',
        )  # fmt: skip

    @property
    def strategy(self) -> Aggregate:
        """The aggregate itself: how it votes, what it needs and what it costs."""
        return INDIVIDUAL_DIFFERENCE if self.is_individual else AGGREGATES[self.aggregate]

    @property
    def needs_public_logits(self) -> bool:
        """True if decoding runs the public prompt."""
        return self.uses_sparse_vector or self.public_top_k is not None or self.strategy.reads_public_logits

    @property
    def is_ex_post(self) -> bool:
        """True if the loss is a function of records and output, so that no price is known in advance.

        True for the median (METHOD 5): such a run has no (ε, δ) of its text to publish.
        """
        return not self.strategy.has_price_in_advance

    @property
    def aggregate_sensitivity(self) -> float:
        """Most that one unit moves any component of the aggregate logits: c/s, or 2c/s.

        The same for the mean and for the difference aggregate (METHOD 4 and 4b).

        Raises:
            ValueError: The aggregate has no price in advance: its sensitivity depends on the records.
        """
        return self.strategy.sensitivity(self)
