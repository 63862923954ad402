"""A run of votes on texts, solved: its mechanism, its lists and the texts that it samples."""

import dataclasses
import math
import typing
from collections.abc import Iterator
from typing import Self

from models.batch_plan import BatchPlan
from models.evolution.defaults import Defaults
from models.evolution.generation import Candidate
from models.finetuning.adapter import AdapterCard
from models.privacy.text_votes import TextVoteParams
from models.speed import Work
from pipeline.methods.evolve.settings import TEXTS_TOGETHER, EvolveSettings, RefineSettings
from pipeline.methods.solved import Begun, Run, RunFolders
from pipeline.settings import panel
from pipeline.settings.job_config import JobConfig
from transforms.run_files import EMBEDDINGS_FOLDER, ROUNDS_FOLDER

if typing.TYPE_CHECKING:
    from transforms.columns import Columns

type VotingSettings = EvolveSettings | RefineSettings

# The stage of a ledger.
STAGE = 'votes_on_texts'


@dataclasses.dataclass(frozen=True, kw_only=True)
class VotingRun(Run[VotingSettings]):
    """A run of votes on texts that it samples, or that are given.

    Attributes:
        start: The list of the first round where it is given; empty where it is sampled.
        examples: Texts that the corpus should have.
        card: The card of the adapter that texts are sampled with; None without one.
        texts_per_label: Texts that are sampled for each label in each round, and last those after the last
            vote.
    """

    params: TextVoteParams
    sizes: Defaults
    start: tuple[Candidate, ...]
    examples: int
    texts_per_label: tuple[int, ...]
    card: AdapterCard | None = None

    @property
    def sampled_texts(self) -> int:
        """Texts that the run samples, of all labels and rounds."""
        return len(self.input.label_values) * sum(self.texts_per_label)

    @property
    def embedded_texts(self) -> float:
        """Texts of records that are embedded, about."""
        return (self.input.sampled_records or 0.0) * self.budget.examples_per_context

    @property
    def tokens(self) -> dict[Work, int]:
        # Texts up to their cap, and prompts around texts of earlier rounds; that of a label is read once.
        settings, tokens = self.method, 0
        if isinstance(settings, RefineSettings):
            return {}
        if settings.endpoint is None:
            later = len(self.input.label_values) * sum(self.texts_per_label[1:])
            tokens = self.sampled_texts * settings.max_example_tokens + later * settings.max_prompt_tokens
        if settings.embedder == 'decoder':
            tokens += round(self.embedded_texts) * settings.max_prompt_tokens
        return {'decoding': tokens}

    @property
    def own_columns(self) -> 'Columns':
        from transforms import evolve

        return evolve.COLUMNS

    def for_workers(self) -> Self:
        # The given texts travel with what workers vote with.
        return dataclasses.replace(super().for_workers(), start=())


def solve_evolution(config: JobConfig[EvolveSettings]) -> VotingRun:
    """The run of texts that are sampled."""
    card = None
    if config.method.adapter is not None:
        config, card = _with_instructions(config, config.method.adapter)
    settings, labels = config.method, len(config.input.label_values)
    sizes = settings.sizes(config.input, config.budget, config.delta)
    # A given list takes the place of what the first round would sample.
    first = 0 if settings.start is not None else sizes.candidates
    texts = (first, *(sizes.children,) * (sizes.rounds - 1), sizes.unvoted)
    texts_per_label = tuple(math.ceil(number / labels) for number in texts)
    return _run(
        config,
        params=settings.vote_params(sizes.rounds, sizes.nearest, config.budget, config.delta),
        sizes=sizes,
        examples=settings.examples,
        texts_per_label=texts_per_label,
        start=_given(config, settings.start, 'start'),
        begun=tuple(_begun(settings)),
        most_tokens=labels * sum(texts_per_label) * settings.max_example_tokens,
        card=card,
    )


def _with_instructions(
    config: JobConfig[EvolveSettings], place: str
) -> tuple[JobConfig[EvolveSettings], AdapterCard]:
    """(the config with the words and lengths of an adapter's instructions, its card): of a run with records.

    Raises:
        FileNotFoundError: There is no released adapter.
        ValueError: Settings are of the instructions, which the card has, or labels are others; or as of
            `checked_card`.
    """
    from pipeline.methods.fine_tune import released

    why = "Texts are asked for by the adapter's own instructions, which its card holds."
    panel.refuse(
        (config.method,),
        dict.fromkeys((*released.PROMPT_SETTINGS, 'prompt', 'schema'), why),
        beside='an adapter',
    )
    card = released.checked_card(config.method, place)
    if (card.labels, card.attributes) != (config.input.labels, config.input.attributes):
        raise ValueError(
            f'Expected the labels of the adapter, got labels={list(config.input.labels)!r}, attributes='
            f'{list(config.input.attributes)!r} for an adapter that was trained with labels='
            f'{list(card.labels)!r}, attributes={list(card.attributes)!r}. Declare these, with their words.'
        )
    words: dict[str, typing.Any] = {
        name: value for name, value in card.prompt.items() if name in released.PROMPT_SETTINGS
    }
    return config.replace(**words), card


def _begun(settings: EvolveSettings) -> Iterator[Begun]:
    if settings.start is not None:
        yield Begun(name='start', place=settings.start, what='a corpus')
    if settings.adapter is not None:
        yield Begun(name='adapter', place=settings.adapter, what='an adapter', is_adapter=True)


def solve_refining(config: JobConfig[RefineSettings]) -> VotingRun:
    """The run of one round on texts that are given."""
    settings, corpus = config.method, str(config.method.corpus)
    start = _given(config, corpus, 'corpus')
    params = settings.mechanism(config.input, config.budget, config.delta, len(start))
    sizes = Defaults(rounds=1, candidates=len(start), children=0, unvoted=0, nearest=params.nearest, shots=0)
    return _run(
        config,
        params=params,
        sizes=sizes,
        examples=min(len(start), settings.keep or max(1, len(start) // 2)),
        texts_per_label=(0, 0),
        start=start,
        begun=(Begun(name='corpus', place=corpus, what='a corpus'),),
        most_tokens=0,
    )


def _given(config: JobConfig[typing.Any], place: str | None, name: str) -> tuple[Candidate, ...]:
    if place is None:
        return ()
    from pipeline.methods import start_corpus

    return start_corpus.read_start(place, config.input, name)


def _run(
    config: JobConfig[typing.Any],
    *,
    params: TextVoteParams,
    sizes: Defaults,
    examples: int,
    texts_per_label: tuple[int, ...],
    start: tuple[Candidate, ...],
    begun: tuple[Begun, ...],
    most_tokens: int,
    card: AdapterCard | None = None,
) -> VotingRun:
    labels = config.input.label_values
    # A given list counts as a batch of each label.
    batches = bool(start) + sum(math.ceil(texts / TEXTS_TOGETHER) for texts in texts_per_label)
    return VotingRun(
        config=config,
        statement='differential privacy',
        stages={STAGE: params.event},
        batch_plan=BatchPlan(
            labels=labels,
            batches_per_group=(max(1, batches),) * len(labels),
            noisy_counts=None,
            contexts_rho=0.0,
        ),
        folders=RunFolders(work=(ROUNDS_FOLDER, EMBEDDINGS_FOLDER), output=(ROUNDS_FOLDER,)),
        most_tokens=most_tokens,
        begun=begun,
        params=params,
        sizes=sizes,
        start=start,
        examples=examples,
        texts_per_label=texts_per_label,
        card=card,
    )
