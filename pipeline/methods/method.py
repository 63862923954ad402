"""What every method tells the rest of a run: its settings, its price, its graph and its facts.

A method receives the records and its settings. What surrounds it is the same for all: reading, the
ledger, the folders and the reports. Each method is a folder beside this file, and one line in the table of
`pipeline.methods`. Heavy libraries are imported where they are used, so that a price is known at once.
"""

import abc
import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from models import extras
from models.batch_plan import BatchPlan
from models.decoders.device import Dtype
from models.privacy import accounting
from models.privacy.facts import Statement
from models.privacy.report import BatchFacts, Described, PrivacyReport
from models.records import BatchId, Record
from pipeline.calibration import Calibration, RequestedDtype
from pipeline.ledger.answer import BudgetAnswer, FittingSetting, HasRoom
from pipeline.methods.canary_audit import CanaryAuditor
from pipeline.methods.follows import Asked, Follows
from pipeline.methods.input_view import InputView
from pipeline.pages import notebook, plan_terminal
from pipeline.settings.job_config import JobConfig
from pipeline.settings.method import MethodSettings

if typing.TYPE_CHECKING:
    import apache_beam as beam

    from pipeline.ledger.ledger import Ledger
    from transforms.columns import Columns
    from transforms.write import Files


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFolders:
    """Folders and files of one method's runs, beside those that every run has.

    Attributes:
        work: Folders in the work directory.
        output: Folders in the output.
        kept: Files in the work directory without which a run cannot go on once it has begun: what was drawn
            with noise.
    """

    work: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class RunPlan(abc.ABC):
    """What a run would release and cost, before anything is read or paid. All of it is public.

    Attributes:
        delta: At which the run states its epsilon.
        budget: What the ledger says of it; None where no ledger was asked.
        warnings: What to think about before the run, in sentences.
    """

    delta: float
    budget: BudgetAnswer | None
    warnings: tuple[str, ...]

    @abc.abstractmethod
    def guarantee(self) -> str:
        """The guarantee in a few words."""

    @abc.abstractmethod
    def size(self) -> str:
        """How much the run does, in a few words."""

    def written_texts(self) -> int | None:
        """Texts of the corpus, about; None where public numbers do not tell."""
        return None

    def computing_hours(self) -> float | None:
        """About how long a device computes; None without rates, or where public numbers do not tell."""
        return None

    @abc.abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """(name, value) of each line of the plan's table, but for its warnings."""

    @property
    def sampling_share(self) -> float:
        """Seconds of sampling for each second of training; 0 where a run does not do both."""
        return 0.0

    @abc.abstractmethod
    def to_json(self) -> str:
        """The plan as one JSON object."""

    def _repr_html_(self) -> str:
        """The plan as a notebook shows it: as a terminal does."""
        return notebook.shown(lambda console: plan_terminal.render(self.rows(), self.warnings, console))


class Suggestion(abc.ABC):
    """Settings that cost the same, side by side, and which of them to take. All of it is public."""

    @abc.abstractmethod
    def titles(self) -> tuple[str, ...]:
        """Of the table's columns."""

    @abc.abstractmethod
    def table(self) -> list[tuple[str, ...]]:
        """A row for each choice, with a star beside the one to take."""

    @abc.abstractmethod
    def lines(self) -> list[str]:
        """What stands below the table."""

    @abc.abstractmethod
    def to_json(self) -> str:
        """The suggestion as one JSON object."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """What texts of one measured run were worth: a row of docs/measured.md.

    Attributes:
        what: The records, and what of the run differs from the defaults.
        records: Units of the run.
        labels: Declared labels of the run, 1 without any.
        epsilon: Of the run.
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


# Of a method that others come before.
LAST_RANK = 3
# Units of each label from which on votes on whole texts were worth more than texts of an adapter at the same
# epsilon. With 130 they were worth less, with 900 more, and in between nothing was scored.
FEWEST_OF_LABEL = 300


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """How a method suits a task, beside other methods.

    Attributes:
        rank: 1 for the first choice; methods of the same rank are told apart by the time that they take.
        because: The reason, a sentence.
    """

    rank: int
    because: str


