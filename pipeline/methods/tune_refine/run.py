"""A run of training and votes, solved: a run that trains and a run that votes, and their one price."""

import dataclasses
import functools
import typing
from typing import Self

from models.evolution.defaults import nearest_for
from models.privacy import text_votes, tuned_votes
from models.privacy.tuned_votes import TunedVotesParams
from models.speed import Work
from pipeline.methods.evolve import run as voting_run
from pipeline.methods.evolve.run import VotingRun
from pipeline.methods.evolve.settings import EvolveSettings
from pipeline.methods.fine_tune import run as tuning_run
from pipeline.methods.fine_tune.run import TuningRun
from pipeline.methods.solved import Run, RunFolders
from pipeline.methods.tune_refine.settings import TuneRefineSettings
from pipeline.settings.budget import Budget
from pipeline.settings.job_config import JobConfig
from pipeline.settings.method import MethodSettings
from transforms.run_files import EMBEDDINGS_FOLDER, ROUNDS_FOLDER, TUNING_FOLDER

if typing.TYPE_CHECKING:
    from transforms.columns import Columns

type Config = JobConfig[TuneRefineSettings]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedVotingRun(Run[TuneRefineSettings]):
    """A run that trains an adapter, and then votes once on texts of it.

    Attributes:
        params: The mechanism of both.
        tuning: The run of its training alone, which samples nothing.
        voting: The run of its votes alone, as if its texts were of a public prompt.
    """

    params: TunedVotesParams
    tuning: TuningRun
    voting: VotingRun

    @property
    def tokens(self) -> dict[Work, int]:
        return {'training': self.tuning.tokens['training'], 'decoding': self.voting.tokens['decoding']}

    @property
    def own_columns(self) -> 'Columns':
        return self.voting.own_columns

    def for_workers(self) -> Self:
        tuning, voting = self.tuning.for_workers(), self.voting.for_workers()
        return dataclasses.replace(super().for_workers(), tuning=tuning, voting=voting)


def solve(config: Config) -> TunedVotingRun:
    """The run of a config."""
    params = _mechanism(config)
    # Noise is given to both, and the run as a whole is charged.
    budget = dataclasses.replace(config.budget, epsilon=None, dataset=None, ledger=None)
    training = dataclasses.replace(config.method.training(), noise_multiplier=params.noise_multiplier)
    tuning = tuning_run.solve(of_method(config, training, budget))
    voting = voting_run.solve_evolution(of_method(config, _votes(config.method, params), budget))
    assert tuning.stages is not None and voting.stages is not None  # both have a price in advance
    return TunedVotingRun(
        config=config,
        statement='differential privacy',
        stages={**tuning.stages, **voting.stages},
        batch_plan=voting.batch_plan,
        most_tokens=voting.most_tokens,
        folders=RunFolders(work=(TUNING_FOLDER, ROUNDS_FOLDER, EMBEDDINGS_FOLDER), output=(ROUNDS_FOLDER,)),
        params=params,
        tuning=tuning,
        voting=voting,
    )


def _mechanism(config: Config) -> TunedVotesParams:
    """The mechanism: votes have their share of epsilon, and training what is left of it."""
    settings, budget, declared = config.method, config.budget, config.input
    assert budget.epsilon is not None and declared.sampled_records is not None  # `check_run`
    noise = functools.partial(
        text_votes.solve_noise_scale,
        epsilon=settings.vote_share * budget.epsilon,
        delta=config.delta,
        rounds=1,
        examples_per_context=budget.examples_per_context,
    )
    nearest = settings.nearest or nearest_for(
        records=round(declared.sampled_records),
        candidates=settings.texts_to_vote_on,
        noise_scale=noise(),
        labels=len(declared.label_values),
    )
    params = TunedVotesParams(
        units=declared.sampled_records,
        expected_batch_size=settings.expected_batch_size,
        tuning_steps=settings.tuning_steps,
        clip_norm=settings.clip_norm,
        noise_multiplier=1.0,  # solved for next
        noise_scale=noise(nearest=nearest),
        nearest=nearest,
        unit=budget.unit,
        examples_per_context=budget.examples_per_context,
    )
    solved = tuned_votes.solve_noise_multiplier(params, epsilon=budget.epsilon, delta=config.delta)
    return dataclasses.replace(params, noise_multiplier=solved)


def _votes(settings: TuneRefineSettings, params: TunedVotesParams) -> EvolveSettings:
    """The same run as one round of votes alone."""
    shared = {field.name for field in dataclasses.fields(EvolveSettings)}
    mine = {name: value for name, value in vars(settings).items() if name in shared}
    mine |= {'rounds': 1, 'unvoted': 0, 'vote_noise': params.noise_scale, 'nearest': params.nearest}
    return EvolveSettings(**mine | {'candidates': settings.texts_to_vote_on})


def of_method[M: MethodSettings](config: Config, method: M, budget: Budget) -> JobConfig[M]:
    """The config with the settings of another method, and with another budget."""
    return JobConfig(
        input=config.input, budget=budget, method=method, output=config.output, runner=config.runner
    )
