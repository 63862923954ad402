"""Votes on whole texts as methods: of texts that are sampled in rounds, and of a corpus that is given."""

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models.batch_plan import BatchPlan
from models.evolution.settings import EvolutionSettings
from models.privacy.report import PrivacyReport
from models.records import Record
from pipeline.methods.canary_audit import Canaries
from pipeline.methods.evolve import follows, plan, run
from pipeline.methods.evolve.run import VotingRun
from pipeline.methods.evolve.settings import (
    MOST_ROUNDS,
    OF_PUBLIC_PROMPTS,
    EvolveSettings,
    RefineSettings,
)
from pipeline.methods.follows import Follows
from pipeline.methods.method import Generated, Method, Reported
from pipeline.settings import text_votes
from pipeline.settings.method import MethodSettings

if TYPE_CHECKING:
    import apache_beam as beam

    from transforms.write import Files

_VOTES = 'Records vote on whole texts, and not on tokens.'
_GIVEN = 'The texts are given, and none is sampled.'


class TextVoting[M: MethodSettings](Method[M, VotingRun], abc.ABC):
    """Records vote on whole texts of lists that follow from public and released values (METHOD 4e)."""

    input_view = staticmethod(plan.VotingView)
    needed_memory = staticmethod(plan.needed_memory)
    plan = staticmethod(plan.plan_run)

    def digests(self, run: VotingRun) -> Mapping[str, str]:
        from pipeline.methods.evolve import graph

        return graph.digests(run)

    def prepare(self, run: VotingRun) -> EvolutionSettings:
        from pipeline.methods.evolve import graph

        return graph.prepare(run)

    def generate(
        self, run: VotingRun, prepared: EvolutionSettings, records: 'beam.PCollection[Record]'
    ) -> Generated:
        from pipeline.methods.evolve import graph

        return graph.generate(run, prepared, records)

    def reported(self, run: VotingRun, prepared: EvolutionSettings, plan: BatchPlan) -> Reported:
        from pipeline.methods.evolve import report

        facts = report.facts(run, prepared)
        return Reported(facts=facts, settings=report.settings(run), units=run.input.records)

    def files(self, run: VotingRun, prepared: EvolutionSettings, privacy_report: PrivacyReport) -> 'Files':
        from pipeline.methods.evolve import report

        return report.files(run, prepared, privacy_report)

    def canaries(self) -> Canaries[VotingRun]:
        from pipeline.methods.evolve.audit import TextVotingCanaries

        return TextVotingCanaries()


class Evolution(TextVoting[EvolveSettings]):
    """Texts of public prompts evolve under the votes of the records (METHOD 4e)."""

    settings = EvolveSettings
    summary = 'records vote on whole texts that a model samples from public prompts'
    instead = {
        'batch_size': f'{_VOTES} Give --candidates, the texts of a round.',
        'clip_bound': f'{_VOTES} A vote is one for each unit.',
        'examples_per_label': 'Texts are labelled by votes: give --examples, of all labels.',
        'max_batch_tokens': f'{_VOTES} Give --examples.',
        'reference': f'{_VOTES} Give --start for texts that the first round votes on.',
    }
    open_steps = frozenset(
        f'Generate/{name}/{step}'
        for name in (*(f'Round{number}' for number in range(1, MOST_ROUNDS + 1)), 'After')
        for step in ('Sample', 'WriteList')
    )
    memory_setting = 'micro_batch_size'
    scores = plan.SCORES
    solve = staticmethod(run.solve_evolution)
    standing = staticmethod(plan.standing)
    follows = staticmethod(follows.of)

    def unused_beside(self, flags: Mapping[str, Any]) -> frozenset[str]:
        if flags.get('adapter') is None:
            return frozenset()
        from pipeline.methods.fine_tune import released

        return frozenset((*released.PROMPT_SETTINGS, 'prompt', 'schema', *OF_PUBLIC_PROMPTS))

    def on_this_machine(self) -> dict[str, Follows]:
        if not text_votes.minilm_is_installed():
            return {}
        because = 'MiniLM is installed here, and tells better than TF-IDF which texts are alike.'
        return {'embedder': Follows(value='minilm', because=because)}


class Refine(TextVoting[RefineSettings]):
    """Records vote once on the texts of a corpus, and those that they favour stay (METHOD 4e)."""

    settings = RefineSettings
    summary = 'records vote on the texts of a corpus that is there, and those that they favour stay'
    instead = {
        'start': 'Give --corpus, the texts to vote on.',
        'examples': 'Give --keep, the texts that stay.',
        **dict.fromkeys(('prompt', 'max_example_tokens', 'temperature', 'rounds', 'candidates'), _GIVEN),
    }
    open_steps = frozenset({'Generate/Round1/WriteList'})
    memory_setting = 'nearest'
    needs_only_records = False

    solve = staticmethod(run.solve_refining)