class Method[M: MethodSettings](abc.ABC):
    """One way from records to a corpus: stateless, and known by the name in its settings.

    Attributes:
        settings: The class of its settings.
        summary: What it does, for `--help`.
        instead: What to give in place of a setting that other methods have and it lacks, by the setting's
            name: one sentence or two. A setting that is not listed is refused with its panel's name.
        open_steps: Labels of steps whose errors are of the model or without data, so that they
            may be shown. All other errors stay with the curator.
        needs_only_records: Whether it makes a corpus of records alone, so that a comparison has it; another
            one needs texts that are there.
        scores: What its texts were worth in measured runs.
        canary_sabotages: Ways to break it on purpose, of `pipeline.methods.canary_audit`, that make sense.
    """

    settings: type[M]
    summary: ClassVar[str]
    instead: ClassVar[Mapping[str, str]] = {}
    open_steps: ClassVar[frozenset[str]] = frozenset()
    needs_only_records: ClassVar[bool] = True
    scores: ClassVar[tuple[Score, ...]] = ()
    canary_sabotages: ClassVar[frozenset[str]] = frozenset()

    @property
    def name(self) -> str:
        """Of the flag --method."""
        return self.settings.name

    # --- Settings that follow from other things ------------------------------------

    def resolved(self, config: JobConfig[M]) -> JobConfig[M]:
        """The config with what an earlier release that it builds on says; itself where there is none.

        Raises:
            ValueError: The config gives what the release says already, or does not go with it.
            FileNotFoundError: There is no such release.
        """
        return config

    def for_workers(self, config: JobConfig[M]) -> JobConfig[M]:
        """The config with every setting solved that workers would solve otherwise; asked once, at the launch.

        Workers do not know the ledger.
        """
        return config

    @abc.abstractmethod
    def dtype(self, config: JobConfig[M]) -> Dtype:
        """The type that 'auto' stands for on the machine that launches the run; may ask the accelerator."""

    @abc.abstractmethod
    def planned_dtype(self, config: JobConfig[M]) -> RequestedDtype:
        """The type whose rates a plan takes; 'auto' where only the machine that launches the run can say.

        As `dtype`, as far as no accelerator has to be asked.
        """

    def follows(self, asked: Asked[M]) -> dict[str, Follows]:
        """Settings that nobody gave and that follow from declared lengths and the texts wanted, by name.

        Asked where --typical-words or --examples is given. Only public numbers decide, and what was given
        stays.

        Raises:
            ValueError: No budget pays for the texts wanted.
        """
        return {}

    def on_this_machine(self) -> dict[str, Follows]:
        """Settings that suit what is installed here, by name; `dp-corpus start` writes them into its file."""
        return {}

    # --- The price -----------------------------------------------------------------

    @abc.abstractmethod
    def statement(self, config: JobConfig[M]) -> Statement:
        """What kind of statement a run can make."""

    @abc.abstractmethod
    def cost(self, config: JobConfig[M]) -> Mapping[str, accounting.DpEvent]:
        """Event of each stage, by the name that a ledger has for it; for the caps, not for what a run uses.

        Raises:
            ValueError: It has no price in advance.
        """

    def check_earlier(self, config: JobConfig[M], ledger: 'Ledger') -> None:
        """Refuses earlier releases that claim a charge which the ledger does not hold.

        Raises:
            ValueError: See above.
        """
        return

    @abc.abstractmethod
    def fitting(self, config: JobConfig[M], has_room: HasRoom, order: float) -> tuple[FittingSetting, ...]:
        """Settings of which each alone would make a run fit that does not.

        Args:
            config: The run.
            has_room: Whether the dataset has room for the run with other values of settings.
            order: The Rényi order at which the ledger keeps the dataset's budget.
        """

    def fitting_order(
        self, config: JobConfig[M], has_room: HasRoom, order: float
    ) -> tuple[FittingSetting, ...] | None:
        """The same for a run whose orders do not reach the dataset's; None where a higher order is enough."""
        return self.fitting(config, has_room, order)

    # --- The plan ------------------------------------------------------------------

    @abc.abstractmethod
    def plan(self, config: JobConfig[M]) -> RunPlan:
        """The plan of a config, which alone decides it."""

    def standing(self, units: float, epsilon: float | None, labels: int) -> Standing:
        """How the method suits so many units at an epsilon, from what was measured.

        Args:
            units: Declared units that the run takes.
            epsilon: The target; None where the budget is given otherwise.
            labels: Declared ones, 1 without any.
        """
        return Standing(rank=LAST_RANK, because='Nothing was measured of it.')

    def suggest(self, config: JobConfig[M], rates: Calibration | None, minutes: float | None) -> Suggestion:
        """Settings of the same epsilon and the same time, and which of them to take, from public numbers.

        Args:
            config: The run, whose own settings say how much time there is.
            rates: Of the device; None for a method without a model.
            minutes: Time in place of that.

        Raises:
            ValueError: It has nothing to choose, or the numbers do not say enough.
        """
        raise ValueError(
            f'Expected a method whose time can be spent in several ways, got method={self.name!r}. Give '
            '--method fine-tune, or leave --suggest out.'
        )

    @abc.abstractmethod
    def with_rates(self, plan: Any, config: JobConfig[M], rates: Calibration) -> RunPlan:
        """Its plan with an estimate of the time on a device of these rates."""

    @abc.abstractmethod
    def with_budget(self, plan: Any, config: JobConfig[M], answer: BudgetAnswer) -> RunPlan:
        """Its plan with what the ledger says of it."""

    def check_public_texts(self, config: JobConfig[M], texts: str | None, label_field: str | None) -> None:
        """Refuses public texts for a plan that does not use any; imports nothing heavy.

        Args:
            config: The run.
            texts: Files of --calibration; None without.
            label_field: Column of their label.

        Raises:
            ValueError: See above.
        """
        if texts is not None:
            raise ValueError(
                f'Expected no calibration with method={self.name!r}, got calibration={texts!r}. Its price '
                'does not depend on texts: leave it out.'
            )

    def with_public_texts(
        self, plan: Any, config: JobConfig[M], texts: str, label_field: str | None, say: Callable[[str], None]
    ) -> RunPlan:
        """Its plan with an estimate from public texts of the records' genre; tells `say` what goes on."""
        raise NotImplementedError(self.name)

    # --- The input, before a run ---------------------------------------------------

    @abc.abstractmethod
    def input_view(self, config: JobConfig[M]) -> InputView:
        """How a check of the input counts and words what the method would make of it."""

    # --- The run -------------------------------------------------------------------

    def extras(self, config: JobConfig[M]) -> tuple[str, ...]:
        """Extras of this package that the run needs, as `models.extras` names them."""
        return (extras.GEMMA,)

    @abc.abstractmethod
    def needed_memory(self, config: JobConfig[M], dtype: Dtype, devices: int = 1) -> int:
        """Bytes of each device that a run takes at the least.

        Args:
            config: The run.
            dtype: Type of the weights.
            devices: How many devices of one machine share the rows.
        """

    @property
    @abc.abstractmethod
    def memory_setting(self) -> str:
        """The setting to lower where memory is short, beside those of lengths."""

    @abc.abstractmethod
    def most_tokens(self, config: JobConfig[M]) -> int:
        """Tokens of all texts at the most, as far as public numbers tell; 0 where they do not."""

    @abc.abstractmethod
    def prepare(self, config: JobConfig[M]) -> Any:
        """What workers build it from, picklable; looks at models and prompts before anything is paid.

        Raises:
            ValueError: A prompt does not fit.
            FileNotFoundError: A file of the model is not there.
        """

    @abc.abstractmethod
    def digests(self, config: JobConfig[M]) -> Mapping[str, str]:
        """Digest of each thing that it depends on beside settings, input and code, by the name in `run.json`.

        Names are those of `pipeline.run.identity.CHANGES`.
        """

    def folders(self, config: JobConfig[M]) -> RunFolders:
        """Folders and files of its own."""
        return RunFolders()

    @abc.abstractmethod
    def configured_plan(self, config: JobConfig[M]) -> BatchPlan | None:
        """The plan of batches where the config gives it; None where a noisy count does."""

    @abc.abstractmethod
    def plan_batches(
        self, config: JobConfig[M], prepared: Any, records: 'beam.PCollection[Record]'
    ) -> 'tuple[beam.PCollection[Record], beam.PCollection[BatchPlan]]':
        """Records -> records in their groups, and the single plan of batches."""

    @abc.abstractmethod
    def transform(
        self, config: JobConfig[M], prepared: Any, plan: 'beam.PCollection[BatchPlan]'
    ) -> 'beam.PTransform':
        """Records -> (rows, sizes, facts, counted), of which only the first may be released.

        Four PCollections. Rows are those of `columns`. Sizes are (batch id, contexts), facts
        `BatchFacts` and counted numbers of records, by the field of the curator's report that they are
        for; all three may be empty.

        Args:
            config: The run.
            prepared: What `prepare` returned.
            plan: The single plan of batches.
        """

    @abc.abstractmethod
    def columns(self, config: JobConfig[M]) -> 'Columns':
        """The corpus's columns and totals, but for what a run's labels add."""

    def columns_with_labels(self, config: JobConfig[M]) -> 'Columns':
        """The corpus's columns and totals, with the values of attributes and declared words."""
        columns = self.columns(config).with_attributes(config.input.attributes)
        return columns.with_label_words(config.input.declared_words)

    # --- What it releases beside the corpus ----------------------------------------

    @abc.abstractmethod
    def facts(self, config: JobConfig[M], prepared: Any, plan: BatchPlan) -> Described:
        """What it tells a report.

        Args:
            config: The run.
            prepared: What `prepare` returned.
            plan: Of batches.
        """

    @abc.abstractmethod
    def report_settings(self, config: JobConfig[M], of_mechanism: tuple[str, ...]) -> dict[str, Any]:
        """Settings that the report shows, in its order; no path of the curator's machine.

        Args:
            config: The run.
            of_mechanism: Names of the settings that `facts` shows already.
        """

    def declared_units(self, config: JobConfig[M], prepared: Any) -> int | None:
        """Units that were declared, which the report compares delta with."""
        return config.input.records

    def restricted_parts(
        self, config: JobConfig[M], sizes: Mapping[BatchId, int], facts: Sequence[BatchFacts]
    ) -> Mapping[str, Any]:
        """Parts of the curator's report, as arguments of `models.privacy.report.RestrictedReport`."""
        return {}

    @abc.abstractmethod
    def pages(self, config: JobConfig[M], prepared: Any, privacy_report: PrivacyReport) -> 'Files':
        """The files beside the corpus, by name: those that people read, and what else it releases.

        Args:
            config: The run.
            prepared: What `prepare` returned.
            privacy_report: Its report.
        """

    # --- Audits --------------------------------------------------------------------

    def canary_auditor(self) -> CanaryAuditor:
        """What audits runs of this method by canaries.

        Raises:
            ValueError: There is no such audit of it.
        """
        raise ValueError(
            f'Expected a method that canaries can audit, got method={self.name!r}. Give --method refine, say.'
        )
