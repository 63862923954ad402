"""Private prediction as a method: what each part of a run asks of it."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from models.batch_plan import BatchPlan
from models.privacy.report import BatchFacts, PrivacyReport
from models.records import BatchId, Record
from pipeline.methods import model_digest
from pipeline.methods.canary_audit import Canaries
from pipeline.methods.method import Generated, Method, Reported
from pipeline.methods.predict import follows, plan, run
from pipeline.methods.predict.run import PredictionRun
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

    follows = staticmethod(follows.of)
    solve = staticmethod(run.solve)
    standing = staticmethod(plan.standing)
    fitting = staticmethod(plan.fitting)
    input_view = staticmethod(plan.VotesView)
    needed_memory = staticmethod(plan.needed_memory)
    plan = staticmethod(plan.plan_run)

    def digests(self, run: PredictionRun) -> Mapping[str, str]:
        from pipeline.methods.fine_tune import released
        from pipeline.methods.predict.reference import read_reference

        settings, folders, further = run.method, [], []
        if settings.clusters is not None:
            folders.append(settings.centers_path)
            if pathlib.Path(settings.embedder).is_dir():
                folders.append(pathlib.Path(settings.embedder))
        if (reference := read_reference(run.config)) is not None:
            further.append(reference.digest)
        if settings.adapter is not None:
            further.append(released.card_digest(settings.adapter))
        return {'model': model_digest.of_settings(settings, folders, further)}

    def prepare(self, run: PredictionRun) -> Any:
        from pipeline.methods.predict import graph

        return graph.prepare(run)

    def generate(self, run: PredictionRun, prepared: Any, records: 'beam.PCollection[Record]') -> Generated:
        from pipeline.methods.predict import graph

        return graph.generate(run, prepared, records)

    def reported(self, run: PredictionRun, prepared: Any, plan: BatchPlan) -> Reported:
        from pipeline.methods.predict import report

        facts = report.facts(run, prepared.generator, prepared.centers, plan)
        return Reported(facts=facts, settings=report.settings(run), units=run.input.records)

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
