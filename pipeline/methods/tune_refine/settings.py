"""All settings of training and votes: the mechanism, the adapter, and which of its texts stay.

The defaults were measured against each other with Gemma 3 270M at ε = 1 (docs/measured.md, 'Train, then
vote').
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import ClassVar

from models import extras
from pipeline.methods.fine_tune.settings import FineTuneSettings
from pipeline.settings import panel
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.method import MethodSettings
from pipeline.settings.output import Output
from pipeline.settings.structure import Structured
from pipeline.settings.text_votes import Likeness

NAME = 'tune-refine'
# Texts to choose each text of the corpus from.
CANDIDATES_PER_EXAMPLE = 4

_setting = functools.partial(panel.setting, 'Training and votes')


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingAndVotes(panel.Panel):
    """Settings of training an adapter, of sampling with it, and of how the budget is shared."""

    examples: int = _setting(
        'Texts of the corpus. How many of each label follows from the votes; fewer come out where fewer '
        'have a clear label.',
        500,
    )
    candidates: int | None = _setting(
        'Texts that are sampled from the adapter for the votes, of all labels together. Default: four times '
        '--examples.',
        None,
    )
    vote_share: float = _setting(
        'Share of --epsilon that the votes would have by themselves. Training has what is left of the '
        'losses: with 0.6 of 1 about as much as 0.85 by itself.',
        0.6,
    )
    tuning_steps: int = _setting('T: steps of DP-Adam.', 15)
    expected_batch_size: int = _setting(
        's: units of a step in the mean, and the public divisor of every gradient. Each unit is in each step '
        'with probability s over the declared --records.',
        128,
    )
    clip_norm: float = _setting(
        'C: the L2 norm that the one gradient of each unit is clipped to, however many records it has.', 1.0
    )
    lora_rank: int = _setting('r: rank of the low-rank factors that are trained.', 8)
    remat: bool = _setting(
        'Compute each layer a second time on the way back, in place of keeping what it computed: far less '
        'memory for more time.',
        False,
    )
    learning_rate: float | None = _setting(
        'Of DP-Adam. Default: 0.003, and of a model as small as the bundled one 0.01.', None
    )
    any_text: bool = _setting(
        'Let records vote on whatever is sampled. Without it what is no text is left out before the votes, '
        "for free: markup, bare headings, lines of the prompt's own words, another script than the prompt's, "
        'and fragments that begin with a comma.',
        False,
    )
    temperature: float | None = _setting('Temperature of sampling. Default: 1.', None)
    top_p: float = _setting(
        'Nucleus: sample from the most probable tokens that have this share of the probability.', 0.95
    )
    top_k: int | None = _setting('Sample from so many of the most probable tokens at most.', None)

    def check(self) -> None:
        self._check_positive(
            'examples', 'candidates', 'tuning_steps', 'expected_batch_size', 'lora_rank', 'top_k'
        )
        self._check_finite('clip_norm', 'learning_rate', 'temperature')
        self._check_share('top_p')
        if not 0 < self.vote_share < 1:
            raise ValueError(
                f'Expected 0 < vote_share < 1, got vote_share={self.vote_share!r}. Give 0.6, say: for votes '
                'or for training alone there are other methods.'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneRefineSettings(TrainingAndVotes, Likeness, Structured, MethodSettings):
    """DP-SGD trains an adapter, and records vote on texts that are sampled with it (METHOD 4f)."""

    name: ClassVar[str] = NAME
    panels: ClassVar[tuple[str, ...]] = (
        'Training and votes', 'Votes on texts', 'Prompt', 'Structure', 'Model',
    )  # fmt: skip
    added_help: ClassVar[Mapping[str, str]] = {
        name: FineTuneSettings.added_help[name] for name in ('dtype', 'micro_batch_size')
    }

    def check_run(self, declared: Input, budget: Budget, output: Output, delta: float | None) -> None:
        self.label_attributes(declared)
        _ = self.structure  # a schema checks itself
        self.check_declared(declared)
        if budget.epsilon is None:
            raise ValueError(
                f'Expected epsilon with method={NAME!r}, got epsilon=None. Training and votes share it: give '
                '--epsilon.'
            )
        if self.texts_to_vote_on < self.examples:
            raise ValueError(
                f'Expected candidates >= examples={self.examples}, got candidates={self.candidates}. The '
                'votes choose among them: give several times as many.'
            )
        self.training().check_run(declared, budget, output, delta)

    def extras(self, *, is_local: bool) -> tuple[str, ...]:
        return (*self.embedder_extras, extras.GEMMA)

    @property
    def texts_to_vote_on(self) -> int:
        return self.candidates or CANDIDATES_PER_EXAMPLE * self.examples

    def training(self) -> FineTuneSettings:
        """The same run as one that trains alone, without a push away from other labels' instructions.

        At equal steps the push took as long again, and texts were as much like their label's records.
        """
        shared = {field.name for field in dataclasses.fields(FineTuneSettings)} - {'examples'}
        mine = {name: value for name, value in vars(self).items() if name in shared}
        return FineTuneSettings(**mine, mismatch_weight=0.0)
