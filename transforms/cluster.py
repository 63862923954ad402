"""Records -> records in clusters, around public centres that are kept by noisy counts (METHOD 3).

A record is embedded once and goes to the nearest of all K centres. A noisy histogram chooses the k' centres
that each label keeps. Then the record goes to the nearest centre that its label keeps, and its embedding is
dropped. This stage releases the histogram and nothing else: a record's cluster is a function of its own text
and of released values.

The embedded records are read twice, by the count and by the second choice, which takes the clustering as a
side input and waits for it. So runners keep the embedded records and do not embed them again: the tests count
the calls. A `Reshuffle` in between would carry every text once more and save nothing.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils import shared

from models import batch_plan
from models.batch_plan import Clustering
from models.clustering.centers import Centers, Clusterer, ClusterSettings
from models.privacy import counts
from models.privacy.params import Unit
from models.records import Record
from transforms.count import CountContexts
from transforms.durable import draw_once, guarded, noise_source
from transforms.run_files import CLUSTERING
from transforms.together import Together
from transforms.worker_times import timed

_EMBEDDING = np.dtype('<f4')


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class ClusterRecords(beam.PTransform):
    """Records -> (records in kept clusters, the single `Clustering`), two PCollections.

    Attributes:
        settings: The centres and the embedder; a worker process loads them once.
        kept: Number k' of centres that each label keeps.
        rho: zCDP cost of the counts of centres: the first share of `counts.split_rho`.
        text_limit: Public number of characters of a text that are embedded; None embeds all.
    """

    settings: ClusterSettings
    labels: tuple[str | None, ...]
    work_dir: str
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
        self._check(centers)
        embedded = records | 'Embed' >> beam.ParDo(
            EmbedRecords(self.settings, self.work_dir, self.text_limit)
        ).with_output_types(Record)
        clustering = (
            embedded
            # one list of int, private
            | 'Count' >> CountContexts(self.labels, self.work_dir, self.unit, centers)
            | 'Draw'
            >> beam.Map(
                draw_clustering,
                self.work_dir,
                labels=self.labels,
                centers=centers,
                kept=self.kept,
                rho=self.rho,
            ).with_output_types(Clustering)
        )
        clustered = embedded | 'Recluster' >> beam.ParDo(
            Recluster(self.settings, self.work_dir, self.labels), beam.pvalue.AsSingleton(clustering)
        ).with_output_types(Record)
        return clustered, clustering

    def _check(self, centers: int) -> None:
        """Refuses here, before the first histogram is paid, and not where the plan is drawn."""
        batch_plan.check_labels(self.labels)
        counts.gaussian_scale(self.rho)
        if not 1 <= self.kept <= centers:
            raise ValueError(
                f'Expected to keep 1 to {centers} centres for each label, got kept={self.kept!r}. '
                'Keep fewer, or give more public centres.'
            )
        if len(self.labels) * self.kept > batch_plan.MAX_GROUPS:
            raise ValueError(
                f'Expected at most {batch_plan.MAX_GROUPS} groups, got labels={len(self.labels)}, '
                f'kept={self.kept}. Keep fewer centres for each label.'
            )


def embed_records(
    records: Sequence[Record],
    embed: Callable[[Sequence[str]], np.ndarray],
    centers: Centers,
    text_limit: int | None,
) -> list[Record]:
    """The records with their embeddings, each in the cluster of the nearest of all centres."""
    vectors = np.ascontiguousarray(embed([record.text[:text_limit] for record in records]), _EMBEDDING)
    clusters = centers.nearest(vectors)
    return [
        dataclasses.replace(record, embedding=vector.tobytes(), cluster=int(cluster))
        for record, vector, cluster in zip(records, vectors, clusters, strict=True)
    ]


def recluster(
    records: Sequence[Record], centers: Centers, labels: Sequence[str | None], clustering: Clustering
) -> list[Record]:
    """The records without their embeddings, each in the cluster of the nearest centre that its label keeps.

    The clustering says which, in the order of `labels`. A record of an undeclared label joins no group, so it
    gets no cluster.
    """
    clustered = [dataclasses.replace(record, embedding=None, cluster=None) for record in records]
    for label, kept in zip(labels, clustering.kept, strict=True):
        places = [place for place, record in enumerate(records) if record.label == label]
        if places:
            vectors = np.stack(
                [np.frombuffer(records[place].embedding or b'', _EMBEDDING) for place in places]
            )
            for place, cluster in zip(places, centers.nearest(vectors, kept), strict=True):
                clustered[place] = dataclasses.replace(clustered[place], cluster=int(cluster))
    return clustered


class _Blocks(Together[Record, Record], abc.ABC):
    """Works on whole blocks of records. The last one of a bundle is smaller, which changes no row."""

    def __init__(self, settings: ClusterSettings, work_dir: str) -> None:
        self._settings, self._work_dir = settings, work_dir
        self._shared = shared.Shared()

    def work(self, elements: list[Record]) -> Iterator[Record]:
        yield from guarded(
            lambda: self._in_clusters(elements),
            expected='every record to get a cluster',
            work_dir=self._work_dir,
            name='cluster',
        )

    @abc.abstractmethod
    def _in_clusters(self, records: list[Record]) -> list[Record]: ...


class EmbedRecords(_Blocks):
    """record -> record with its embedding and nearest centre: see `embed_records`."""

    def __init__(self, settings: ClusterSettings, work_dir: str, text_limit: int | None = None) -> None:
        super().__init__(settings, work_dir)
        self._text_limit = text_limit

    def process(self, record: Record) -> Iterator[Record]:
        # Loaded outside of `guarded`: an error here is about the model, so its text may be shown.
        self._clusterer: Clusterer = self._shared.acquire(self._load)
        yield from self.wait(record)

    def _load(self) -> Clusterer:
        with timed('loading', self._work_dir):
            return self._settings.build()

    def _in_clusters(self, records: list[Record]) -> list[Record]:
        clusterer = self._clusterer
        with timed('embedding', self._work_dir):
            return embed_records(records, clusterer.embedder.embed, clusterer.centers, self._text_limit)


class Recluster(_Blocks):
    """Embedded record -> record in the nearest centre that its label keeps: see `recluster`."""

    def __init__(self, settings: ClusterSettings, work_dir: str, labels: tuple[str | None, ...]) -> None:
        super().__init__(settings, work_dir)
        self._labels = labels

    def process(self, record: Record, clustering: Clustering) -> Iterator[Record]:
        # The embedder is not loaded.
        self._centers: Centers = self._shared.acquire(lambda: Centers.read(self._settings.centers))
        self._clustering = clustering
        yield from self.wait(record)

    def _in_clusters(self, records: list[Record]) -> list[Record]:
        return recluster(records, self._centers, self._labels, self._clustering)


def draw_clustering(
    true_counts: Sequence[int],
    work_dir: str,
    *,
    labels: tuple[str | None, ...],
    centers: int,
    kept: int,
    rho: float,
) -> Clustering:
    """Reads the clustering of a work directory; where there is none, draws the noise and writes it first.

    The true counts are private: one for each centre, one label after another.

    Raises:
        ValueError: The clustering there is of other settings, or the number of counts does not fit them.
    """
    if len(true_counts) != len(labels) * centers:
        raise ValueError(
            f'Expected one count for each of centers={centers} for each label, got '
            f'cells={len(true_counts)}, labels={len(labels)}. Count with the centres of this run.'
        )

    def draw() -> str:
        noisy = counts.noisy_counts(true_counts, rho, noise_source(work_dir, CLUSTERING))
        by_label = tuple(tuple(noisy[first : first + centers]) for first in range(0, len(noisy), centers))
        chosen = tuple(counts.largest_cells(cells, kept) for cells in by_label)
        return Clustering(kept=chosen, noisy_counts=by_label, rho=rho).to_json()

    path = FileSystems.join(work_dir, CLUSTERING)
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
