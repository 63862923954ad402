"""The batch plan: drawn once, for the counts of its run."""

import dataclasses
import pathlib

import apache_beam as beam
import pytest
from apache_beam.testing import util

from models.batch_plan import BatchPlan, Clustering
from models.privacy import counts
from models.privacy.grid import NoiseSource
from models.privacy.params import Unit
from tests.samples import CLUSTERED, LABELS, SECRET, pipeline
from tests.transforms.samples import make_work_dir
from transforms.plan import DrawPlan, draw_plan


def test_the_noise_is_drawn_once_in_the_life_of_a_run(tmp_path: pathlib.Path, work_dir: str) -> None:
    arguments = {'labels': LABELS, 'rho': 5e-13, 'contexts_per_batch': 10}
    before = set(tmp_path.iterdir())
    first = draw_plan([1000, 2000], work_dir, **arguments)
    # A later caller reads it, with other counts even.
    for counted in ([1000, 2000], [0, 0]):
        assert draw_plan(counted, work_dir, **arguments) == first
    path = tmp_path / 'plan.json'
    assert BatchPlan.from_json(path.read_text()) == first
    assert set(tmp_path.iterdir()) - before == {path}
    # A lost file is drawn the same again. Scale 1e6: two draws are equal with odds below 1e-6.
    path.unlink()
    assert draw_plan([1000, 2000], work_dir, **arguments) == first
    other_counts, other_run, other_key = tmp_path / 'counts', tmp_path / 'run', tmp_path / 'key'
    make_work_dir(other_counts)
    make_work_dir(other_run, run='{"input": "another"}')
    make_work_dir(other_key, secret=SECRET[::-1])
    for folder, moved in ((other_counts, 1), (other_run, 0), (other_key, 0)):
        other = draw_plan([1000, 2000 + moved], str(folder), **arguments)
        assert first.noisy_counts is not None and other.noisy_counts is not None
        pairs = zip(first.noisy_counts, other.noisy_counts, strict=True)
        assert all(one not in (noisy, noisy - moved) for one, noisy in pairs)
    assert first.noisy_counts is not None
    assert first.batches_per_group == tuple(max(1, round(noisy / 10)) for noisy in first.noisy_counts)
    assert first.contexts_rho == 5e-13


def test_a_plan_that_appears_while_the_noise_is_drawn_wins(
    tmp_path: pathlib.Path, work_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before = tmp_path / 'plan.json', set(tmp_path.iterdir())
    other = BatchPlan(labels=LABELS, batches_per_group=(7, 7), noisy_counts=(70, 70), contexts_rho=0.5)
    draw = counts.noisy_counts

    def slow_draw(true_counts: list[int], rho: float, source: NoiseSource) -> list[int]:
        path.write_text(other.to_json())
        return draw(true_counts, rho, source)

    monkeypatch.setattr(counts, 'noisy_counts', slow_draw)
    assert draw_plan([1, 1], work_dir, labels=LABELS, rho=0.5, contexts_per_batch=10) == other
    assert set(tmp_path.iterdir()) - before == {path}


@pytest.mark.parametrize('changed', [{'labels': ('a', 'c')}, {'rho': 0.6}])
def test_a_plan_of_another_run_is_refused(work_dir: str, changed: dict) -> None:
    arguments = {'labels': LABELS, 'rho': 0.5, 'contexts_per_batch': 10}
    draw_plan([5, 5], work_dir, **arguments)
    with pytest.raises(ValueError, match='the batch plan of this run'):
        draw_plan([5, 5], work_dir, **arguments | changed)


def test_a_plan_of_clusters_takes_the_counts_of_kept_centres(work_dir: str) -> None:
    clustering = CLUSTERED.clustering
    # Scale 0.07: a value other than the count has odds below 1e-40. Centres that are not kept have 7000.
    cells = [100, 7000, 200, 7000, 300, 400]
    arguments = {'labels': LABELS, 'rho': 100.0, 'contexts_per_batch': 10}
    plan = draw_plan(cells, work_dir, **arguments, clustering=clustering)
    assert plan.noisy_counts == (100, 200, 300, 400)
    assert plan.batches_per_group == (10, 20, 30, 40)
    assert plan.clustering == clustering and plan.contexts_rho == 100.0
    assert plan == BatchPlan.from_json(pathlib.Path(work_dir, 'plan.json').read_text())
    other = dataclasses.replace(clustering, kept=((0, 1), (1, 2)))
    for wrong in (None, other):
        with pytest.raises(ValueError, match='the batch plan of this run'):
            draw_plan(cells, work_dir, **arguments, clustering=wrong)


@pytest.mark.parametrize('clustering', [None, CLUSTERED.clustering])
def test_counts_of_other_cells_are_refused_before_any_noise(
    tmp_path: pathlib.Path, work_dir: str, clustering: Clustering | None
) -> None:
    before = set(tmp_path.iterdir())
    for cells in ([5], [5] * 4, [5] * 7):
        with pytest.raises(ValueError, match='counts for each label'):
            draw_plan(cells, work_dir, labels=LABELS, rho=1.0, contexts_per_batch=10, clustering=clustering)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.first
@pytest.mark.run
@pytest.mark.parametrize(
    ('unit', 'k', 'batches'), [('example', 1, 100), ('example', 5, 20), ('user', 5, 100)]
)
def test_batches_are_planned_for_what_was_counted(work_dir: str, unit: Unit, k: int, batches: int) -> None:
    with pipeline() as p:
        # Scale 0.7: noise of 10 or more has odds below 1e-40 and would move no figure here.
        plan = p | beam.Create([[1000, 0]]) | DrawPlan(work_dir, LABELS, 1.0, 10, unit, k)
        assert plan.element_type is BatchPlan
        figures = plan | beam.Map(lambda plan: plan.batches_per_group)
        util.assert_that(figures, util.equal_to([(batches, 1)]))
