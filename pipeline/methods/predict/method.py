"""Private prediction as a method: what each part of a run asks of it."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from models.batch_plan import BatchPlan
from models.decoders.device import Dtype
from models.privacy.report import BatchFacts, PrivacyReport
from models.records import BatchId, Record
from pipeline.ledger.answer import BudgetAnswer, FittingSetting, HasRoom
from pipeline.methods import model_digest, report_settings
from pipeline.methods.canary_audit import Canaries
from pipeline.methods.estimate import Estimate
from pipeline.methods.follows import Asked, Follows
from pipeline.methods.method import Generated, Method, Reported, Standing
from pipeline.methods.predict import follows, plan, run
from pipeline.methods.predict.plan import PredictionPlan, VotesView
from pipeline.methods.predict.run import Config, PredictionRun
from pipeline.methods.predict.settings import PredictSettings

if TYPE_CHECKING:
    import apache_beam as beam

    from transforms.write import Files


class PrivatePrediction(Method[PredictSettings, PredictionRun]):
    """Batches of records vote on every token (METHOD 1 to 5)."""

    settings = PredictSettings
    summary = 'batches of records vote on every token of a frozen model'
    open_steps = frozenset({'Generate/FirstRound/Decode', 'Generate/KeepReference', 'Generate/Decode'})
    memory_setting = 'batch_size'
    scores = plan.SCORES

    def follows(self, asked: Asked[PredictSettings]) -> dict[str, Follows]:
        return follows.of(asked)

    def solve(self, config: Config) -> PredictionRun:
        return run.solve(config)

    def plan(
        self, run: PredictionRun, estimate: Estimate | None = None, budget: BudgetAnswer | None = None
    ) -> PredictionPlan:
        return plan.plan_run(run, estimate, budget)

    def standing(self, units: float, epsilon: float | None, labels: int) -> Standing:
        return plan.standing(units, epsilon, labels)

    def fitting(
        self, run: PredictionRun, has_room: HasRoom, order: float, *, reaches: bool = True
    ) -> tuple[FittingSetting, ...] | None:
        if reaches:
            return plan.fitting(run, has_room, order)
        return plan.fitting_order(run, has_room, order)

    def input_view(self, config: Config) -> VotesView:
        return VotesView(config)

    def needed_memory(self, run: PredictionRun, dtype: Dtype, devices: int = 1) -> int:
        return plan.needed_memory(run.method, dtype, devices)

    def digests(self, run: PredictionRun) -> Mapping[str, str]:
        from pipeline.methods.fine_tune import released
        from pipeline.methods.predict.reference import read_reference

        own, folders, further = run.method, [], []
        if own.clusters is not None:
            folders.append(own.centers_path)
            if pathlib.Path(own.embedder).is_dir():
                folders.append(pathlib.Path(own.embedder))
        if (reference := read_reference(run.config)) is not None:
            further.append(reference.digest)
        if own.adapter is not None:
            further.append(released.card_digest(own.adapter))
        return {'model': model_digest.of_settings(own, folders, further)}

    def prepare(self, run: PredictionRun) -> Any:
        from pipeline.methods.predict import graph

        return graph.prepare(run)

    def generate(self, run: PredictionRun, prepared: Any, records: 'beam.PCollection[Record]') -> Generated:
        from pipeline.methods.predict import graph

        return graph.generate(run, prepared, records)

    def reported(self, run: PredictionRun, prepared: Any, plan: BatchPlan) -> Reported:
        from pipeline.methods.predict import report

        found = report.facts(run, prepared.generator, prepared.centers, plan)
        return Reported(
            facts=found,
            settings=report.settings(run, report_settings.names_of(found.mechanism)),
            units=run.input.records,
        )

    def restricted_parts(
        self, run: PredictionRun, sizes: Mapping[BatchId, int], facts: Sequence[BatchFacts]
    ) -> Mapping[str, Any]:
        from pipeline.methods.predict import report

        contexts = report.contexts_per_batch(sizes)
        return {'contexts_per_batch': contexts, **report.of_batches(run, facts)}

    def files(self, run: PredictionRun, prepared: Any, privacy_report: PrivacyReport) -> 'Files':
        from pipeline.methods.predict import report

        return report.files(run, privacy_report)

    def canaries(self) -> Canaries[PredictionRun]:
        from pipeline.methods.predict.audit import PredictionCanaries

        return PredictionCanaries()
