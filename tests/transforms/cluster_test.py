"""Tests of embedding, the counts per centre and the kept clusters, on a local runner against slow twins."""

import dataclasses
import fractions
import math
import pathlib
import pickle
import random
import tempfile
import traceback
import uuid
from collections.abc import Sequence

import apache_beam as beam
import hypothesis
import numpy as np
import pytest
from apache_beam import coders
from apache_beam.testing import util
from hypothesis import strategies as st

from models.batching import BatchPlan, Clustering
from models.clustering import embedder as embedder_lib
from models.clustering.centers import Centers, Clusterer, ClusterSettings
from models.privacy import counts
from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from models.records import Batch, Record
from tests import oracles
from tests.samples import LABELS, MODES, SECRET, keep_batch, pipeline
from transforms import assign, cluster, read
from transforms.durable import ERRORS_FOLDER

LETTERS = 'pqrst'
SLOTS = 4
KEPT = 2
FLAGS = {
    'one worker': ('--runner=FnApiRunner',),
    'two workers': (
        '--runner=FnApiRunner',
        '--direct_num_workers=2',
        '--direct_running_mode=multi_threading',
    ),
    'every bundle twice': ('--runner=FnApiRunner', '--direct_runner_bundle_repeat=1'),
    'bundle by bundle': ('--runner=BundleBasedDirectRunner',),
}
RUNNERS = pytest.mark.parametrize('flags', FLAGS.values(), ids=FLAGS)


# --- A small embedder and its centres --------------------------------------------


def note(folder: str, text: str) -> None:
    """Counts a call in a file of its own, since runners copy what they run."""
    (pathlib.Path(folder) / f'{uuid.uuid4().hex}.txt').write_text(text)


class LetterEmbedder(embedder_lib.Embedder):
    """How often each of five letters occurs, as a unit vector. Refuses a text with a zero byte."""

    name = 'letters'
    dimensions = len(LETTERS)
    fingerprint = '0' * 64

    def __init__(self, calls: str) -> None:
        self._calls = calls

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        note(self._calls, f'embedded {len(texts)}')
        if any('\0' in text for text in texts):
            raise ValueError(f'no letter is a zero byte: {texts}')
        found = np.array([[text.count(letter) for letter in LETTERS] for text in texts], np.float64)
        return embedder_lib.unit_rows(found.reshape(-1, self.dimensions))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LetterSettings:
    """Stands where `ClusterSettings` does, for an embedder that it does not know."""

    centers: str
    calls: str

    def build(self) -> Clusterer:
        note(self.calls, 'built')
        return Clusterer(centers=Centers.read(self.centers), embedder=LetterEmbedder(self.calls))


def letter_centers(**changed: object) -> Centers:
    """One centre for each letter, one that repeats the first, and two between letters."""
    one = np.eye(len(LETTERS), dtype=np.float32)
    vectors = np.stack([*one, one[0], (one[0] + one[1]) / 2, (one[2] + one[3]) / 2])
    fields = {
        'vectors': vectors, 'embedder': 'letters', 'embedder_fingerprint': '0' * 64,
        'corpus_fingerprint': '1' * 64, 'corpus_texts': 8, 'seed': 0, 'source': 'public',
    }  # fmt: skip
    return Centers(**fields | changed)


CENTERS = letter_centers()


@pytest.fixture
def work_dir(tmp_path: pathlib.Path) -> str:
    RunKey(SECRET).write(tmp_path / 'run.key')
    for folder in (ERRORS_FOLDER, 'calls'):
        (tmp_path / folder).mkdir()
    CENTERS.write(tmp_path / 'centers')
    return str(tmp_path)


def settings_in(work_dir: str) -> LetterSettings:
    return LetterSettings(centers=f'{work_dir}/centers', calls=f'{work_dir}/calls')


def calls_in(work_dir: str) -> tuple[int, list[int]]:
    """How often a clusterer was built, and how many texts each call embedded."""
    lines = [path.read_text() for path in pathlib.Path(work_dir, 'calls').iterdir()]
    return lines.count('built'), [int(line.split()[1]) for line in lines if line != 'built']


def some_records(number: int = 60) -> list[Record]:
    """Records with duplicates, undeclared labels, blank embeddings, and users of several labels."""
    source = random.Random(5)
    return [
        Record(
            text=''.join(source.choices(LETTERS + 'é', weights=(9, 3, 2, 2, 1, 1), k=source.randrange(1, 7))),
            label=source.choice(['a', 'a', 'b', 'undeclared']),
            unit=f'user {source.randrange(15)}',
            record_id=source.choice(['1', '2', None]),
        )
        for _ in range(number)
    ]


