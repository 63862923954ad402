"""DP fine-tuning as a method: what each part of a run asks of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models.batch_plan import BatchPlan
from models.privacy.report import PrivacyReport
from models.records import Record
from pipeline.methods import model_digest
from pipeline.methods.canary_audit import Canaries
from pipeline.methods.fine_tune import follows, plan, run
from pipeline.methods.fine_tune.run import TuningRun
from pipeline.methods.fine_tune.settings import INSTEAD, FineTuneSettings
from pipeline.methods.method import Generated, Method, Reported

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

    follows = staticmethod(follows.of)
    solve = staticmethod(run.solve)
    standing = staticmethod(plan.standing)
    input_view = staticmethod(plan.TuningView)
    needed_memory = staticmethod(plan.needed_memory)
    plan = staticmethod(plan.plan_run)

    def unused_beside(self, flags: Mapping[str, Any]) -> frozenset[str]:
        if flags.get('adapter') is None:
            return frozenset()
        from pipeline.methods.fine_tune import released

        return frozenset(released.TRAINING_SETTINGS)

    def digests(self, run: TuningRun) -> Mapping[str, str]:
        from pipeline.methods import start_corpus
        from pipeline.methods.fine_tune import graph, released

        texts = graph.warm_texts(run)
        further = [start_corpus.digest(texts)] if texts else []
        named = {'model': model_digest.of_settings(run.method, further=further)}
        if run.method.adapter is not None:
            named['input'] = released.card_digest(run.method.adapter)
        return named

    def prepare(self, run: TuningRun) -> Any:
        from pipeline.methods.fine_tune import graph

        return graph.prepare(run)

    def generate(self, run: TuningRun, prepared: Any, records: 'beam.PCollection[Record]') -> Generated:
        from pipeline.methods.fine_tune import graph

        return graph.generate(run, prepared, records)

    def reported(self, run: TuningRun, prepared: Any, plan: BatchPlan) -> Reported:
        from pipeline.methods.fine_tune import report

        units = run.input.records if run.card is None else round(run.params.units)
        return Reported(facts=report.facts(run, prepared), settings=report.settings(run), units=units)

    def files(self, run: TuningRun, prepared: Any, privacy_report: PrivacyReport) -> 'Files':
        from pipeline.methods.fine_tune import report

        return report.files(run, prepared, privacy_report)

    def canaries(self) -> Canaries[TuningRun]:
        from pipeline.methods.fine_tune.audit import TuningCanaries

        return TuningCanaries()
