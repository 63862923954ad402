"""The facts that a part of a mechanism gives to a report.

An aggregate, the sparse vector, a noisy histogram, cluster centres and a method each give their facts:
cost, sensitivity, assumptions and limits. models/privacy/report arranges them, and knows no part by its
name. All facts are functions of public settings.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from models.privacy.earlier_release import EarlierRelease
from models.privacy.events import DpEvent

Setting = str | int | float | bool | None
Statement = Literal['differential privacy', 'ex-post']
"""The kind of statement that a run makes, strongest first.

'differential privacy': (epsilon, delta), known in advance. 'ex-post': the loss of the text is
a function of the records and of the text itself, known afterwards and to the curator
alone.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RhoStage:
    """One paid release of the run.

    Attributes:
        name: Short name of the stage.
        rho: Its zCDP cost; None where no bound holds in advance.
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
        steps: How many one unit can be in.
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
    """The words for a weaker statement than (epsilon, delta), given by the part that weakens it.

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
    """A cost as lines of Python that run on their own.

    Attributes:
        settings: Lines that set public numbers, each with a comment.
        steps: Lines that compute from them.
        cost: Expression for the zCDP cost, in the names that the lines set.
        largest_order: Expression for the largest Rényi order of that cost; empty if it holds at every order.
    """

    settings: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    cost: str
    largest_order: str = ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts of one part. A field that is left out has nothing to state.

    Attributes:
        statement: The strongest statement that a run with this part can make.
        statement_words: The words of a weaker statement; None for differential privacy.
        stages: What it costs, in the order of payment.
        sensitivities: How far one unit can move each quantity.
        why_no_sensitivity: Why no row of `sensitivities` bounds it, for readers.
        on_replacement: What changes if a unit may replace the content of a context, as the end
            of a sentence.
        assumptions_enforced: Assumptions of the proof that the code enforces.
        assumptions_of_curator: Assumptions of the proof that people have to keep.
        limits: What (epsilon, delta) does not cover because of this part.
        not_covered: Accesses to records that no figure of the run covers, because of this part.
        symbols: What its formulas' symbols mean, beyond those of METHOD 1 that any run has.
        sources: Where its mathematics was published, as sentences.
        reproduction: Its cost in Python: per private token for a part of decoding, per run
            otherwise; None without a price in advance.
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
    """The facts that a method gives to the report of a run: its parts, and what holds for all of them.

    Attributes:
        unit_nouns: The unit of privacy in the singular and in the plural.
        unit_of_privacy: Whose presence is hidden, in words.
        mechanism_output: What counts as the output, without the noisy counts and the full stop.
        accounting: How costs add up to the (epsilon, delta) of a run that has one.
        settings: Every setting that its guarantee depends on, by name.
        contexts: Facts on how records become contexts.
        parts: Its parts, in the order of payment.
        decoding: Facts that hold for its parts together.
        rho_per_private_token: Cost of one more private token per batch; None if no price is
            known in advance, or tokens have no price of their own.
        reproduction: The cost of all parts together; None if one has no price in advance.
        event: The cost of all parts together if it is not in zCDP: Poisson-sampled Gaussians, whose
            (ε, δ) follows from their privacy loss distribution. None if costs are in zCDP.
        data_accesses: What the guarantee covers and what it does not, unless a ledger says more; empty
            for the words that hold for any run.
        has_adapter: Whether the model that reads records has a released adapter; a part then states
            which records the adapter was trained on.
        released: What the guarantee is about, as the subject of its sentence.
        reads_batches: Whether records are read in the batches of a plan.
        during: Facts on the randomness of the run and on who may see its folders; None for those of a run
            that derives all noise from its key.
        releases: The releases that went into the run, and all that went into these, each once.
        reads_records: Whether it reads records. One that only samples from an adapter has the cost of the
            run that trained it, the first of `releases`, and adds none.
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
    event: DpEvent | None = None
    data_accesses: tuple[str, ...] = ()
    has_adapter: bool = False
    released: str = 'The corpus and this report'
    reads_batches: bool = True
    during: Facts | None = None
    releases: tuple[EarlierRelease, ...] = ()
    reads_records: bool = True


def weakest(parts: Iterable[Facts]) -> Facts:
    """The first part with the weakest statement. A run with all these parts makes that statement.

    Raises:
        ValueError: There is no part.
    """
    return max(parts, key=lambda part: get_args(Statement).index(part.statement))
