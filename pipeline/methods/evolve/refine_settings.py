"""All settings of refining a corpus: which texts, and how many stay."""

import dataclasses
import functools
from typing import ClassVar

from models.evolution.defaults import nearest_for
from models.privacy.text_votes import TextVoteParams
from pipeline.settings import panel
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.method import MethodSettings
from pipeline.settings.model import Model
from pipeline.settings.output import Output
from pipeline.settings.text_votes import TextVotes

NAME = 'refine'

_setting = functools.partial(panel.setting, 'Refining')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refining(panel.Panel):
    """Which texts records vote on, and how many of them stay."""

    corpus: str | None = _setting(
        'Texts to vote on: the folder of a finished run, or files like those of --input. Public, or '
        'released: never texts of these records.',
        None,
        path='patterns',
    )
    keep: int | None = _setting(
        'Texts that stay at the most. How many of each label follows from the votes. Default: half of them.',
        None,
    )

    def check(self) -> None:
        self._check_positive('keep')


@dataclasses.dataclass(frozen=True, kw_only=True)
class RefineSettings(Refining, TextVotes, Model, MethodSettings):
    """Records vote once on the texts of a corpus, and those that they favour stay (METHOD 4e)."""

    name: ClassVar[str] = NAME
    panels: ClassVar[tuple[str, ...]] = ('Refining', 'Votes on texts', 'Model')

    def check_run(self, declared: Input, budget: Budget, output: Output, delta: float | None) -> None:
        if self.corpus is None:
            raise ValueError(
                'Expected a corpus to refine, got corpus=None. Give `dp-corpus refine CORPUS`, or --corpus '
                'CORPUS.'
            )
        self.check_noise(budget)
        self.check_units(declared)

    def extras(self, *, is_local: bool) -> tuple[str, ...]:
        return self.embedder_extras

    def mechanism(self, declared: Input, budget: Budget, delta: float, texts: int) -> TextVoteParams:
        """The mechanism, with the noise solved for where epsilon was given.

        Args:
            declared: The input.
            budget: The guarantee.
            delta: At which epsilon is stated.
            texts: Texts of the corpus, which the default of `nearest` follows from.

        Raises:
            ValueError: A setting out of range, or an epsilon that no noise gives.
        """
        found = self.vote_params(1, self.nearest or 1, budget, delta)
        if self.nearest is not None:
            return found
        assert declared.sampled_records is not None  # `check_units`
        nearest = nearest_for(
            records=round(declared.sampled_records),
            candidates=texts,
            noise_scale=found.noise_scale,
            labels=len(declared.label_values),
        )
        return self.vote_params(1, nearest, budget, delta)
