"""DP k-means: its price, its sensitivity by enumeration, its noise, and what it finds."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from models.clustering import dp_kmeans
from models.privacy import counts, grid
from models.privacy.grid import NoiseSource
from models.privacy.randomness import RunKey
from tests import oracles
from tests.samples import noise_source

# Each statistical test calls the right code wrong with this probability.
FALSE_ALARM = 1e-7
# Noise of scale below 1e-4 of a step: another value than 0 has probability below e^-1e7.
NO_NOISE = 1e18
# Short, unit, overlong and broken rows, on both sides of most planes.
POOL = np.array(
    [[1, 0, 0], [-0.6, 0.8, 0], [0.3, -0.2, 0.1], [4e300, -3e300, 1], [np.nan, 0, 1], [-0.1, -0.1, -0.9]]
)


def topics(number: int, dimensions: int, size: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows around `number` random directions, and the topic of each row."""
    rng = np.random.default_rng(0)
    middles = rng.standard_normal((number, dimensions))
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    labels = rng.integers(number, size=size)
    rows = middles[labels] + spread * rng.standard_normal((size, dimensions))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), labels


def agreement(embeddings: np.ndarray, labels: np.ndarray, centers: np.ndarray) -> float:
    from sklearn import metrics

    return metrics.v_measure_score(labels, metrics.pairwise_distances_argmin(embeddings, centers))


# ---------------------------------------------------------------- price


@pytest.mark.parametrize('depth', [0, 1, 20])
@pytest.mark.parametrize('rho', [0.005, 3.0])
def test_levels_and_sums_cost_rho_together(rho: float, depth: int) -> None:
    split = dp_kmeans.split_rho(rho, depth)
    assert (depth + 1) * split.per_level + split.sums == pytest.approx(rho, rel=1e-12)
    assert (depth + 1) * split.per_level == pytest.approx(rho / 5, rel=1e-12)


def test_what_was_drawn_costs_rho_and_has_names_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []
    names: set[tuple[bytes, ...]] = set()

    def pricing(table: np.ndarray, variance: Fraction, source: NoiseSource) -> np.ndarray:
        # Counts have sensitivity 1, sums that of one embedding. Their shapes tell them apart.
        sensitivity = dp_kmeans.RADIUS if table.ndim == 2 else 1
        spent.append(float(sensitivity**2 / (2 * variance)))
        names.add(source.name)
        return grid.add_noise(table, variance, source)

    for module in (counts, dp_kmeans):
        monkeypatch.setattr(module, 'add_noise', pricing)
    embeddings, _ = topics(8, 16, 2000, 0.3)
    dp_kmeans.fit_private_centers(embeddings, count=8, rho=0.5, seed=0, depth=3, source=noise_source())
    # The root, three levels and the sums: 2,000 rows on both sides of three planes reach every level.
    assert len(spent) == len(names) == 5
    assert sum(spent) == pytest.approx(0.5, rel=1e-9)


def test_a_fit_is_a_function_of_its_source() -> None:
    """Another source is another release, which `pipeline.ledger.centers_charge` charges anew."""
    embeddings, _ = topics(8, 16, 2000, 0.3)

    def fit(source: NoiseSource) -> np.ndarray:
        return dp_kmeans.fit_private_centers(embeddings, count=8, rho=0.5, seed=0, depth=3, source=source)

    np.testing.assert_array_equal(fit(noise_source()), fit(noise_source()))
    others = [fit(source) for source in (noise_source('other'), NoiseSource(RunKey.new(), ()))]
    assert all(not np.array_equal(fit(noise_source()), other) for other in others)


# ---------------------------------------------------------------- sensitivity


def neighbours() -> Iterator[tuple[np.ndarray, int]]:
    """Every multiset of at most three rows of the pool, and each row to leave out."""
    for size in (1, 2, 3):
        for chosen in itertools.combinations_with_replacement(range(len(POOL)), size):
            for left_out in range(size):
                yield POOL[list(chosen)], left_out


