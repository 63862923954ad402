"""All settings of evolution: rounds of votes, sampling, and where texts come from."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from models import extras
from models.evolution.defaults import Defaults, defaults, nearest_for
from models.privacy.accounting import normal_pair
from models.privacy.text_votes import TextVoteParams
from pipeline.settings import panel
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.method import MethodSettings
from pipeline.settings.model import Model
from pipeline.settings.output import Output
from pipeline.settings.structure import Structured
from pipeline.settings.text_votes import TextVotes

NAME, REFINE = 'evolve', 'refine'
# Texts that one worker samples for a label at a time, and rows that go through the model together.
TEXTS_TOGETHER, ROWS_TOGETHER = 64, 64
MOST_ROUNDS = 20

# Settings of prompts that show texts, and of what else samples; an adapter has instructions of its own.
OF_PUBLIC_PROMPTS = ('shots', 'fresh_share', 'endpoint')

_setting = functools.partial(panel.setting, 'Evolution')
_source = functools.partial(panel.setting, 'Endpoint')
_refining = functools.partial(panel.setting, 'Refining')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evolution(panel.Panel):
    """Settings of sampling: of the first list, and around texts that votes favoured."""

    examples: int = _setting(
        'Texts of the corpus. How many of each label follows from the votes; fewer come out where fewer '
        'have a clear label.',
        200,
    )
    rounds: int | None = _setting('T: rounds of votes. They share the budget. Default: 2.', None)
    candidates: int | None = _setting(
        'Texts that are sampled for the first round, of all labels together. Default: twice --examples, but '
        'no more than votes can tell apart, by the declared records and the noise.',
        None,
    )
    children: int | None = _setting(
        'Texts that each later round adds to the list, of all labels together. Their prompts show texts '
        'that the votes so far favour. Default: as many as --examples.',
        None,
    )
    unvoted: int | None = _setting(
        'Texts that are sampled after the last round, in the same way, of all labels together. Nobody votes '
        'on them: what they are worth follows from the votes on texts like them. 0 for none. Default: as '
        'many as --examples.',
        None,
    )
    fresh_share: float | None = _setting(
        'Share of the texts of a later round that come from the public prompt alone. Default: 0.', None
    )
    shots: int | None = _setting('Texts of earlier rounds that a prompt shows. Default: 3.', None)
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
    start: str | None = _setting(
        'Texts of the first round in place of sampled ones: the folder of a finished run, or files like '
        'those of --input. Public, or released: never texts of these records.',
        None,
        path='patterns',
    )
    adapter: str | None = _setting(
        'Folder of a finished fine-tuning run, or of its adapter: texts are sampled with it, by its own '
        'instructions, which show no text. Its labels are those of the run. What it cost comes on top.',
        None,
        path='file',
    )
    endpoint: str | None = _source(
        'URL of a server with the completions API of OpenAI (http://host:8000/v1): it samples the texts in '
        'place of --model. It sees public prompts and released texts, never a record.',
        None,
    )
    endpoint_model: str | None = _source('The name of the model there.', None, names_path=False)
    endpoint_requests: int = _source('Requests at once.', 8)
    endpoint_token: str | None = _source(
        'The environment variable that holds the token which the endpoint asks for; never the token itself.',
        None,
        names_path=False,
    )

    def check(self) -> None:
        self._check_positive(
            'examples', 'rounds', 'candidates', 'children', 'shots', 'top_k', 'endpoint_requests'
        )
        if self.unvoted is not None and self.unvoted < 0:
            raise ValueError(f'Expected unvoted >= 0, got unvoted={self.unvoted}. Give 0 for none.')
        if self.rounds is not None and self.rounds > MOST_ROUNDS:
            raise ValueError(
                f'Expected rounds <= {MOST_ROUNDS}, got rounds={self.rounds}. Each has its share of the '
                'budget: give 1 to 3.'
            )
        if self.fresh_share is not None and not 0 <= self.fresh_share <= 1:
            raise ValueError(
                f'Expected 0 <= fresh_share <= 1, got fresh_share={self.fresh_share!r}. Give 0.5, say.'
            )
        self._check_finite('temperature')
        self._check_share('top_p')
        if (self.endpoint is None) != (self.endpoint_model is None):
            raise ValueError(
                f'Expected endpoint and endpoint_model together or not at all, got endpoint='
                f'{"given" if self.endpoint else None}, endpoint_model={self.endpoint_model!r}. Give both.'
            )
        if self.adapter is not None:
            why = 'The texts are sampled with the adapter, by its own instructions.'
            panel.refuse((self,), dict.fromkeys(OF_PUBLIC_PROMPTS, why), beside=f'adapter={self.adapter!r}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvolveSettings(Evolution, TextVotes, Structured, MethodSettings):
    """Texts of public prompts evolve under the votes of the records (METHOD 4e)."""

    name: ClassVar[str] = NAME
    panels: ClassVar[tuple[str, ...]] = (
        'Evolution', 'Votes on texts', 'Endpoint', 'Prompt', 'Structure', 'Model',
    )  # fmt: skip
    added_help: ClassVar[Mapping[str, str]] = {
        'micro_batch_size': 'They are texts that are sampled together. Default: 64.',
    }

    def check_run(self, declared: Input, budget: Budget, output: Output, delta: float | None) -> None:
        self.label_attributes(declared)
        _ = self.structure  # a schema checks itself
        self.check_votes(declared, budget)
        if self.endpoint is not None and self.structure is not None:
            raise ValueError(
                'Expected no structure with an endpoint, got endpoint and json_schema, regex or grammar. '
                'Nothing there holds a text to it: sample with --model.'
            )

    def extras(self, *, is_local: bool) -> tuple[str, ...]:
        if self.endpoint is None:
            return (*self.embedder_extras, extras.GEMMA)
        return (*self.embedder_extras, extras.ENDPOINT) if is_local else self.embedder_extras

    def sizes(self, declared: Input, budget: Budget, delta: float) -> Defaults:
        """Rounds, candidates and what else follows from public numbers where nobody gave it."""
        assert declared.sampled_records is not None  # `check_votes`
        if self.vote_noise is None:
            assert budget.epsilon is not None  # `check_votes`
            rho = normal_pair.rho_from_gaussian(budget.epsilon, delta)
        else:
            rho = TextVoteParams(rounds=self.rounds or 1, noise_scale=self.vote_noise).rho
        sizes = defaults(
            records=round(declared.sampled_records),
            labels=len(declared.label_values),
            rho=rho,
            examples=self.examples,
            # Prompts that show no text cannot ask for more like those that votes favoured.
            rounds=1 if self.adapter is not None and self.rounds is None else self.rounds,
            candidates=self.candidates,
            children=self.children,
        )
        asked: dict[str, Any] = {
            'nearest': self.nearest,
            'unvoted': self.unvoted,
            'shots': self.shots if self.adapter is None else 0,
            'fresh_share': self.fresh_share,
        }
        return dataclasses.replace(
            sizes, **{name: value for name, value in asked.items() if value is not None}
        )

    @property
    def rows_together(self) -> int:
        return self.micro_batch_size or ROWS_TOGETHER


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refining(panel.Panel):
    """Settings of refining: which texts records vote on, and how many of them stay."""

    corpus: str | None = _refining(
        'Texts to vote on: the folder of a finished run, or files like those of --input. Public, or '
        'released: never texts of these records.',
        None,
        path='patterns',
    )
    keep: int | None = _refining(
        'Texts that stay at the most. How many of each label follows from the votes. Default: half of them.',
        None,
    )

    def check(self) -> None:
        self._check_positive('keep')


@dataclasses.dataclass(frozen=True, kw_only=True)
class RefineSettings(Refining, TextVotes, Model, MethodSettings):
    """Records vote once on the texts of a corpus, and those that they favour stay (METHOD 4e)."""

    name: ClassVar[str] = REFINE
    panels: ClassVar[tuple[str, ...]] = ('Refining', 'Votes on texts', 'Model')

    def check_run(self, declared: Input, budget: Budget, output: Output, delta: float | None) -> None:
        if self.corpus is None:
            raise ValueError(
                'Expected a corpus to refine, got corpus=None. Give `dp-corpus refine CORPUS`, or --corpus '
                'CORPUS.'
            )
        self.check_votes(declared, budget)

    def extras(self, *, is_local: bool) -> tuple[str, ...]:
        return self.embedder_extras

    def mechanism(self, declared: Input, budget: Budget, delta: float, texts: int) -> TextVoteParams:
        """The mechanism, with the noise solved for where epsilon was given; so is `nearest`."""
        params = self.vote_params(1, self.nearest or 1, budget, delta)
        if self.nearest is not None:
            return params
        assert declared.sampled_records is not None  # `check_votes`
        nearest = nearest_for(
            records=round(declared.sampled_records),
            candidates=texts,
            noise_scale=params.noise_scale,
            labels=len(declared.label_values),
        )
        return self.vote_params(1, nearest, budget, delta)
