"""Clusters against slow twins: two choices of a centre, and a clustering that is drawn once."""

import dataclasses
import math
import pathlib
import pickle
import random
import tempfile
import traceback

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing import util

from models import batch_plan
from models.batch_plan import BatchPlan, Clustering
from models.privacy import counts
from models.privacy.params import Unit
from models.records import Batch, Record
from tests import oracles
from tests.samples import LABELS, MODES, SECRET, keep_batch, pipeline
from tests.transforms.letters import (
    CENTERS,
    LETTERS,
    LetterEmbedder,
    calls_in,
    settings_in,
    slow_clusters,
    slow_nearest,
    some_records,
)
from tests.transforms.samples import SLOTS, make_work_dir
from transforms import cluster, together
from transforms.assign import AssignBatches
from transforms.count import CountContexts
from transforms.durable import ERRORS_FOLDER
from transforms.plan import DrawPlan, draw_plan

KEPT = 2

FLAGS = {
    'one worker': ('--runner=FnApiRunner',),
    'two workers': ('--runner=FnApiRunner', '--direct_num_workers=2'),
    'every bundle twice': ('--runner=FnApiRunner', '--direct_runner_bundle_repeat=1'),
    'bundle by bundle': ('--runner=BundleBasedDirectRunner',),
}

RUNNERS = pytest.mark.parametrize('flags', FLAGS.values(), ids=FLAGS)


def run(
    records: list[Record], work_dir: str, unit: Unit, k: int, *, rho: float, flags: tuple[str, ...] = ()
) -> tuple[Clustering, BatchPlan, list[Batch]]:
    """Clusters, plans and assigns, as a job does; what the work directory and the batches hold."""
    out = tempfile.mkdtemp(dir=work_dir)
    with pipeline(*flags) as p:
        clustered, clustering = (
            p
            | beam.Create(records)
            | beam.Reshuffle()
            | cluster.ClusterRecords(settings_in(work_dir), LABELS, work_dir, KEPT, rho, unit)
        )
        assert (clustered.element_type, clustering.element_type) == (Record, Clustering)
        plan = (
            clustered
            | CountContexts(LABELS, work_dir, unit, CENTERS.count)
            | DrawPlan(work_dir, LABELS, rho, SLOTS, unit, k, clustering)
        )
        batches = clustered | AssignBatches(plan, work_dir, SLOTS, unit, k)
        batches | beam.Map(keep_batch, out)
    found = [pickle.loads(path.read_bytes()) for path in sorted(pathlib.Path(out).iterdir())]
    plan = BatchPlan.from_json(pathlib.Path(work_dir, 'plan.json').read_text())
    return clustering_in(work_dir), plan, found


def clustering_in(work_dir: str) -> Clustering:
    return Clustering.from_json(pathlib.Path(work_dir, 'clustering.json').read_text())


@pytest.fixture
def work_dir(tmp_path: pathlib.Path) -> str:
    (tmp_path / 'calls').mkdir()
    CENTERS.write(tmp_path / 'centers')
    return make_work_dir(tmp_path)


def test_embedding_finds_the_nearest_of_all_centres(work_dir: str) -> None:
    records = some_records()
    embedder = LetterEmbedder(f'{work_dir}/calls')
    found = cluster.embed_records(records, embedder.embed, CENTERS, None)
    for before, after in zip(records, found, strict=True):
        (vector,) = embedder.embed([before.text])
        assert after.embedding == vector.astype('<f4').tobytes()
        assert after.cluster == slow_nearest(before.text)
        assert dataclasses.replace(after, embedding=None, cluster=None) == before
    assert len({record.cluster for record in found}) >= 5
    # In any company, a record's row is its own.
    assert [cluster.embed_records([record], embedder.embed, CENTERS, None)[0] for record in records] == found
    assert cluster.embed_records(found[::-1], embedder.embed, CENTERS, None) == found[::-1]


def test_a_text_is_cut_before_it_is_embedded_and_stays_whole(work_dir: str) -> None:
    embedder = LetterEmbedder(f'{work_dir}/calls')
    (found,) = cluster.embed_records([Record(text='q' + 'p' * 9)], embedder.embed, CENTERS, 1)
    assert found.cluster == slow_nearest('q') != slow_nearest('q' + 'p' * 9)
    assert found.text == 'q' + 'p' * 9


