"""The plan of a run of training and votes: its price and its size, before anything is read or paid."""

import dataclasses

from models.decoders.device import Dtype
from models.evolution.defaults import votes_of_candidate
from pipeline.ledger.answer import BudgetAnswer
from pipeline.methods.estimate import Estimate, duration, three_digits
from pipeline.methods.evolve import plan as of_votes
from pipeline.methods.fine_tune import plan as of_training
from pipeline.methods.method import LAST_RANK, RunPlan, Score, Standing
from pipeline.methods.tune_refine.run import Config, TunedVotingRun, of_method


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedVotingPlan(RunPlan):
    """The plan of a run of training and votes: what it would release and cost. All fields are public.

    Attributes:
        tuning_steps: T.
        expected_batch_size: s, units of a step in the mean.
        sampling_probability: q, with which each unit is in a step.
        clip_norm: C, of the gradient of a unit.
        noise_multiplier: z, the least that epsilon leaves after the votes.
        lora_rank: r.
        adapter_parameters: Numbers that are trained.
        candidates: Texts of the adapter that records vote on, of all labels.
        nearest: k: texts that a record's vote is spread over.
        vote_noise: σ, the scale of the noise on a count, in votes.
        votes_of_candidate: Votes that a text gets on average.
        examples: Texts of the corpus.
        epsilon: At `delta`, from the privacy loss distributions of all steps and of the votes.
        embedding_hours: Hours of one core for the embeddings of all records.
    """

    tuning_steps: int
    expected_batch_size: int
    sampling_probability: float
    clip_norm: float
    noise_multiplier: float
    lora_rank: int
    adapter_parameters: int
    candidates: int
    nearest: int
    vote_noise: float
    votes_of_candidate: float
    examples: int
    epsilon: float
    embedding_hours: float

    def guarantee(self) -> str:
        return f'ε = {self.epsilon:.6g} at δ = {self.delta:.6g}'

    def size(self) -> str:
        return (
            f'{self.tuning_steps:,} steps with noise multiplier {self.noise_multiplier:g}, then votes on '
            f'{self.candidates:,} texts, of which {self.examples:,} stay'
        )

    def written_texts(self) -> int:
        return self.examples

    def computing_hours(self) -> float | None:
        hours = super().computing_hours()
        return None if hours is None else hours + self.embedding_hours

    def rows(self) -> list[tuple[str, str]]:
        shared = '' if self.nearest == 1 else f', spread over the {self.nearest} nearest'
        rows = [
            ('Guarantee', self.guarantee()),
            ('', 'from the privacy loss distributions of all steps and of the votes, an upper bound'),
            (
                'Steps',
                f'{self.tuning_steps:,}, each of about {self.expected_batch_size:,} units, '
                f'q = {self.sampling_probability:.4g}',
            ),
            ('Noise', f'z = {self.noise_multiplier:g} clip norms, C = {self.clip_norm:g}'),
            ('Adapter', f'rank {self.lora_rank}, {self.adapter_parameters:,} numbers; it is not released'),
            (
                'Votes',
                f'{three_digits(self.votes_of_candidate)} for a text on average, beside noise of scale '
                f'{self.vote_noise:.4g}; one vote of a record{shared}',
            ),
            ('Texts', f'{self.candidates:,} are sampled from the adapter, {self.examples:,} are kept'),
        ]
        if self.embedding_hours:
            rows.append(('Embedding', f'about {duration(self.embedding_hours)} of one core'))
        return [*rows, *self.rows_of_others()]


def plan_run(
    run: TunedVotingRun, estimate: Estimate | None = None, budget: BudgetAnswer | None = None
) -> TunedVotingPlan:
    """The plan of a run, with what it takes of this machine and what a ledger says, where these are given."""
    params = run.params
    training, votes = of_training.plan_run(run.tuning), of_votes.plan_run(run.voting)
    return TunedVotingPlan(
        method=run.method.name,
        tuning_steps=params.tuning_steps,
        expected_batch_size=params.expected_batch_size,
        sampling_probability=params.tuning.sampling_probability,
        clip_norm=params.clip_norm,
        noise_multiplier=params.noise_multiplier,
        lora_rank=run.method.lora_rank,
        adapter_parameters=training.adapter_parameters,
        candidates=run.voting.sampled_texts,
        nearest=params.nearest,
        vote_noise=params.noise_scale,
        votes_of_candidate=votes_of_candidate(
            records=run.input.sampled_records or 0.0,
            candidates=run.voting.sampled_texts,
            nearest=params.nearest,
        ),
        examples=run.voting.examples,
        epsilon=params.epsilon(run.delta),
        embedding_hours=votes.embedding_hours,
        delta=run.delta,
        estimate=estimate,
        budget=budget,
        # That of a large delta stands in both.
        warnings=tuple(dict.fromkeys((*training.warnings, *votes.warnings))),
    )


# Rows of docs/measured.md, with Gemma 3 270M and MiniLM, which both voted and judged.
SCORES = (
    Score(what='questions', records=5452, labels=6, epsilon=1, texts=500, worth=0.76, of_records=0.80),
    Score(what='questions', records=768, labels=6, epsilon=1, texts=500, worth=0.72, of_records=0.80),
    Score(what='questions', records=384, labels=6, epsilon=1, texts=500, worth=0.66, of_records=0.80),
    Score(what='news', records=8000, labels=4, epsilon=1, texts=500, worth=0.86, of_records=0.85),
    Score(what='bank questions', records=10003, labels=77, epsilon=1, texts=492, worth=0.66, of_records=0.83),
    Score(what='medical notes', records=828, labels=20, epsilon=1, texts=500, worth=0.72, of_records=0.87),
)
# The units and the epsilon from which on it was measured.
_FEWEST_UNITS, _LEAST_EPSILON = 384, 1.0


def standing(units: float, epsilon: float | None, labels: int) -> Standing:
    """First wherever it was measured, from 384 units to 10,003; else behind all others."""
    if units < _FEWEST_UNITS or epsilon is None or epsilon < _LEAST_EPSILON:
        because = 'With few records or a small ε, training has too little to learn from beside its noise.'
        return Standing(rank=LAST_RANK, because=because)
    because = (
        'Its texts were worth the most, or as much as those of votes alone, and sounded the most like the '
        'records: training gives the form, and votes the labels.'
    )
    return Standing(rank=1, because=because)


def needed_memory(run: TunedVotingRun, dtype: Dtype, devices: int = 1) -> int:
    """Bytes of each device that training takes, or sampling: whichever is more."""
    training = of_training.needed_memory(run.tuning, dtype, devices)
    return max(training, of_votes.needed_memory(run.voting, dtype, devices))


def input_view(config: Config) -> of_training.TuningView:
    """Units, each with its one gradient and its one vote."""
    return of_training.TuningView(of_method(config, config.method.training(), config.budget))
