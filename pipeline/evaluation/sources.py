"""The texts of an evaluation: of a corpus, of the records that it was made from, and of others like them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from models.clustering.embedder import Embedder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Texts:
    """Texts of one source, in its order; their representation shows none of them.

    Attributes:
        name: What tables call the source.
        texts: The texts, none of them blank.
        labels: The label of each text; None where the source has no labels.
        units: The unit of privacy that each text belongs to; None where they are not read.
    """

    name: str
    texts: tuple[str, ...] = dataclasses.field(repr=False)
    labels: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)
    units: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        for what, of_each in (('label', self.labels), ('unit', self.units)):
            if of_each is not None and len(of_each) != len(self.texts):
                raise ValueError(
                    f'Expected a {what} for each text of {self.name!r}, got texts={len(self.texts)}, '
                    f'{what}s={len(of_each)}.'
                )

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, indices: Sequence[int]) -> Texts:
        """Some of the texts, by their indices."""
        labels, units = self.labels, self.units
        return Texts(
            name=self.name,
            texts=tuple(self.texts[index] for index in indices),
            labels=None if labels is None else tuple(labels[index] for index in indices),
            units=None if units is None else tuple(units[index] for index in indices),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
    """One corpus and what it is compared with.

    Attributes:
        corpus: The synthetic texts.
        records: The sensitive records that the corpus was made from; None where they are not read.
        test: Real texts that no run has read; None where there are none.
        public: Texts of the public prompt alone, ε = 0; None where there are none.
        embedder: Maps texts to unit vectors.
        seed: Of every draw that a measure makes.
    """

    corpus: Texts
    records: Texts | None = None
    test: Texts | None = None
    public: Texts | None = None
    embedder: Embedder
    seed: int = 0

    @property
    def reads_records(self) -> bool:
        """True if real texts were read. No budget pays for that, so the result is for the curator alone."""
        return self.records is not None or self.test is not None

    def vectors(self, source: Texts) -> np.ndarray:
        """Unit vectors of the texts of one source, `[n, d]` float32; computed once."""
        return _vectors(self.embedder, source.texts)


# A corpus, its records, held-out records and a few more of one evaluation.
@functools.lru_cache(maxsize=8)
def _vectors(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    return embedder.embed(texts)
