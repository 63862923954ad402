"""Differentially private k-means on private embeddings (Chang and Kamath 2021), a comparator for research.

The method of "Practical differentially private clustering" (2021), as its authors'
library (google/differential-privacy, learning/clustering) carries it out:

1. A tree splits space by the signs of public random projections, one per level. A node
   whose noisy count is large splits; a child whose noisy count is small is cut off.
2. Each leaf gives one point, its noisy sum divided by its noisy count, with the noisy
   count as weight: the private coreset.
3. Weighted k-means on the coreset, and everything after it, is post-processing.

Neighbouring inputs differ in one embedding (add or remove); one embedding belongs to
one unit of privacy. We depart from the library in three places:

* Its noise is Laplace for counts and floating-point Gaussian for sums. Here both are
  discrete Gaussians, the sums on a grid of integers, so that the price is exact zCDP.
* Its smallest node may lie far below the noise of a count, and the tree then follows
  noise. Here a node has at least three standard deviations of it.
* Its planes go through zero. Here they go through a public point.
"""

import dataclasses
import math
import warnings
from collections.abc import Sequence

import numpy as np

from models.privacy import counts
from models.privacy.grid import NoiseSource, add_noise

# A unit vector's length in steps of the grid on which sums are exact: 2^16 steps keep the
# rounding of one embedding (below √d steps) far under any noise worth having.
RADIUS = 2**16
# The share of rho for the counts. The authors' library once gave them this share of epsilon.
COUNTS_SHARE = 0.2
# Levels below the root: the authors' value, "chosen experimentally over multiple datasets".
DEPTH = 20
_MAX_DIMENSIONS = 2**16
_MAX_NORMAL = 8.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RhoSplit:
    """How a clustering's rho is spent: `per_level * (depth + 1) + sums` in all.

    A unit is in one node of a level at most, so a level's counts have L2 sensitivity 1;
    it is in one leaf at most, so the leaves' sums have the sensitivity of one embedding.
    Levels and sums compose by addition.

    Attributes:
        per_level: zCDP cost of the noisy counts of one level, the root's included.
        sums: zCDP cost of the noisy sums of all leaves.
    """

    per_level: float
    sums: float


def split_rho(rho: float, depth: int = DEPTH) -> RhoSplit:
    """A fifth of rho for the counts, in equal parts for the `depth + 1` levels, the rest for the sums.

    Args:
        rho: zCDP cost of the clustering.
        depth: Levels below the root; a level that the tree does not reach is paid for all the same.

    Raises:
        ValueError: `rho` is not a positive finite number, or `depth` is negative.
    """
    if not (math.isfinite(rho) and rho > 0):
        raise ValueError(f'Expected rho > 0, got rho={rho!r}. A clustering without noise is not private.')
    if depth < 0:
        raise ValueError(f'Expected depth >= 0, got depth={depth}. Use 0 for a tree of one node.')
    per_level = COUNTS_SHARE * rho / (depth + 1)
    return RhoSplit(per_level=per_level, sums=rho - (depth + 1) * per_level)


