"""Embedders and nearest centres (METHOD 3), one value at a time."""

import collections
import fractions
import math
import unicodedata
from collections.abc import Sequence

import numpy as np
from scipy import stats


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


def similarity(record: Sequence[float], candidate: Sequence[float]) -> int:
    """The product of two unit vectors in units of 2**-48, each component a whole multiple of 2**-24."""
    whole = (
        [round(fractions.Fraction(float(value)) * 2**24) for value in row] for row in (record, candidate)
    )
    return sum(a * b for a, b in zip(*whole, strict=True))