def test_reclustering_finds_the_nearest_kept_centre_of_the_label(work_dir: str) -> None:
    records = some_records()
    clustering = Clustering(kept=((1, 6), (0, 4)), noisy_counts=((0,) * 8,) * 2, rho=1.0)
    embedder = LetterEmbedder(f'{work_dir}/calls')
    embedded = cluster.embed_records(records, embedder.embed, CENTERS, None)
    found = cluster.recluster(embedded, CENTERS, LABELS, clustering)
    assert found == slow_clusters(records, dict(zip(LABELS, clustering.kept, strict=True)))
    assert {record.cluster for record in found if record.label == 'undeclared'} == {None}
    assert [cluster.recluster([one], CENTERS, LABELS, clustering)[0] for one in embedded] == found
    assert cluster.recluster([], CENTERS, LABELS, clustering) == []


def test_a_record_that_was_not_embedded_is_no_zero_vector() -> None:
    clustering = Clustering(kept=((0,),), noisy_counts=((0,) * 8,), rho=1.0)
    with pytest.raises(ValueError):
        cluster.recluster([Record(text='p')], CENTERS, (None,), clustering)


@pytest.mark.run
@pytest.mark.parametrize(('unit', 'k'), MODES)
def test_batches_equal_the_slow_twin_given_the_released_counts(work_dir: str, unit: Unit, k: int) -> None:
    records = some_records()
    clustering, plan, found = run(records, work_dir, unit, k, rho=0.5)
    kept = dict(zip(LABELS, clustering.kept, strict=True))
    expected = oracles.batches(slow_clusters(records, kept), plan, SECRET, unit=unit, k=k, slots=SLOTS)
    assert found == expected
    assert [batch.batch_id for batch in found] == list(plan.batch_ids())
    assert plan.clustering == clustering and plan.noisy_counts is not None
    assert plan.group_names == tuple((label, index) for label in LABELS for index in kept[label])
    # Another order in the same work directory: the same releases, and the same batches.
    random.Random(0).shuffle(records)
    assert run(records, work_dir, unit, k, rho=0.5) == (clustering, plan, expected)


@pytest.mark.run
@pytest.mark.parametrize(
    ('flags', 'unit'), zip(FLAGS.values(), 2 * ('example', 'user'), strict=True), ids=FLAGS
)
def test_both_histograms_count_contexts_where_they_go(
    work_dir: str, unit: Unit, flags: tuple[str, ...]
) -> None:
    records = some_records()
    # Scale 0.007: a value other than the true count has odds below e^-5000.
    clustering, plan, _ = run(records, work_dir, unit, 1, rho=10_000.0, flags=flags)
    everywhere = slow_clusters(records, dict.fromkeys(LABELS, range(CENTERS.count)))
    first = oracles.histogram(everywhere, LABELS, range(CENTERS.count), SECRET, unit=unit)
    assert [count for cells in clustering.noisy_counts for count in cells] == first
    assert clustering.kept == tuple(counts.largest_cells(cells, KEPT) for cells in clustering.noisy_counts)
    reclustered = slow_clusters(records, dict(zip(LABELS, clustering.kept, strict=True)))
    second = oracles.histogram(reclustered, LABELS, range(CENTERS.count), SECRET, unit=unit)
    cells = [LABELS.index(label) * CENTERS.count + index for label, index in plan.group_names]
    assert list(plan.noisy_counts) == [second[cell] for cell in cells]
    # Both count every context once, and nobody is left in a cluster that was given up.
    declared = [record for record in records if record.label in LABELS]
    contexts = len({record.unit for record in declared}) if unit == 'user' else len(declared)
    assert sum(first) == sum(plan.noisy_counts) == contexts > 10


@pytest.mark.run
@RUNNERS
def test_every_text_is_embedded_once_in_blocks_by_one_embedder(
    work_dir: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together.Together, 'together', 7)
    run(some_records(), work_dir, 'user', 2, rho=0.5, flags=flags)
    built, embedded = calls_in(work_dir)
    # Bundles that the runner repeats embed again, and nothing else does.
    assert sum(embedded) == 60 * (2 if '--direct_runner_bundle_repeat=1' in flags else 1)
    assert max(embedded) == 7
    assert built == 1


