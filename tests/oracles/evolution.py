"""The fate of released votes (METHOD 4e, step 4), one text at a time."""

import fractions
import math
from collections.abc import Sequence

import numpy as np


def vote_field(
    votes: Sequence[float],
    embeddings: np.ndarray,
    at: np.ndarray,
    *,
    sigma: float,
    width: float,
    strength: float,
) -> list[float]:
    """The mean of a Gaussian process given noisy values of it (Rasmussen and Williams 2006, eq. 2.25).

    Args:
        votes: Votes of one label.
        embeddings: Points at which they were cast.
        at: Points at which the mean is wanted.
        sigma: Standard deviation of the noise.
        width: Width of the kernel.
        strength: s², the variance of the process.
    """

    def kernel(one: np.ndarray, other: np.ndarray) -> float:
        return strength * math.exp(-(math.dist(one, other) ** 2) / (2 * width**2))

    mean = math.fsum(votes) / len(votes)
    covariance = np.array([[kernel(one, other) for other in embeddings] for one in embeddings])
    solved = np.linalg.solve(covariance + sigma**2 * np.eye(len(votes)), np.array(votes) - mean)
    return [
        mean
        + math.fsum(kernel(one, other) * weight for other, weight in zip(embeddings, solved, strict=True))
        for one in at
    ]


def asked_share(
    asked: Sequence[int], label: int, embeddings: np.ndarray, text: int, *, width: float, ridge: float
) -> float:
    """The share that the other texts predict of one, by a kernel ridge regression that never saw it."""
    others = [place for place in range(len(asked)) if place != text]

    def kernel(one: int, other: int) -> float:
        return math.exp(-(math.dist(embeddings[one], embeddings[other]) ** 2) / (2 * width**2))

    matrix = np.array([[kernel(one, other) for other in others] for one in others])
    wanted = np.array([float(asked[place] == label) for place in others])
    solved = np.linalg.solve(matrix + ridge * np.eye(len(others)), wanted)
    return math.fsum(kernel(text, place) * weight for place, weight in zip(others, solved, strict=True))


def leads(votes: np.ndarray, shares: np.ndarray, sigma: float) -> list[float]:
    """Slopes of votes over shares of each label, drawn towards their mean as far as noise spreads them."""
    slopes, variances = [], []
    for row, share in zip(votes, shares, strict=True):
        mean = math.fsum(share) / len(share)
        squares = math.fsum((one - mean) ** 2 for one in share)
        slopes.append(math.fsum((one - mean) * vote for one, vote in zip(share, row, strict=True)) / squares)
        variances.append(sigma**2 / squares)
    whole = math.fsum(1 / each for each in variances)
    common = math.fsum(slope / each for slope, each in zip(slopes, variances, strict=True)) / whole
    beyond = [(slope - common) ** 2 - each for slope, each in zip(slopes, variances, strict=True)]
    spread = max(0.0, math.fsum(beyond) / len(beyond))
    drawn = [
        common + (slope - common) * spread / (spread + each)
        for slope, each in zip(slopes, variances, strict=True)
    ]
    return [max(0.0, lead) for lead in drawn]


def log_likelihood(
    votes: Sequence[float], embeddings: np.ndarray, *, sigma: float, width: float, strength: float
) -> float:
    """The log density of votes about their mean, less its constant (eq. 5.8 there)."""
    squares = np.array([[math.dist(one, other) ** 2 for other in embeddings] for one in embeddings])
    covariance = strength * np.exp(-squares / (2 * width**2)) + sigma**2 * np.eye(len(votes))
    y = np.array(votes) - np.mean(votes)
    return float(-0.5 * y @ np.linalg.solve(covariance, y) - 0.5 * np.linalg.slogdet(covariance)[1])