def slow_nearest(text: str, kept: Sequence[int] = range(CENTERS.count)) -> int:
    """Slow twin of embedding and `Centers.nearest`: exact distances, and the first of equals."""
    (vector,) = LetterEmbedder(tempfile.mkdtemp()).embed([text])

    def distance(index: int) -> fractions.Fraction:
        pairs = zip(vector.tolist(), CENTERS.vectors[index].tolist(), strict=True)
        return sum((fractions.Fraction(x) - fractions.Fraction(y)) ** 2 for x, y in pairs)

    return min(kept, key=lambda index: (distance(index), index))


def slow_clusters(records: list[Record], kept: dict[str, Sequence[int]]) -> list[Record]:
    """Slow twin of the two choices of a cluster (METHOD 3, steps 2 and 3)."""
    return [
        dataclasses.replace(record, cluster=slow_nearest(record.text, kept[record.label]))
        if record.label in kept
        else record
        for record in records
    ]


# --- Functions -------------------------------------------------------------------


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


# --- Records in a shuffle --------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=['Cs']), max_size=5)
RECORDS = st.builds(
    Record,
    text=TEXTS,
    label=st.none() | TEXTS,
    unit=st.none() | TEXTS,
    record_id=st.none() | TEXTS,
    embedding=st.none() | st.binary(max_size=9),
    cluster=st.none() | st.integers(0, 2**31 - 1),
)


@hypothesis.given(record=RECORDS)
def test_a_record_crosses_a_shuffle_whole(record: Record) -> None:
    coder = coders.registry.get_coder(Record)
    assert isinstance(coder, read.RecordCoder) and coder.is_deterministic()
    assert coder.decode(coder.encode(record)) == record


def test_a_record_shows_neither_embedding_nor_cluster() -> None:
    shown = repr(Record(text='secret', embedding=b'bytes', cluster=7))
    assert shown == 'Record()'


# --- The whole stage -------------------------------------------------------------


def run(
    records: list[Record], work_dir: str, unit: Unit, k: int, *, rho: float, flags: tuple[str, ...] = ()
) -> tuple[Clustering, BatchPlan, list[Batch]]:
    """Clusters, plans and assigns, as a job does; what the work directory and the batches hold."""
    out = tempfile.mkdtemp(dir=work_dir)
    plan_path, clustering_path = f'{work_dir}/plan.json', f'{work_dir}/clustering.json'
    with pipeline(*flags) as p:
        clustered, clustering = (
            p
            | beam.Create(records)
            | beam.Reshuffle()
            | cluster.ClusterRecords(
                settings_in(work_dir), LABELS, work_dir, clustering_path, KEPT, rho, unit
            )
        )
        assert (clustered.element_type, clustering.element_type) == (Record, Clustering)
        plan = (
            clustered
            | assign.CountContexts(LABELS, work_dir, unit, CENTERS.count)
            | assign.DrawPlan(plan_path, LABELS, rho, SLOTS, unit, k, clustering)
        )
        batches = clustered | assign.AssignBatches(plan, work_dir, SLOTS, unit, k)
        batches | beam.Map(keep_batch, out)
    found = [pickle.loads(path.read_bytes()) for path in sorted(pathlib.Path(out).iterdir())]
    return cluster.read_clustering(clustering_path), assign.read_plan(plan_path), found


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
    monkeypatch.setattr(cluster, 'BLOCK_RECORDS', 7)
    run(some_records(), work_dir, 'user', 2, rho=0.5, flags=flags)
    built, embedded = calls_in(work_dir)
    # Bundles that the runner repeats embed again, and nothing else does.
    assert sum(embedded) == 60 * (2 if '--direct_runner_bundle_repeat=1' in flags else 1)
    assert max(embedded) == 7
    assert built == 1


