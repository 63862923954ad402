"""Records -> records in clusters, around public centres that are kept by noisy counts (METHOD 3).

A record is embedded once and goes to the nearest of all K centres; a noisy histogram
chooses the k' centres that each label keeps; the record then goes to the nearest kept
centre of its label, and its embedding ends there. That histogram is all that this stage
releases: a record's cluster is a function of its own text and of released values.

Embedded records are read twice, by the count and by `Recluster`. The latter waits for
the count's release as a side input, so runners keep what was embedded rather than embed
it again (`tests/transforms/cluster_test.py` counts the calls): a `Reshuffle` between
them would carry every text once more, and save nothing.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils import shared
from apache_beam.utils.windowed_value import WindowedValue

from models import batching
from models.batching import Clustering
from models.clustering.centers import Centers, ClusterSettings
from models.privacy import counts
from models.privacy.params import Unit
from models.records import Record
from transforms.assign import CountContexts
from transforms.durable import draw_once, guarded

# Embedders and `Centers.nearest` work on whole blocks. A bundle's last block is smaller,
# which moves no row: each is a function of its own text.
BLOCK_RECORDS = 256
_EMBEDDING = np.dtype('<f4')


# --- Functions -------------------------------------------------------------------


def embed_records(
    records: Sequence[Record],
    embed: Callable[[Sequence[str]], np.ndarray],
    centers: Centers,
    text_limit: int | None,
) -> list[Record]:
    """The records with their embeddings, each in the cluster of the nearest of all centres.

    Args:
        records: Any records.
        embed: Texts to `[n, d]` float32, each row a function of its own text.
        centers: The public centres.
        text_limit: How many characters of a text count: a public number. None for all.
    """
    vectors = np.ascontiguousarray(embed([record.text[:text_limit] for record in records]), _EMBEDDING)
    clusters = centers.nearest(vectors)
    return [
        dataclasses.replace(record, embedding=vector.tobytes(), cluster=int(cluster))
        for record, vector, cluster in zip(records, vectors, clusters, strict=True)
    ]


def recluster(
    records: Sequence[Record], centers: Centers, labels: Sequence[str | None], clustering: Clustering
) -> list[Record]:
    """The records, each in the cluster of the nearest centre that its label keeps, without embeddings.

    Args:
        records: Embedded records. A record of an undeclared label gets no cluster, as it
            joins no group.
        centers: The public centres that they were embedded for.
        labels: The declared labels, or a single None.
        clustering: The centres that each label keeps, in the order of `labels`.
    """
    found = [dataclasses.replace(record, embedding=None, cluster=None) for record in records]
    for label, kept in zip(labels, clustering.kept, strict=True):
        places = [place for place, record in enumerate(records) if record.label == label]
        if places:
            vectors = np.stack(
                [np.frombuffer(records[place].embedding or b'', _EMBEDDING) for place in places]
            )
            for place, cluster in zip(places, centers.nearest(vectors, kept), strict=True):
                found[place] = dataclasses.replace(found[place], cluster=int(cluster))
    return found


def draw_clustering(
    true_counts: Sequence[int],
    path: str,
    *,
    labels: tuple[str | None, ...],
    centers: int,
    kept: int,
    rho: float,
) -> Clustering:
    """Reads the clustering at `path`, or draws the noise and writes it there first: see `durable.draw_once`.

    Args:
        true_counts: True counts of contexts, one for each centre, one label after another; private.
        path: The clustering's file.
        labels: The declared labels, or a single None.
        centers: Number K of centres.
        kept: Number k' of centres that each label keeps.
        rho: zCDP cost of the noisy counts.

    Raises:
        ValueError: The clustering at `path` is of other labels, other numbers of centres
            or another cost, or the counts are of other cells.
    """
    if len(true_counts) != len(labels) * centers:
        raise ValueError(
            f'Expected one count for each of centers={centers} for each label, got '
            f'cells={len(true_counts)}, labels={len(labels)}. Count with the centres of this run.'
        )

    def draw() -> str:
        noisy = counts.noisy_counts(true_counts, rho)
        by_label = tuple(tuple(noisy[first : first + centers]) for first in range(0, len(noisy), centers))
        chosen = tuple(counts.largest_cells(cells, kept) for cells in by_label)
        return Clustering(kept=chosen, noisy_counts=by_label, rho=rho).to_json()

    clustering = Clustering.from_json(draw_once(path, draw))
    shape = len(clustering.kept), clustering.centers, {len(indices) for indices in clustering.kept}
    if shape != (len(labels), centers, {kept}) or clustering.rho != rho:
        raise ValueError(
            f'Expected the clustering of this run, got path={path!r} with labels={shape[0]}, '
            f'centers={shape[1]}, kept={sorted(shape[2])}, rho={clustering.rho!r}, not labels={len(labels)}, '
            f'centers={centers}, kept={kept}, rho={rho!r}. '
            'Resume with the settings that the run began with, or start a new run in a fresh work directory.'
        )
    return clustering


def read_clustering(path: str) -> Clustering:
    """The clustering that a run wrote down."""
    with FileSystems.open(path) as file:
        return Clustering.from_json(file.read().decode())


# --- Beam ------------------------------------------------------------------------


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class ClusterRecords(beam.PTransform):
    """Records -> (records in kept clusters, the single `Clustering`), two PCollections.

    Attributes:
        settings: The centres and the embedder.
        labels: The declared labels, or a single None.
        work_dir: The curator's folder, which holds the run key and takes the details of errors.
        clustering_path: Where the clustering is kept, `clustering.json` in the work directory.
        kept: Number k' of centres that each label keeps.
        rho: zCDP cost of the counts per centre: the first share of `counts.split_rho`.
        unit: The unit of privacy.
        text_limit: How many characters of a text are embedded: a public number. None for all.
    """

    settings: ClusterSettings
    labels: tuple[str | None, ...]
    work_dir: str
    clustering_path: str
    kept: int
    rho: float
    unit: Unit = 'example'
    text_limit: int | None = None

    # Beam has no type hint for two outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, records: beam.PCollection[Record]
    ) -> tuple[beam.PCollection[Record], beam.PCollection[Clustering]]:
        centers = Centers.read(self.settings.centers).count
        embedded = records | 'Embed' >> EmbedRecords(self.settings, self.work_dir, self.text_limit)
        clustering = (
            embedded
            | 'Count' >> CountContexts(self.labels, self.work_dir, self.unit, centers)
            | 'Draw' >> DrawClustering(self.clustering_path, self.labels, centers, self.kept, self.rho)
        )
        clustered = embedded | 'Recluster' >> Recluster(self.settings, self.labels, clustering, self.work_dir)
        return clustered, clustering


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class EmbedRecords(beam.PTransform):
    """Records -> records with embeddings, each in the cluster of the nearest of all centres.

    Attributes:
        settings: The centres and the embedder; a worker process loads them once.
        work_dir: The curator's folder, for the details of errors.
        text_limit: How many characters of a text are embedded: a public number. None for all.
    """

    settings: ClusterSettings
    work_dir: str
    text_limit: int | None = None

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[Record]:
        return records | 'EmbedBlocks' >> beam.ParDo(
            _Embed(self.settings, self.work_dir, self.text_limit)
        ).with_output_types(Record)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class DrawClustering(beam.PTransform):
    """The true counts per centre (a single list) -> the single `Clustering` of the run.

    The noise is drawn once in the life of a work directory: see `draw_clustering`.

    Attributes:
        clustering_path: Where the clustering is kept, on any filesystem that Beam knows.
        labels: The declared labels, or a single None.
        centers: Number K of centres.
        kept: Number k' of centres that each label keeps.
        rho: zCDP cost of the noisy counts.
    """

    clustering_path: str
    labels: tuple[str | None, ...]
    centers: int
    kept: int
    rho: float

    def __post_init__(self) -> None:
        batching.check_labels(self.labels)
        counts.gaussian_scale(self.rho)
        if not 1 <= self.kept <= self.centers:
            raise ValueError(
                f'Expected to keep 1 to {self.centers} centres for each label, got kept={self.kept!r}. '
                'Keep fewer, or give more public centres.'
            )
        # Here and not where the plan is drawn, when the first histogram would be paid already.
        if len(self.labels) * self.kept > batching.MAX_GROUPS:
            raise ValueError(
                f'Expected at most {batching.MAX_GROUPS} groups, got labels={len(self.labels)}, '
                f'kept={self.kept}. Keep fewer centres for each label.'
            )

    def expand(self, true_counts: beam.PCollection[list[int]]) -> beam.PCollection[Clustering]:
        return true_counts | 'DrawCounts' >> beam.Map(
            draw_clustering,
            self.clustering_path,
            labels=self.labels,
            centers=self.centers,
            kept=self.kept,
            rho=self.rho,
        ).with_output_types(Clustering)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class Recluster(beam.PTransform):
    """Embedded records -> records in the clusters that their labels keep, without embeddings.

    Attributes:
        settings: The centres; the embedder is not loaded.
        labels: The declared labels, or a single None.
        clustering: The single element of `DrawClustering`.
        work_dir: The curator's folder, for the details of errors.
    """

    settings: ClusterSettings
    labels: tuple[str | None, ...]
    clustering: beam.PCollection[Clustering]
    work_dir: str

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[Record]:
        return records | 'ReclusterBlocks' >> beam.ParDo(
            _Recluster(self.settings, self.labels, self.work_dir), beam.pvalue.AsSingleton(self.clustering)
        ).with_output_types(Record)


class _BlockDoFn(beam.DoFn):
    """Holds the records of a bundle until a block is full; each keeps its time and window."""

    def __init__(self, settings: ClusterSettings, work_dir: str) -> None:
        self._settings = settings
        self._work_dir = work_dir
        self._shared = shared.Shared()

    def start_bundle(self) -> None:
        self._held: list[WindowedValue] = []

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from self._release()

    def _work(self, records: list[Record]) -> list[Record]:
        raise NotImplementedError

    def _hold(self, record: Record, timestamp: Any, window: Any) -> Iterator[WindowedValue]:
        self._held.append(WindowedValue(record, timestamp, (window,)))
        if len(self._held) == BLOCK_RECORDS:
            yield from self._release()

    def _release(self) -> Iterator[WindowedValue]:
        held, self._held = self._held, []
        if held:
            for before, after in zip(held, self._guarded([value.value for value in held]), strict=True):
                yield before.with_value(after)

    def _guarded(self, records: list[Record]) -> list[Record]:
        return guarded(
            lambda: self._work(records),
            expected='every record to get a cluster',
            work_dir=self._work_dir,
            name='cluster',
        )


class _Embed(_BlockDoFn):
    """record -> record with its embedding and nearest centre."""

    def __init__(self, settings: ClusterSettings, work_dir: str, text_limit: int | None) -> None:
        super().__init__(settings, work_dir)
        self._text_limit = text_limit

    def process(
        self, record: Record, timestamp: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[WindowedValue]:
        # Loaded outside of `_guarded`: what goes wrong here is about the model, and may be shown.
        self._clusterer = self._shared.acquire(self._settings.build)
        yield from self._hold(record, timestamp, window)

    def _work(self, records: list[Record]) -> list[Record]:
        clusterer = self._clusterer
        return embed_records(records, clusterer.embedder.embed, clusterer.centers, self._text_limit)


class _Recluster(_BlockDoFn):
    """Embedded record -> record in the nearest centre that its label keeps."""

    def __init__(self, settings: ClusterSettings, labels: tuple[str | None, ...], work_dir: str) -> None:
        super().__init__(settings, work_dir)
        self._labels = labels

    def process(
        self,
        record: Record,
        clustering: Clustering,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[WindowedValue]:
        self._centers = self._shared.acquire(lambda: Centers.read(self._settings.centers))
        self._clustering = clustering
        yield from self._hold(record, timestamp, window)

    def _work(self, records: list[Record]) -> list[Record]:
        return recluster(records, self._centers, self._labels, self._clustering)