def fit_private_centers(
    embeddings: np.ndarray,
    *,
    count: int,
    rho: float,
    seed: int,
    source: NoiseSource,
    origin: np.ndarray | None = None,
    depth: int = DEPTH,
) -> np.ndarray:
    """At most `count` centres of private embeddings, under rho-zCDP.

    A call with another source is a second release. The result is a function of the
    embeddings, the settings and the source.

    Formal guarantees: rho-zCDP under adding or removing one row, whatever the rows
    hold. A row longer than 1 is shortened to 1, one that is not finite counts as zero.

    Args:
        embeddings: `[n, d]` floats, rows of length 1 at most; private.
        count: Centres wanted. There are fewer where the tree has fewer leaves.
        rho: zCDP cost, split by `split_rho`.
        seed: Public seed of the projections and of k-means.
        source: A key and a name for the noise of this fit alone.
        origin: `[d]`, a public point that the projections go through; None for zero.
            The middle of public centres halves the data better than zero does.
        depth: Levels of the tree below its root, public.

    Returns:
        `[k, d]` float32 centres, 1 <= k <= count, none longer than 1.

    Raises:
        ValueError: `rho`, `count`, `depth` or a shape is out of range.
    """
    from sklearn import cluster, exceptions

    split = split_rho(rho, depth)
    if count < 1:
        raise ValueError(f'Expected count >= 1, got count={count}. Ask for at least one centre.')
    if embeddings.ndim != 2 or not 1 <= embeddings.shape[1] <= _MAX_DIMENSIONS:
        raise ValueError(
            f'Expected embeddings [n, d] with 1 <= d <= {_MAX_DIMENSIONS}, got {embeddings.ndim} axes. '
            'Give one row per embedding.'
        )
    dimensions = embeddings.shape[1]
    if origin is not None and origin.shape != (dimensions,):
        raise ValueError(
            f'Expected origin [{dimensions}], got shape={origin.shape}. Use a point of the same space.'
        )
    points = to_grid(embeddings)
    middle = to_grid(np.zeros((1, dimensions)) if origin is None else origin[np.newaxis])[0]
    signs = signs_of(points, middle, projections(dimensions, depth, seed))
    leaf_of, leaf_counts = grow_tree(signs, split=split, count=count, dimensions=dimensions, source=source)
    sums = noisy_sums(cell_sums(points, leaf_of, len(leaf_counts)), split.sums, source.of('sums'))
    weights = np.maximum(1, leaf_counts)
    coreset = sums / (RADIUS * weights[:, np.newaxis])
    coreset /= np.maximum(1.0, np.linalg.norm(coreset, axis=1, keepdims=True))
    k_means = cluster.KMeans(min(count, len(coreset)), n_init=10, random_state=seed)
    with warnings.catch_warnings():
        # Leaves may coincide; that there are fewer distinct ones than asked for is no news.
        warnings.simplefilter('ignore', exceptions.ConvergenceWarning)
        k_means.fit(coreset, sample_weight=weights)
    return k_means.cluster_centers_.astype(np.float32)


