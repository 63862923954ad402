"""A made-up method: this file and one call of `register` are all that a new one takes.

It needs no model and writes the same text for every label, whatever the records are.
"""

import contextlib
import dataclasses
import functools
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import apache_beam as beam
import pyarrow as pa

from models.batch_plan import BatchPlan
from models.decoders.device import Dtype
from models.privacy import accounting
from models.privacy.report import BatchFacts, ChosenTotals, PrivacyReport, Voted
from models.privacy.text_votes import TextVoteParams
from models.records import BatchId, Record
from pipeline import main, methods
from pipeline.check.input_check import InputCheck
from pipeline.commands import check, generate, plan
from pipeline.ledger.answer import BudgetAnswer
from pipeline.methods import report_settings
from pipeline.methods.estimate import Estimate
from pipeline.methods.input_view import InputView
from pipeline.methods.method import Generated, Method, Reported, RunPlan
from pipeline.methods.solved import Run
from pipeline.settings import panel
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.job_config import JobConfig
from pipeline.settings.method import MethodSettings
from pipeline.settings.output import Output
from transforms.columns import Columns
from transforms.write import Files

RHO = 0.125
_setting = functools.partial(panel.setting, 'Motto')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantSettings(MethodSettings):
    """The sentence to say, and the number of times."""

    name: ClassVar[str] = 'constant'
    panels: ClassVar[tuple[str, ...]] = ('Motto',)

    motto: str = _setting('What every text says.', 'Festina lente', names_path=False)
    mottoes: int = _setting('Texts of each label.', 3)

    def check(self) -> None:
        self._check_positive('mottoes')

    def check_run(self, declared: Input, budget: Budget, output: Output, delta: float | None) -> None:
        if output.shards is not None and output.shards > 100:
            raise ValueError(f'Expected shards <= 100, got shards={output.shards}. Give fewer.')


type Config = JobConfig[ConstantSettings]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantPlan(RunPlan):
    """Its price, which does not depend on settings."""

    texts: int
    rho_total: float
    epsilon: float

    def guarantee(self) -> str:
        return f'ε = {self.epsilon:.6g} at δ = {self.delta:.6g}'

    def size(self) -> str:
        return f'{self.texts:,} mottoes'

    def rows(self) -> list[tuple[str, str]]:
        of_ledger = [] if self.budget is None else self.budget.rows(self.delta)
        return [('Guarantee', self.guarantee()), ('Mottoes', self.size()), *of_ledger]


class MottoView(InputView):
    """Its eyes on the input: it counts records, and reads no token."""

    expected_batch_size = 1
    columns = ('records', 'mottoes')

    def __init__(self, config: Config) -> None:
        self._mottoes = config.method.mottoes

    def of_label(self, records: int, units: int | None) -> tuple[int, int]:
        return records, self._mottoes

    def measure(self) -> None:
        return None

    def cells(self, contexts: int | None, batches: int | None) -> tuple[str, ...]:
        return (f'{batches or 0:,}',)

    def findings(self, check: InputCheck) -> Iterator[str]:
        yield 'Every text will be the same.'

    def off_by_number(self, check: InputCheck) -> str:
        return 'nothing'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Motto:
    """A row: what any reader of a corpus needs, and a column of its own."""

    text: str
    label: str | None
    batch_id: str
    private_tokens: int
    public_tokens: int
    truncated: bool
    letters: int


def _count(rows: Sequence[Motto]) -> ChosenTotals:
    tokens = sum(row.public_tokens for row in rows)
    return ChosenTotals(examples=len(rows), voted=0, sampled_tokens=tokens, truncated=0)


COLUMNS = Columns(
    row=Motto,
    schema=pa.schema([
        pa.field('text', pa.string(), nullable=False), pa.field('label', pa.string()),
        pa.field('batch_id', pa.string(), nullable=False), pa.field('private_tokens', pa.int32()),
        pa.field('public_tokens', pa.int32()), pa.field('truncated', pa.bool_()),
        pa.field('letters', pa.int16()),
    ]),
    order=('batch_id',),
    totals=ChosenTotals,
    count=_count,
    meanings={},
)  # fmt: skip


