"""Training and votes as a method: what each part of a run asks of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models.batch_plan import BatchPlan
from models.privacy.report import PrivacyReport
from models.records import Record
from pipeline.methods.evolve.method import Evolution
from pipeline.methods.method import Generated, Method, Reported
from pipeline.methods.tune_refine import follows, plan, run
from pipeline.methods.tune_refine.run import TunedVotingRun
from pipeline.methods.tune_refine.settings import TuneRefineSettings

if TYPE_CHECKING:
    import apache_beam as beam

    from transforms.write import Files


class TuneRefine(Method[TuneRefineSettings, TunedVotingRun]):
    """DP-SGD trains an adapter, and records vote on texts that are sampled with it (METHOD 4f)."""

    settings = TuneRefineSettings
    summary = 'an adapter is trained, and records vote on texts that are sampled with it'
    instead = {
        'batch_size': 'It is the number of contexts that vote on a token. Give --expected-batch-size.',
        'clip_bound': 'It clips votes on tokens. Give --clip-norm for gradients.',
        'examples_per_label': 'Texts are labelled by votes: give --examples, of all labels.',
        'vote_noise': 'It follows from --epsilon and --vote-share.',
        'noise_multiplier': 'It follows from --epsilon and --vote-share.',
        'adapter': 'The run trains its own. Give --method evolve to vote on texts of a released one.',
    }
    open_steps = frozenset({'Generate/Round1/Sample', 'Generate/Round1/WriteList'})
    memory_setting = 'micro_batch_size'
    scores = plan.SCORES

    follows = staticmethod(follows.of)
    on_this_machine = Evolution.on_this_machine
    solve = staticmethod(run.solve)
    standing = staticmethod(plan.standing)
    input_view = staticmethod(plan.input_view)
    needed_memory = staticmethod(plan.needed_memory)
    plan = staticmethod(plan.plan_run)

    def digests(self, run: TunedVotingRun) -> Mapping[str, str]:
        from pipeline.methods.evolve import graph

        return graph.digests(run.voting)

    def prepare(self, run: TunedVotingRun) -> Any:
        from pipeline.methods.tune_refine import graph

        return graph.prepare(run)

    def generate(self, run: TunedVotingRun, prepared: Any, records: 'beam.PCollection[Record]') -> Generated:
        from pipeline.methods.tune_refine import graph

        return graph.generate(run, prepared, records)

    def reported(self, run: TunedVotingRun, prepared: Any, plan: BatchPlan) -> Reported:
        from pipeline.methods.tune_refine import report

        return Reported(facts=report.facts(run), settings=report.settings(run), units=run.input.records)

    def files(self, run: TunedVotingRun, prepared: Any, privacy_report: PrivacyReport) -> 'Files':
        from pipeline.methods.tune_refine import report

        return report.files(run, prepared, privacy_report)
