"""The plan of a run of votes on texts: its price and its size, before anything is read or paid."""

import dataclasses
from collections.abc import Iterator

from models.decoders.device import Dtype
from models.evolution.defaults import votes_of_candidate
from pipeline.check.input_check import InputCheck
from pipeline.ledger.answer import BudgetAnswer
from pipeline.methods.estimate import Estimate, duration, three_digits
from pipeline.methods.evolve.run import VotingRun
from pipeline.methods.evolve.settings import EvolveSettings, RefineSettings
from pipeline.methods.input_view import InputView, MeasureTexts, measure_continuations
from pipeline.methods.method import (
    FEWEST_OF_LABEL,
    ITEM_BYTES,
    LAST_RANK,
    RunPlan,
    Score,
    Standing,
    delta_warning,
)

# Seconds of one core for a text of some forty words (docs/measured.md, 'Sampling and embedding'). A
# folder of weights is taken for MiniLM, and what the language model reads is counted in tokens.
_EMBEDDING_SECONDS = {'tfidf': 0.0004, 'minilm': 0.012, 'decoder': 0.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class VotingPlan(RunPlan):
    """The plan of a run of votes on texts: what it would release and cost. All fields are public.

    Attributes:
        rounds: T.
        candidates: Texts of the first round, sampled or given, of all labels.
        children: Texts that each later round adds, of all labels.
        nearest: k: texts that a record's vote is spread over.
        vote_noise: σ, the scale of the noise on a count, in votes.
        votes_of_candidate: Votes that a text gets on average.
        sampled_texts: Texts that are sampled in all, those after the last vote among them; 0 where all are
            given.
        examples: Texts of the corpus; at the most where all are given.
        rho_total: Cost of all rounds.
        epsilon: At `delta`.
        embedding_hours: Hours of one core for the embeddings of all records.
        at_endpoint: True if an endpoint samples the texts, at a pace that is not known here.
    """

    rounds: int
    candidates: int
    children: int
    nearest: int
    vote_noise: float
    votes_of_candidate: float
    sampled_texts: int
    examples: int
    rho_total: float
    epsilon: float
    embedding_hours: float
    at_endpoint: bool

    def guarantee(self) -> str:
        return f'ε = {self.epsilon:.6g} at δ = {self.delta:.6g}'

    def size(self) -> str:
        if not self.sampled_texts:
            return f'votes on {self.candidates:,} texts, of which {self.examples:,} stay at the most'
        rounds = 'one round' if self.rounds == 1 else f'{self.rounds} rounds'
        return f'{rounds} of votes on {self.candidates:,} texts, then a corpus of {self.examples:,}'

    def written_texts(self) -> int:
        return self.examples

    def computing_hours(self) -> float | None:
        decoding = super().computing_hours()
        return None if decoding is None or self.at_endpoint else decoding + self.embedding_hours

    def rows(self) -> list[tuple[str, str]]:
        shared = '' if self.nearest == 1 else f', spread over the {self.nearest} nearest'
        votes = (
            'Votes',
            f'{three_digits(self.votes_of_candidate)} for a text on average, beside noise of scale '
            f'{self.vote_noise:.4g}; one vote of a record{shared}',
        )
        rows = [('Guarantee', self.guarantee())]
        if not self.sampled_texts:
            texts = f'{self.candidates:,}, of which {self.examples:,} stay at the most'
            rows += [('Texts', texts), votes]
        else:
            rounds = f'{self.rounds:,}, the first with votes on {self.candidates:,} texts of all labels'
            more = f'; each later one adds {self.children:,}' if self.rounds > 1 else ''
            texts = f'{self.sampled_texts:,} are sampled, {self.examples:,} are kept'
            rows += [('Rounds', rounds + more), votes, ('Texts', texts)]
        if self.at_endpoint:
            rows.append(('Sampling', 'at the pace of the endpoint'))
        if self.embedding_hours:
            rows.append(('Embedding', f'about {duration(self.embedding_hours)} of one core'))
        return [*rows, *self.rows_of_others()]


def plan_run(
    run: VotingRun, estimate: Estimate | None = None, budget: BudgetAnswer | None = None
) -> VotingPlan:
    """The plan of a run, with what it takes of this machine and what a ledger says, where these are given."""
    params, sizes, settings = run.params, run.sizes, run.method
    votes = votes_of_candidate(
        records=run.input.sampled_records or 0.0, candidates=sizes.last_list, nearest=params.nearest
    )
    seconds = _EMBEDDING_SECONDS.get(settings.embedder, _EMBEDDING_SECONDS['minilm'])
    return VotingPlan(
        method=settings.name,
        rounds=params.rounds,
        candidates=sizes.candidates,
        children=sizes.children,
        nearest=params.nearest,
        vote_noise=params.noise_scale,
        votes_of_candidate=votes,
        sampled_texts=run.sampled_texts,
        examples=run.examples,
        rho_total=params.rho,
        epsilon=params.epsilon(run.delta),
        embedding_hours=run.embedded_texts * seconds / 3600,
        at_endpoint=isinstance(settings, EvolveSettings) and settings.endpoint is not None,
        delta=run.delta,
        estimate=estimate,
        budget=budget,
        warnings=tuple(_warnings(run, votes)),
    )


def _warnings(run: VotingRun, votes: float) -> Iterator[str]:
    """Warnings before a run, from public numbers alone."""
    noise = run.params.noise_scale
    many = 'users' if run.budget.unit == 'user' else 'records'
    yield from delta_warning(run)
    if votes < noise / 2:
        fewer = 'Lower --candidates or --rounds' if run.sampled_texts else 'Give fewer texts'
        yield (
            f'A text gets {three_digits(votes)} votes on average, and the noise on a count has the scale '
            f'{noise:.4g}: the votes drown in it. {fewer}, raise --nearest or '
            f'--epsilon, or bring more {many}.'
        )
    if run.sampled_texts and run.examples > 2 * run.sampled_texts:
        yield (f'{run.examples:,} texts are wanted and {run.sampled_texts:,} sampled: raise --candidates.')


# Rows of docs/measured.md, with Gemma 3 270M and MiniLM, which both voted and judged.
SCORES = (
    Score(what='news', records=8000, labels=4, epsilon=1, texts=200, worth=0.85, of_records=0.83),
    Score(what='questions', records=5452, labels=6, epsilon=1, texts=300, worth=0.74, of_records=0.80),
    Score(what='reviews', records=20000, labels=2, epsilon=1, texts=200, worth=0.68, of_records=0.75),
    Score(what='bank questions', records=10003, labels=77, epsilon=1, texts=515, worth=0.54, of_records=0.84),
)
# With 828 medical notes it was no better than votes on tokens; in between nothing was scored.
_FEWEST_UNITS = 2000


def standing(units: float, epsilon: float | None, labels: int) -> Standing:
    """Second with thousands of units and hundreds of each label: right labels, in a public prompt's words."""
    because = (
        'It takes minutes, its price does not grow with the texts, and no record reaches the language model'
    )
    if units >= _FEWEST_UNITS and units / labels < FEWEST_OF_LABEL:
        because = (
            'With so many labels noise is most of what the votes of one label say: with 130 records of each '
            f'its texts were worth less than those of an adapter. {because}.'
        )
        return Standing(rank=LAST_RANK, because=because)
    if units >= _FEWEST_UNITS:
        because = (
            'With thousands of records its texts were worth nearly as much as those of training and votes, '
            f'but they sound like the model and not like the records. {because}.'
        )
        return Standing(rank=2, because=because)
    return Standing(rank=LAST_RANK, because=f'{because}; with few records its votes are the noisiest.')


def needed_memory(run: VotingRun, dtype: Dtype, devices: int = 1) -> int:
    """Bytes of each device that weights and the texts of a batch take at the least.

    Weights that sample may be sharded over the devices; those that embed are not.
    """
    settings, item_bytes = run.method, ITEM_BYTES[dtype]
    embeds = settings.embedder == 'decoder'
    if isinstance(settings, RefineSettings):
        return settings.model_sizes.num_parameters * item_bytes if embeds else 0
    if settings.endpoint is not None and not embeds:
        return 0
    length = settings.max_prompt_tokens + settings.max_example_tokens
    cache = settings.rows_together * length * settings.model_sizes.cache_bytes_per_token(item_bytes)
    weights = settings.model_sizes.num_parameters * item_bytes
    return max((weights + cache) // devices, weights if embeds else 0)


class VotingView(InputView):
    """Units, each with its one vote a round."""

    room = 'at the most are written of a text'

    @property
    def expected_batch_size(self) -> int:
        return 1

    def measure(self) -> MeasureTexts | None:
        # The embedder reads records; the model writes texts, none longer than its cap.
        settings = self.config.method
        is_sampled = isinstance(settings, EvolveSettings) and settings.endpoint is None
        return measure_continuations(self.config) if is_sampled else None

    def off_by_number(self, check: InputCheck) -> str:
        return 'the votes that a text gets'
