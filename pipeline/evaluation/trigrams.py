"""Sets of word trigrams, and an exact search for the text that shares most of them, in blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse

from pipeline.evaluation.words import WordedTexts

# |g(a) ∩ g(b)|, |g(a)| and |g(b)|, which broadcast, to a similarity in [0, 1].
type Similarity = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

_BLOCK_ROWS = 256
# A trigram of so many pairs of texts is multiplied as a dense column: phrases of a form that all texts
# fill in would otherwise make a sparse product as slow as the square of the texts.
_DENSE_SHARE_OF_PAIRS = 0.005


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Nearest:
    """For each text the most similar one of others.

    Attributes:
        similarities: `[n]` float64; 0 for a text that shares no trigram with any.
        indices: Which of the others it is, `[n]` int64, the first of equals.
    """

    similarities: np.ndarray = dataclasses.field(repr=False)
    indices: np.ndarray = dataclasses.field(repr=False)


def overlap(shared: np.ndarray, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """|a ∩ b| / min(|a|, |b|)."""
    return shared / np.maximum(np.minimum(ones, others), 1)


def jaccard(shared: np.ndarray, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """|a ∩ b| / |a ∪ b|."""
    return shared / np.maximum(ones + others - shared, 1)


def trigram_sets(sources: Sequence[WordedTexts]) -> list[sparse.csr_array]:
    """The set of trigrams of each text, as rows of zeros and ones.

    Args:
        sources: Read together.

    Returns:
        One `[n, t]` float32 for each source; t trigrams occur in any. A text of fewer than three words
        has none.
    """
    rows, grams = [], []
    for source in sources:
        places = np.flatnonzero(_texts_of(source)[2:] == _texts_of(source)[:-2])
        rows.append(_texts_of(source)[places])
        grams.append(np.stack([source.ids[places + shift] for shift in range(3)]))
    # By pairs, for three numbers of words do not always fit into 64 bits.
    first, second, third = np.concatenate(grams, axis=1)
    _, pairs = np.unique(first * (second.max(initial=0) + 1) + second, return_inverse=True)
    kinds, columns = np.unique(pairs * (third.max(initial=0) + 1) + third, return_inverse=True)
    sets, start = [], 0
    for source, row in zip(sources, rows):
        column = columns[start : start + len(row)]
        start += len(row)
        counts = sparse.csr_array(
            (np.ones(len(row), np.float32), (row, column)), shape=(len(source.texts), len(kinds))
        )
        counts.sum_duplicates()
        counts.data[:] = 1
        sets.append(counts)
    return sets


def nearest(ones: sparse.csr_array, others: sparse.csr_array, similarity: Similarity) -> Nearest:
    """The most similar of others for each text, by comparing it with all of them.

    Args:
        ones: Sets of trigrams `[n, t]`.
        others: Sets of trigrams `[m, t]`, m > 0.
        similarity: `overlap` or `jaccard`.
    """
    pairs = np.asarray(ones.sum(axis=0)) * np.asarray(others.sum(axis=0))
    is_dense = pairs > _DENSE_SHARE_OF_PAIRS * ones.shape[0] * others.shape[0]
    shared_columns = np.flatnonzero((pairs > 0) & ~is_dense)
    dense_columns = np.flatnonzero(is_dense)
    rare = others[:, shared_columns].T.tocsr()
    frequent = others[:, dense_columns].toarray().T
    ones_rare, ones_frequent = ones[:, shared_columns], ones[:, dense_columns]
    one_sizes, other_sizes = (np.asarray(sets.sum(axis=1), np.float32) for sets in (ones, others))
    similarities = np.zeros(ones.shape[0])
    indices = np.zeros(ones.shape[0], np.int64)
    for start in range(0, ones.shape[0], _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        # Sums of at most 2^24 ones: exact in float32.
        shared = (ones_rare[block] @ rare).toarray() + ones_frequent[block].toarray() @ frequent
        scores = similarity(shared, one_sizes[block, np.newaxis], other_sizes[np.newaxis])
        indices[block] = scores.argmax(axis=1)
        similarities[block] = scores.max(axis=1)
    return Nearest(similarities=similarities, indices=indices)


def _texts_of(source: WordedTexts) -> np.ndarray:
    """The text of each word, `[w]` int64."""
    return np.repeat(np.arange(len(source.texts)), np.diff(source.bounds))
