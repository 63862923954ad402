"""Defaults from public numbers: how many rounds, candidates, and votes of a record."""

import dataclasses
import math

# A text should get so many votes on average as the noise on its count is wide.
_VOTES_OVER_NOISE = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Defaults:
    """What a run does where nobody says otherwise. All of it public.

    Attributes:
        rounds: T.
        candidates: Texts of a round, of all labels.
        nearest: k, of a record's votes.
        children: Texts that are sampled after the last vote, of all labels.
        shots: Texts that a prompt shows.
        fresh_share: Share of a later round that comes from the public prompt.
    """

    rounds: int
    candidates: int
    nearest: int
    children: int
    shots: int = 3
    fresh_share: float = 0.5


def defaults(*, records: int, labels: int, rho: float, examples: int, rounds: int | None = None) -> Defaults:
    """The defaults of a run.

    Args:
        records: Declared units, n.
        labels: Declared labels.
        rho: zCDP budget of all rounds together.
        examples: Texts wanted.
        rounds: T where it was given.
    """
    chosen = rounds or 1
    sigma = math.sqrt(chosen / (2 * rho))
    nearest = 8
    told_apart = records * math.sqrt(nearest) / (_VOTES_OVER_NOISE * sigma)
    candidates = round(min(max(2 * examples, 16 * labels), max(told_apart, 8 * labels)))
    return Defaults(rounds=chosen, candidates=candidates, nearest=nearest, children=examples)


def nearest_for(*, records: int, candidates: int, noise_scale: float) -> int:
    """Texts that a record's vote is spread over where nobody says otherwise.

    Args:
        records: Declared units, n.
        candidates: Texts that are voted on, N.
        noise_scale: σ, in votes.
    """
    return min(8, candidates)


def votes_of_candidate(*, records: float, candidates: int, nearest: int) -> float:
    """Votes that a text gets on average, of the records of all labels: n √k / N.

    Args:
        records: Declared units, n.
        candidates: Texts of a round, N.
        nearest: k.
    """
    return records * math.sqrt(min(nearest, candidates)) / candidates
