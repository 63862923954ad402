"""The whole stage of clusters, on a local runner against slow twins."""

import pathlib
import pickle
import random
import tempfile
import traceback

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing import util

from models.batch_plan import BatchPlan, Clustering
from models.clustering.centers import ClusterSettings
from models.privacy import counts
from models.privacy.params import Unit
from models.records import Batch, Record
from tests import oracles
from tests.samples import LABELS, MODES, SECRET, keep_batch, pipeline
from tests.transforms.cluster.letters import (
    CENTERS,
    LETTERS,
    LetterEmbedder,
    calls_in,
    letter_centers,
    settings_in,
    slow_clusters,
    some_records,
)
from transforms import cluster
from transforms.assign import AssignBatches
from transforms.cluster import blocks
from transforms.count import CountContexts
from transforms.durable import ERRORS_FOLDER
from transforms.plan import DrawPlan, read_plan

SLOTS = 4

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
    clustering = cluster.read_clustering(f'{work_dir}/clustering.json')
    return clustering, read_plan(f'{work_dir}/plan.json'), found


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


@pytest.mark.first
@pytest.mark.run
@RUNNERS
@pytest.mark.parametrize('unit', ['example', 'user'])
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
    monkeypatch.setattr(blocks, 'BLOCK_RECORDS', 7)
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
        embedded = p | beam.Create(records) | cluster.EmbedRecords(settings_in(work_dir), work_dir)
        clustering = p | 'Clustering' >> beam.Create([cluster.read_clustering(f'{work_dir}/clustering.json')])
        found = embedded | cluster.Recluster(settings_in(work_dir), LABELS, clustering, work_dir)
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


@pytest.mark.run
def test_centres_of_another_embedder_are_refused(work_dir: str) -> None:
    letter_centers(embedder_fingerprint='2' * 64).write(f'{work_dir}/centers')
    with pytest.raises(Exception, match='Expected the embedder of the centres'):
        run(some_records(), work_dir, 'example', 1, rho=1.0)


def test_more_kept_than_the_artefact_holds_is_refused_when_the_pipeline_is_built(work_dir: str) -> None:
    records = beam.Pipeline() | beam.Create(some_records())
    with pytest.raises(ValueError, match='keep 1 to 8 centres for each label, got kept=9'):
        records | cluster.ClusterRecords(settings_in(work_dir), LABELS, work_dir, 9, 1.0)


TEXTS_OF_TOPICS = [
    'The airline ordered forty new aircraft for its routes to Asia.',
    'The striker scored twice as the club won the league final.',
    'The album was recorded in Nashville and sold a million copies.',
    'The species is a small beetle found in the forests of Brazil.',
    'The river flows north through the village into the lake.',
    'The company reported higher profits and raised its dividend.',
    '1234 ???',
]


@pytest.mark.run
def test_records_of_a_topic_share_a_shipped_centre_whatever_their_company(work_dir: str) -> None:
    records = [Record(text=text, label='a', record_id=str(n)) for n in range(50) for text in TEXTS_OF_TOPICS]
    with pipeline() as p:
        clustered, _ = (
            p
            | beam.Create(records)
            | cluster.ClusterRecords(ClusterSettings(), ('a',), work_dir, 4, 10_000.0)
        )
        found = clustered | beam.Map(lambda record: (record.text, record.cluster))
        clusterer = ClusterSettings().build()
        vectors = [clusterer.embedder.embed([text])[0] for text in TEXTS_OF_TOPICS]
        one_by_one = [int(clusterer.centers.nearest(vector[None])[0]) for vector in vectors]
        # Noise of scale 0.007 changes no count: the four fullest centres stay.
        full = sorted(set(one_by_one), key=lambda index: (-one_by_one.count(index), index))[:4]
        expected = [
            (text, int(clusterer.centers.nearest(vector[None], full)[0]))
            for text, vector in zip(TEXTS_OF_TOPICS, vectors, strict=True)
        ]
        util.assert_that(found, util.equal_to(expected * 50))
    assert len(set(one_by_one)) > 4 and len({index for _, index in expected}) == 4
    clustering = cluster.read_clustering(f'{work_dir}/clustering.json')
    assert clustering.kept == (tuple(sorted(full)),)
    assert clustering.centers == clusterer.centers.count
