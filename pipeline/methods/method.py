"""The interface of a method: what its settings come to, its plan, its graph and its files.

A method receives the records and its settings. What surrounds it is the same for all: reading, the
ledger, the folders and the reports. Each method is a folder beside this file, and one line in the table of
`pipeline.methods`. Heavy libraries are imported where they are used, so that a price is known at once.
"""

import abc
import dataclasses
import json
import typing
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from models.batch_plan import BatchPlan
from models.decoders.device import Dtype
from models.privacy.report import BatchFacts, Described, PrivacyReport, words
from models.records import BatchId, Record
from pipeline.ledger.answer import BudgetAnswer, FittingSetting, HasRoom, largest_fitting
from pipeline.methods.canary_audit import Canaries
from pipeline.methods.estimate import Estimate, estimated
from pipeline.methods.follows import Asked, Follows
from pipeline.methods.input_view import InputView
from pipeline.methods.solved import Run
from pipeline.pages import notebook, plan_terminal
from pipeline.settings.job_config import JobConfig
from pipeline.settings.method import MethodSettings
from pipeline.settings.model import Model

if typing.TYPE_CHECKING:
    import apache_beam as beam

    from transforms.write import Files


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPlan(abc.ABC):
    """The plan of a run: what it would release and cost, before anything is read or paid. All public.

    Attributes:
        method: Name of the method.
        delta: At which the run states its epsilon.
        estimate: Time and memory on this machine; None where nobody asked, or without a model.
        budget: The ledger's answer; None where no ledger was asked.
        warnings: Points that speak against the run as it is, in sentences: another method may have none.
        notes: What else a person should know of it, in sentences (`pipeline.methods.notes`).
        epsilon_together: Of the run and of all releases that go into it, as far as they hide the same unit;
            None where none does.
    """

    method: str
    delta: float
    estimate: Estimate | None = None
    budget: BudgetAnswer | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    epsilon_together: float | None = None

    @abc.abstractmethod
    def guarantee(self) -> str:
        pass

    @abc.abstractmethod
    def size(self) -> str:
        pass

    def price(self) -> str:
        """The guarantee; of all that goes into the run together, where something does."""
        if self.epsilon_together is None:
            return self.guarantee()
        together = f'ε = {self.epsilon_together:.6g} at δ = {self.delta:.6g} with what went in'
        return f'{together}; by itself {self.guarantee()}'

    def written_texts(self) -> int | None:
        """Texts of the corpus, about; None where public numbers do not tell."""
        return None

    def computing_hours(self) -> float | None:
        """About how long a device computes; None where it is not known."""
        return None if self.estimate is None else self.estimate.hours or None

    @abc.abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """(name, value) of each line of the plan's table, the guarantee first, without warnings and notes."""

    def rows_of_others(self, omega: float | None = None) -> list[tuple[str, str]]:
        """Lines on this machine and on the ledger, where these are given."""
        rows = [] if self.estimate is None else self.estimate.rows()
        return rows if self.budget is None else [*rows, *self.budget.rows(self.delta, omega)]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2)

    def _repr_html_(self) -> str:
        """The plan as a notebook shows it: as a terminal does."""
        return notebook.shown(lambda console: plan_terminal.render(self.table(), self.warnings, console))

    def table(self) -> list[tuple[str, str]]:
        """(name, value) of each line that people see, but for the warnings."""
        name, _ = (rows := self.rows())[0]
        return [(name, self.price()), *rows[1:], *(('NOTE', note) for note in self.notes)]


def delta_warning(run: Run[Any]) -> tuple[str, ...]:
    """The report's warning of a delta that is large for the declared number of units; or nothing."""
    delta, units = run.delta, run.input.records
    if units is None or run.statement != 'differential privacy' or delta * units < 1:
        return ()
    many = 'users' if run.budget.unit == 'user' else 'records'
    return (words.macro('delta_relation', delta, units, 'declared', many),)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """The worth of the texts of one measured run: a row of docs/measured.md.

    Attributes:
        what: The records, and what of the run differs from the defaults.
        records: Units of the run.
        labels: Declared labels of the run, 1 without any.
        epsilon: Epsilon of the run.
        texts: On which a classifier was trained.
        worth: Its accuracy on real records.
        of_records: The accuracy of one that was trained on as many real records.
    """

    what: str
    records: int
    labels: int
    epsilon: float
    texts: int
    worth: float
    of_records: float


# Bytes of a number of each type.
ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}
# The rank of a method that others come before.
LAST_RANK = 3
# Units of each label from which on votes on whole texts were worth more than texts of an adapter at the same
# epsilon. With 130 they were worth less, with 900 more, and in between nothing was scored.
FEWEST_OF_LABEL = 300


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """The rank of a method for a task, 1 for the first, and why; those of one rank differ by their time."""

    rank: int
    because: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generated:
    """The collections of a run's graph after its method, of which only rows may be released.

    Attributes:
        plan: The single `BatchPlan`.
        rows: Those of the run's `columns`.
        sizes: (batch id, contexts). Restricted; may be empty.
        facts: `BatchFacts`. Restricted; may be empty.
        counted: (field of the curator's report, number of records). Restricted; may be empty.
    """

    plan: 'beam.PCollection[BatchPlan]'
    rows: 'beam.PCollection'
    sizes: 'beam.PCollection[tuple[BatchId, int]]'
    facts: 'beam.PCollection[BatchFacts]'
    counted: 'beam.PCollection[tuple[str, int]]'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reported:
    """A method's part of a report.

    Attributes:
        units: Units that were declared, which the report compares delta with.
    """

    facts: Described
    settings: Mapping[str, Any]
    units: int | None