def test_one_row_moves_one_cell_of_each_release_and_no_other_row() -> None:
    """Both datasets are walked down the same released values, which are as wild as noise can make them."""
    rng = np.random.default_rng(5)
    directions = dp_kmeans.projections(3, 3, seed=1)
    origin = dp_kmeans.to_grid(np.array([[0.1, 0.05, 0.0]]))[0]
    split = dp_kmeans.split_rho(1.0, 3)
    compared = 0
    for rows, left_out in neighbours():
        released: list[list[int]] = []
        seen: tuple[list[list[int]], list[list[int]]] = ([], [])

        def draw(true: list[int], rho: float, _: object, seen=seen, released=released) -> list[int]:
            assert rho == split.per_level
            seen[0].append(list(true))
            released.append(rng.integers(0, 30, len(true)).tolist())
            return released[-1]

        def replay(true: list[int], rho: float, _: object, seen=seen, released=released) -> list[int]:
            seen[1].append(list(true))
            return released[len(seen[1]) - 1]

        found = []
        for data, noise in ((rows, draw), (np.delete(rows, left_out, axis=0), replay)):
            points = dp_kmeans.to_grid(data)
            signs = dp_kmeans.signs_of(points, origin, directions)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(counts, 'noisy_counts', noise)
                # A rule by which a true total in the place of the noisy one would show.
                patch.setattr(dp_kmeans, 'smallest_node', lambda total, **_: 1 + total % 5)
                leaf_of, leaves = dp_kmeans.grow_tree(
                    signs, split=split, count=2, dimensions=3, source=noise_source()
                )
            found.append((leaf_of, leaves, dp_kmeans.cell_sums(points, leaf_of, len(leaves))))
        (leaf_of, leaves, sums), (other_leaf_of, other_leaves, other_sums) = found
        assert len(seen[0]) == len(seen[1])
        for level, other_level in zip(*seen, strict=True):
            assert sum(abs(a - b) for a, b in zip(level, other_level, strict=True)) <= 1
        np.testing.assert_array_equal(leaves, other_leaves)
        np.testing.assert_array_equal(np.delete(leaf_of, left_out), other_leaf_of)
        moved = (sums - other_sums).astype(object)
        assert (moved**2).sum() <= dp_kmeans.RADIUS**2
        assert np.count_nonzero(moved.any(axis=1)) <= 1
        compared += len(seen[0]) > 1
    # The walk is more than a root in most of the cases.
    assert compared > 100


@pytest.mark.parametrize('dimensions', [1, 3, 384])
def test_no_row_is_longer_on_the_grid_than_the_radius(dimensions: int) -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((200, dimensions))
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    # Rows of equal numbers round all in one direction, for many of these lengths upwards.
    equal = -np.tri(dimensions)
    wild = np.concatenate([unit, rows * 1e300, rows * 1e-310, np.eye(dimensions), equal, rows.astype('f2')])
    for row in dp_kmeans.to_grid(wild):
        assert sum(int(value) ** 2 for value in row) <= dp_kmeans.RADIUS**2
    # And it keeps what it may keep: a unit row loses less than a step in each place, and one for room.
    lost = np.abs(dp_kmeans.to_grid(unit) - unit.astype(float) * dp_kmeans.RADIUS)
    assert lost.max() < 2.01


