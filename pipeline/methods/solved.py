"""A run that is solved: everything that follows from what was asked, found once and passed down whole."""

import dataclasses
import functools
import math
import typing
from collections.abc import Mapping
from typing import Self

from models.batch_plan import BatchPlan
from models.privacy import accounting
from models.privacy.facts import Statement
from models.speed import Work
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.job_config import JobConfig
from pipeline.settings.method import MethodSettings
from pipeline.settings.output import BATCHES_OF_A_SHARD, MOST_SHARDS
from pipeline.settings.runner import Runner

if typing.TYPE_CHECKING:
    from transforms.columns import Columns

# A stage that every run has in a ledger, whatever it spends on it.
_COUNTS = 'noisy_counts'


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFolders:
    """Folders and files of one method's runs, beside those that every run has.

    Attributes:
        work: Folders in the work directory.
        output: Folders in the output.
        kept: Files of the work directory that were drawn with noise: without them a begun run cannot go on.
    """

    work: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Begun:
    """An earlier release that a run builds on.

    Attributes:
        what: Its name in errors: 'a corpus'.
        is_adapter: True if it is an adapter, whose card says what it cost; else it is texts.
    """

    name: str
    place: str
    what: str
    is_adapter: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run[M: MethodSettings]:
    """A run as it is carried out. All of it is public; the run key is not among it.

    Each method adds what it needs: the parameters of its mechanism, and what its settings come to.

    Attributes:
        config: The settings asked for, with what follows from them. At a launch its paths are absolute, and
            the type of its weights is decided.
        statement: Kind of statement that the run can make.
        stages: Event of each stage, by the name that a ledger has for it; for the caps, not for what the run
            uses. None where it has no price in advance.
        batch_plan: The plan of batches where the config gives it; None where a noisy count does.
        most_tokens: Tokens of all texts at the most, as far as public numbers tell; 0 where they do not.
    """

    config: JobConfig[M]
    statement: Statement
    stages: Mapping[str, accounting.DpEvent] | None
    batch_plan: BatchPlan | None
    most_tokens: int
    folders: RunFolders = RunFolders()
    begun: tuple[Begun, ...] = ()

    @property
    def input(self) -> Input:
        return self.config.input

    @property
    def budget(self) -> Budget:
        return self.config.budget

    @property
    def method(self) -> M:
        return self.config.method

    @property
    def runner(self) -> Runner:
        return self.config.runner

    @property
    def delta(self) -> float:
        return self.config.delta

    @property
    def run_id(self) -> str:
        return self.config.output.name

    @property
    def output(self) -> str:
        return str(self.config.output.output)

    @property
    def work_dir(self) -> str:
        return self.config.output.curator

    @functools.cached_property
    def cost(self) -> accounting.RunCost:
        """The cost of the run, stage by stage; a ValueError where it has no price in advance."""
        if self.stages is None:
            raise ValueError(
                f'Expected a method that has a price in advance, got method={self.method.name!r} with '
                f'statement={self.statement!r}. Its loss is known after the run, to the curator only.'
            )
        return accounting.RunCost(stages={_COUNTS: accounting.ZCDpEvent(rho=0.0), **self.stages})

    def shards(self, batches: int) -> int:
        """Shards of the corpus as given, or what suits a number of planned batches, which is public."""
        return self.config.output.shards or min(MOST_SHARDS, math.ceil(batches / BATCHES_OF_A_SHARD))

    @property
    def tokens(self) -> Mapping[Work, int]:
        """Tokens that a model here decodes, with their prompts, and trains on; 0 where nobody can tell."""
        return {}

    @property
    def own_columns(self) -> 'Columns':
        """The method's columns of the corpus, and their totals."""
        raise NotImplementedError

    @property
    def columns(self) -> 'Columns':
        """The corpus's columns and totals, with the values of attributes and declared words."""
        columns = self.own_columns.with_attributes(self.input.attributes)
        return columns.with_label_words(self.input.declared_words)

    def for_workers(self) -> Self:
        """The run as it travels to workers, who have no business with the ledger."""
        budget = dataclasses.replace(self.budget, dataset=None, ledger=None)
        return dataclasses.replace(self, config=dataclasses.replace(self.config, budget=budget))
