"""What a part of a mechanism tells a report of itself.

An aggregate, the sparse vector, a noisy histogram, cluster centres and a method each
bring their facts: what they cost, what one unit can move, what has to hold, what is not
said. models/privacy/report arranges them and knows no part by its name. All of it is a
function of public settings.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

Setting = str | int | float | bool | None
Statement = Literal['differential privacy', 'ex-post', 'none']
"""The kind of statement that a run makes, strongest first.

'differential privacy': (epsilon, delta), known in advance. 'ex-post': the loss of the text is
a function of the records and of the text itself, known afterwards and to the curator
alone. 'none': research only.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RhoStage:
    """One paid release of the run.

    Attributes:
        name: Short name of the stage.
        rho: Its zCDP cost; None where no bound holds in advance, or none at all.
        explanation: What is paid for, in plain words.
        formula: The cost in symbols.
        numbers: The same formula with the run's numbers put in; empty where it has none.
        omega: Largest Rényi order at which the cost is a bound; None where it is one at every order.
    """

    name: str
    rho: float | None
    explanation: str
    formula: str
    numbers: str
    omega: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledGaussianStage(RhoStage):
    """Gaussian mechanisms on Poisson samples, which have a price in advance and no ρ.

    Attributes:
        sampling_probability: q, of one unit at one step.
        noise_multiplier: z, the noise's standard deviation over the sum's L2 sensitivity.
        steps: T, how many.
    """

    sampling_probability: float
    noise_multiplier: float
    steps: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The most that one unit of privacy moves a quantity."""

    quantity: str
    value: float
    formula: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatementWords:
    """What is said of a run that makes a weaker statement than (epsilon, delta), by what weakens it.

    `{one}` stands for the unit of privacy in each.

    Attributes:
        guarantee: The statement.
        accounting: How losses add up, if they do.
        limits: What the statement does not say.
    """

    guarantee: str
    accounting: str
    limits: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A cost as lines of Python that need nothing else.

    Attributes:
        settings: Lines that set public numbers, each with a comment.
        steps: Lines that compute from them.
        cost: Expression for the zCDP cost, in the names that the lines set.
        largest_order: Expression for the largest Rényi order of that cost; empty where it holds at every one.
    """

    settings: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    cost: str
    largest_order: str = ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What one part tells a report. Whatever it leaves out, it has nothing to say of.

    Attributes:
        statement: The strongest statement that a run with this part can make.
        statement_words: What is said where that is not differential privacy; None where it is.
        stages: What it costs, in the order of payment.
        sensitivities: What one unit can move.
        why_no_sensitivity: Why no row of `sensitivities` bounds it, for people.
        on_replacement: What changes where a unit may replace the content of a context, as
            the end of a sentence.
        assumptions_enforced: What the proof needs and the code sees to.
        assumptions_of_curator: What the proof needs and people have to see to.
        limits: What (epsilon, delta) does not say because of it.
        not_covered: Accesses to records that no figure of the run speaks of, because of it.
        symbols: What its formulas' symbols mean, beyond those of METHOD 1 that any run has.
        sources: Where its mathematics was published, as sentences.
        reproduction: Its cost in Python: of one private token for a part of decoding, of
            the run otherwise; None without a price in advance.
    """

    statement: Statement = 'differential privacy'
    statement_words: StatementWords | None = None
    stages: tuple[RhoStage, ...] = ()
    sensitivities: tuple[Sensitivity, ...] = ()
    why_no_sensitivity: str = ''
    on_replacement: str = ''
    assumptions_enforced: tuple[str, ...] = ()
    assumptions_of_curator: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    reproduction: Reproduction | None = None

    def __post_init__(self) -> None:
        if (self.statement == 'differential privacy') != (self.statement_words is None):
            raise ValueError(
                'Expected statement_words where a part weakens the statement, and only there, got '
                f'statement={self.statement!r}. Say what holds instead of (epsilon, delta).'
            )
        is_priced = bool(self.stages) and all(stage.rho is not None for stage in self.stages)
        if is_priced != (self.reproduction is not None):
            raise ValueError(
                'Expected a reproduction of what has a price, and of nothing else, got '
                f'stages={len(self.stages)}, reproduction={self.reproduction is not None}. '
                'A cost that readers cannot work out again is not in their sum.'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodFacts:
    """What a method tells the report of a run: its parts, and what holds of them together.

    Attributes:
        unit_nouns: The unit of privacy as one and as many.
        unit_of_privacy: Whose presence is hidden, in words.
        mechanism_output: What counts as the output, without the noisy counts and the full stop.
        accounting: How costs add up to the (epsilon, delta) of a run that has one.
        settings: Every setting that its guarantee depends on, by name.
        contexts: What holds of how records become contexts.
        parts: Its parts, in the order of payment.
        decoding: What holds of its parts together.
        rho_per_private_token: What one more private token per batch costs; None where no
            price is known in advance, or there is no such thing.
        reproduction: The cost of all parts together; None where one has no price in advance.
        event: The cost of all parts together where it is not in zCDP: Poisson-sampled Gaussians, whose
            (ε, δ) follows from their privacy loss distribution; None where costs are in zCDP.
        data_accesses: What the guarantee covers and what it does not, where no ledger says more; empty
            where that is what holds of any run.
        has_adapter: Whether the model that reads records has a released adapter, of whose records a part
            says what has to be said.
    """

    unit_nouns: tuple[str, str]
    unit_of_privacy: str
    mechanism_output: str
    accounting: str
    settings: Mapping[str, Setting]
    contexts: Facts
    parts: tuple[Facts, ...]
    decoding: Facts
    rho_per_private_token: float | None
    reproduction: Reproduction | None
    event: Any = None  # a `DpEvent`, which accounting of these facts imports
    data_accesses: tuple[str, ...] = ()
    has_adapter: bool = False


def weakest(parts: Iterable[Facts]) -> Facts:
    """The first part with the weakest statement, which is that of a run with all of them.

    Raises:
        ValueError: There is no part.
    """
    return max(parts, key=lambda part: get_args(Statement).index(part.statement))