@pytest.mark.parametrize('broken', [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_counts_as_zero(broken: float) -> None:
    assert not dp_kmeans.to_grid(np.array([[broken, 0.5]])).any()


def test_a_rows_cells_depend_on_that_row_alone() -> None:
    embeddings, _ = topics(5, 384, 300, 0.5)
    directions = dp_kmeans.projections(384, 20, seed=4)
    origin = dp_kmeans.to_grid(embeddings[:50].mean(axis=0, keepdims=True))[0]
    points = dp_kmeans.to_grid(embeddings)
    together = dp_kmeans.signs_of(points, origin, directions)
    for row in range(0, 300, 7):
        alone = dp_kmeans.to_grid(np.asfortranarray(embeddings[row : row + 1]))
        np.testing.assert_array_equal(alone[0], points[row])
        np.testing.assert_array_equal(dp_kmeans.signs_of(alone, origin, directions)[0], together[row])
        exact = [
            sum((int(x) - int(o)) * int(w) for x, o, w in zip(points[row], origin, direction)) > 0
            for direction in directions
        ]
        assert together[row].tolist() == exact


# ---------------------------------------------------------------- tree


@pytest.mark.parametrize('seed', range(4))
def test_the_tree_is_its_slow_twin(seed: int) -> None:
    embeddings, _ = topics(6, 8, 700, 0.4)
    points = dp_kmeans.to_grid(embeddings)
    directions = dp_kmeans.projections(8, 6, seed)
    signs = dp_kmeans.signs_of(points, np.zeros(8, np.int64), directions)
    split = dp_kmeans.split_rho(NO_NOISE, 6)
    leaf_of, leaves = dp_kmeans.grow_tree(signs, split=split, count=12, dimensions=8, source=noise_source())
    # Without noise the smallest node is one point; 700 points leave no other bound.
    assert dp_kmeans.smallest_node(700, split=split, count=12, dimensions=8) == 1
    expected = oracles.prefix_tree_leaves(signs.tolist(), smallest=1)
    found = {frozenset(np.flatnonzero(leaf_of == leaf).tolist()) for leaf in range(len(leaves))}
    assert found == expected
    assert leaves.tolist() == np.bincount(leaf_of[leaf_of >= 0]).tolist()


@pytest.mark.parametrize(
    ('total', 'rho', 'count', 'dimensions', 'smallest'),
    [
        # 10 √64 / √(2 · 0.8) = 63.2 points for low noise; 100,000 / 20 for two nodes a centre.
        (100_000, 1.0, 10, 64, 63),
        # 1,000 / 20 is less.
        (1_000, 1.0, 10, 64, 50),
        # Three standard deviations of a count: 3 / √(2 · 0.001 / 21) = 307.4.
        (100_000, 0.005, 500, 256, 308),
        (-5, NO_NOISE, 10, 64, 1),
    ],
)
def test_the_smallest_node(total: int, rho: float, count: int, dimensions: int, smallest: int) -> None:
    split = dp_kmeans.split_rho(rho, 20)
    assert dp_kmeans.smallest_node(total, split=split, count=count, dimensions=dimensions) == smallest


# ---------------------------------------------------------------- noise


def test_noise_of_the_sums_has_the_scale_of_its_rho() -> None:
    rho, draws = 0.004, 20_000
    zeros = np.zeros((100, draws // 100), np.int64)
    noise = dp_kmeans.noisy_sums(zeros, rho, noise_source()).astype(float)
    scale = dp_kmeans.RADIUS / math.sqrt(2 * rho)
    # At this scale the discrete Gaussian is the Gaussian of the same variance (CKS, fact 18), so the
    # sum of squares over σ² is chi-square. A scale 5% off is ten standard deviations away.
    for wrong, right in ((1.0, True), (0.95, False), (1.05, False)):
        statistic = float((noise**2).sum()) / (wrong * scale) ** 2
        p = 2 * min(stats.chi2.cdf(statistic, draws), stats.chi2.sf(statistic, draws))
        assert (p > FALSE_ALARM) == right, f'{wrong} times the scale: p={p}'
    # Five standard deviations and more of a mean of independent draws: odds 6e-7 would be at 5.
    assert abs(noise.mean()) < 5.4 * scale / math.sqrt(draws)


def test_noise_is_added_to_each_sum_in_its_place() -> None:
    sums = np.array([[3, -(10**12)], [0, 7]])
    np.testing.assert_array_equal(dp_kmeans.noisy_sums(sums, NO_NOISE, noise_source()), sums)


# ---------------------------------------------------------------- what it finds


@pytest.mark.first
@pytest.mark.heavy
def test_separated_topics_are_found_when_noise_is_small() -> None:
    embeddings, labels = topics(8, 32, 4000, 0.05)
    centers = dp_kmeans.fit_private_centers(embeddings, count=8, rho=1e6, seed=1, source=noise_source())
    assert centers.shape == (8, 32) and centers.dtype == np.float32
    assert agreement(embeddings, labels, centers) > 0.99
    again = dp_kmeans.fit_private_centers(embeddings, count=8, rho=NO_NOISE, seed=1, source=noise_source())
    np.testing.assert_array_equal(
        again, dp_kmeans.fit_private_centers(embeddings, count=8, rho=NO_NOISE, seed=1, source=noise_source())
    )


def test_a_tiny_rho_leaves_one_centre() -> None:
    embeddings, labels = topics(8, 32, 2000, 0.05)
    # The root splits at 9 σ and holds 2,000 rows, below 1 σ = 2,291: eight deviations, odds below 1e-14.
    centers = dp_kmeans.fit_private_centers(embeddings, count=8, rho=1e-5, seed=1, source=noise_source())
    assert centers.shape == (1, 32)
    assert agreement(embeddings, labels, centers) == 0.0


def test_no_centre_is_longer_than_one_and_nothing_is_too_little() -> None:
    for embeddings in (np.zeros((0, 4), np.float32), np.full((3, 4), np.nan), POOL):
        centers = dp_kmeans.fit_private_centers(embeddings, count=5, rho=0.01, seed=0, source=noise_source())
        assert 1 <= len(centers) <= 5 and np.isfinite(centers).all()
        assert np.linalg.norm(centers, axis=1).max() < 1 + 1e-6


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'rho': 0.0}, 'rho > 0, got rho=0.0'),
        ({'rho': math.inf}, 'rho > 0, got rho=inf'),
        ({'rho': math.nan}, 'rho > 0, got rho=nan'),
        ({'count': 0}, 'count >= 1, got count=0'),
        ({'depth': -1}, 'depth >= 0, got depth=-1'),
        ({'origin': np.zeros(4)}, r'origin \[3\], got shape=\(4,\)'),
    ],
)
def test_settings_out_of_range_are_refused(changes: dict, message: str) -> None:
    arguments = {'count': 2, 'rho': 1.0, 'seed': 0, 'source': noise_source()} | changes
    with pytest.raises(ValueError, match=message):
        dp_kmeans.fit_private_centers(POOL, **arguments)


@pytest.mark.parametrize('embeddings', [np.zeros(5), np.zeros((1234, 0)), np.zeros((1234, 2, 2))])
def test_a_wrong_shape_is_refused_without_telling_the_number_of_records(embeddings: np.ndarray) -> None:
    with pytest.raises(ValueError, match='embeddings') as caught:
        dp_kmeans.fit_private_centers(embeddings, count=2, rho=1.0, seed=0, source=noise_source())
    assert '1234' not in str(caught.value)
