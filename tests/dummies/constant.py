"""A made-up method: this file and one call of `register` are all that a new one takes.

It needs no model and writes the same text for every label, whatever the records are.
"""

import contextlib
import dataclasses
import functools
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import apache_beam as beam
import pyarrow as pa

from models.batch_plan import BatchPlan
from models.decoders.device import Dtype
from models.privacy import accounting
from models.privacy.facts import Statement
from models.privacy.report import BatchFacts, ChosenTotals, PrivacyReport, Voted
from models.privacy.text_votes import TextVoteParams
from models.records import BatchId, Record
from pipeline import main, methods
from pipeline.calibration import Calibration, RequestedDtype
from pipeline.checked_input import InputCheck
from pipeline.commands import check, generate, plan
from pipeline.ledger.answer import BudgetAnswer, FittingSetting, HasRoom
from pipeline.methods import report_settings
from pipeline.methods.input_view import InputView
from pipeline.methods.method import Method, RunPlan
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
    """What is said, and how often."""

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
    delta: float
    budget: BudgetAnswer | None = None
    warnings: tuple[str, ...] = ()

    def guarantee(self) -> str:
        return f'ε = {self.epsilon:.6g} at δ = {self.delta:.6g}'

    def size(self) -> str:
        return f'{self.texts:,} mottoes'

    def rows(self) -> list[tuple[str, str]]:
        of_ledger = [] if self.budget is None else self.budget.rows(self.delta)
        return [('Guarantee', self.guarantee()), ('Mottoes', self.size()), *of_ledger]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


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

    def findings(self, found: InputCheck) -> Iterator[str]:
        yield 'Every text will be the same.'

    def wrong_number(self, found: InputCheck) -> tuple[int, str]:
        return found.records, 'nothing'


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


@dataclasses.dataclass(eq=False)
class SayMotto(beam.PTransform):
    """Says the same for every planned batch, whatever the records are."""

    motto: str
    plan: beam.PCollection[BatchPlan]

    @beam.typehints.no_annotations
    def expand(self, records: beam.PCollection) -> tuple[beam.PCollection, ...]:
        batches = self.plan | 'Batches' >> beam.FlatMap(lambda plan: plan.batch_ids())
        rows = batches | 'Say' >> beam.Map(_row, beam.pvalue.AsSingleton(self.plan), self.motto)
        nothing = self.plan.pipeline | 'NoLosses' >> beam.Create([], reshuffle=False)
        sizes = batches | 'Size' >> beam.Map(lambda batch: (batch, 0)).with_output_types(tuple[BatchId, int])
        return rows, sizes, nothing, nothing


class Constant(Method[ConstantSettings]):
    """A stand-in that needs no model."""

    settings = ConstantSettings
    summary = 'one motto for each batch'
    memory_setting = 'mottoes'

    def dtype(self, config: Config) -> Dtype:
        return 'float32'  # of no weights

    def planned_dtype(self, config: Config) -> RequestedDtype:
        return 'float32'

    def needed_memory(self, config: Config, dtype: Dtype, devices: int = 1) -> int:
        return 0

    def most_tokens(self, config: Config) -> int:
        return 0

    def statement(self, config: Config) -> Statement:
        return 'differential privacy'

    def cost(self, config: Config) -> Mapping[str, accounting.DpEvent]:
        return {'mottoes': accounting.ZCDpEvent(rho=RHO)}

    def fitting(self, config: Config, has_room: HasRoom, order: float) -> tuple[FittingSetting, ...]:
        return ()

    def plan(self, config: Config) -> ConstantPlan:
        return ConstantPlan(
            texts=config.method.mottoes * len(config.input.label_values),
            rho_total=RHO,
            epsilon=accounting.epsilon_from_rho(RHO, config.resolved_delta),
            delta=config.resolved_delta,
        )

    def with_rates(self, plan: ConstantPlan, config: Config, rates: Calibration) -> ConstantPlan:
        return plan

    def with_budget(self, plan: ConstantPlan, config: Config, answer: BudgetAnswer) -> ConstantPlan:
        return dataclasses.replace(plan, budget=answer)

    def input_view(self, config: Config) -> MottoView:
        return MottoView(config)

    def prepare(self, config: Config) -> str:
        return config.method.motto

    def digests(self, config: Config) -> Mapping[str, str]:
        return {}

    def configured_plan(self, config: Config) -> BatchPlan:
        labels = config.input.label_values
        return BatchPlan(
            labels=labels,
            batches_per_group=(config.method.mottoes,) * len(labels),
            noisy_counts=None,
            contexts_rho=0.0,
        )

    def plan_batches(
        self, config: Config, prepared: Any, records: beam.PCollection[Record]
    ) -> tuple[beam.PCollection[Record], beam.PCollection[BatchPlan]]:
        plan = records.pipeline | 'Plan' >> beam.Create([self.configured_plan(config)], reshuffle=False)
        return records, plan

    def transform(self, config: Config, prepared: Any, plan: Any) -> beam.PTransform:
        return SayMotto(prepared, plan)

    def columns(self, config: Config) -> Columns:
        return COLUMNS

    def facts(self, config: Config, prepared: Any, plan: BatchPlan) -> Voted:
        # A price like that of one table of votes, and so the same sentences.
        return Voted(mechanism=TextVoteParams(rounds=1, noise_scale=2.0, unit=config.budget.unit))

    def report_settings(self, config: Config, of_mechanism: tuple[str, ...]) -> dict[str, Any]:
        return report_settings.shown(config, ('records', 'motto', 'mottoes', 'shards'), of_mechanism)

    def restricted_parts(
        self, config: Config, sizes: Mapping[BatchId, int], facts: Sequence[BatchFacts]
    ) -> Mapping[str, Any]:
        assert facts == []
        return {}

    def pages(self, config: Config, prepared: Any, privacy_report: PrivacyReport) -> Files:
        return {'MOTTO.md': privacy_report.guarantee.encode()}


@contextlib.contextmanager
def registered(method: Method[Any]) -> Iterator[None]:
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
