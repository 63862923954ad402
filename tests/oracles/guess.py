"""Slow twins of guesses about one unit: worlds with a few outputs, by Bayes' rule and by adding up.

A world is a tuple of probabilities of its outputs, in fractions.
"""

import fractions
from collections.abc import Sequence

World = Sequence[fractions.Fraction]


def guesses(prior: fractions.Fraction, one: World, other: World) -> list[fractions.Fraction]:
    """The probability of `one` after each output that can come, by Bayes' rule."""
    found = []
    for here, there in zip(one, other, strict=True):
        total = prior * here + (1 - prior) * there
        if total:
            found.append(prior * here / total)
    return found


def chance_to_be_right(prior: fractions.Fraction, one: World, other: World) -> fractions.Fraction:
    """The probability that the best guess at the world is right."""
    return sum(
        (max(prior * here, (1 - prior) * there) for here, there in zip(one, other, strict=True)),
        start=fractions.Fraction(0),
    )


def delta_between(ratio: fractions.Fraction, one: World, other: World) -> fractions.Fraction:
    """The smallest delta with which no set of outputs is more than `ratio` times as likely, in both ways."""
    return max(
        sum(
            (max(fractions.Fraction(0), a - ratio * b) for a, b in zip(*pair, strict=True)),
            fractions.Fraction(0),
        )
        for pair in ((one, other), (other, one))
    )


def worst(ratio: fractions.Fraction, delta: fractions.Fraction) -> tuple[World, World]:
    """The worst pair of worlds: with probability delta it is told, else an answer that may be a lie."""
    told, rest = delta, 1 - delta
    true, lie = rest * ratio / (1 + ratio), rest / (1 + ratio)
    nothing = fractions.Fraction(0)
    return (told, true, lie, nothing), (nothing, lie, true, told)