def label_scores(
    counts: Sequence[Sequence[float]], totals: Sequence[float], sigma: float
) -> list[list[float]]:
    """For each text, each label's share of its own total, as a share of the sum over labels."""
    texts = len(counts[0])
    found = []
    for text in range(texts):
        shares = []
        for row, total in zip(counts, totals, strict=True):
            least = 2 * sigma * math.sqrt(texts)
            shares.append(max(row[text], 0) / (total if total > least else least))
        whole = math.fsum(shares)
        found.append([share / whole if whole > 0 else 1 / len(counts) for share in shares])
    return [[of_text[label] for of_text in found] for label in range(len(counts))]


def survivors(counts: Sequence[int], number: int) -> list[int]:
    """Walks along the counts laid end to end, and takes the text at each of equally spaced points."""
    weights = [max(count, 0) for count in counts]
    if not sum(weights):
        weights = [1] * len(weights)
    found = []
    for index in range(number):
        left = fractions.Fraction(2 * index + 1, 2 * number) * sum(weights)
        for place, weight in enumerate(weights):
            left -= weight
            if left < 0:
                found.append(place)
                break
    return found


def favoured(counts: Sequence[int], share: fractions.Fraction, least: int) -> list[int]:
    """Walks from the best text down, and gives each what it has above the first that is left out."""
    best = max(least, round(share * len(counts)))
    ranked = sorted(counts, reverse=True)
    if best >= len(counts):
        return [count - min(0, *counts) for count in counts] if len(counts) else []
    return [max(count - ranked[best], 0) for count in counts]


def distinct(texts: Sequence[str], embeddings: np.ndarray, most_alike: float) -> list[bool]:
    """Compares each text with each kept one before it."""

    def words(text: str) -> list[str]:
        parts = []
        for part in text.casefold().split():
            starts = [part.find(start) for start in ('http://', 'https://', 'www.')]
            parts.append(part[: min((at for at in starts if at >= 0), default=len(part))])
        letters = (letter if letter.isalnum() or letter == '_' else ' ' for letter in ' '.join(parts))
        return ''.join(letters).split()

    kept: list[int] = []
    for place, text in enumerate(texts):
        alike = [
            other
            for other in kept
            if words(texts[other]) == words(text)
            or (most_alike < 1 and float(embeddings[other] @ embeddings[place]) > most_alike)
        ]
        if words(text) and not alike:
            kept.append(place)
    return [place in kept for place in range(len(texts))]


def fitness(scores: Sequence[Sequence[float]], counts: Sequence[Sequence[float]]) -> list[float]:
    """Votes of the best label · (its score less the next one's)^¼, text by text."""
    found = []
    for text in range(len(scores[0])):
        ranked = sorted(range(len(scores)), key=lambda label: (-scores[label][text], label))
        best, *others = ranked
        clear = scores[best][text] - scores[others[0]][text] if others else 1.0
        found.append(max(counts[best][text], 0) * math.sqrt(math.sqrt(clear)))
    return found


def corpus(
    scores: Sequence[Sequence[float]],
    numbers: Sequence[int],
    fitness: Sequence[float],
    embeddings: Sequence[Sequence[float]],
    variety: float,
) -> list[tuple[int, int]]:
    """(text, label) of the corpus: for each label, one at a time, the best and least alike."""

    def likeness(one: int, other: int) -> float:
        return sum(a * b for a, b in zip(embeddings[one], embeddings[other], strict=True))

    found = []
    for label, number in enumerate(numbers):
        own = [
            text
            for text in range(len(fitness))
            if label == max(range(len(scores)), key=lambda each: (scores[each][text], -each))
        ]
        largest = max([fitness[text] for text in own], default=0.0) or 1.0
        chosen: list[int] = []
        while len(chosen) < min(number, len(own)):
            value = {
                text: (1 - variety) * fitness[text] / largest
                - variety * max([0.0, *(likeness(text, other) for other in chosen)])
                for text in own
                if text not in chosen
            }
            chosen.append(max(value, key=lambda text: (value[text], fitness[text], -text)))
        found += [(text, label) for text in chosen]
    return found