def to_grid(vectors: np.ndarray) -> np.ndarray:
    """Vectors in whole steps of 1/RADIUS, rounded towards zero, none longer than RADIUS steps.

    Each row is a function of the same row alone.

    Args:
        vectors: `[n, d]` floats. A row longer than 1 is shortened; one that is not
            finite becomes zero.

    Returns:
        `[n, d]` int64.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float64)
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    largest = np.maximum(1.0, np.abs(rows).max(axis=1, keepdims=True))
    # Dividing by the largest component first keeps the squares finite.
    rows = rows / largest
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    # A length's rounding error is below one part in RADIUS: RADIUS - 1 steps leave room for it.
    return np.trunc(rows / np.maximum(1 / largest, lengths) * (RADIUS - 1)).astype(np.int64)


def projections(dimensions: int, depth: int, seed: int) -> np.ndarray:
    """Public random directions, one per level: `[depth, dimensions]` int64, Gaussian up to rounding."""
    normals = np.random.default_rng(seed).standard_normal((depth, dimensions))
    return np.rint(np.clip(normals, -_MAX_NORMAL, _MAX_NORMAL) * RADIUS).astype(np.int64)


def signs_of(points: np.ndarray, origin: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """On which side of each level's plane a point lies: `[n, depth]` bool.

    Args:
        points: `[n, d]` int64 from `to_grid`.
        origin: `[d]` int64 from `to_grid`; every plane goes through it.
        directions: `[depth, d]` int64 from `projections`.
    """
    # Below 2^17 · 2^19 · 2^16 = 2^52 every partial sum of whole numbers is exact in float64. So a row's signs
    # do not depend on the order of a matrix product, which depends on the number of rows.
    return (points - origin).astype(np.float64) @ directions.T.astype(np.float64) > 0


def grow_tree(
    signs: np.ndarray, *, split: RhoSplit, count: int, dimensions: int, source: NoiseSource
) -> tuple[np.ndarray, np.ndarray]:
    """Grows the tree from noisy counts; one release of `split.per_level` for each level and the root.

    Args:
        signs: `[n, depth]` bool from `signs_of`; private.
        split: The price of a level's counts and of the sums.
        count: Centres wanted, for the smallest node.
        dimensions: Of the embeddings, for the smallest node.
        source: A key and a name for the noise of this tree alone.

    Returns:
        `[n]` int64, the leaf of each row, -1 for a row that was cut off (private), and
        `[leaves]` int64, the leaves' noisy counts (released).
    """
    depth = signs.shape[1]
    node_of = np.zeros(len(signs), np.int64)
    noisy = counts.noisy_counts(cell_counts(node_of, 1), split.per_level, source.of('root'))
    smallest = smallest_node(noisy[0], split=split, count=count, dimensions=dimensions)
    leaf_of = np.full(len(signs), -1, np.int64)
    leaves: list[int] = []
    for level in range(depth + 1):
        # The authors split a node of three times the smallest size.
        splitting = [node for node, value in enumerate(noisy) if value >= 3 * smallest and level < depth]
        child_of, below = np.full_like(node_of, -1), []
        if splitting:
            child_of = children_of(node_of, signs[:, level], splitting)
            # Its own name for every question: the nodes that split are a released part of it.
            below = counts.noisy_counts(
                cell_counts(child_of, 2 * len(splitting)),
                split.per_level,
                source.of('level', str(level), str(splitting)),
            )
        kept = [child for child, value in enumerate(below) if value >= smallest]
        inner = {splitting[child // 2] for child in kept}
        for node, value in enumerate(noisy):
            if node not in inner:
                leaf_of[node_of == node] = len(leaves)
                leaves.append(value)
        node_of = _renumber(child_of, kept, 2 * len(splitting))
        noisy = [below[child] for child in kept]
        if not kept:
            break
    return leaf_of, np.array(leaves, np.int64)


def smallest_node(total: int, *, split: RhoSplit, count: int, dimensions: int) -> int:
    """The least noisy count of a node that stays in the tree, at least 1.

    The authors' rule: enough points that the noise of their mean is about 0.1, but no
    more than leave room for two nodes per centre. Ours on top: three standard deviations
    of a count, so that an empty child stays with odds of 1 in 740.

    Args:
        total: The root's noisy count.
        split: The price of a level's counts and of the sums.
        count: Centres wanted.
        dimensions: Of the embeddings.
    """
    low_noise = int(10 * math.sqrt(dimensions) * counts.gaussian_scale(split.sums))
    per_center = total // (2 * count)
    return max(1, math.ceil(3 * counts.gaussian_scale(split.per_level)), min(low_noise, per_center))


def children_of(node_of: np.ndarray, signs: np.ndarray, splitting: Sequence[int]) -> np.ndarray:
    """The child of each row below the nodes that split, -1 elsewhere.

    Args:
        node_of: `[n]` int64, the node of each row in its level, -1 for none.
        signs: `[n]` bool, this level's signs.
        splitting: Ascending indices of the nodes that split; the j-th has the children
            2j and 2j + 1.

    Returns:
        `[n]` int64.
    """
    child_of = np.full_like(node_of, -1)
    for place, node in enumerate(splitting):
        inside = node_of == node
        child_of[inside] = 2 * place + signs[inside]
    return child_of


def cell_counts(cell_of: np.ndarray, cells: int) -> list[int]:
    """Rows of each cell; adding a row moves one count by 1 at most.

    Args:
        cell_of: `[n]` int64, -1 for a row outside all cells.
        cells: Number of cells, public.
    """
    return np.bincount(cell_of[cell_of >= 0], minlength=cells).tolist()


def cell_sums(points: np.ndarray, cell_of: np.ndarray, cells: int) -> np.ndarray:
    """Sum of the rows of each cell: `[cells, d]` int64; adding a row moves one by RADIUS at most.

    Args:
        points: `[n, d]` int64 from `to_grid`.
        cell_of: `[n]` int64, -1 for a row outside all cells.
        cells: Number of cells, public.
    """
    sums = np.zeros((cells, points.shape[1]), np.int64)
    np.add.at(sums, cell_of[cell_of >= 0], points[cell_of >= 0])
    return sums


def noisy_sums(sums: np.ndarray, rho: float, source: NoiseSource) -> np.ndarray:
    """Adds a discrete Gaussian to each number.

    Formal guarantees: rho-zCDP for sums of which one unit moves the whole by RADIUS at
    most in L2. The draws are exact, without floating point.

    Args:
        sums: `[cells, d]` int64; private.
        rho: zCDP cost of all sums together.
        source: The key and the name of these sums.

    Returns:
        `[cells, d]` int64.

    Raises:
        ValueError: `rho` is not a positive finite number.
    """
    return add_noise(sums, counts.gaussian_variance(rho, RADIUS), source)


def _renumber(cell_of: np.ndarray, kept: Sequence[int], cells: int) -> np.ndarray:
    """Cells in the numbering of the kept ones, -1 for the others; -1 stays."""
    places = np.full(cells + 1, -1, np.int64)
    places[list(kept)] = np.arange(len(kept))
    return places[cell_of]