def _row(batch: BatchId, plan: BatchPlan, motto: str) -> Motto:
    label, _ = plan.group_names[batch.group]
    return Motto(
        text=motto, label=label, batch_id=str(batch), private_tokens=0, public_tokens=len(motto.split()),
        truncated=False, letters=len(motto),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantRun(Run[ConstantSettings]):
    """A run, with nothing of its own."""

    own_columns = COLUMNS


class Constant(Method[ConstantSettings, ConstantRun]):
    """A stand-in that needs no model."""

    settings = ConstantSettings
    summary = 'one motto for each batch'
    memory_setting = 'mottoes'

    def solve(self, config: Config) -> ConstantRun:
        labels = config.input.label_values
        return ConstantRun(
            config=config,
            statement='differential privacy',
            stages={'mottoes': accounting.ZCDpEvent(rho=RHO)},
            batch_plan=BatchPlan(
                labels=labels,
                batches_per_group=(config.method.mottoes,) * len(labels),
                noisy_counts=None,
                contexts_rho=0.0,
            ),
            most_tokens=0,
        )

    def plan(
        self, run: ConstantRun, estimate: Estimate | None = None, budget: BudgetAnswer | None = None
    ) -> ConstantPlan:
        return ConstantPlan(
            method=run.method.name,
            texts=run.method.mottoes * len(run.input.label_values),
            rho_total=RHO,
            epsilon=accounting.epsilon_from_rho(RHO, run.delta),
            delta=run.delta,
            budget=budget,
        )

    def input_view(self, config: Config) -> MottoView:
        return MottoView(config)

    def needed_memory(self, run: ConstantRun, dtype: Dtype, devices: int = 1) -> int:
        return 0

    def digests(self, run: ConstantRun) -> Mapping[str, str]:
        return {}

    def prepare(self, run: ConstantRun) -> str:
        return run.method.motto

    def generate(self, run: ConstantRun, prepared: Any, records: beam.PCollection[Record]) -> Generated:
        """Says the same for every planned batch, whatever the records are."""
        plan = records.pipeline | 'Plan' >> beam.Create([run.batch_plan], reshuffle=False)
        batches = plan | 'Generate/Batches' >> beam.FlatMap(lambda plan: plan.batch_ids())
        size = beam.Map(lambda batch: (batch, 0)).with_output_types(tuple[BatchId, int])
        nothing = records.pipeline | 'Generate/NoLosses' >> beam.Create([], reshuffle=False)
        return Generated(
            plan=plan,
            rows=batches | 'Generate/Say' >> beam.Map(_row, beam.pvalue.AsSingleton(plan), prepared),
            sizes=batches | 'Generate/Size' >> size,
            facts=nothing,
            counted=nothing,
        )

    def reported(self, run: ConstantRun, prepared: Any, plan: BatchPlan) -> Reported:
        # A price like that of one table of votes, and so the same sentences.
        facts = Voted(mechanism=TextVoteParams(rounds=1, noise_scale=2.0, unit=run.budget.unit))
        names = ('records', 'motto', 'mottoes', 'shards')
        shown = report_settings.shown(run.config, names, facts.mechanism)
        return Reported(facts=facts, settings=shown, units=run.input.records)

    def restricted_parts(
        self, run: ConstantRun, sizes: Mapping[BatchId, int], facts: Sequence[BatchFacts]
    ) -> Mapping[str, Any]:
        assert facts == []
        return {}

    def files(self, run: ConstantRun, prepared: Any, privacy_report: PrivacyReport) -> Files:
        return {'MOTTO.md': privacy_report.guarantee.encode()}


@contextlib.contextmanager
def registered(method: Method[Any, Any]) -> Iterator[None]:
    """The method stands in the table meanwhile, as a line there would put it."""
    methods.register(method)
    try:
        _make_commands_anew()
        yield
    finally:
        del methods.METHODS[method.name]
        _make_commands_anew()


def _make_commands_anew() -> None:
    """Flags are made of the methods that there are when commands are imported."""
    for module in (check, generate, plan, main):
        importlib.reload(module)
