"""Canaries: made-up units, each in the run by a coin of its own, and what a release tells of them.

An attacker with the text alone needs canaries that the corpus can repeat: an in-distribution prefix, so that
the model writes on from it, and an improbable suffix, so that nothing else makes the model write it (Meeus
et al. 2025, "The canary's echo").
"""

import collections
import math
import re
from collections.abc import Sequence

import numpy as np

from models.privacy.gradients import TuningParams

_WORDS = (
    'apple', 'bridge', 'candle', 'desert', 'engine', 'feather', 'garden', 'hammer', 'island', 'jacket',
    'kitchen', 'lemon', 'mirror', 'needle', 'ocean', 'pencil', 'quarter', 'ribbon', 'silver', 'tunnel',
    'umbrella', 'valley', 'window', 'yellow', 'anchor', 'basket', 'copper', 'dragon', 'eleven', 'forest',
    'guitar', 'hollow', 'iron', 'jungle', 'kettle', 'ladder', 'marble', 'napkin', 'orange', 'pocket',
    'quilt', 'river', 'saddle', 'temple', 'urgent', 'velvet', 'walnut', 'youth', 'zipper',
)  # fmt: skip
_SUFFIX_WORDS = 6
_PREFIX_WORDS = 8
# Prefixes where no record gives one.
_PREFIXES = ('The report of the day says that', 'I am writing to you because', 'It was found that the')
# Added to every count, so that an unseen word has a probability too.
_SMOOTHING = 0.1


def suffixes(count: int, seed: int) -> list[str]:
    """Words in an order that nobody writes, different for every canary."""
    rng = np.random.default_rng([seed, 2])
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        chosen = rng.choice(len(_WORDS), _SUFFIX_WORDS, replace=False)
        drawn[' '.join(_WORDS[word] for word in chosen)] = None
    return list(drawn)


def texts(count: int, seed: int, sources: Sequence[str] = ()) -> list[str]:
    """The texts of canaries: the first words of a source, and a suffix of its own.

    Args:
        count: m.
        seed: Of the suffixes and of which source a canary takes.
        sources: Texts of the records' kind; none for prefixes of no kind.
    """
    rng = np.random.default_rng([seed, 3])
    prefixes = [' '.join(source.split()[:_PREFIX_WORDS]) for source in sources] or list(_PREFIXES)
    return [f'{prefixes[int(rng.integers(len(prefixes)))]} {suffix}.' for suffix in suffixes(count, seed)]


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r'\w+', text.lower())


def ngram_scores(canaries: Sequence[str], corpus: Sequence[str]) -> np.ndarray:
    """The gain in each canary's likelihood from a corpus over its words alone, in nats per pair of words.

    The score is the mean, over the pairs of neighbouring words of a canary, of the log of the smoothed
    probability of the second word after the first over that of the second word anywhere, both in the corpus.

    Returns:
        `[m]` float64; 0 for a canary of one word.
    """
    singles: collections.Counter[str] = collections.Counter()
    firsts: collections.Counter[str] = collections.Counter()
    pairs: collections.Counter[tuple[str, str]] = collections.Counter()
    for text in corpus:
        words = words_of(text)
        singles.update(words)
        firsts.update(words[:-1])
        pairs.update(zip(words, words[1:]))
    of_canaries = [words_of(text) for text in canaries]
    vocabulary = len(singles.keys() | {word for words in of_canaries for word in words})
    total = singles.total()
    scores = []
    for words in of_canaries:
        logs = [
            math.log((pairs[first, second] + _SMOOTHING) / (firsts[first] + _SMOOTHING * vocabulary))
            - math.log((singles[second] + _SMOOTHING) / (total + _SMOOTHING * vocabulary))
            for first, second in zip(words, words[1:])
        ]
        scores.append(math.fsum(logs) / len(logs) if logs else 0.0)
    return np.array(scores)


def vote_scores(noisy: np.ndarray, votes: np.ndarray, noise_scale: float) -> np.ndarray:
    """The log odds that each canary's votes are in noisy sums.

    Other canaries vote for the same cells, each with odds of one half: to the attacker they are noise of a
    known covariance, V V'/4 without its own column, beside that of the mechanism.

    Args:
        noisy: `[N]`, noisy votes without those of the records that the attacker knows.
        votes: V `[N m]`, what each canary adds if it is in.
        noise_scale: σ.

    Returns:
        `[m]` float64; positive ones speak for "in".
    """
    from scipy import sparse
    from scipy.sparse import csgraph

    scores = np.zeros(votes.shape[1])
    # Canaries that share no cell have nothing to do with one another.
    graph = sparse.csr_array(votes != 0)
    _, part = csgraph.connected_components(graph.T @ graph, directed=False)
    expected = votes.sum(axis=1) / 2
    order = np.argsort(part, kind='stable')
    for columns in np.split(order, np.flatnonzero(np.diff(part[order])) + 1):
        cells = np.flatnonzero(votes[:, columns].any(axis=1))
        block = votes[np.ix_(cells, columns)]
        covariance = block @ block.T / 4 + noise_scale**2 * np.eye(len(cells))
        weighted = np.linalg.solve(covariance, block)
        along = (weighted * block).sum(axis=0)
        # Sherman and Morrison: the own column is taken out of the covariance.
        scores[columns] = weighted.T @ (noisy - expected)[cells] / (1 - along / 4)
    return scores


def gradient_scores(components: np.ndarray, params: TuningParams) -> np.ndarray:
    """Log of the odds that a Poisson sample of steps holds each canary of one component, `[m]`.

    Of a step's component y the odds are 1 − q + q exp((y − C/2) C/σ²), as of noise alone or of C beside it.

    Args:
        components: Noisy sums at the canaries' components, `[T m]`.
        params: The mechanism.
    """
    clip, q = params.clip_norm, params.sampling_probability
    exponents = (components - clip / 2) * clip / params.noise_scale**2
    with np.errstate(divide='ignore'):
        silent = np.log1p(-q) if q < 1 else -math.inf
    return np.logaddexp(silent, math.log(q) + exponents).sum(axis=0)