class Method[M: MethodSettings, R: Run](abc.ABC):
    """One way from records to a corpus: stateless, and known by the name in its settings.

    Attributes:
        instead: Remedy in place of a setting that other methods have and it lacks, by the setting's
            name: one sentence or two. A setting that is not listed is refused with its panel's name.
        open_steps: Labels of steps whose errors are of the model or without data, so that they
            may be shown. All other errors stay with the curator.
        memory_setting: The setting to lower where memory is short, beside those of lengths.
        needs_only_records: True if it makes a corpus of records alone, so that a comparison has it; another
            one needs texts that are there.
    """

    settings: type[M]
    summary: ClassVar[str]
    instead: ClassVar[Mapping[str, str]] = {}
    open_steps: ClassVar[frozenset[str]] = frozenset()
    memory_setting: ClassVar[str]
    needs_only_records: ClassVar[bool] = True
    scores: ClassVar[tuple[Score, ...]] = ()

    @property
    def name(self) -> str:
        return self.settings.name

    # --- Before a run ---------------------------------------------------------------

    def follows(self, asked: Asked[M]) -> dict[str, Follows]:
        """Settings that nobody gave and that follow from declared lengths and the texts wanted, by name.

        Asked where --typical-words or --examples is given. Only public numbers decide, and what was given
        stays.
        """
        return {}

    def on_this_machine(self) -> dict[str, Follows]:
        """Settings that suit what is installed here, by name; `dp-corpus start` writes them into its file."""
        return {}

    def unused_beside(self, flags: Mapping[str, Any]) -> frozenset[str]:
        """Settings of a file of settings that a run with these flags has no use for."""
        return frozenset()

    @abc.abstractmethod
    def solve(self, config: JobConfig[M]) -> R:
        """Everything that follows from a config; `pipeline.methods.solve` asks for it once a command.

        Raises:
            ValueError: Settings that do not fit, or a budget that nothing gives.
            FileNotFoundError: An earlier release that the run builds on is not there.
        """

    def estimate(self, run: R) -> Estimate | None:
        """Time and memory of a run here, without asking an accelerator; None without a model."""
        settings = run.method
        if not isinstance(settings, Model):
            return None
        dtype = settings.planned_dtype
        return estimated(settings.model, dtype, run.tokens, self.needed_memory(run, dtype))

    @abc.abstractmethod
    def plan(self, run: R, estimate: Estimate | None = None, budget: BudgetAnswer | None = None) -> RunPlan:
        """The plan of a run, with time and memory here and the ledger's answer where these are given."""

    def standing(self, units: float, epsilon: float | None, labels: int) -> Standing:
        """The rank of the method for so many units and labels (1 without any), from what was measured.

        `epsilon` is the target; None where the budget is given otherwise.
        """
        return Standing(rank=LAST_RANK, because='Nothing was measured of it.')

    def fitting(
        self, run: R, has_room: HasRoom, order: float, *, reaches: bool = True
    ) -> tuple[FittingSetting, ...] | None:
        """Settings of which each alone would make a run fit that does not; None: a higher order is enough.

        `order` is the Rényi order of the ledger's budget, and `reaches` says whether the run's reach it.
        """
        if run.budget.epsilon is None:
            return ()  # more noise would fit, and how much depends on what it is wanted for
        value = largest_fitting('epsilon', run.budget.epsilon, has_room)
        return () if value is None else (FittingSetting(name='epsilon', value=value),)

    @abc.abstractmethod
    def input_view(self, config: JobConfig[M]) -> InputView:
        """The input as the method would take it, for a check."""

    @abc.abstractmethod
    def needed_memory(self, run: R, dtype: Dtype, devices: int = 1) -> int:
        """Bytes of each device that a run takes at the least; `devices` of one machine share the rows."""

    # --- The run --------------------------------------------------------------------

    @abc.abstractmethod
    def digests(self, run: R) -> Mapping[str, str]:
        """Digest of each thing that it depends on beside settings, input and code, by `identity.CHANGES`."""

    @abc.abstractmethod
    def prepare(self, run: R) -> Any:
        """Settings for workers, picklable; looks at models and prompts before anything is paid."""

    @abc.abstractmethod
    def generate(self, run: R, prepared: Any, records: 'beam.PCollection[Record]') -> Generated:
        """Records of the run -> the rows of the corpus; `prepared` is the result of `prepare`."""

    @abc.abstractmethod
    def reported(self, run: R, prepared: Any, plan: BatchPlan) -> Reported:
        """Its part of the report that is released."""

    def restricted_parts(
        self, run: R, sizes: Mapping[BatchId, int], facts: Sequence[BatchFacts]
    ) -> Mapping[str, Any]:
        """Parts of the curator's report, as arguments of `models.privacy.report.RestrictedReport`."""
        return {}

    @abc.abstractmethod
    def files(self, run: R, prepared: Any, privacy_report: PrivacyReport) -> 'Files':
        """The files beside the corpus, by name: those that people read, and what else it releases."""

    # --- Audits ---------------------------------------------------------------------

    def canaries(self) -> Canaries[R]:
        """The audit of this method by canaries; a ValueError where there is none."""
        raise ValueError(
            f'Expected a method that canaries can audit, got method={self.name!r}. Give --method refine, say.'
        )
