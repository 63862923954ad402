"""DP k-means' tree of leaves, embedders and nearest centres (METHOD 3), one value at a time."""

import collections
import fractions
import math
import unicodedata
from collections.abc import Sequence

import numpy as np
from scipy import stats


def prefix_tree_leaves(signs: Sequence[Sequence[bool]], *, smallest: int) -> set[frozenset[int]]:
    """The rows of each leaf of the tree without noise, node by node from the root.

    A node of `3 * smallest` rows splits by its level's sign; a child of fewer than
    `smallest` rows is cut off; a node without children is a leaf.

    Args:
        signs: One tuple of signs per row, one sign per level.
        smallest: The least rows of a node.
    """

    def walk(rows: list[int], level: int) -> set[frozenset[int]]:
        if level == len(signs[0]) or len(rows) < 3 * smallest:
            return {frozenset(rows)}
        sides = [[row for row in rows if bool(signs[row][level]) is side] for side in (False, True)]
        kept = [side for side in sides if len(side) >= smallest]
        return set().union(*(walk(side, level + 1) for side in kept)) if kept else {frozenset(rows)}

    return walk(list(range(len(signs))), 0)


def nearest(embeddings: np.ndarray, centers: np.ndarray, kept: Sequence[int] | None = None) -> list[int]:
    """arg min |x − c|² over the kept centres in exact fractions; ties to the smaller index.

    |x|² is the same for all, so |c|² − 2 x·c decides, rounded once to float64.
    """
    answers = []
    for row in embeddings:
        x = [fractions.Fraction(float(value)) for value in row]
        scores = {}
        for index in range(len(centers)) if kept is None else kept:
            c = [fractions.Fraction(float(value)) for value in centers[index]]
            scores[index] = float(sum(ci * ci - 2 * xi * ci for xi, ci in zip(x, c, strict=True)))
        answers.append(min(scores, key=lambda index: (scores[index], index)))
    return answers


def tfidf_embedding(text: str, terms: Sequence[str], idf: np.ndarray, components: np.ndarray) -> np.ndarray:
    """(1 + ln tf) · idf of each known word, to length 1; on the components, to length 1 again."""
    letters = unicodedata.normalize('NFKD', text.lower())
    letters = ''.join(letter for letter in letters if not unicodedata.combining(letter))
    # A mark or a space ends a word; a digit or underscore makes it no word at all.
    words = ''.join(letter if letter.isalnum() or letter == '_' else ' ' for letter in letters).split()
    column = {term: index for index, term in enumerate(terms)}
    counts = collections.Counter(word for word in words if word.isalpha() and word in column)
    weights = {word: (1 + math.log(count)) * float(idf[column[word]]) for word, count in counts.items()}
    length = math.sqrt(sum(weight**2 for weight in weights.values()))
    vector = np.zeros(len(components))
    for word, weight in weights.items():
        vector += weight / length * components[:, column[word]].astype(np.float64)
    norm = math.sqrt(sum(value**2 for value in vector))
    return vector / norm if norm else vector


def bert_mean_state(
    weights: dict[str, np.ndarray], ids: Sequence[int], heads: int, layers: int, epsilon: float
) -> np.ndarray:
    """Mean of BERT's last states over one text's tokens, in float64 (Devlin et al. 2019).

    One text, no padding, one head and one position at a time.
    """

    def tensor(name: str) -> np.ndarray:
        return weights[name].astype(np.float64)

    def dense(name: str, x: np.ndarray) -> np.ndarray:
        return x @ tensor(f'{name}.weight').T + tensor(f'{name}.bias')

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        rows = [(row - row.mean()) / math.sqrt(row.var() + epsilon) for row in x]
        return np.stack(rows) * tensor(f'{name}.weight') + tensor(f'{name}.bias')

    x = np.stack([
        tensor('embeddings.word_embeddings.weight')[token]
        + tensor('embeddings.position_embeddings.weight')[position]
        + tensor('embeddings.token_type_embeddings.weight')[0]
        for position, token in enumerate(ids)
    ])  # fmt: skip
    x = norm('embeddings.LayerNorm', x)
    for layer in range(layers):
        name = f'encoder.layer.{layer}'
        query, key, value = (dense(f'{name}.attention.self.{part}', x) for part in ('query', 'key', 'value'))
        width = x.shape[1] // heads
        mixed = np.zeros_like(x)
        for head in range(heads):
            columns = slice(head * width, (head + 1) * width)
            for position in range(len(ids)):
                scores = key[:, columns] @ query[position, columns] / math.sqrt(width)
                powers = np.exp(scores - scores.max())
                mixed[position, columns] = (powers / powers.sum()) @ value[:, columns]
        x = norm(f'{name}.attention.output.LayerNorm', x + dense(f'{name}.attention.output.dense', mixed))
        inner = dense(f'{name}.intermediate.dense', x)
        inner = inner * stats.norm.cdf(inner)
        x = norm(f'{name}.output.LayerNorm', x + dense(f'{name}.output.dense', inner))
    return x.mean(axis=0)


def whole_similarities(records: np.ndarray, candidates: np.ndarray) -> list[list[int]]:
    """Inner products of rows in whole multiples of 2⁻²⁴, ties to even, in Python's whole numbers."""

    def row_of(vector: np.ndarray) -> list[int]:
        if not all(math.isfinite(value) for value in vector):
            return [0] * len(vector)
        return [round(fractions.Fraction(float(value)) * 2**24) for value in vector]

    others = [row_of(candidate) for candidate in candidates]
    return [
        [sum(a * b for a, b in zip(row_of(record), other, strict=True)) for other in others]
        for record in records
    ]
