"""A small embedder, its centres, and slow twins of what is done with them."""

import dataclasses
import fractions
import pathlib
import random
import tempfile
import uuid
from collections.abc import Sequence

import numpy as np

from models.clustering import embedder as embedder_lib
from models.clustering.centers import Centers, Clusterer
from models.records import Record

LETTERS = 'pqrst'


def note(folder: str, text: str) -> None:
    """Counts a call in a file of its own, since runners copy what they run."""
    (pathlib.Path(folder) / f'{uuid.uuid4().hex}.txt').write_text(text)


class LetterEmbedder(embedder_lib.Embedder):
    """Counts of five letters, as a unit vector. Refuses a text with a zero byte."""

    name = 'letters'
    dimensions = len(LETTERS)
    fingerprint = '0' * 64

    def __init__(self, calls: str) -> None:
        self._calls = calls

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        note(self._calls, f'embedded {len(texts)}')
        if any('\0' in text for text in texts):
            raise ValueError(f'no letter is a zero byte: {texts}')
        found = np.array([[text.count(letter) for letter in LETTERS] for text in texts], np.float64)
        return embedder_lib.unit_rows(found.reshape(-1, self.dimensions))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LetterSettings:
    """Stands where `ClusterSettings` does, for an embedder that it does not know."""

    centers: str
    calls: str

    def build(self) -> Clusterer:
        note(self.calls, 'built')
        return Clusterer(centers=Centers.read(self.centers), embedder=LetterEmbedder(self.calls))


def letter_centers(**changed: object) -> Centers:
    """One centre for each letter, one that repeats the first, and two between letters."""
    one = np.eye(len(LETTERS), dtype=np.float32)
    vectors = np.stack([*one, one[0], (one[0] + one[1]) / 2, (one[2] + one[3]) / 2])
    fields = {
        'vectors': vectors, 'embedder': 'letters', 'embedder_fingerprint': '0' * 64,
        'corpus_fingerprint': '1' * 64, 'corpus_texts': 8, 'seed': 0,
    }  # fmt: skip
    return Centers(**fields | changed)


CENTERS = letter_centers()


def settings_in(work_dir: str) -> LetterSettings:
    return LetterSettings(centers=f'{work_dir}/centers', calls=f'{work_dir}/calls')


def calls_in(work_dir: str) -> tuple[int, list[int]]:
    """The number of clusterers that were built, and of texts that each call embedded."""
    lines = [path.read_text() for path in pathlib.Path(work_dir, 'calls').iterdir()]
    return lines.count('built'), [int(line.split()[1]) for line in lines if line != 'built']


def some_records(number: int = 60) -> list[Record]:
    """Records with duplicates, undeclared labels, blank embeddings, and users of several labels."""
    source = random.Random(5)
    return [
        Record(
            text=''.join(source.choices(LETTERS + 'é', weights=(9, 3, 2, 2, 1, 1), k=source.randrange(1, 7))),
            label=source.choice(['a', 'a', 'b', 'undeclared']),
            unit=f'user {source.randrange(15)}',
            record_id=source.choice(['1', '2', None]),
        )
        for _ in range(number)
    ]


def slow_nearest(text: str, kept: Sequence[int] = range(CENTERS.count)) -> int:
    """Slow twin of embedding and `Centers.nearest`: exact distances, and the first of equals."""
    (vector,) = LetterEmbedder(tempfile.mkdtemp()).embed([text])

    def distance(index: int) -> fractions.Fraction:
        pairs = zip(vector.tolist(), CENTERS.vectors[index].tolist(), strict=True)
        return sum((fractions.Fraction(x) - fractions.Fraction(y)) ** 2 for x, y in pairs)

    return min(kept, key=lambda index: (distance(index), index))


def slow_clusters(records: list[Record], kept: dict[str, Sequence[int]]) -> list[Record]:
    """Slow twin of the two choices of a cluster (METHOD 3, steps 2 and 3)."""
    return [
        dataclasses.replace(record, cluster=slow_nearest(record.text, kept[record.label]))
        if record.label in kept
        else record
        for record in records
    ]
