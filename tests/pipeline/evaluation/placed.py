"""Texts whose vectors a test chooses, so that what a measure has to find is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from models.clustering.embedder import Embedder, fingerprint_of, unit_rows
from pipeline.evaluation.sources import Sources, Texts


class PlacedEmbedder(Embedder):
    """Gives each text the vector it was placed at; zero to others."""

    name = 'placed'

    def __init__(self, places: Mapping[str, np.ndarray]) -> None:
        self._places = dict(places)
        self.dimensions = len(next(iter(places.values())))
        self.fingerprint = fingerprint_of(
            {'texts': sorted(places)}, np.array([places[t] for t in sorted(places)])
        )

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        zero = np.zeros(self.dimensions)
        return unit_rows(np.array([self._places.get(text, zero) for text in texts]))


def placed_sources(
    corpus: np.ndarray,
    *,
    test: np.ndarray | None = None,
    records: np.ndarray | None = None,
    seed: int = 0,
) -> Sources:
    """One text for each row of each array, `[n, d]`, at its place."""
    places: dict[str, np.ndarray] = {}

    def texts(name: str, rows: np.ndarray) -> Texts:
        own = {f'{name} {index}': row for index, row in enumerate(rows)}
        places.update(own)
        return Texts(name=name, texts=tuple(own))

    sides = {
        name: None if rows is None else texts(name, rows)
        for name, rows in (('corpus', corpus), ('records', records), ('test', test))
    }
    assert sides['corpus'] is not None
    return Sources(
        corpus=sides['corpus'],
        records=sides['records'],
        test=sides['test'],
        embedder=PlacedEmbedder(places),
        seed=seed,
    )


def blobs(
    generator: np.random.Generator, size: int, centres: Sequence[int], dimensions: int = 16
) -> np.ndarray:
    """Points around unit vectors, evenly many about each, `[size, dimensions]`."""
    rows = np.eye(dimensions)[np.resize(np.array(centres), size)]
    return rows + 0.05 * generator.normal(size=(size, dimensions))


def plain_sources(
    corpus: Sequence[str],
    *,
    test: Sequence[str] | None = None,
    records: Sequence[str] | None = None,
    seed: int = 0,
) -> Sources:
    """Sources of these texts, whose vectors play no part."""
    return Sources(
        corpus=Texts(name='corpus', texts=tuple(corpus)),
        test=None if test is None else Texts(name='test', texts=tuple(test)),
        records=None if records is None else Texts(name='records', texts=tuple(records)),
        embedder=PlacedEmbedder({'': np.ones(1)}),
        seed=seed,
    )
