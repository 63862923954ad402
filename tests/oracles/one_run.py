"""Slow twins of `models.audits.one_run` and of the scores of canaries, written from the papers.

SNJ = Steinke, Nasr and Jagielski 2023; MMC = Mahloujifar, Melis and Chaudhuri 2024.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np


def p_value(canaries: int, count: int, right: int, epsilon: float, delta: float) -> float:
    """SNJ, Theorem 5.2 in exact fractions: the odds of at least so many right guesses."""
    e = Fraction(math.exp(epsilon))
    q = e / (1 + e)

    def at_least(least: int) -> Fraction:
        return sum(
            (math.comb(count, k) * q**k * (1 - q) ** (count - k) for k in range(max(0, least), count + 1)),
            Fraction(0),
        )

    beta = at_least(right)
    alpha = max([(at_least(right - i) - beta) / i for i in range(1, right + 1)], default=Fraction(0))
    return float(min(1, beta + alpha * Fraction(delta) * 2 * canaries))


def contradicts(
    trade_off: Callable[[float], float], canaries: int, count: int, right: int, significance: float
) -> bool:
    """MMC, Algorithm 3 as it is printed, without an early end; `trade_off` is f."""
    h = [0.0] * (right + 1)
    r = [0.0] * (right + 1)
    r[right] = significance * right / canaries
    h[right] = significance * (count - right) / canaries
    for i in range(right - 1, -1, -1):
        h[i] = max(h[i + 1], trade_off(1 - r[i + 1]))
        r[i] = min(1.0, r[i + 1] + i / (count - i) * (h[i] - h[i + 1]))
    return r[0] + h[0] > count / canaries


def ngram_score(
    canary: Sequence[str], corpus: Sequence[Sequence[str]], words: int, smoothing: float
) -> float:
    """The mean log ratio of a pair's probability after its first word to its second word's, by counting."""
    total = sum(len(text) for text in corpus)
    logs = []
    for first, second in zip(canary, canary[1:]):
        pairs = sum(text[i : i + 2] == [first, second] for text in corpus for i in range(len(text) - 1))
        firsts = sum(word == first for text in corpus for word in text[:-1])
        singles = sum(word == second for text in corpus for word in text)
        after = (pairs + smoothing) / (firsts + smoothing * words)
        anywhere = (singles + smoothing) / (total + smoothing * words)
        logs.append(math.log(after / anywhere))
    return sum(logs) / len(logs)


def vote_score(noisy: np.ndarray, votes: np.ndarray, column: int, noise_scale: float) -> float:
    """Log of the odds of one canary where the others are normal with the mean and variance of their coins."""
    others = np.delete(votes, column, axis=1)
    own = votes[:, column]
    covariance = others @ others.T / 4 + noise_scale**2 * np.eye(len(votes))
    inverse = np.linalg.inv(covariance)
    rest = noisy - others.sum(axis=1) / 2
    return float(-((rest - own) @ inverse @ (rest - own)) / 2 + rest @ inverse @ rest / 2)
