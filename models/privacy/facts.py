"""The facts that a part of a mechanism gives to a report.

An aggregate, the sparse vector and a noisy histogram each give their facts: cost, sensitivity, assumptions
and limits. models/privacy/report arranges them, and knows no part by its name. All facts are functions of
public settings.
"""

import dataclasses
from typing import Literal

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
