"""The comparison of clusterings: right figures, and nothing of it where others could read it."""

import collections
import dataclasses
import json
import math
import os
import pathlib
import re
import stat
import typing

import numpy as np
import pytest

from models.clustering.centers import Centers
from models.privacy import accounting, report
from pipeline import clusters
from pipeline.pages import clusters_page

DELTA = 1e-6
TOPICS = 6
METHODS = [
    'k-means',
    'DP k-means',
    'public centres',
    'public centres, rebalanced',
    'random, 6',
    'random, 4',
]


def public_centers(vectors: np.ndarray) -> Centers:
    return Centers(
        vectors=vectors.astype(np.float32),
        embedder='tfidf',
        embedder_fingerprint='ab' * 32,
        corpus_fingerprint='cd' * 32,
        corpus_texts=5,
        seed=0,
        source='public',
    )


@pytest.fixture(scope='module')
def records() -> tuple[np.ndarray, Centers]:
    """3,000 unit rows of six topics, the last one rare, and twelve centres, six of them far off."""
    rng = np.random.default_rng(8)
    middles = rng.standard_normal((2 * TOPICS, 24))
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    topics = rng.choice(TOPICS, p=[0.3, 0.2, 0.2, 0.15, 0.14, 0.01], size=3000)
    rows = middles[topics] + 0.05 * rng.standard_normal((3000, 24))
    near = middles + 0.05 * rng.standard_normal(middles.shape)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32), public_centers(near)


@pytest.fixture(scope='module')
def comparison(records: tuple[np.ndarray, Centers]) -> clusters.ClusterComparison:
    embeddings, centers = records
    return clusters.compare_clusterings(
        embeddings, centers=centers, count=6, kept=4, rho=20.0, delta=DELTA, seed=3
    )


def entropy(counts: typing.Iterable[int]) -> float:
    counts = list(counts)
    total = sum(counts)
    return -math.fsum(count / total * math.log(count / total) for count in counts)


def v_measure(reference: np.ndarray, found: np.ndarray) -> float:
    """Slow twin: 2 h c / (h + c) with h = 1 - H(C|K)/H(C), c = 1 - H(K|C)/H(K).

    Rosenberg and Hirschberg 2007, equations 1 to 3.
    """
    both = entropy(collections.Counter(zip(reference.tolist(), found.tolist())).values())
    classes, groups = (entropy(collections.Counter(part.tolist()).values()) for part in (reference, found))
    homogeneity = 1 - (both - groups) / classes
    completeness = 1 - (both - classes) / groups
    return 2 * homogeneity * completeness / (homogeneity + completeness)


# ---------------------------------------------------------------- figures


def test_a_row_counts_clusters_as_the_paper_does() -> None:
    found = np.repeat(np.arange(5), [150, 100, 99, 2, 1])
    reference = np.arange(len(found)) % 7
    row = clusters.row_of('some way', 0.25, 1.5, found, reference)
    assert (row.clusters, row.large_clusters) == (4, 2)
    assert row.sizes == (150, 100, 99, 2, 1)
    assert row.v_measure == pytest.approx(v_measure(reference, found), rel=1e-9)
    assert (row.method, row.rho, row.epsilon) == ('some way', 0.25, 1.5)


def test_every_method_places_every_record_once(comparison: clusters.ClusterComparison) -> None:
    assert [row.method for row in comparison.rows] == METHODS
    assert comparison.records == 3000
    for row in comparison.rows:
        assert sum(row.sizes) == 3000 and list(row.sizes) == sorted(row.sizes, reverse=True)


def test_each_method_states_its_price(comparison: clusters.ClusterComparison) -> None:
    epsilon = accounting.epsilon_from_rho(20.0, DELTA)
    assert {row.method: (row.rho, row.epsilon) for row in comparison.rows} == {
        'k-means': (None, None),
        'DP k-means': (20.0, epsilon),
        'public centres': (0.0, 0.0),
        'public centres, rebalanced': (20.0, epsilon),
        'random, 6': (0.0, 0.0),
        'random, 4': (0.0, 0.0),
    }


def test_good_clusters_score_high_and_random_ones_low(comparison: clusters.ClusterComparison) -> None:
    by_method = {row.method: row for row in comparison.rows}
    assert by_method['k-means'].v_measure == 1.0
    assert by_method['public centres'].v_measure > 0.9
    assert by_method['DP k-means'].v_measure > 0.8
    assert by_method['public centres, rebalanced'].v_measure > 0.8
    # 5·5 degrees of freedom over 2n: a random clustering shares about 0.004 nats of 1.6 with the reference.
    assert by_method['random, 6'].v_measure < 0.02
    assert by_method['random, 4'].v_measure < 0.02
    for row in comparison.rows:
        # Corrected for chance: near V-measure for clusters as few and good as these, and 0 for random ones.
        assert abs(row.adjusted - (0.0 if row.method.startswith('random') else row.v_measure)) < 0.01


def test_the_adjusted_column_is_blind_to_many_random_clusters() -> None:
    rng = np.random.default_rng(2)
    reference, found = rng.integers(200, size=(2, 4000))
    row = clusters.row_of('random', 0.0, 0.0, found, reference)
    assert row.v_measure > 0.3
    # Over seeds it varies by about 0.003 around 0.
    assert abs(row.adjusted) < 0.02


