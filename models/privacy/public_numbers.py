"""The public numbers that votes, tests and prices are computed from, whatever the aggregate.

The bottom of this package: it imports the room of sums alone, and knows no aggregate but by name. Aggregates,
candidates and prices take `PublicNumbers`; `models/privacy/params.py` adds the aggregate that the name
stands for, and makes them the settings of a run.

Symbols (METHOD 1): s `batch_size`, c `clip_bound`, τ `temperature`,
τ_pub `public_temperature`, θ `threshold`, σ `threshold_noise_scale`,
r `max_private_tokens`, k `examples_per_context`; of individual accounting (METHOD 4d)
c₂ `shift_bound`, B `context_budget`, ω `omega`.
"""

import dataclasses
import enum
import fractions
from typing import Final, Literal, get_args

from models.privacy import whole_numbers

Unit = Literal['example', 'user']
UNIT_REMEDY: Final = "'example' hides one record, 'user' all records of one unit id."
# Charge of a context: each token's worst case, or what each context gives (METHOD 4d).
Accounting = Literal['worst-case', 'individual']

# Numbers in nats, temperatures, noise scales and budgets. Within these no square, quotient or product that a
# price, a sensitivity or a vote is computed by leaves the range of float32.
SMALLEST: Final = 1e-6
LARGEST: Final = 1e6
# Budgets of one context: they are compared with what is spent, and enter no product.
LARGEST_BUDGET: Final = 1e12
# Noise of the sparse-vector test is whole numbers below 2^54: σ s is at most this, and |θ| at most that.
MOST_NOISE: Final = 2**18
LARGEST_THRESHOLD: Final = 1000.0


class Change(enum.Enum):
    """The change to a batch's contexts when one unit is added or removed.

    Attributes:
        ADD_OR_REMOVE: One context appears or disappears; the others stay as they are.
        REPLACE: One context may change its content as well (a slot that holds up to
            k records), which doubles every sensitivity.
    """

    ADD_OR_REMOVE = 1
    REPLACE = 2


