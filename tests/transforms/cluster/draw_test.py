"""The clustering: drawn once, for the counts of its run."""

import math
import pathlib

import numpy as np
import pytest

from models.batch_plan import Clustering
from models.privacy import counts
from models.privacy.grid import NoiseSource
from tests.samples import LABELS
from tests.transforms.samples import make_work_dir
from transforms import cluster
from transforms.plan import draw_plan

ARGUMENTS = {'labels': LABELS, 'centers': 3, 'kept': 2, 'rho': 0.0005}


def test_the_clustering_is_drawn_once_in_the_life_of_a_run(tmp_path: pathlib.Path, work_dir: str) -> None:
    path, before = tmp_path / 'clustering.json', set(tmp_path.iterdir())
    first = cluster.draw_clustering([10, 20, 30, 40, 50, 60], work_dir, **ARGUMENTS)
    # Whoever comes later reads it, with other counts even.
    for counted in ([10, 20, 30, 40, 50, 60], [0] * 6):
        assert cluster.draw_clustering(counted, work_dir, **ARGUMENTS) == first
    assert set(tmp_path.iterdir()) - before == {path}
    assert cluster.read_clustering(str(path)) == first
    # Whoever lost the file draws the same. Scale 32: two draws of six counts are equal with odds below 1e-9.
    path.unlink()
    assert cluster.draw_clustering([10, 20, 30, 40, 50, 60], work_dir, **ARGUMENTS) == first
    assert first.rho == 0.0005 and first.centers == 3
    assert first.kept == tuple(counts.largest_cells(cells, 2) for cells in first.noisy_counts)
    make_work_dir(tmp_path / 'other', run='{"input": "another"}')
    other = cluster.draw_clustering([10, 20, 30, 40, 50, 60], str(tmp_path / 'other'), **ARGUMENTS)
    assert other != first, 'a draw of its own'


def test_a_clustering_that_appears_while_the_noise_is_drawn_wins(
    tmp_path: pathlib.Path, work_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before = tmp_path / 'clustering.json', set(tmp_path.iterdir())
    other = Clustering(kept=((0, 1), (1, 2)), noisy_counts=((3, 2, 1), (1, 2, 3)), rho=0.0005)
    draw = counts.noisy_counts

    def slow_draw(true_counts: list[int], rho: float, source: NoiseSource) -> list[int]:
        path.write_text(other.to_json())
        return draw(true_counts, rho, source)

    monkeypatch.setattr(counts, 'noisy_counts', slow_draw)
    assert cluster.draw_clustering([1] * 6, work_dir, **ARGUMENTS) == other
    assert set(tmp_path.iterdir()) - before == {path}


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'rho': 0.6}, 'rho=0.6'),
        ({'kept': 1}, 'kept=1'),
        ({'labels': ('a', 'b', 'c'), 'centers': 2}, 'labels=3'),
        ({'centers': 2, 'labels': ('a', 'b', 'c'), 'kept': 1}, 'centers=2'),
    ],
)
def test_a_clustering_of_another_run_is_refused(work_dir: str, changed: dict, message: str) -> None:
    cluster.draw_clustering([5] * 6, work_dir, **ARGUMENTS)
    with pytest.raises(ValueError, match=f'clustering of this run.*{message}'):
        cluster.draw_clustering([5] * 6, work_dir, **ARGUMENTS | changed)


def test_counts_of_other_centres_are_refused_before_any_noise(tmp_path: pathlib.Path, work_dir: str) -> None:
    before = set(tmp_path.iterdir())
    for cells in ([], [5] * 3, [5] * 7):
        with pytest.raises(ValueError, match='one count for each of centers=3'):
            cluster.draw_clustering(cells, work_dir, **ARGUMENTS)
    assert set(tmp_path.iterdir()) == before


def test_each_release_has_the_noise_of_its_own_price(work_dir: str) -> None:
    cells, rho = 10_000, 0.005
    first, second = counts.split_rho(rho)
    clustering = cluster.draw_clustering(
        [0] * cells, work_dir, labels=(None,), centers=cells, kept=cells, rho=first
    )
    plan = draw_plan(
        [0] * cells,
        work_dir,
        labels=(None,),
        rho=second,
        contexts_per_batch=9,
        clustering=clustering,
    )
    for noise in (clustering.noisy_counts[0], plan.noisy_counts):
        # Six standard deviations of the mean square of a Gaussian: odds 2e-9 each.
        assert np.square(noise).mean() == pytest.approx(1 / rho, rel=6 * math.sqrt(2 / cells))
        for wrong in (2 / rho, 0.5 / rho):
            assert np.square(noise).mean() != pytest.approx(wrong, rel=6 * math.sqrt(2 / cells))
    assert abs(np.corrcoef(clustering.noisy_counts[0], plan.noisy_counts)[0, 1]) < 6 / math.sqrt(cells)


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'kept': 4}, 'keep 1 to 3 centres for each label, got kept=4'),
        ({'kept': 0}, 'keep 1 to 3 centres for each label, got kept=0'),
        ({'rho': 0.0}, 'rho > 0'),
        ({'labels': ()}, 'distinct labels'),
        ({'centers': 6000, 'kept': 5001}, 'at most 10000 groups, got labels=2, kept=5001'),
    ],
)
def test_an_impossible_clustering_is_refused_when_the_pipeline_is_built(changed: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster.DrawClustering('work', **ARGUMENTS | changed)
