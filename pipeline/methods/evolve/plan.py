"""The plan of a run of votes on texts: its price and its size, before anything is read or paid."""

import dataclasses
import json

from models.evolution.defaults import votes_of_candidate
from models.privacy.report import words
from models.privacy.text_votes import TextVoteParams
from pipeline import calibration
from pipeline.calibration import Calibration, duration, three_digits
from pipeline.ledger.answer import BudgetAnswer
from pipeline.methods.evolve import estimate, mechanism
from pipeline.methods.evolve.estimate import EvolutionEstimate
from pipeline.methods.evolve.mechanism import Config
from pipeline.methods.method import RunPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvolutionPlan(RunPlan):
    """What a run of votes on texts would release and cost. All fields are public.

    Attributes:
        rounds: T.
        candidates: Texts of the first round, of all labels.
        children: Texts that each later round adds, of all labels.
        nearest: k: texts that a record's vote is spread over.
        vote_noise: σ, the scale of the noise on a count, in votes.
        votes_of_candidate: Votes that a text gets on average.
        sampled_texts: Texts that are sampled in all, those after the last vote among them.
        examples: Texts of the corpus.
        rho_total: Cost of all rounds.
        epsilon: At `delta`.
        delta: As given, or from the declared number of units.
        estimate: How long it would take; None where no rates were asked for.
        budget: What the ledger says of it; None where no ledger was asked.
        warnings: What to think about before the run, in sentences.
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
    delta: float
    estimate: EvolutionEstimate | None = None
    budget: BudgetAnswer | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The plan as one JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    def guarantee(self) -> str:
        return f'ε = {self.epsilon:.6g} at δ = {self.delta:.6g}'

    def size(self) -> str:
        rounds = 'one round' if self.rounds == 1 else f'{self.rounds} rounds'
        return f'{rounds} of votes on {self.candidates:,} texts, then a corpus of {self.examples:,}'

    def written_texts(self) -> int:
        return self.examples

    def computing_hours(self) -> float | None:
        if self.estimate is None or self.estimate.sampling_hours is None:
            return None
        return self.estimate.sampling_hours + self.estimate.embedding_hours

    def rows(self) -> list[tuple[str, str]]:
        shared = '' if self.nearest == 1 else f', spread over the {self.nearest} nearest'
        rows = [
            ('Guarantee', self.guarantee()),
            (
                'Rounds',
                f'{self.rounds:,}, the first with votes on {self.candidates:,} texts of all labels'
                + (f'; each later one adds {self.children:,}' if self.rounds > 1 else ''),
            ),
            (
                'Votes',
                f'{three_digits(self.votes_of_candidate)} for a text on average, beside noise of scale '
                f'{self.vote_noise:.4g}; one vote of a record{shared}',
            ),
            ('Texts', f'{self.sampled_texts:,} are sampled, {self.examples:,} are kept'),
        ]
        if self.estimate is not None:
            rows += self._estimate_rows(self.estimate)
        if self.budget is not None:
            rows += self.budget.rows(self.delta)
        return rows

    def _estimate_rows(self, found: EvolutionEstimate) -> list[tuple[str, str]]:
        """The estimate, and what it rests on."""
        sampling = 'at the pace of the endpoint'
        if found.sampling_hours is not None:
            sampling = f'up to {duration(found.sampling_hours)} in {found.dtype}'
        return [
            ('Sampling', sampling),
            ('Embedding', f'about {duration(found.embedding_hours)} of one core'),
            ('Memory', f'{found.memory_bytes / 2**30:.1f} GiB at the least'),
            ('Estimated', calibration.source(found.device, found.measured_on)),
        ]


def plan_run(config: Config) -> EvolutionPlan:
    """The plan of a config, which alone decides it."""
    params, found = mechanism.params(config), mechanism.resolved(config)
    return EvolutionPlan(
        rounds=params.rounds,
        candidates=found.candidates,
        children=found.children,
        nearest=params.nearest,
        vote_noise=params.noise_scale,
        votes_of_candidate=_votes(config, params, found.last_list),
        sampled_texts=mechanism.sampled_texts(config),
        examples=config.method.examples,
        rho_total=params.rho,
        epsilon=params.epsilon(config.resolved_delta),
        delta=config.resolved_delta,
        warnings=tuple(_warnings(config, params, found.last_list)),
    )


def with_rates(plan: EvolutionPlan, config: Config, rates: Calibration) -> EvolutionPlan:
    """The plan with an estimate of its time on a device of these rates."""
    return dataclasses.replace(plan, estimate=estimate.estimate(config, rates))


def _votes(config: Config, params: TextVoteParams, candidates: int) -> float:
    """Votes that a text gets on average."""
    records = config.input.sampled_records or 0.0
    return votes_of_candidate(records=records, candidates=candidates, nearest=params.nearest)


def _warnings(config: Config, params: TextVoteParams, candidates: int) -> list[str]:
    """What to think about before a run, from public numbers alone."""
    found = []
    delta, records = config.resolved_delta, config.input.records
    many = 'users' if config.budget.unit == 'user' else 'records'
    if records is not None and delta * records >= 1:
        found.append(words.macro('delta_relation', delta, records, 'declared', many))
    votes = _votes(config, params, candidates)
    if votes < params.noise_scale / 2:
        found.append(
            f'A text gets {three_digits(votes)} votes on average, and the noise on a count has the scale '
            f'{params.noise_scale:.4g}: the votes drown in it. Lower --candidates or --rounds, raise '
            f'--nearest or --epsilon, or bring more {many}.'
        )
    if config.method.examples > 2 * mechanism.sampled_texts(config):
        found.append(
            f'{config.method.examples:,} texts are wanted and {mechanism.sampled_texts(config):,} sampled: '
            'raise --candidates.'
        )
    return found
