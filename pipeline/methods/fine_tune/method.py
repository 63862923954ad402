"""DP fine-tuning as a method: what each part of a run asks of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models.batch_plan import BatchPlan
from models.decoders import device
from models.decoders.device import Dtype
from models.privacy import accounting
from models.privacy.facts import Statement
from models.privacy.report import PrivacyReport, Tuned
from models.records import Record
from pipeline.calibration import Calibration, RequestedDtype
from pipeline.ledger.answer import BudgetAnswer, FittingSetting, HasRoom, largest_fitting
from pipeline.methods import model_digest
from pipeline.methods.canary_audit import CanaryAuditor
from pipeline.methods.fine_tune import estimate, follows, mechanism, plan, standing, suggestion
from pipeline.methods.fine_tune.input_view import TuningView
from pipeline.methods.fine_tune.instead import INSTEAD
from pipeline.methods.fine_tune.mechanism import Config
from pipeline.methods.fine_tune.plan import TuningPlan
from pipeline.methods.fine_tune.settings import FineTuneSettings
from pipeline.methods.fine_tune.suggestion import TuningSuggestion
from pipeline.methods.follows import Asked, Follows
from pipeline.methods.method import Method, RunFolders, Standing
from transforms.run_files import ADAPTER_FOLDER, TUNING_FOLDER

if TYPE_CHECKING:
    import apache_beam as beam

    from pipeline.ledger.ledger import Ledger
    from transforms.columns import Columns
    from transforms.write import Files


class FineTuning(Method[FineTuneSettings]):
    """DP-SGD trains an adapter, and texts are sampled with it (FT)."""

    settings = FineTuneSettings
    summary = 'DP-SGD trains an adapter of the model, and texts are sampled with it'
    instead = INSTEAD
    open_steps = frozenset({'Generate/Sample'})
    memory_setting = 'micro_batch_size'
    scores = standing.SCORES
    canary_sabotages = frozenset(
        {'half-noise', 'no-noise', 'noise-again', 'two-gradients', 'no-clipping', 'by-position'}
    )

    def resolved(self, config: Config) -> Config:
        if config.method.adapter is None:
            return config
        from pipeline.methods.fine_tune import released

        return released.with_adapter(config)

    def follows(self, asked: Asked[FineTuneSettings]) -> dict[str, Follows]:
        return follows.of(asked)

    def dtype(self, config: Config) -> Dtype:
        return device.fastest_dtype() if config.method.dtype == 'auto' else config.method.dtype

    def planned_dtype(self, config: Config) -> RequestedDtype:
        return config.method.dtype

    def statement(self, config: Config) -> Statement:
        return 'differential privacy'

    def cost(self, config: Config) -> Mapping[str, accounting.DpEvent]:
        return mechanism.cost(mechanism.params(config))

    def fitting(self, config: Config, has_room: HasRoom, order: float) -> tuple[FittingSetting, ...]:
        if config.budget.epsilon is None:
            return ()  # more noise would fit, and how much depends on what it is wanted for
        value = largest_fitting('epsilon', config.budget.epsilon, has_room)
        return () if value is None else (FittingSetting(name='epsilon', value=value),)

    def check_earlier(self, config: Config, ledger: 'Ledger') -> None:
        from pipeline.methods import start_corpus

        start_corpus.check_start(config.method.warm_start, 'warm_start', config.budget.dataset, ledger)

    def plan(self, config: Config) -> TuningPlan:
        return plan.plan_run(config)

    def standing(self, units: float, epsilon: float | None, labels: int) -> Standing:
        return standing.standing(units, epsilon, labels)

    def suggest(self, config: Config, rates: Calibration | None, minutes: float | None) -> TuningSuggestion:
        assert rates is not None  # it has a model
        return suggestion.suggest(config, rates, minutes)

    def with_rates(self, plan_of_run: TuningPlan, config: Config, rates: Calibration) -> TuningPlan:
        return plan.with_rates(plan_of_run, config, rates)

    def with_budget(self, plan_of_run: TuningPlan, config: Config, answer: BudgetAnswer) -> TuningPlan:
        return plan.with_budget(plan_of_run, config, answer)

    def check_public_texts(self, config: Config, texts: str | None, label_field: str | None) -> None:
        if texts is not None:
            raise ValueError(
                f'Expected no calibration with method={self.name!r}, got calibration='
                f'{texts!r}. It estimates how long votes last, and there are none: leave it out.'
            )

    def input_view(self, config: Config) -> TuningView:
        return TuningView(config)

    def needed_memory(self, config: Config, dtype: Dtype, devices: int = 1) -> int:
        return estimate.needed_memory(config, dtype, devices)

    def most_tokens(self, config: Config) -> int:
        return sum(mechanism.texts_of_labels(config)) * config.method.max_example_tokens

    def prepare(self, config: Config) -> Any:
        from pipeline.methods.fine_tune import graph

        return graph.prepare(config, self.dtype(config))

    def digests(self, config: Config) -> Mapping[str, str]:
        from pipeline.methods import start_corpus
        from pipeline.methods.fine_tune import graph, released

        texts = graph.warm_texts(config)
        further = [start_corpus.digest(texts)] if texts else []
        found = {'model': model_digest.of_settings(config.method, further=further)}
        if config.method.adapter is not None:
            found['input'] = released.card_digest(config.method.adapter)
        return found

    def folders(self, config: Config) -> RunFolders:
        if config.method.adapter is not None:
            return RunFolders()
        return RunFolders(work=(TUNING_FOLDER,), output=(ADAPTER_FOLDER,))

    def configured_plan(self, config: Config) -> BatchPlan | None:
        from pipeline.methods.fine_tune import graph

        return graph.configured_plan(config)

    def plan_batches(
        self, config: Config, prepared: Any, records: 'beam.PCollection[Record]'
    ) -> 'tuple[beam.PCollection[Record], beam.PCollection[BatchPlan]]':
        from pipeline.methods.fine_tune import graph

        return graph.plan_batches(config, records)

    def transform(
        self, config: Config, prepared: Any, plan: 'beam.PCollection[BatchPlan]'
    ) -> 'beam.PTransform':
        from pipeline.methods.fine_tune import graph

        return graph.transform(config, prepared, plan)

    def columns(self, config: Config) -> 'Columns':
        from transforms import finetune

        return finetune.COLUMNS

    def facts(self, config: Config, prepared: Any, plan: BatchPlan) -> Tuned:
        from pipeline.methods.fine_tune import facts

        return facts.facts(config, prepared)

    def report_settings(self, config: Config, of_mechanism: tuple[str, ...]) -> dict[str, Any]:
        from pipeline.methods.fine_tune import facts

        return facts.settings(config, of_mechanism)

    def declared_units(self, config: Config, prepared: Any) -> int | None:
        return config.input.records if config.method.reads_records else round(prepared.params.units)

    def pages(self, config: Config, prepared: Any, privacy_report: PrivacyReport) -> 'Files':
        from pipeline.methods.fine_tune import pages

        return pages.pages(config, prepared, privacy_report, self.columns_with_labels(config))

    def canary_auditor(self) -> CanaryAuditor:
        from pipeline.methods.fine_tune.canaries import TuningCanaries

        return TuningCanaries(self.canary_sabotages, self.dtype)
