"""Votes on whole texts as a method: what each part of a run asks of it."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models import extras
from models.batch_plan import BatchPlan
from models.decoders.device import Dtype
from models.evolution.settings import EvolutionSettings
from models.privacy.report import Voted
from models.privacy.text_votes import TextVoteParams
from pipeline.calibration import Calibration
from pipeline.ledger.answer import BudgetAnswer
from pipeline.methods import model_digest
from pipeline.methods.evolve import estimate, facts, follows, mechanism, plan, standing
from pipeline.methods.evolve.mechanism import Config
from pipeline.methods.evolve.plan import EvolutionPlan
from pipeline.methods.evolve.settings import MOST_ROUNDS, EvolveSettings
from pipeline.methods.follows import Asked, Follows
from pipeline.methods.method import Standing
from pipeline.methods.text_voting import TextVoting
from pipeline.methods.voting_view import VotingView
from pipeline.settings import text_votes

if TYPE_CHECKING:
    from pipeline.ledger.ledger import Ledger

_VOTES = 'Records vote on whole texts, and not on tokens.'


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
    scores = standing.SCORES

    def follows(self, asked: Asked[EvolveSettings]) -> dict[str, Follows]:
        return follows.of(asked)

    def on_this_machine(self) -> dict[str, Follows]:
        if not text_votes.minilm_is_installed():
            return {}
        because = 'MiniLM is installed here, and tells better than TF-IDF which texts are alike.'
        return {'embedder': Follows(value='minilm', because=because)}

    def params(self, config: Config) -> TextVoteParams:
        return mechanism.params(config)

    def check_earlier(self, config: Config, ledger: 'Ledger') -> None:
        from pipeline.methods import start_corpus

        start_corpus.check_start(config.method.start, 'start', config.budget.dataset, ledger)

    def plan(self, config: Config) -> EvolutionPlan:
        return plan.plan_run(config)

    def standing(self, units: float, epsilon: float | None, labels: int) -> Standing:
        return standing.standing(units, epsilon, labels)

    def with_rates(self, plan_of_run: EvolutionPlan, config: Config, rates: Calibration) -> EvolutionPlan:
        return plan.with_rates(plan_of_run, config, rates)

    def with_budget(self, plan_of_run: EvolutionPlan, config: Config, answer: BudgetAnswer) -> EvolutionPlan:
        return dataclasses.replace(plan_of_run, budget=answer)

    def input_view(self, config: Config) -> VotingView:
        return VotingView(config)

    def extras(self, config: Config) -> tuple[str, ...]:
        own = config.method
        if own.endpoint is None:
            return (*own.embedder_extras, extras.GEMMA)
        # Other machines may have the package where this one has not.
        return (*own.embedder_extras, extras.ENDPOINT) if config.runner.is_local else own.embedder_extras

    def needed_memory(self, config: Config, dtype: Dtype, devices: int = 1) -> int:
        return estimate.needed_memory(config, dtype)

    def most_tokens(self, config: Config) -> int:
        return mechanism.sampled_texts(config) * config.method.max_example_tokens

    def prepare(self, config: Config) -> EvolutionSettings:
        from pipeline.methods.evolve import graph

        return graph.prepare(config, self.dtype(config))

    def digests(self, config: Config) -> Mapping[str, str]:
        from pipeline.methods.evolve import graph

        return {'model': model_digest.of_settings(config.method, *graph.further_files(config))}

    def configured_plan(self, config: Config) -> BatchPlan:
        return mechanism.configured_plan(config)

    def facts(self, config: Config, prepared: EvolutionSettings, plan: BatchPlan) -> Voted:
        return facts.facts(config, prepared)

    def report_settings(self, config: Config, of_mechanism: tuple[str, ...]) -> dict[str, Any]:
        return facts.settings(config, of_mechanism)