@pytest.mark.run
def test_the_records_of_a_full_bundle_keep_their_times_and_windows(work_dir: str) -> None:
    records = [Record(text=LETTERS[second % 5] * (1 + second % 3)) for second in range(600)]

    def outcome(
        record: Record, time: object = beam.DoFn.TimestampParam, window: object = beam.DoFn.WindowParam
    ) -> tuple[str, int | None, int, tuple[int, int]]:
        return record.text, record.cluster, int(time), (int(window.start), int(window.end))

    expected = [
        (record.text, slow_nearest(record.text, kept), second, (second // 10 * 10, second // 10 * 10 + 10))
        for kept in [range(CENTERS.count)]
        for second, record in enumerate(records)
    ]
    with pipeline() as p:
        found = (
            p
            | beam.Create(list(enumerate(records)), reshuffle=False)
            | beam.MapTuple(lambda second, record: beam.window.TimestampedValue(record, second))
            | beam.WindowInto(beam.window.FixedWindows(10))
            | cluster.EmbedRecords(settings_in(work_dir), work_dir)
            | beam.Map(outcome)
        )
        util.assert_that(found, util.equal_to(expected))
    assert sorted(calls_in(work_dir)[1]) == [88, 256, 256]


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


# --- The clustering --------------------------------------------------------------

ARGUMENTS = {'labels': LABELS, 'centers': 3, 'kept': 2, 'rho': 0.0005}


def test_the_clustering_is_drawn_once_in_the_life_of_a_work_directory(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / 'clustering.json')
    first = cluster.draw_clustering([10, 20, 30, 40, 50, 60], path, **ARGUMENTS)
    # Scale 32: two draws of six counts are equal with odds below 1e-9 each.
    for _ in range(20):
        assert cluster.draw_clustering([10, 20, 30, 40, 50, 60], path, **ARGUMENTS) == first
    assert [file.name for file in tmp_path.iterdir()] == ['clustering.json']
    assert cluster.read_clustering(path) == first
    assert first.rho == 0.0005 and first.centers == 3
    assert first.kept == tuple(counts.largest_cells(cells, 2) for cells in first.noisy_counts)
    other = cluster.draw_clustering([10, 20, 30, 40, 50, 60], str(tmp_path / 'other.json'), **ARGUMENTS)
    assert other != first, 'a draw of its own'


def test_a_clustering_that_appears_while_the_noise_is_drawn_wins(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / 'clustering.json'
    other = Clustering(kept=((0, 1), (1, 2)), noisy_counts=((3, 2, 1), (1, 2, 3)), rho=0.0005)
    draw = counts.noisy_counts

    def slow_draw(true_counts: list[int], rho: float) -> list[int]:
        path.write_text(other.to_json())
        return draw(true_counts, rho)

    monkeypatch.setattr(counts, 'noisy_counts', slow_draw)
    assert cluster.draw_clustering([1] * 6, str(path), **ARGUMENTS) == other
    assert [file.name for file in tmp_path.iterdir()] == ['clustering.json']


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'rho': 0.6}, 'rho=0.6'),
        ({'kept': 1}, 'kept=1'),
        ({'labels': ('a', 'b', 'c'), 'centers': 2}, 'labels=3'),
        ({'centers': 2, 'labels': ('a', 'b', 'c'), 'kept': 1}, 'centers=2'),
    ],
)
def test_a_clustering_of_another_run_is_refused(tmp_path: pathlib.Path, changed: dict, message: str) -> None:
    path = str(tmp_path / 'clustering.json')
    cluster.draw_clustering([5] * 6, path, **ARGUMENTS)
    with pytest.raises(ValueError, match=f'clustering of this run.*{message}'):
        cluster.draw_clustering([5] * 6, path, **ARGUMENTS | changed)


def test_counts_of_other_centres_are_refused_before_any_noise(tmp_path: pathlib.Path) -> None:
    for cells in ([], [5] * 3, [5] * 7):
        with pytest.raises(ValueError, match='one count for each of centers=3'):
            cluster.draw_clustering(cells, str(tmp_path / 'clustering.json'), **ARGUMENTS)
    assert not list(tmp_path.iterdir())


def test_each_release_has_the_noise_of_its_own_price(tmp_path: pathlib.Path) -> None:
    cells, rho = 10_000, 0.005
    first, second = counts.split_rho(rho)
    clustering = cluster.draw_clustering(
        [0] * cells, str(tmp_path / 'c'), labels=(None,), centers=cells, kept=cells, rho=first
    )
    plan = assign.draw_plan(
        [0] * cells,
        str(tmp_path / 'p'),
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
        cluster.DrawClustering('clustering.json', **ARGUMENTS | changed)


def test_more_kept_than_the_artefact_holds_is_refused_when_the_pipeline_is_built(work_dir: str) -> None:
    records = beam.Pipeline() | beam.Create(some_records())
    with pytest.raises(ValueError, match='keep 1 to 8 centres for each label, got kept=9'):
        records | cluster.ClusterRecords(settings_in(work_dir), LABELS, work_dir, 'clustering.json', 9, 1.0)


# --- The shipped centres ---------------------------------------------------------

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
    path = f'{work_dir}/clustering.json'
    with pipeline() as p:
        clustered, _ = (
            p
            | beam.Create(records)
            | cluster.ClusterRecords(ClusterSettings(), ('a',), work_dir, path, 4, 10_000.0)
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
