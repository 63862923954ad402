"""Refining a corpus as a method: one round of votes on texts that are given."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models.batch_plan import BatchPlan
from models.decoders.device import Dtype
from models.evolution.defaults import votes_of_candidate
from models.evolution.generation import Candidate
from models.evolution.settings import EvolutionSettings
from models.privacy.report import Voted
from models.privacy.text_votes import TextVoteParams
from pipeline.calibration import Calibration, three_digits
from pipeline.ledger.answer import BudgetAnswer
from pipeline.methods.refine import facts
from pipeline.methods.refine.plan import RefinePlan
from pipeline.methods.refine.settings import RefineSettings
from pipeline.methods.text_voting import TextVoting
from pipeline.methods.voting_view import VotingView
from pipeline.run.digests import digest_of_files
from pipeline.settings.job_config import JobConfig

if TYPE_CHECKING:
    from pipeline.ledger.ledger import Ledger

type Config = JobConfig[RefineSettings]

_GIVEN = 'The texts are given, and none is sampled.'


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

    def _texts(self, config: Config) -> tuple[Candidate, ...]:
        from pipeline.methods import start_corpus

        return start_corpus.read_start(str(config.method.corpus), config.input, 'corpus')

    def _keep(self, config: Config) -> int:
        return config.method.keep or max(1, len(self._texts(config)) // 2)

    def params(self, config: Config) -> TextVoteParams:
        texts = len(self._texts(config))
        return config.method.mechanism(config.input, config.budget, config.resolved_delta, texts)

    def for_workers(self, config: Config) -> Config:
        # Workers need not reach the corpus.
        return config.replace(nearest=self.params(config).nearest, keep=self._keep(config))

    def check_earlier(self, config: Config, ledger: 'Ledger') -> None:
        from pipeline.methods import start_corpus

        start_corpus.check_start(config.method.corpus, 'corpus', config.budget.dataset, ledger)

    def plan(self, config: Config) -> RefinePlan:
        params, texts = self.params(config), len(self._texts(config))
        records = config.input.sampled_records or 0.0
        votes = votes_of_candidate(records=records, candidates=texts, nearest=params.nearest)
        warnings = []
        if votes < params.noise_scale / 2:
            warnings.append(
                f'A text gets {three_digits(votes)} votes on average, and the noise on a count has the scale '
                f'{params.noise_scale:.4g}: the votes drown in it. Give fewer texts, raise --nearest or '
                '--epsilon, or bring more records.'
            )
        return RefinePlan(
            candidates=texts,
            nearest=params.nearest,
            vote_noise=params.noise_scale,
            votes_of_candidate=votes,
            examples=min(texts, self._keep(config)),
            rho_total=params.rho,
            epsilon=params.epsilon(config.resolved_delta),
            delta=config.resolved_delta,
            warnings=tuple(warnings),
        )

    def with_rates(self, plan_of_run: RefinePlan, config: Config, rates: Calibration) -> RefinePlan:
        return plan_of_run

    def with_budget(self, plan_of_run: RefinePlan, config: Config, answer: BudgetAnswer) -> RefinePlan:
        return dataclasses.replace(plan_of_run, budget=answer)

    def input_view(self, config: Config) -> VotingView:
        return VotingView(config)

    def extras(self, config: Config) -> tuple[str, ...]:
        return config.method.embedder_extras

    def needed_memory(self, config: Config, dtype: Dtype, devices: int = 1) -> int:
        if config.method.resolved_embedder != 'decoder':
            return 0
        return config.method.model_sizes.num_parameters * (4 if dtype == 'float32' else 2)

    def most_tokens(self, config: Config) -> int:
        return 0

    def prepare(self, config: Config) -> EvolutionSettings:
        from pipeline.methods import earlier

        files = config.method.model_files
        embedder = config.method.embedder_settings(
            config.method.model, files.checkpoint, files.tokenizer, self.dtype(config)
        )
        embedder.load_embedder()
        return EvolutionSettings(
            run_id=config.output.resolved_run_id,
            params=self.params(config),
            labels=config.input.label_values,
            embedder=embedder,
            source=None,
            examples=self._keep(config),
            start=self._texts(config),
            start_origin=earlier.origin_of_texts(str(config.method.corpus), 'corpus'),
        )

    def digests(self, config: Config) -> Mapping[str, str]:
        from pipeline.methods import start_corpus

        own = config.method
        paths: list[pathlib.Path] = []
        if pathlib.Path(own.resolved_embedder).is_dir():
            paths += [path for path in pathlib.Path(own.resolved_embedder).rglob('*') if path.is_file()]
        if own.resolved_embedder == 'decoder':
            place = own.checkpoint_path
            paths += [place] if place.is_file() else [path for path in place.rglob('*') if path.is_file()]
        parts = digest_of_files(paths), start_corpus.digest(self._texts(config)), *own.embedder_digests
        return {'model': ' '.join(parts)}

    def configured_plan(self, config: Config) -> BatchPlan:
        labels = config.input.label_values
        return BatchPlan(
            labels=labels, batches_per_group=(1,) * len(labels), noisy_counts=None, contexts_rho=0.0
        )

    def facts(self, config: Config, prepared: EvolutionSettings, plan: BatchPlan) -> Voted:
        return facts.facts(prepared)

    def report_settings(self, config: Config, of_mechanism: tuple[str, ...]) -> dict[str, Any]:
        return facts.settings(config, of_mechanism)
