"""Defaults from public numbers: rounds, candidates, and how many texts a record's vote is spread over.

Measured with Gemma 3 270M and MiniLM's vectors on 8,000 records of AG News (4 labels) and 5,452 of TREC
(6 labels), by the accuracy of a head on vectors trained on the texts which one round chose, means of four
draws of the noise. A vote spread over N/12 texts came to 0.81 to 0.83 (AG News) and 0.65 (TREC); given to
the 1 to 3 nearest ones to 0.79 to 0.82 and 0.55 to 0.68. Rounds at equal ρ: one came to 0.843 and 0.597, a
second one on the first list and the children together to 0.838 and 0.721, so that is the default.
docs/measured.md has what whole runs came to with these defaults.
"""

import dataclasses
import math

# Each text should get so many votes of a label on average as this times the noise on its count.
_VOTES_OVER_NOISE = 3.0
# A vote is spread over a share of the list between these two.
_LEAST_SHARE, _LARGEST_SHARE = 1 / 16, 1 / 4
# A second round votes on the first list again, beside what was sampled around its survivors: as good a head
# as one round and texts that nobody votes on with AG News, a better one with TREC (0.72 and 0.67 of 120).
_ROUNDS = 2
# Texts to choose each text of the corpus from, and the fewest of each label.
_CANDIDATES_PER_EXAMPLE, _LEAST_PER_LABEL = 2, 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Defaults:
    """Defaults of a run. Public.

    Attributes:
        candidates: Texts of the first round, of all labels.
        children: Texts that each later round adds, of all labels.
        unvoted: Texts that are sampled after the last vote, of all labels.
        nearest: k, of a record's votes.
        fresh_share: Share of a later round's texts that come from the public prompt.
    """

    rounds: int
    candidates: int
    children: int
    unvoted: int
    nearest: int
    shots: int = 3
    fresh_share: float = 0.0

    @property
    def last_list(self) -> int:
        """Texts that the last round votes on, where none is dropped."""
        return self.candidates + (self.rounds - 1) * self.children


def defaults(
    *,
    records: int,
    labels: int,
    rho: float,
    examples: int,
    rounds: int | None = None,
    candidates: int | None = None,
    children: int | None = None,
) -> Defaults:
    """The defaults of a run.

    Args:
        records: Declared units, n.
        labels: Declared labels.
        rho: What all rounds together may cost: T/(2σ²).
        examples: Texts wanted.
        rounds: T where it was given.
        candidates: Texts of the first round where they were given.
        children: Those of a later one where they were given.
    """
    chosen = rounds or _ROUNDS
    sigma = math.sqrt(chosen / (2 * rho))
    size = candidates or _candidates(records=records, labels=labels, noise_scale=sigma, examples=examples)
    return Defaults(
        rounds=chosen,
        candidates=size,
        children=children or min(examples, size),
        unvoted=examples,
        nearest=nearest_for(records=records, candidates=size, noise_scale=sigma, labels=labels),
    )


def _candidates(*, records: int, labels: int, noise_scale: float, examples: int) -> int:
    """N: as many as the corpus wants; no more than the noise lets a vote spread over a quarter tell apart.

    With k = N/4 a text gets n/(2 G √N) votes of its label.
    """
    wanted = max(_CANDIDATES_PER_EXAMPLE * examples, _LEAST_PER_LABEL * labels)
    told_apart = math.floor((records / (2 * labels * noise_scale)) ** 2)
    return min(wanted, max(told_apart, 8 * labels))


def nearest_for(*, records: int, candidates: int, noise_scale: float, labels: int = 1) -> int:
    """Texts that a record's vote is spread over where nobody says otherwise.

    A text gets n √k / (G N) votes of a label on average: k is such that they are 3σ, between N/16 and N/4.

    Args:
        records: Declared units, n.
        candidates: Texts that are voted on, N.
        noise_scale: σ, in votes.
        labels: Declared labels, G; 1 of a run without.
    """
    share = labels * candidates * _VOTES_OVER_NOISE * noise_scale / max(1, records)
    spread = min(max(share**2, _LEAST_SHARE * candidates), _LARGEST_SHARE * candidates)
    return max(1, round(spread))


def votes_of_candidate(*, records: float, candidates: int, nearest: int) -> float:
    """Votes that a text gets on average, of the records of all labels: n √k / N."""
    return records * math.sqrt(min(nearest, candidates)) / candidates
