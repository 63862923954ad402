"""DP fine-tuning as a method: what each part of a run asks of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models.batch_plan import BatchPlan
from models.decoders.device import Dtype
from models.privacy.report import PrivacyReport
from models.records import Record
from pipeline.ledger.answer import BudgetAnswer
from pipeline.methods import model_digest, report_settings
from pipeline.methods.canary_audit import Canaries
from pipeline.methods.estimate import Estimate
from pipeline.methods.fine_tune import follows, plan, run
from pipeline.methods.fine_tune.plan import TuningPlan, TuningView
from pipeline.methods.fine_tune.run import Config, TuningRun
from pipeline.methods.fine_tune.settings import INSTEAD, FineTuneSettings
from pipeline.methods.follows import Asked, Follows
from pipeline.methods.method import Generated, Method, Reported, Standing

if TYPE_CHECKING:
    import apache_beam as beam

    from transforms.write import Files


class FineTuning(Method[FineTuneSettings, TuningRun]):
    """DP-SGD trains an adapter, and texts are sampled with it (FT)."""

    settings = FineTuneSettings
    summary = 'DP-SGD trains an adapter of the model, and texts are sampled with it'
    instead = INSTEAD
    open_steps = frozenset({'Generate/Sample'})
    memory_setting = 'micro_batch_size'
    scores = plan.SCORES

    def follows(self, asked: Asked[FineTuneSettings]) -> dict[str, Follows]:
        return follows.of(asked)

    def solve(self, config: Config) -> TuningRun:
        return run.solve(config)

    def plan(
        self, run: TuningRun, estimate: Estimate | None = None, budget: BudgetAnswer | None = None
    ) -> TuningPlan:
        return plan.plan_run(run, estimate, budget)

    def standing(self, units: float, epsilon: float | None, labels: int) -> Standing:
        return plan.standing(units, epsilon, labels)

    def input_view(self, config: Config) -> TuningView:
        return TuningView(config)

    def needed_memory(self, run: TuningRun, dtype: Dtype, devices: int = 1) -> int:
        return plan.needed_memory(run, dtype, devices)

    def digests(self, run: TuningRun) -> Mapping[str, str]:
        from pipeline.methods import start_corpus
        from pipeline.methods.fine_tune import graph, released

        texts = graph.warm_texts(run)
        further = [start_corpus.digest(texts)] if texts else []
        found = {'model': model_digest.of_settings(run.method, further=further)}
        if run.method.adapter is not None:
            found['input'] = released.card_digest(run.method.adapter)
        return found

    def prepare(self, run: TuningRun) -> Any:
        from pipeline.methods.fine_tune import graph

        return graph.prepare(run)

    def generate(self, run: TuningRun, prepared: Any, records: 'beam.PCollection[Record]') -> Generated:
        from pipeline.methods.fine_tune import graph

        return graph.generate(run, prepared, records)

    def reported(self, run: TuningRun, prepared: Any, plan: BatchPlan) -> Reported:
        from pipeline.methods.fine_tune import report

        found = report.facts(run, prepared)
        return Reported(
            facts=found,
            settings=report.settings(run, report_settings.names_of(found.mechanism)),
            units=run.input.records if run.card is None else round(run.params.units),
        )

    def files(self, run: TuningRun, prepared: Any, privacy_report: PrivacyReport) -> 'Files':
        from pipeline.methods.fine_tune import report

        return report.files(run, prepared, privacy_report)

    def canaries(self) -> Canaries[TuningRun]:
        from pipeline.methods.fine_tune.audit import TuningCanaries

        return TuningCanaries()