@pytest.mark.run
def test_embeddings_end_where_clusters_are_chosen(work_dir: str) -> None:
    records = some_records()
    run(records, work_dir, 'example', 1, rho=0.5)
    with pipeline() as p:
        embedded = (
            p | beam.Create(records) | beam.ParDo(cluster.EmbedRecords(settings_in(work_dir), work_dir))
        )
        clustering = p | 'Clustering' >> beam.Create([clustering_in(work_dir)])
        choose = cluster.Recluster(settings_in(work_dir), work_dir, LABELS)
        found = embedded | beam.ParDo(choose, beam.pvalue.AsSingleton(clustering))
        before = embedded | 'Before' >> beam.Map(lambda record: len(record.embedding))
        after = found | 'After' >> beam.Map(lambda record: record.embedding)
        util.assert_that(before, util.equal_to([4 * len(LETTERS)] * 60), 'embedded')
        util.assert_that(after, util.equal_to([None] * 60), 'gone')
    written = b''.join(path.read_bytes() for path in pathlib.Path(work_dir).rglob('*') if path.is_file())
    vectors = LetterEmbedder(f'{work_dir}/calls').embed([record.text for record in records])
    # The centres' own file holds rows of the identity.
    rows = [row.tobytes() for row in vectors if np.count_nonzero(row) > 2]
    assert rows and not any(row in written for row in rows)


@pytest.mark.run
def test_what_an_error_quotes_stays_in_the_work_directory(work_dir: str) -> None:
    records = [Record(text='secret\0', label='a')]
    with pytest.raises(Exception, match=r'got error=ValueError.*errors/cluster\.') as caught:
        run(records, work_dir, 'example', 1, rho=1.0)
    assert 'secret' not in ''.join(traceback.format_exception(caught.value))
    (kept,) = pathlib.Path(work_dir, ERRORS_FOLDER).iterdir()
    assert 'secret' in kept.read_text()


# --- The draw -------------------------------------------------------------------------

ARGUMENTS = {'labels': LABELS, 'centers': 3, 'kept': 2, 'rho': 0.0005}


def test_the_clustering_is_drawn_once_in_the_life_of_a_run(tmp_path: pathlib.Path, work_dir: str) -> None:
    path, before = tmp_path / 'clustering.json', set(tmp_path.iterdir())
    first = cluster.draw_clustering([10, 20, 30, 40, 50, 60], work_dir, **ARGUMENTS)
    # A later caller reads it, with other counts even.
    for counted in ([10, 20, 30, 40, 50, 60], [0] * 6):
        assert cluster.draw_clustering(counted, work_dir, **ARGUMENTS) == first
    assert set(tmp_path.iterdir()) - before == {path}
    assert Clustering.from_json(path.read_text()) == first
    # A lost file is drawn the same again. Scale 32: two draws of six counts are equal with odds below 1e-9.
    path.unlink()
    assert cluster.draw_clustering([10, 20, 30, 40, 50, 60], work_dir, **ARGUMENTS) == first
    assert first.rho == 0.0005 and first.centers == 3
    assert first.kept == tuple(counts.largest_cells(cells, 2) for cells in first.noisy_counts)
    make_work_dir(tmp_path / 'other', run='{"input": "another"}')
    other = cluster.draw_clustering([10, 20, 30, 40, 50, 60], str(tmp_path / 'other'), **ARGUMENTS)
    assert other != first, 'a draw of its own'


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
        ({'kept': 9}, 'keep 1 to 8 centres for each label, got kept=9'),
        ({'kept': 0}, 'keep 1 to 8 centres for each label, got kept=0'),
        ({'rho': 0.0}, 'rho > 0'),
        ({'labels': ()}, 'distinct labels'),
        ({'kept': 5}, 'at most 9 groups, got labels=2, kept=5'),
    ],
)
def test_an_impossible_clustering_is_refused_when_the_pipeline_is_built(
    work_dir: str, monkeypatch: pytest.MonkeyPatch, changed: dict, message: str
) -> None:
    monkeypatch.setattr(batch_plan, 'MAX_GROUPS', 9)
    settings = {'labels': LABELS, 'kept': KEPT, 'rho': 1.0} | changed
    records = beam.Pipeline() | beam.Create(some_records())
    with pytest.raises(ValueError, match=message):
        records | cluster.ClusterRecords(settings_in(work_dir), work_dir=work_dir, **settings)
