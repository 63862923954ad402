"""The plan of refining a corpus: its price and its size, before anything is read or paid."""

import dataclasses

from pipeline.estimate import three_digits
from pipeline.methods.method import RunPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class RefinePlan(RunPlan):
    """What refining a corpus would release and cost. All fields are public.

    Attributes:
        candidates: Texts that are voted on.
        nearest: k: texts that a record's vote is spread over.
        vote_noise: σ, the scale of the noise on a count, in votes.
        votes_of_candidate: Votes that a text gets on average.
        examples: Texts that stay at the most.
        rho_total: Cost of the votes.
        epsilon: At `delta`.
    """

    candidates: int
    nearest: int
    vote_noise: float
    votes_of_candidate: float
    examples: int
    rho_total: float
    epsilon: float

    def guarantee(self) -> str:
        return f'ε = {self.epsilon:.6g} at δ = {self.delta:.6g}'

    def size(self) -> str:
        return f'votes on {self.candidates:,} texts, of which {self.examples:,} stay at the most'

    def rows(self) -> list[tuple[str, str]]:
        shared = '' if self.nearest == 1 else f', spread over the {self.nearest} nearest'
        rows = [
            ('Guarantee', self.guarantee()),
            ('Texts', f'{self.candidates:,}, of which {self.examples:,} stay at the most'),
            (
                'Votes',
                f'{three_digits(self.votes_of_candidate)} for a text on average, beside noise of scale '
                f'{self.vote_noise:.4g}; one vote of a record{shared}',
            ),
        ]
        if self.estimate is not None:
            rows += self.estimate.rows()
        return rows if self.budget is None else [*rows, *self.budget.rows(self.delta)]
