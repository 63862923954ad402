"""Embedded records -> records in the clusters that their labels keep."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.utils.windowed_value import WindowedValue

from models.batch_plan import Clustering
from models.clustering.centers import Centers, ClusterSettings
from models.records import Record
from transforms.cluster.blocks import EMBEDDING, BlockDoFn


def recluster(
    records: Sequence[Record], centers: Centers, labels: Sequence[str | None], clustering: Clustering
) -> list[Record]:
    """The records without their embeddings, each in the cluster of the nearest centre that its label keeps.

    Args:
        records: Embedded records. A record of an undeclared label joins no group, so it gets no cluster.
        centers: The public centres that the records were embedded for.
        labels: The declared labels, or a single None.
        clustering: The centres that each label keeps, in the order of `labels`.
    """
    found = [dataclasses.replace(record, embedding=None, cluster=None) for record in records]
    for label, kept in zip(labels, clustering.kept, strict=True):
        places = [place for place, record in enumerate(records) if record.label == label]
        if places:
            vectors = np.stack(
                [np.frombuffer(records[place].embedding or b'', EMBEDDING) for place in places]
            )
            for place, cluster in zip(places, centers.nearest(vectors, kept), strict=True):
                found[place] = dataclasses.replace(found[place], cluster=int(cluster))
    return found


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class Recluster(beam.PTransform):
    """Embedded records -> records in the clusters that their labels keep, without embeddings.

    Attributes:
        settings: The centres; the embedder is not loaded.
        labels: The declared labels, or a single None.
        clustering: The PCollection of `DrawClustering`.
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


class _Recluster(BlockDoFn):
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
