"""Private prediction as a method: what each part of a run asks of it."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from models.batch_plan import BatchPlan
from models.decoders.device import Dtype
from models.privacy import accounting
from models.privacy.facts import Statement
from models.privacy.report import BatchFacts, Predicted, PrivacyReport
from models.records import BatchId, Record
from pipeline.calibration import Calibration, RequestedDtype
from pipeline.ledger.answer import BudgetAnswer, FittingSetting, HasRoom
from pipeline.methods import model_digest
from pipeline.methods.canary_audit import CanaryAuditor
from pipeline.methods.follows import Asked, Follows
from pipeline.methods.method import Method, RunFolders, Standing
from pipeline.methods.predict import (
    batches,
    decoding_estimate,
    dtype,
    fitting,
    follows,
    mechanism,
    plan,
    standing,
    vote_estimate,
)
from pipeline.methods.predict.input_view import VotesView
from pipeline.methods.predict.mechanism import Config
from pipeline.methods.predict.plan import PredictionPlan
from pipeline.methods.predict.settings import PredictSettings
from transforms.run_files import CLUSTERING

if TYPE_CHECKING:
    import apache_beam as beam

    from pipeline.ledger.ledger import Ledger
    from transforms.columns import Columns
    from transforms.write import Files


class PrivatePrediction(Method[PredictSettings]):
    """Batches of records vote on every token (METHOD 1 to 5)."""

    settings = PredictSettings
    summary = 'batches of records vote on every token of a frozen model'
    open_steps = frozenset({'Generate/FirstRound/Decode', 'Generate/KeepReference', 'Generate/Decode'})
    memory_setting = 'batch_size'
    scores = standing.SCORES
    canary_sabotages = frozenset({'own-text'})

    def for_workers(self, config: Config) -> Config:
        if not config.method.is_individual:
            return config
        # The ledger has a say in which ω it is, and workers do not know the ledger.
        return config.replace(omega=mechanism.params(config).omega)

    def follows(self, asked: Asked[PredictSettings]) -> dict[str, Follows]:
        return follows.of(asked)

    def dtype(self, config: Config) -> Dtype:
        return dtype.decided_dtype(config.method)

    def planned_dtype(self, config: Config) -> RequestedDtype:
        return dtype.planned_dtype(config.method)

    def statement(self, config: Config) -> Statement:
        return mechanism.statement(config)

    def cost(self, config: Config) -> Mapping[str, accounting.DpEvent]:
        return mechanism.cost(config)

    def check_earlier(self, config: Config, ledger: 'Ledger') -> None:
        own, dataset = config.method, config.budget.dataset
        if own.reference is None and own.adapter is None:
            return
        from pipeline.methods import earlier
        from pipeline.methods.fine_tune import released

        if own.reference is not None:
            origin = earlier.origin_of_texts(own.reference, 'reference')
            what = 'an earlier release'
            earlier.check(origin.releases, what, own.reference, 'reference', dataset, ledger)
        if own.adapter is not None:
            releases = released.read_card(own.adapter).handed_on()
            earlier.check(releases, 'an adapter', own.adapter, 'adapter', dataset, ledger)

    def fitting(self, config: Config, has_room: HasRoom, order: float) -> tuple[FittingSetting, ...]:
        return fitting.fitting(config, has_room, order)

    def fitting_order(
        self, config: Config, has_room: HasRoom, order: float
    ) -> tuple[FittingSetting, ...] | None:
        return fitting.fitting_order(config, has_room, order)

    def plan(self, config: Config) -> PredictionPlan:
        return plan.plan_run(config)

    def standing(self, units: float, epsilon: float | None, labels: int) -> Standing:
        return standing.standing(units, epsilon, labels)

    def with_rates(self, plan_of_run: PredictionPlan, config: Config, rates: Calibration) -> PredictionPlan:
        found = decoding_estimate.estimate_decoding(config, rates)
        return dataclasses.replace(plan_of_run, decoding=found)

    def with_budget(
        self, plan_of_run: PredictionPlan, config: Config, answer: BudgetAnswer
    ) -> PredictionPlan:
        return dataclasses.replace(plan_of_run, budget=answer)

    def check_public_texts(self, config: Config, texts: str | None, label_field: str | None) -> None:
        if texts is not None:
            vote_estimate.check(config, label_field)

    def with_public_texts(
        self,
        plan_of_run: PredictionPlan,
        config: Config,
        texts: str,
        label_field: str | None,
        say: Callable[[str], None],
    ) -> PredictionPlan:
        votes = vote_estimate.estimate_votes(config, texts, label_field=label_field, progress=say)
        return dataclasses.replace(plan_of_run, votes=votes)

    def input_view(self, config: Config) -> VotesView:
        return VotesView(config)

    def needed_memory(self, config: Config, dtype: Dtype, devices: int = 1) -> int:
        return decoding_estimate.needed_memory(config, dtype, devices)

    def most_tokens(self, config: Config) -> int:
        return (batches.expected_batches(config) or 0) * mechanism.params(config).max_batch_tokens

    def prepare(self, config: Config) -> Any:
        from pipeline.methods.predict import graph

        return graph.prepare(config)

    def digests(self, config: Config) -> Mapping[str, str]:
        from pipeline.methods.fine_tune import released
        from pipeline.methods.predict.reference import read_reference

        own, folders, further = config.method, [], []
        if own.clusters is not None:
            folders.append(own.centers_path)
            if pathlib.Path(own.resolved_embedder).is_dir():
                folders.append(pathlib.Path(own.resolved_embedder))
        if (reference := read_reference(config)) is not None:
            further.append(reference.digest)
        if own.adapter is not None:
            further.append(released.card_digest(own.adapter))
        return {'model': model_digest.of_settings(own, folders, further)}

    def folders(self, config: Config) -> RunFolders:
        if config.method.clusters is None:
            return RunFolders()
        return RunFolders(kept=(CLUSTERING,))

    def configured_plan(self, config: Config) -> BatchPlan | None:
        from pipeline.methods.predict import worker_settings

        return worker_settings.configured_plan(config)

    def plan_batches(
        self, config: Config, prepared: Any, records: 'beam.PCollection[Record]'
    ) -> 'tuple[beam.PCollection[Record], beam.PCollection[BatchPlan]]':
        from pipeline.methods.predict import graph

        return graph.plan_batches(config, prepared.centers, records)

    def transform(
        self, config: Config, prepared: Any, plan: 'beam.PCollection[BatchPlan]'
    ) -> 'beam.PTransform':
        from pipeline.methods.predict import graph

        return graph.transform(config, prepared, plan)

    def columns(self, config: Config) -> 'Columns':
        from transforms import predict

        return predict.COLUMNS if config.method.structure is None else predict.STRUCTURED_COLUMNS

    def facts(self, config: Config, prepared: Any, plan: BatchPlan) -> Predicted:
        from pipeline.methods.predict import facts

        return facts.facts(config, prepared.generator, prepared.centers, plan)

    def report_settings(self, config: Config, of_mechanism: tuple[str, ...]) -> dict[str, Any]:
        from pipeline.methods.predict import facts

        return facts.settings(config, of_mechanism)

    def restricted_parts(
        self, config: Config, sizes: Mapping[BatchId, int], facts: Sequence[BatchFacts]
    ) -> Mapping[str, Any]:
        from pipeline.methods.predict import facts as facts_lib

        contexts = facts_lib.contexts_per_batch(sizes)
        return {'contexts_per_batch': contexts, **facts_lib.of_batches(config, facts)}

    def pages(self, config: Config, prepared: Any, privacy_report: PrivacyReport) -> 'Files':
        from pipeline.methods.predict import pages

        return pages.pages(config, privacy_report, self.columns_with_labels(config))

    def canary_auditor(self) -> CanaryAuditor:
        from pipeline.methods.predict.canaries import PredictionCanaries

        return PredictionCanaries(self.canary_sabotages)
