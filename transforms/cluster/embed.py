"""Records -> records with embeddings, each in the cluster of the nearest of all centres."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.utils.windowed_value import WindowedValue

from models.clustering.centers import Centers, ClusterSettings
from models.records import Record
from transforms.cluster.blocks import EMBEDDING, BlockDoFn


def embed_records(
    records: Sequence[Record],
    embed: Callable[[Sequence[str]], np.ndarray],
    centers: Centers,
    text_limit: int | None,
) -> list[Record]:
    """The records with their embeddings, each in the cluster of the nearest of all centres.

    Args:
        records: Any records.
        embed: n texts -> `[n, d]` float32; each row is a function of its own text.
        centers: The public centres.
        text_limit: Public number of characters of a text that are embedded; None embeds all.
    """
    vectors = np.ascontiguousarray(embed([record.text[:text_limit] for record in records]), EMBEDDING)
    clusters = centers.nearest(vectors)
    return [
        dataclasses.replace(record, embedding=vector.tobytes(), cluster=int(cluster))
        for record, vector, cluster in zip(records, vectors, clusters, strict=True)
    ]


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class EmbedRecords(beam.PTransform):
    """Records -> records with embeddings, each in the cluster of the nearest of all centres.

    Attributes:
        settings: The centres and the embedder; a worker process loads them once.
        work_dir: The curator's folder, for the details of errors.
        text_limit: Public number of characters of a text that are embedded; None embeds all.
    """

    settings: ClusterSettings
    work_dir: str
    text_limit: int | None = None

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[Record]:
        return records | 'EmbedBlocks' >> beam.ParDo(
            _Embed(self.settings, self.work_dir, self.text_limit)
        ).with_output_types(Record)


class _Embed(BlockDoFn):
    """record -> record with its embedding and nearest centre."""

    def __init__(self, settings: ClusterSettings, work_dir: str, text_limit: int | None) -> None:
        super().__init__(settings, work_dir)
        self._text_limit = text_limit

    def process(
        self, record: Record, timestamp: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[WindowedValue]:
        # Loaded outside of `_guarded`: an error here is about the model, so its text may be shown.
        self._clusterer = self._shared.acquire(self._settings.build)
        yield from self._hold(record, timestamp, window)

    def _work(self, records: list[Record]) -> list[Record]:
        clusterer = self._clusterer
        return embed_records(records, clusterer.embedder.embed, clusterer.centers, self._text_limit)
