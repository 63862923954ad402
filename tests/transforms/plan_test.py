"""The batch plan: drawn once, for the counts of its run."""

import dataclasses
import pathlib

import apache_beam as beam
import pytest
from apache_beam.testing import util

from models.batch_plan import BatchPlan, Clustering
from models.privacy import counts
from models.privacy.params import Unit
from tests.samples import CLUSTERED, LABELS, pipeline
from transforms.plan import DrawPlan, draw_plan, read_plan


def test_the_noise_is_drawn_once_in_the_life_of_a_work_directory(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / 'plan.json')
    arguments = {'labels': LABELS, 'rho': 0.0005, 'contexts_per_batch': 10}
    first = draw_plan([1000, 2000], path, **arguments)
    # Scale 32: two draws of two counts are equal with odds below 1e-3 each, so 20 never are.
    for _ in range(20):
        assert draw_plan([1000, 2000], path, **arguments) == first
    written = (tmp_path / 'plan.json').read_bytes()
    assert BatchPlan.from_json(written.decode()) == first
    assert read_plan(path) == first
    assert [file.name for file in tmp_path.iterdir()] == ['plan.json']
    assert first.noisy_counts is not None
    assert first.batches_per_group == tuple(max(1, round(noisy / 10)) for noisy in first.noisy_counts)
    assert first.contexts_rho == 0.0005


def test_a_plan_that_appears_while_the_noise_is_drawn_wins(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / 'plan.json'
    other = BatchPlan(labels=LABELS, batches_per_group=(7, 7), noisy_counts=(70, 70), contexts_rho=0.5)
    draw = counts.noisy_counts

    def slow_draw(true_counts: list[int], rho: float) -> list[int]:
        path.write_text(other.to_json())
        return draw(true_counts, rho)

    monkeypatch.setattr(counts, 'noisy_counts', slow_draw)
    assert draw_plan([1, 1], str(path), labels=LABELS, rho=0.5, contexts_per_batch=10) == other
    assert [file.name for file in tmp_path.iterdir()] == ['plan.json']


@pytest.mark.parametrize('changed', [{'labels': ('a', 'c')}, {'rho': 0.6}])
def test_a_plan_of_another_run_is_refused(tmp_path: pathlib.Path, changed: dict) -> None:
    arguments = {'labels': LABELS, 'rho': 0.5, 'contexts_per_batch': 10}
    path = str(tmp_path / 'plan.json')
    draw_plan([5, 5], path, **arguments)
    with pytest.raises(ValueError, match='the batch plan of this run'):
        draw_plan([5, 5], path, **arguments | changed)


def test_a_plan_of_clusters_takes_the_counts_of_kept_centres(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / 'plan.json')
    clustering = CLUSTERED.clustering
    # Scale 0.07: a value other than the count has odds below 1e-40. Centres that are not kept have 7000.
    cells = [100, 7000, 200, 7000, 300, 400]
    arguments = {'labels': LABELS, 'rho': 100.0, 'contexts_per_batch': 10}
    plan = draw_plan(cells, path, **arguments, clustering=clustering)
    assert plan.noisy_counts == (100, 200, 300, 400)
    assert plan.batches_per_group == (10, 20, 30, 40)
    assert plan.clustering == clustering and plan.contexts_rho == 100.0
    assert plan == read_plan(path)
    other = dataclasses.replace(clustering, kept=((0, 1), (1, 2)))
    for wrong in (None, other):
        with pytest.raises(ValueError, match='the batch plan of this run'):
            draw_plan(cells, path, **arguments, clustering=wrong)


@pytest.mark.parametrize('clustering', [None, CLUSTERED.clustering])
def test_counts_of_other_cells_are_refused_before_any_noise(
    tmp_path: pathlib.Path, clustering: Clustering | None
) -> None:
    for cells in ([5], [5] * 4, [5] * 7):
        with pytest.raises(ValueError, match='counts for each label'):
            draw_plan(
                cells, str(tmp_path / 'plan.json'), labels=LABELS, rho=1.0, contexts_per_batch=10,
                clustering=clustering,
            )  # fmt: skip
    assert not list(tmp_path.iterdir())


@pytest.mark.run
@pytest.mark.parametrize(
    ('unit', 'k', 'batches'), [('example', 1, 100), ('example', 5, 20), ('user', 5, 100)]
)
def test_batches_are_planned_for_what_was_counted(
    tmp_path: pathlib.Path, work_dir: str, unit: Unit, k: int, batches: int
) -> None:
    path = str(tmp_path / 'plan.json')
    with pipeline() as p:
        # Scale 0.7: noise of 10 or more has odds below 1e-40 and would move no figure here.
        plan = p | beam.Create([[1000, 0]]) | DrawPlan(path, LABELS, 1.0, 10, unit, k)
        assert plan.element_type is BatchPlan
        figures = plan | beam.Map(lambda plan: plan.batches_per_group)
        util.assert_that(figures, util.equal_to([(batches, 1)]))
