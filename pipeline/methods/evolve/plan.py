"""The plan of a run of votes on texts: its price and its size, before anything is read or paid."""

import dataclasses

from models.evolution.defaults import votes_of_candidate
from models.privacy.report import words
from models.privacy.text_votes import TextVoteParams
from pipeline.estimate import duration, three_digits
from pipeline.methods.evolve import estimate, mechanism
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
        embedding_hours: Hours of one core for the embeddings of all records.
        at_endpoint: Whether an endpoint samples the texts, at a pace that is not known here.
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
        rounds = 'one round' if self.rounds == 1 else f'{self.rounds} rounds'
        return f'{rounds} of votes on {self.candidates:,} texts, then a corpus of {self.examples:,}'

    def written_texts(self) -> int:
        return self.examples

    def computing_hours(self) -> float | None:
        decoding = super().computing_hours()
        return None if decoding is None or self.at_endpoint else decoding + self.embedding_hours

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
        if self.at_endpoint:
            rows.append(('Sampling', 'at the pace of the endpoint'))
        if self.embedding_hours:
            rows.append(('Embedding', f'about {duration(self.embedding_hours)} of one core'))
        if self.estimate is not None:
            rows += self.estimate.rows()
        if self.budget is not None:
            rows += self.budget.rows(self.delta)
        return rows


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
        embedding_hours=estimate.embedding_hours(config),
        at_endpoint=config.method.endpoint is not None,
        delta=config.resolved_delta,
        warnings=tuple(_warnings(config, params, found.last_list)),
    )


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
        found.append(words.delta_relation(delta, records, 'declared', many))
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
