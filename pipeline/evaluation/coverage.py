"""Precision and recall, density and coverage by nearest neighbours in the embedding's space."""

from __future__ import annotations

import dataclasses
import typing

import numpy as np

from pipeline.evaluation import comparison
from pipeline.evaluation.measure import Figure, Findings, Measure, Progress
from pipeline.evaluation.sources import Sources

MAX_TEXTS = 5000
MIN_TEXTS = 50
# As in Kynkäänniemi et al. 2019 and in Naeem et al. 2020.
PRECISION_NEIGHBOURS = 3
COVERAGE_NEIGHBOURS = 5
# Precision of distances of unit vectors in float32: a copy is within a ball of radius zero.
TOLERANCE = 1e-6
# Rows of distances held at once.
_ROWS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Neighbourhoods:
    """How two samples of points lie in each other's neighbourhoods.

    Attributes:
        precision: Share of the second sample within the ball of a point of the first.
        recall: Share of the first within the ball of a point of the second.
        density: Balls of the first that a point of the second lies in, over their expected number k; in
            the mean. May exceed 1.
        coverage: Share of the first with a point of the second in their ball.
    """

    precision: float
    recall: float
    density: float
    coverage: float


@typing.final
class Coverage(Measure):
    """Whether corpus texts lie where real texts do, and whether any real texts are left out."""

    name = 'coverage'
    title = 'Precision and coverage'
    question = 'Does the corpus stay where real texts are, and does it reach all of them?'
    source = 'Kynkäänniemi et al. 2019, section 2; Naeem et al. 2020, section 3 (density and coverage)'

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        real = comparison.real_texts(sources)
        size = comparison.equal_size(sources.corpus, real, least=MIN_TEXTS, most=MAX_TEXTS)
        comparison.check_known(sources, real)
        records = comparison.ceiling_texts(sources, size)
        compared = [sources.corpus] if records is None else [sources.corpus, records]
        figures: list[Figure] = []
        for done, texts in enumerate(compared):
            generator = np.random.default_rng(sources.seed)
            real_vectors = sources.vectors(real)[comparison.drawn(generator, len(real), size)]
            vectors = sources.vectors(texts)[comparison.drawn(generator, len(texts), size)]
            found = neighbourhoods(real_vectors, vectors)
            figures += _figures(found, real.name, of_records=texts is not sources.corpus)
            progress(done + 1, len(compared))
        return Findings(
            settings={
                'texts_on_each_side': size,
                'precision_neighbours': PRECISION_NEIGHBOURS,
                'coverage_neighbours': COVERAGE_NEIGHBOURS,
                'distance': 'Euclidean, of unit vectors',
                'tolerance': TOLERANCE,
                'real': real.name,
                **comparison.embedder_settings(sources),
                **comparison.library_versions('scikit-learn', 'numpy'),
            },
            figures=tuple(figures),
        )


def neighbourhoods(real: np.ndarray, other: np.ndarray) -> Neighbourhoods:
    """Precision, recall, density and coverage of `other`.

    The ball of a point reaches to its k-th nearest neighbour in its own sample.

    Args:
        real: `[n, d]`, with n beyond `COVERAGE_NEIGHBOURS`.
        other: `[m, d]`, with m beyond `PRECISION_NEIGHBOURS`.
    """
    from sklearn.metrics import pairwise_distances

    with comparison.one_thread():
        precision_radii, coverage_radii = _radii(real, PRECISION_NEIGHBOURS, COVERAGE_NEIGHBOURS)
        (recall_radii,) = _radii(other, PRECISION_NEIGHBOURS)
        precise = np.zeros(len(other), bool)
        recalled, covered = np.zeros((2, len(real)), bool)
        balls = 0
        for first in range(0, len(real), _ROWS):
            rows = slice(first, first + _ROWS)
            distances = pairwise_distances(real[rows], other)
            precise |= (distances <= precision_radii[rows, None]).any(axis=0)
            recalled[rows] = (distances <= recall_radii).any(axis=1)
            within = distances <= coverage_radii[rows, None]
            covered[rows] = within.any(axis=1)
            balls += int(within.sum())
    return Neighbourhoods(
        precision=float(precise.mean()),
        recall=float(recalled.mean()),
        density=balls / (COVERAGE_NEIGHBOURS * len(other)),
        coverage=float(covered.mean()),
    )


def _radii(points: np.ndarray, *neighbours: int) -> list[np.ndarray]:
    """For each k, the distance of each point to its k-th nearest other point, `[n]`."""
    from sklearn.neighbors import NearestNeighbors

    # Without points of its own, `kneighbors` leaves each point out of its own neighbours.
    distances, _ = NearestNeighbors(n_neighbors=max(neighbours), algorithm='brute').fit(points).kneighbors()
    return [distances[:, each - 1] + TOLERANCE for each in neighbours]


def _figures(found: Neighbourhoods, real: str, *, of_records: bool) -> list[Figure]:
    by_chance = 1 - 2**-COVERAGE_NEIGHBOURS
    notes = {
        'precision': 'Share of texts that lie as near to a real text as its neighbours do.',
        'recall': 'Share of real texts that lie as near to a text of the corpus as its neighbours do.',
        'density': 'Real neighbourhoods that a text lies in, over those expected. 1 for real text.',
        'coverage': (
            'Share of real texts with a text of the corpus in their neighbourhood. '
            f'{by_chance:.2f} for real text.'
        ),
    }
    return [
        Figure(
            name=f'{name}/records' if of_records else name,
            label=f'{name.capitalize()}, of the records' if of_records else name.capitalize(),
            value=value,
            better='neither' if of_records or name == 'density' else 'higher',
            note=f'What real text scores against {real}.' if of_records else notes[name],
        )
        for name, value in dataclasses.asdict(found).items()
    ]
