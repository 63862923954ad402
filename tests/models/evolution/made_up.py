"""Rounds of an evolution without a model: texts, embeddings and votes that are made up."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from models.clustering.centers import ClusterSettings
from models.clustering.embedder import Embedder
from models.evolution.generation import Candidate, Generation
from models.evolution.settings import EvolutionSettings
from models.privacy.text_votes import TextVoteParams

LABELS = ('billing', 'delivery')
WORDS = {
    'billing': ('invoice', 'refund', 'payment', 'account', 'price'),
    'delivery': ('parcel', 'courier', 'address', 'river', 'road'),
}
# Texts of which the embedder below knows nothing.
UNKNOWN = 'nothing of that'


def texts_of(label: str, count: int) -> list[str]:
    """Different texts of a label's words."""
    return [' '.join(of) for of in itertools.islice(itertools.combinations(WORDS[label], 3), count)]


class WordEmbedder(Embedder):
    """One dimension for each word; counts what it was given.

    Attributes:
        embedded: Texts so far.
    """

    name, fingerprint = 'words', '0' * 64

    def __init__(self) -> None:
        self.embedded: list[str] = []
        self._columns = {word: place for place, word in enumerate(itertools.chain(*WORDS.values()))}
        self.dimensions = len(self._columns)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.embedded += texts
        rows = np.zeros((len(texts), self.dimensions))
        for row, text in zip(rows, texts, strict=True):
            for word in text.split():
                if word in self._columns:
                    row[self._columns[word]] += 1
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.divide(rows, norms, where=norms > 0, out=np.zeros_like(rows)).astype(np.float32)


def settings(**changed: Any) -> EvolutionSettings:
    rounds, noise = changed.pop('rounds', 2), changed.pop('noise_scale', 1.0)
    given = {
        'run_id': 'run', 'params': TextVoteParams(rounds=rounds, noise_scale=noise), 'labels': LABELS,
        'embedder': ClusterSettings(), 'source': None, 'examples': 6, 'candidates_per_label': 5,
        'children_per_label': 5, 'unvoted_per_label': 3, 'shots': 2, 'texts_together': 4,
    }  # fmt: skip
    return EvolutionSettings(**(given | changed))


def candidates(number: int = 1, of_label: int = 5) -> tuple[Candidate, ...]:
    """The list of a round: texts of each label's words, named as the batches of `settings` name them."""
    found = []
    for group, label in enumerate(LABELS):
        for place, text in enumerate(texts_of(label, of_label)):
            batch = 2 * (number - 1) + place // 4
            found.append(
                Candidate(name=f'{group:04d}-{batch:06d}-{place % 4:04d}', text=text, label=label, tokens=9)
            )
    return tuple(found)


def generation(votes: np.ndarray | None = None, *, number: int = 1, of_label: int = 5) -> Generation:
    """A round in which each label has 8 votes on each text of its words, or other votes."""
    texts = candidates(number, of_label)
    if votes is None:
        votes = np.kron(np.eye(2), np.full(of_label, 8.0))
    return Generation(
        candidates=texts, vectors=WordEmbedder().embed([of.text for of in texts]), votes=np.asarray(votes)
    )


def later(before: Generation, *, number: int, of_label: int) -> Generation:
    """The round after another one: its list, new texts behind it, and as many votes on each."""
    new = generation(number=number, of_label=of_label)
    return Generation(
        candidates=(*before.candidates, *new.candidates),
        vectors=np.concatenate([before.vectors, new.vectors]),
        votes=np.concatenate([before.votes, new.votes], axis=1),
    )
