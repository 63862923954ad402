"""Votes on whole texts: the records say which texts of a public list they are like (METHOD 4e).

The mechanism of Private Evolution (Lin et al. 2024; Xie et al. 2024 for text). In each of T rounds, for a
list of N candidates and G labels:

    v_u ← a vector over one row of the table, ‖v_u‖₂ <= 1                   `nearest`, `votes_of_unit`
    h   ← Σ_u v_u + discrete Gaussian noise of scale σ on each cell         `noisy_votes`

A vote is a whole number of quanta of 2⁻¹⁰, rounded towards zero in whole numbers, so that the norm of what
one unit adds is at most 1 exactly. README, section 10, has the proof.
"""

import dataclasses
import decimal
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, get_args

import numpy as np

from models.privacy import events
from models.privacy.accounting import losses, normal_pair
from models.privacy.grid import NoiseSource, add_noise
from models.privacy.public_numbers import UNIT_REMEDY, Unit, expect

# A vote in quanta. Of the k nearest each gets 1/√k, which no whole number of votes is.
QUANTA_PER_VOTE: Final = 2**10
# The most that one unit moves the table of a round, in votes, under adding or removing it (L2).
SENSITIVITY: Final = 1.0
# σ is a public setting that people read.
_READABLE_UP = decimal.Context(prec=6, rounding=decimal.ROUND_CEILING)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextVoteParams:
    """Every number that the guarantee of votes on texts depends on. All fields are public.

    Attributes:
        rounds: T, how many tables of votes are released.
        noise_scale: σ > 0, the scale of the discrete Gaussian noise on each cell of a round, in votes.
        nearest: k, the candidates that a record's vote is spread over. It has no part in ρ, and
            hardly one in epsilon.
        unit: The unit of privacy.
        examples_per_context: At most so many of a user's records vote.
    """

    rounds: int
    noise_scale: float
    nearest: int = 1
    unit: Unit = 'example'
    examples_per_context: int = 1

    def __post_init__(self) -> None:
        for name in ('rounds', 'nearest', 'examples_per_context'):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            expect(whole, f'{name} >= 1', name, value, 'Give a positive whole number.')
        _check_noise_scale(self.noise_scale)
        expect(self.unit in get_args(Unit), "unit 'example' or 'user'", 'unit', self.unit, UNIT_REMEDY)
        expect(
            self.unit == 'user' or self.examples_per_context == 1,
            'examples_per_context=1 where each record is a unit', 'examples_per_context',
            self.examples_per_context, 'Give --unit user for votes of several records.',
        )  # fmt: skip

    @property
    def quantum(self) -> float:
        """The smallest part of a vote that is counted."""
        return 1 / QUANTA_PER_VOTE

    @property
    def rho_per_round(self) -> float:
        """1/(2σ²), the zCDP cost of one table of votes."""
        return SENSITIVITY / (2 * self.noise_scale**2)

    @property
    def rho(self) -> float:
        """T/(2σ²), the zCDP cost of all rounds under adding or removing one unit."""
        return self.rounds * self.rho_per_round

    @property
    def rho_under_replacement(self) -> float:
        """The same where one unit is replaced by another: votes are not negative, so ‖v − v′‖² <= 2."""
        return 2 * self.rho

    @property
    def event(self) -> events.DpEvent:
        """All rounds; each may depend on the tables before it."""
        table = events.DiscreteGaussianVectorDpEvent(
            noise_multiplier=self.noise_scale / SENSITIVITY,
            sensitivity=QUANTA_PER_VOTE,
            # Candidates that the records of a unit name; no record names more than k.
            cells=self.nearest * self.examples_per_context,
        )
        return events.SelfComposedDpEvent(event=table, count=self.rounds)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon at delta of all rounds, by the Gaussian that dominates them (section 11)."""
        return losses.epsilon_of_events([self.event], delta)


def solve_noise_scale(
    *, epsilon: float, delta: float, rounds: int, nearest: int = 1, examples_per_context: int = 1
) -> float:
    """The smallest σ of six digits with which all rounds stay within (epsilon, delta).

    `TextVoteParams(...).epsilon(delta)` is the way back.

    Args:
        epsilon: Target, > 0.
        delta: Target, in (0, 1).
        rounds: T.
        nearest: k.
        examples_per_context: Of a user.

    Raises:
        ValueError: `epsilon` is not a positive finite number.
    """
    expect(
        math.isfinite(epsilon) and epsilon > 0, 'epsilon > 0', 'epsilon', epsilon,
        'Votes without noise cannot be released.',
    )  # fmt: skip

    def costs(scale: float) -> float:
        return TextVoteParams(
            rounds=rounds,
            noise_scale=scale,
            nearest=nearest,
            unit='user',  # the one that may have several records; the price is the same
            examples_per_context=examples_per_context,
        ).epsilon(delta)

    # A Gaussian mechanism of that noise costs no more than votes do.
    low = high = math.sqrt(rounds / (2 * normal_pair.rho_from_gaussian(epsilon, delta)))
    while costs(high) > epsilon:
        high *= 2
    while high > low * (1 + 1e-9):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if costs(middle) <= epsilon else (middle, high)
    scale = float(_READABLE_UP.create_decimal_from_float(high))
    while costs(scale) > epsilon:  # at most a rounding step
        scale = float(_READABLE_UP.create_decimal_from_float(math.nextafter(scale, math.inf)))
    return scale


def nearest(similarities: np.ndarray, number: int) -> np.ndarray:
    """The `number` most similar candidates of each record, the most similar first.

    A row of the result is a function of its own row of similarities. Of equal candidates the first in the
    list comes first, so every vote on a text that the list holds twice goes to the first.

    Args:
        similarities: `[r, N]` floats, of records and candidates. What is not finite never wins.
        number: k.

    Returns:
        `[r, min(k, N)]` int64; −1 in the last places of a row that has fewer.

    Raises:
        ValueError: No table, or `number` is not positive.
    """
    expect(similarities.ndim == 2, 'similarities [r, N]', 'shape', similarities.shape,
            'Give one row for each record.')  # fmt: skip
    expect(number >= 1, 'number >= 1', 'number', number, 'Each record votes for one candidate at least.')
    records, candidates = similarities.shape
    indices = np.full((records, min(number, candidates)), -1, np.int64)
    if not indices.size:
        return indices
    left = np.where(np.isfinite(similarities), similarities, -np.inf)
    rows = np.arange(records)
    for place in range(indices.shape[1]):
        best = left.argmax(axis=1)  # the first of equal ones
        indices[:, place] = np.where(np.isneginf(left[rows, best]), -1, best)
        left[rows, best] = -np.inf
    return indices


def votes_of_unit(nearest_of_records: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Votes of one unit in the row of its label: sparse, in quanta.

    A record gives 1/√m to each of the m candidates that it names. Several records of a user add up, and
    their sum is divided by its norm where that is above 1.

    Formal guarantees: all quanta are >= 0, and the sum of their squares is at most `QUANTA_PER_VOTE`²,
    whatever comes in. Both hold exactly: every step is in whole numbers and rounds towards zero.

    Args:
        nearest_of_records: For each record the distinct indices of candidates, a row of `nearest`. Negative
            ones are left out. An empty one votes for nothing: a record whose embedding is zero or not finite.

    Returns:
        Ascending candidates and their quanta, both int64; empty where nobody votes.
    """
    summed: dict[int, int] = {}
    for named in nearest_of_records:
        chosen = sorted({int(candidate) for candidate in named if candidate >= 0})
        for candidate in chosen:
            # ⌊2¹⁰/√m⌋, since the root of a quotient rounded down has the same whole part.
            summed[candidate] = summed.get(candidate, 0) + math.isqrt(QUANTA_PER_VOTE**2 // len(chosen))
    squared = sum(quanta**2 for quanta in summed.values())
    if squared > QUANTA_PER_VOTE**2:
        summed = {
            # ⌊q 2¹⁰/norm⌋: the squares add up to at most 2²⁰ Σ q²/norm² = 2²⁰.
            candidate: math.isqrt(quanta**2 * QUANTA_PER_VOTE**2 // squared)
            for candidate, quanta in summed.items()
        }
    candidates = sorted(summed)
    return (
        np.array(candidates, np.int64),
        np.array([summed[candidate] for candidate in candidates], np.int64),
    )


def noisy_votes(sums: np.ndarray, noise_scale: float, source: NoiseSource) -> np.ndarray:
    """Adds one discrete Gaussian of scale σ votes to each cell.

    The same table, scale and source give the same noise: a second call is no second release.

    Formal guarantees: satisfies zCDP of rho = 1/(2σ²) under adding or removing one unit that adds to the
    table what `votes_of_unit` gives, once; twice that under replacing one. The draws are exact, without
    floating point.

    Args:
        sums: `[G, N]` int64, the quanta of all units; private. An empty row is a row like any other.
        noise_scale: σ, in votes.
        source: The key of the run, and the name of this table: its round and the list that is voted on.

    Returns:
        `[G, N]` int64 quanta. They can be negative.

    Raises:
        ValueError: σ is not a positive finite number, or `sums` is no table of whole numbers.
    """
    _check_noise_scale(noise_scale)
    if sums.ndim != 2 or sums.dtype != np.int64:
        raise ValueError(
            f'Expected sums [labels, candidates] of int64 quanta, got shape={sums.shape!r}, '
            f'dtype={str(sums.dtype)!r}. Add up what votes_of_unit gives.'
        )
    return add_noise(sums, (Fraction(noise_scale) * QUANTA_PER_VOTE) ** 2, source)


def in_votes(quanta: np.ndarray) -> np.ndarray:
    """Quanta as votes, float64. Exact, since a quantum is a power of two."""
    return quanta / QUANTA_PER_VOTE


def _check_noise_scale(noise_scale: float) -> None:
    expect(math.isfinite(noise_scale) and noise_scale > 0, 'a finite noise_scale > 0', 'noise_scale',
            noise_scale, 'Votes without noise cannot be released.')  # fmt: skip
