"""Ways to cluster the records, side by side: CL Table 2 and Figure 2 on one's own records.

For research and for choosing settings. V-measures and cluster sizes are true figures
of private records, without noise. All of it is for the curator alone: it goes
to the file that the curator names, and never next to a corpus.

Source: CL = the paper on clusters and the median, section 4.1, Table 2 and Figure 2.
"""

import dataclasses
import json
import warnings

import numpy as np
from sklearn import cluster, exceptions, metrics

from models.clustering import dp_kmeans
from models.clustering.centers import Centers
from models.privacy import accounting, counts, report
from models.privacy.grid import NoiseSource
from models.privacy.randomness import RunKey

SCHEMA = 'dp-corpus/cluster-comparison'
SCHEMA_VERSION = 1
# "# Clusters (size >= 100)" of CL Table 2.
LARGE = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusteringRow:
    """One row of CL Table 2. Restricted to the curator; its `repr` shows no true figure.

    Attributes:
        method: What was compared, in words.
        rho: zCDP cost of choosing the clusters; 0 where nothing private was read, None
            without a guarantee. The counts per cluster, which give the batches, cost
            every method the same and are left out.
        epsilon: The same cost at the comparison's delta; None without a guarantee.
        clusters: Clusters of two records or more.
        large_clusters: Clusters of `LARGE` records or more.
        v_measure: Against k-means on the same records, 0 to 1; above 0 by chance.
        adjusted: Mutual information with k-means, corrected for chance: 1 for the same
            clusters, 0 on average for random ones (Vinh, Epps and Bailey 2010).
        sizes: Records of each cluster, largest first, empty clusters left out.
    """

    method: str
    rho: float | None
    epsilon: float | None
    clusters: int = dataclasses.field(repr=False)
    large_clusters: int = dataclasses.field(repr=False)
    v_measure: float = dataclasses.field(repr=False)
    adjusted: float = dataclasses.field(repr=False)
    sizes: tuple[int, ...] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterComparison:
    """Ways to cluster the same records. Restricted to the curator.

    Attributes:
        count: Clusters that k-means and DP k-means were asked for.
        centers: Public centres.
        kept: Centres that rebalancing keeps.
        delta: What `epsilon` of the rows is stated at.
        seed: Public seed of k-means, of the projections and of the random clusters.
        records: True number of records.
        rows: One for each method, k-means first.

    Sample::

        {
          "schema": "dp-corpus/cluster-comparison",
          "schema_version": 1,
          "audience": "Restricted to the curator. It holds true counts: never publish it.",
          "count": 500,
          "centers": 1000,
          "kept": 60,
          "delta": 1e-06,
          "seed": 7,
          "records": 5,
          "rows": [
            {"method": "k-means", "rho": null, "epsilon": null, "clusters": 2,
             "large_clusters": 0, "v_measure": 1.0, "adjusted": 1.0, "sizes": [3, 2]}
          ]
        }
    """

    count: int
    centers: int
    kept: int
    delta: float
    seed: int
    records: int = dataclasses.field(repr=False)
    rows: tuple[ClusteringRow, ...]

    def to_json(self) -> str:
        """The comparison as JSON text, marked as restricted."""
        header = {'schema': SCHEMA, 'schema_version': SCHEMA_VERSION, 'audience': report.RESTRICTED}
        return json.dumps(header | dataclasses.asdict(self), indent=2, allow_nan=False) + '\n'


