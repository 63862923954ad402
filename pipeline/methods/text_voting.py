"""What methods that have records vote on whole texts share: their price, their graph and their files."""

import abc
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models.batch_plan import BatchPlan
from models.decoders import device
from models.decoders.device import Dtype
from models.evolution.settings import EvolutionSettings
from models.privacy import accounting
from models.privacy.facts import Statement
from models.privacy.report import PrivacyReport, Voted
from models.privacy.text_votes import TextVoteParams
from models.records import Record
from pipeline.calibration import RequestedDtype
from pipeline.ledger.answer import FittingSetting, HasRoom, largest_fitting
from pipeline.methods.canary_audit import CanaryAuditor
from pipeline.methods.method import Method, RunFolders
from pipeline.methods.text_voting_canaries import TextVotingCanaries
from pipeline.settings.job_config import JobConfig
from pipeline.settings.method import MethodSettings
from transforms.run_files import EMBEDDINGS_FOLDER, ROUNDS_FOLDER

if TYPE_CHECKING:
    import apache_beam as beam

    from transforms.columns import Columns
    from transforms.write import Files

# Of the stage, as a ledger names it.
STAGE = 'votes_on_texts'
# Units that a worker embeds and counts the votes of at a time, and most shares of them.
_UNITS_OF_SHARD, _MOST_SHARDS = 1000, 256
# Characters of a record that are embedded: more than 256 tokens of any embedder here have.
_CHARACTERS = 8192


class TextVoting[M: MethodSettings](Method[M], abc.ABC):
    """Records vote on whole texts of lists that follow from public and released values (METHOD 4e)."""

    canary_sabotages = frozenset({'half-noise', 'no-noise', 'noise-again', 'counted-twice', 'own-text'})

    @abc.abstractmethod
    def params(self, config: JobConfig[M]) -> TextVoteParams:
        """The mechanism, with the noise solved for where epsilon was given.

        Raises:
            ValueError: A setting out of range, or an epsilon that no noise gives.
        """

    def statement(self, config: JobConfig[M]) -> Statement:
        return 'differential privacy'

    def cost(self, config: JobConfig[M]) -> Mapping[str, accounting.DpEvent]:
        return {STAGE: self.params(config).event}

    def fitting(self, config: JobConfig[M], has_room: HasRoom, order: float) -> tuple[FittingSetting, ...]:
        if config.budget.epsilon is None:
            return ()  # more noise would fit, and how much depends on what it is wanted for
        value = largest_fitting('epsilon', config.budget.epsilon, has_room)
        return () if value is None else (FittingSetting(name='epsilon', value=value),)

    def dtype(self, config: JobConfig[M]) -> Dtype:
        requested: RequestedDtype = config.settings()['dtype']
        return device.fastest_dtype() if requested == 'auto' else requested

    def planned_dtype(self, config: JobConfig[M]) -> RequestedDtype:
        return config.settings()['dtype']

    def folders(self, config: JobConfig[M]) -> RunFolders:
        return RunFolders(work=(ROUNDS_FOLDER, EMBEDDINGS_FOLDER), output=(ROUNDS_FOLDER,))

    def plan_batches(
        self, config: JobConfig[M], prepared: Any, records: 'beam.PCollection[Record]'
    ) -> 'tuple[beam.PCollection[Record], beam.PCollection[BatchPlan]]':
        import apache_beam as beam

        plan = self.configured_plan(config)
        return records, records.pipeline | 'Plan' >> beam.Create([plan], reshuffle=False)

    def transform(
        self, config: JobConfig[M], prepared: EvolutionSettings, plan: 'beam.PCollection[BatchPlan]'
    ) -> 'beam.PTransform':
        from transforms.evolve import EvolveText

        records = config.input.sampled_records or 0
        return EvolveText(
            prepared,
            config.output.resolved_work_dir,
            shards=min(_MOST_SHARDS, max(1, math.ceil(records / _UNITS_OF_SHARD))),
            text_limit=_CHARACTERS,
            accelerator=config.runner.accelerator,
        )

    def columns(self, config: JobConfig[M]) -> 'Columns':
        from transforms import evolve

        return evolve.COLUMNS

    @abc.abstractmethod
    def facts(self, config: JobConfig[M], prepared: EvolutionSettings, plan: BatchPlan) -> Voted:
        """See `Method.facts`."""

    def pages(
        self, config: JobConfig[M], prepared: EvolutionSettings, privacy_report: PrivacyReport
    ) -> 'Files':
        from pipeline.methods import text_voting_pages

        columns = self.columns_with_labels(config)
        return text_voting_pages.pages(config, prepared, privacy_report, columns)

    def canary_auditor(self) -> CanaryAuditor:
        return TextVotingCanaries(self.canary_sabotages, self.params, self.prepare)