def test_rebalancing_leaves_no_small_cluster(
    records: tuple[np.ndarray, Centers], comparison: clusters.ClusterComparison
) -> None:
    embeddings, centers = records
    # The four most frequent topics hold 420 records more than the two that go; the noise of a
    # count is 1/√40 at rho = 20, so another choice has odds below e^-1000.
    rebalanced = clusters.rebalance(embeddings, centers, kept=4, rho=20.0)
    assert len(np.unique(rebalanced)) == 4
    assert min(comparison.rows[3].sizes) > 300 > min(comparison.rows[2].sizes)
    true_counts = np.bincount(centers.nearest(embeddings), minlength=12)
    assert set(np.unique(rebalanced)) == set(np.argsort(-true_counts, kind='stable')[:4])


def test_noise_takes_the_private_methods_apart(records: tuple[np.ndarray, Centers]) -> None:
    embeddings, centers = records
    noisy = clusters.compare_clusterings(
        embeddings, centers=centers, count=6, kept=4, rho=1e-7, delta=DELTA, seed=3
    )
    by_method = {row.method: row for row in noisy.rows}
    # The tree's root cannot split (tests/models/clustering/dp_kmeans_test.py), so there is one cluster.
    assert by_method['DP k-means'].sizes == (3000,)
    assert by_method['DP k-means'].v_measure == 0.0
    assert by_method['public centres'].v_measure > 0.9


def test_fewer_records_than_clusters_are_compared_all_the_same(
    records: tuple[np.ndarray, Centers], recwarn: pytest.WarningsRecorder
) -> None:
    embeddings, centers = records
    doubled = np.concatenate([embeddings[:2], embeddings[:2]])
    few = clusters.compare_clusterings(
        doubled, centers=centers, count=6, kept=4, rho=1.0, delta=DELTA, seed=3
    )
    assert few.rows[0].sizes == (2, 2)
    # sklearn would have told the number of distinct records.
    assert [str(warning.message) for warning in recwarn if 'distinct' in str(warning.message)] == []


# ---------------------------------------------------------------- what may leave the curator


def test_its_repr_shows_no_true_figure(comparison: clusters.ClusterComparison) -> None:
    shown = repr(comparison)
    assert "method='DP k-means'" in shown
    for name in ('records', 'sizes', 'clusters', 'large_clusters', 'v_measure', 'adjusted'):
        assert f'{name}=' not in shown
    assert not re.search(r'\b3000\b', shown)
    for row in comparison.rows:
        assert not any(re.search(rf'\b{size}\b', shown) for size in row.sizes if size > 20)


def test_its_json_says_first_that_it_is_restricted(comparison: clusters.ClusterComparison) -> None:
    values = json.loads(comparison.to_json(), parse_constant=pytest.fail)
    assert list(values)[:3] == ['schema', 'schema_version', 'audience']
    assert values['audience'] == report.RESTRICTED
    assert values['records'] == 3000 and values['centers'] == 12 and values['kept'] == 4
    rows = tuple(clusters.ClusteringRow(**row | {'sizes': tuple(row['sizes'])}) for row in values['rows'])
    assert rows == comparison.rows


@pytest.mark.parametrize('name', ['sizes.json', 'sizes.html'])
def test_the_file_is_its_owners_alone_and_is_never_replaced(
    comparison: clusters.ClusterComparison, tmp_path: pathlib.Path, name: str
) -> None:
    path = tmp_path / name
    clusters_page.write(comparison, path)
    expected = comparison.to_json() if name.endswith('json') else clusters_page.render_html(comparison)
    assert path.read_text(encoding='utf-8') == expected
    if os.name == 'posix':
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        clusters_page.write(comparison, path)


@pytest.mark.parametrize('neighbour', ['data', 'privacy_report.json'])
def test_it_is_not_written_next_to_a_corpus(
    comparison: clusters.ClusterComparison, tmp_path: pathlib.Path, neighbour: str
) -> None:
    (tmp_path / neighbour).mkdir()
    with pytest.raises(ValueError, match='without a corpus'):
        clusters_page.write(comparison, tmp_path / 'sizes.json')
    assert [path.name for path in tmp_path.iterdir()] == [neighbour]


def test_another_ending_is_refused(comparison: clusters.ClusterComparison, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"\.html or \.json, got path='sizes.csv'"):
        clusters_page.write(comparison, tmp_path / 'sizes.csv')


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'count': 1}, 'count >= 2, got count=1'),
        ({'kept': 13}, 'between 1 and 12 cells, got number=13'),
        ({'kept': 0}, 'between 1 and 12 cells, got number=0'),
        ({'rho': 0.0}, 'rho > 0, got rho=0.0'),
        ({'delta': 1.0}, 'delta'),
        ({'embeddings': np.zeros((1234, 23), np.float32)}, r'embeddings \[n, 24\]'),
        ({'embeddings': np.zeros((0, 24), np.float32)}, r'at least one record'),
    ],
)
def test_settings_out_of_range_are_refused(
    records: tuple[np.ndarray, Centers], changes: dict[str, typing.Any], message: str
) -> None:
    arguments: dict[str, typing.Any] = {
        'embeddings': records[0][:200],
        'centers': records[1],
        'count': 6,
        'kept': 4,
        'rho': 1.0,
        'delta': DELTA,
        'seed': 3,
    }
    with pytest.raises(ValueError, match=message) as caught:
        clusters.compare_clusterings(**(arguments | changes))
    assert '1234' not in str(caught.value)


def test_centres_of_private_records_are_refused(records: tuple[np.ndarray, Centers]) -> None:
    private = dataclasses.replace(records[1], source='k-means', corpus_fingerprint=None, corpus_texts=None)
    with pytest.raises(ValueError, match="public centres, got source='k-means'"):
        clusters.compare_clusterings(
            records[0], centers=private, count=6, kept=4, rho=1.0, delta=DELTA, seed=3
        )
