"""The plan of a run of votes on texts: its price and its size, before anything is read or paid."""

import dataclasses
import json
from collections.abc import Iterator

from models.evolution.defaults import votes_of_candidate
from models.privacy.report import words
from pipeline import calibration
from pipeline.calibration import Calibration, duration, three_digits
from pipeline.ledger.answer import BudgetAnswer
from pipeline.methods.evolve import estimate
from pipeline.methods.evolve.estimate import EvolutionEstimate
from pipeline.methods.evolve.run import VotingRun
from pipeline.methods.evolve.settings import EvolveSettings
from pipeline.methods.method import RunPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class VotingPlan(RunPlan):
    """What a run of votes on texts would release and cost. All fields are public.

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
        if not self.sampled_texts:
            return f'votes on {self.candidates:,} texts, of which {self.examples:,} stay at the most'
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


def plan_run(
    run: VotingRun, rates: Calibration | None = None, budget: BudgetAnswer | None = None
) -> VotingPlan:
    """The plan of a run, with how long it would take where rates are given, and what a ledger says of it."""
    params, sizes, own = run.params, run.sizes, run.method
    votes = votes_of_candidate(
        records=run.input.sampled_records or 0.0, candidates=sizes.last_list, nearest=params.nearest
    )
    estimated = None
    if rates is not None and isinstance(own, EvolveSettings):
        estimated = estimate.estimate(run, own, rates)
    return VotingPlan(
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
        delta=run.delta,
        estimate=estimated,
        budget=budget,
        warnings=tuple(_warnings(run, votes)),
    )


def _warnings(run: VotingRun, votes: float) -> Iterator[str]:
    """What to think about before a run, from public numbers alone."""
    records, noise = run.input.records, run.params.noise_scale
    many = 'users' if run.budget.unit == 'user' else 'records'
    if records is not None and run.delta * records >= 1:
        yield words.delta_relation(run.delta, records, 'declared', many)
    if votes < noise / 2:
        fewer = 'Lower --candidates or --rounds' if run.sampled_texts else 'Give fewer texts'
        yield (
            f'A text gets {three_digits(votes)} votes on average, and the noise on a count has the scale '
            f'{noise:.4g}: the votes drown in it. {fewer}, raise --nearest or '
            f'--epsilon, or bring more {many}.'
        )
    if run.sampled_texts and run.examples > 2 * run.sampled_texts:
        yield (f'{run.examples:,} texts are wanted and {run.sampled_texts:,} sampled: raise --candidates.')
