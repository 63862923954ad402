"""A guess about one unit, before and after a release: (epsilon, delta) in words for those who judge it.

Somebody has a guess before reading the output: a probability `prior` that a statement about one unit is true.
Bayes' rule turns it into a guess after reading. Two kinds of statements differ in how many steps of the
neighbouring relation lie between a world in which they are true and one in which they are not:

    the unit is in the input            one step: the unit is added, or removed
    the unit, known to be in the        two steps: one unit is removed, and another one is added
    input, says one thing, and not
    another

README, section 1, has the proof, and what delta adds.
"""

import dataclasses
import math

# From here on a guess of one half can come close to certainty, and epsilon by itself promises little.
NEAR_CERTAINTY = 0.99


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guess:
    """The range of a guess after reading.

    The complements are values of their own: a guess very near to 1 keeps its digits there.

    Attributes:
        least_complement: 1 − `least`.
        most_complement: 1 − `most`.
    """

    least: float
    most: float
    least_complement: float
    most_complement: float


def guess_after(prior: float, epsilon: float) -> Guess:
    """The largest guess after a release whose outputs are at most e^epsilon times as likely in one world.

    Bayes' rule multiplies the odds of the guess by that ratio, so they change by e^epsilon at most, upwards
    or downwards.

    Args:
        prior: The probability before reading, in (0, 1).
        epsilon: >= 0.

    Raises:
        ValueError: A value outside of its range.

    >>> guess = guess_after(0.5, 1.0)
    >>> round(guess.least, 4), round(guess.most, 4)
    (0.2689, 0.7311)
    """
    if not 0 < prior < 1:
        raise ValueError(f'Expected 0 < prior < 1, got prior={prior!r}. A guess that is sure cannot change.')
    if not epsilon >= 0:
        raise ValueError(f'Expected epsilon >= 0, got epsilon={epsilon!r}. Take that of a report.')
    log_odds = math.log(prior) - math.log1p(-prior)
    return Guess(
        least=_probability(log_odds - epsilon),
        most=_probability(log_odds + epsilon),
        least_complement=_probability(epsilon - log_odds),
        most_complement=_probability(-log_odds - epsilon),
    )


def of_contents(epsilon: float, delta: float) -> tuple[float, float]:
    """The (epsilon, delta) between two inputs in which one unit says different things: two steps.

    Args:
        epsilon: Of one step, >= 0.
        delta: Of one step.

    Returns:
        2 epsilon and (1 + e^epsilon) delta, at most 1.

    >>> of_contents(0.0, 1e-6)
    (0.0, 2e-06)
    """
    # e^700 still is a float.
    return 2 * epsilon, min(1.0, delta * (1 + math.exp(min(epsilon, 700.0))))


def _probability(log_odds: float) -> float:
    if log_odds >= 0:
        return 1 / (1 + math.exp(-log_odds))
    odds = math.exp(log_odds)
    return odds / (1 + odds)