def expect(condition: bool, expectation: str, name: str, value: object, remedy: str) -> None:
    """Refuses a value in the words of every setting: what was expected, what came, what to do."""
    if not condition:
        raise ValueError(f'Expected {expectation}, got {name}={value!r}. {remedy}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicNumbers:
    """Every number that the guarantee of one run depends on. All fields are public.

    Made as `MechanismParams`, which checks the numbers against the aggregate as well.

    Attributes:
        batch_size: Expected batch size s, the public divisor of every sum, whatever
            a batch really holds.
        clip_bound: Clip bound c in nats, on logits recentred to a maximum of c.
        temperature: Temperature τ of private tokens.
        max_private_tokens: Cap r on the private tokens of one batch. The guarantee is
            stated for this cap, never for the number a run happens to use. None with
            individual accounting, where nothing but `max_batch_tokens` ends a batch.
        threshold: Threshold θ of the sparse-vector test on the L1 distance in [0, 2]
            between the aggregate private and the public distribution; None leaves the
            test out, and every token is private.
        threshold_noise_scale: Laplace scale σ of the threshold; the distance gets 2σ.
        public_temperature: Temperature τ_pub of public tokens.
        public_top_k: Restricts votes and sampling to the tokens at least as probable as the
            K-th most probable public one, as far as they are among the first C
            (`models/privacy/candidates.py`); None leaves the vocabulary whole.
        max_example_tokens: Length cap of one synthetic example.
        max_batch_tokens: Cap on all tokens of one batch, public ones too. Like every
            cap that is a function of the output alone, it costs nothing.
        unit: The unit of privacy.
        examples_per_context: At most k records share one context.
        aggregate: How the votes of a batch are combined: a name of
            `models.privacy.aggregates.AGGREGATES`.
        accounting: 'worst-case' charges every context what any could give to a token;
            'individual', for the difference alone, charges each what it gives itself, and lets
            it vote as long as it can pay (METHOD 4d).
        shift_bound: c₂ > 0 in nats: up to here all votes together lift a score in full, and beyond
            it ever less. With individual accounting, like the next two; None without.
        context_budget: B > 0, the ρ that one context may spend on the whole stream of its batch.
        omega: ω > 1, the largest Rényi order at which the guarantee holds.
    """

    batch_size: int
    clip_bound: float
    temperature: float
    max_private_tokens: int | None = None
    threshold: float | None = None
    threshold_noise_scale: float | None = None
    public_temperature: float = 1.5
    public_top_k: int | None = None
    max_example_tokens: int = 128
    max_batch_tokens: int
    unit: Unit = 'example'
    examples_per_context: int = 1
    aggregate: str = 'mean'
    accounting: Accounting = 'worst-case'
    shift_bound: float | None = None
    context_budget: float | None = None
    omega: float | None = None

    def __post_init__(self) -> None:
        whole = ['batch_size', 'max_example_tokens', 'max_batch_tokens', 'examples_per_context']
        positive = ['clip_bound', 'temperature', 'public_temperature']
        self._check_accounting()
        if self.is_individual:
            positive += ['shift_bound', 'context_budget']
        else:
            whole.append('max_private_tokens')
        for name in whole:
            value = getattr(self, name)
            self._expect(
                isinstance(value, int) and value >= 1, f'{name} >= 1', name, 'Give a positive whole number.'
            )
        for name in positive:
            value, largest = getattr(self, name), LARGEST_BUDGET if name == 'context_budget' else LARGEST
            self._expect(
                value is not None and SMALLEST <= value <= largest,
                f'{name} > 0, from {SMALLEST:g} to {largest:g}', name,
                'Give a positive finite number of that range: beyond it arithmetic loses what is proven.',
            )  # fmt: skip
        self._expect(
            self.batch_size <= whole_numbers.MOST_CONTEXTS, f'batch_size <= {whole_numbers.MOST_CONTEXTS}',
            'batch_size', 'Plan more batches.',
        )  # fmt: skip
        if (self.threshold is None) != (self.threshold_noise_scale is None):
            raise ValueError(
                'Expected threshold and threshold_noise_scale together or not at all, got '
                f'threshold={self.threshold!r}, threshold_noise_scale={self.threshold_noise_scale!r}. '
                'Set both for the sparse-vector test, or neither for private tokens only.'
            )
        if self.threshold is not None and self.threshold_noise_scale is not None:
            self._expect(
                abs(self.threshold) <= LARGEST_THRESHOLD,
                f'a threshold from -{LARGEST_THRESHOLD:g} to {LARGEST_THRESHOLD:g}', 'threshold',
                'Distances are between 0 and 2. Leave it out for private tokens only.',
            )  # fmt: skip
            scale = self.threshold_noise_scale
            self._expect(
                SMALLEST <= scale <= LARGEST and fractions.Fraction(scale) * self.batch_size <= MOST_NOISE,
                f'threshold_noise_scale > 0, from {SMALLEST:g} to {MOST_NOISE} / batch_size',
                'threshold_noise_scale',
                'The test is only private with noise, and needs little of it: distances are between 0 and 2.',
            )
        if self.public_top_k is not None:
            self._expect(
                self.public_top_k >= 1, 'public_top_k >= 1', 'public_top_k',
                'Leave it out for the whole vocabulary.',
            )  # fmt: skip
        self._expect(self.unit in get_args(Unit), "unit 'example' or 'user'", 'unit', UNIT_REMEDY)

    def _check_accounting(self) -> None:
        known = get_args(Accounting)
        self._expect(
            self.accounting in known,
            f'accounting among {", ".join(known)}',
            'accounting',
            'Give one of these.',
        )
        if self.is_individual:
            unwanted = ['max_private_tokens']
            remedy = 'Leave it out: max_batch_tokens ends a batch.'
        else:
            unwanted = ['shift_bound', 'context_budget', 'omega']
            remedy = "Leave it out, or give accounting='individual'."
        for name in unwanted:
            value = getattr(self, name)
            self._expect(value is None, f'no {name} with accounting={self.accounting!r}', name, remedy)

    def _expect(self, holds: bool, expectation: str, name: str, remedy: str) -> None:
        expect(holds, expectation, name, getattr(self, name), remedy)

    @property
    def is_individual(self) -> bool:
        """True if each context is charged for its own votes (METHOD 4d)."""
        return self.accounting == 'individual'

    @property
    def private_token_cap(self) -> int:
        """Most private tokens of a batch: r, or with individual accounting all of its tokens."""
        return self.max_batch_tokens if self.max_private_tokens is None else self.max_private_tokens

    @property
    def uses_sparse_vector(self) -> bool:
        """True if public tokens are possible."""
        return self.threshold is not None

    @property
    def change(self) -> Change:
        """The change that one unit can make to a batch (METHOD 1).

        A user's records form one context of their own, and a record of its own does
        too; k records that share a slot without unit ids may displace one another.
        """
        if self.unit == 'example' and self.examples_per_context > 1:
            return Change.REPLACE
        return Change.ADD_OR_REMOVE

    @property
    def distance_sensitivity(self) -> float:
        """Most that one unit moves the distance: 1/s, or 2/s (PP Lemma 3, METHOD 1)."""
        return self.change.value / self.batch_size