def compare_clusterings(
    embeddings: np.ndarray, *, centers: Centers, count: int, kept: int, rho: float, delta: float, seed: int
) -> ClusterComparison:
    """Clusters the same embeddings in the ways of CL Table 2, and at random.

    Each private method pays `rho` for choosing its clusters. Random clusters, as many as
    k-means was asked for and as many as rebalancing keeps, are the floor: V-measure is
    above 0 by chance, the more so with more clusters, so the paper's column compares
    methods with as many clusters only. The adjusted column compares all.

    The result holds true figures. It is no release, so nothing is charged for it.

    Args:
        embeddings: `[n, d]` float32, rows of length 1 at most; private.
        centers: Public centres in the same space.
        count: Clusters of k-means, the reference, and of DP k-means.
        kept: Centres that rebalancing keeps.
        rho: zCDP cost of choosing the clusters, for DP k-means and for rebalancing.
        delta: For the rows' epsilon.
        seed: Public seed.

    Raises:
        ValueError: `count`, `kept`, `rho` or a shape is out of range, or `centers` was
            made from private records.
    """
    dimensions = centers.vectors.shape[1]
    if embeddings.ndim != 2 or embeddings.shape[1] != dimensions or len(embeddings) == 0:
        raise ValueError(
            f'Expected embeddings [n, {dimensions}] of at least one record, got {embeddings.ndim} axes '
            'of other lengths. Embed the records with the embedder of the centres.'
        )
    if centers.source != 'public':
        raise ValueError(
            f'Expected public centres, got source={centers.source!r}. '
            'Compare with centres of a public corpus; k-means on the records is one of the rows.'
        )
    if count < 2:
        raise ValueError(f'Expected count >= 2, got count={count}. One cluster compares with nothing.')
    epsilon = accounting.epsilon_from_rho(rho, delta)
    reference = k_means(embeddings, count, seed)
    rng = np.random.default_rng(seed)
    clusterings: list[tuple[str, float | None, float | None, np.ndarray]] = [
        ('k-means', None, None, reference),
        ('DP k-means', rho, epsilon, dp_k_means(embeddings, centers, count, rho, seed)),
        ('public centres', 0.0, 0.0, centers.nearest(embeddings)),
        ('public centres, rebalanced', rho, epsilon, rebalance(embeddings, centers, kept, rho)),
        (f'random, {count:,}', 0.0, 0.0, rng.integers(count, size=len(embeddings))),
        (f'random, {kept:,}', 0.0, 0.0, rng.integers(kept, size=len(embeddings))),
    ]
    return ClusterComparison(
        count=count,
        centers=len(centers.vectors),
        kept=kept,
        delta=delta,
        seed=seed,
        records=len(embeddings),
        rows=tuple(
            row_of(method, cost, at_delta, clusters, reference)
            for method, cost, at_delta, clusters in clusterings
        ),
    )


def row_of(
    method: str, rho: float | None, epsilon: float | None, clusters: np.ndarray, reference: np.ndarray
) -> ClusteringRow:
    """The row of a method whose clusters are `clusters` `[n]`, against those of `reference` `[n]`."""
    sizes = sorted(np.unique(clusters, return_counts=True)[1].tolist(), reverse=True)
    return ClusteringRow(
        method=method,
        rho=rho,
        epsilon=epsilon,
        clusters=sum(size >= 2 for size in sizes),
        large_clusters=sum(size >= LARGE for size in sizes),
        v_measure=float(metrics.v_measure_score(reference, clusters)),
        adjusted=float(metrics.adjusted_mutual_info_score(reference, clusters)),
        sizes=tuple(sizes),
    )


def k_means(embeddings: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Clusters `[n]` by k-means on the private embeddings themselves, without a guarantee."""
    with warnings.catch_warnings():
        # The warning tells how many distinct records there are.
        warnings.simplefilter('ignore', exceptions.ConvergenceWarning)
        # Fewer records than clusters: each is its own.
        model = cluster.KMeans(min(count, len(embeddings)), n_init=1, random_state=seed)
        return model.fit_predict(embeddings)


def dp_k_means(embeddings: np.ndarray, centers: Centers, count: int, rho: float, seed: int) -> np.ndarray:
    """Clusters `[n]` by the nearest private centre; the centres satisfy rho-zCDP, the clusters nothing."""
    # The middle of the public centres is public: it lets the tree's first planes halve the records.
    origin = centers.vectors.mean(axis=0)
    vectors = dp_kmeans.fit_private_centers(
        embeddings, count=count, rho=rho, seed=seed, source=_fresh_noise(), origin=origin
    )
    private = dataclasses.replace(
        centers, vectors=vectors, source='dp-k-means', rho=rho, corpus_fingerprint=None, corpus_texts=None
    )
    return private.nearest(embeddings)


def rebalance(embeddings: np.ndarray, centers: Centers, kept: int, rho: float) -> np.ndarray:
    """Clusters `[n]` by the nearest of the public centres with the highest noisy counts (METHOD 3)."""
    nearest = centers.nearest(embeddings)
    true_counts = np.bincount(nearest, minlength=len(centers.vectors)).tolist()
    largest = counts.largest_cells(counts.noisy_counts(true_counts, rho, _fresh_noise()), kept)
    return centers.nearest(embeddings, kept=largest)


def _fresh_noise() -> NoiseSource:
    """Noise of a comparison, which is no release: from a key that nothing else has."""
    return NoiseSource(RunKey.new(), ())
