"""Units -> their records' embeddings, in files of the work directory: computed once, for all rounds."""

import dataclasses
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils import shared
from safetensors import numpy as safetensors_numpy

from models import activity
from models.clustering.centers import ClusterSettings
from models.clustering.embedder import Embedder
from models.finetuning.units import Row
from transforms.durable import guarded, read_file, write_file
from transforms.evolve.files import shard_path
from transforms.worker_times import timed

# Embeddings of a share of the units, with whose they are: `[r d]` float32 and two `[r]` int32.
Shard = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class EmbedUnits(beam.PTransform):
    """Units -> the number of each share of them whose embeddings are on disk.

    The files are private and stay in the work directory. A run that is resumed embeds no record again. A
    unit's share follows from its keyed hash.

    Attributes:
        settings: The embedder; a worker process loads it once.
        shards: Number of shares: public.
    """

    settings: ClusterSettings
    labels: tuple[str | None, ...]
    work_dir: str
    shards: int

    def expand(self, units: beam.PCollection[Row]) -> beam.PCollection[int]:
        return (
            units
            | 'KeyByShard' >> beam.Map(_key_by_shard, self.shards).with_output_types(tuple[int, Row])
            | 'GroupByShard' >> beam.GroupByKey()
            # (share, [(unit hash, label, [text])])
            | 'EmbedShard'
            >> beam.ParDo(_EmbedShard(self.settings, self.labels, self.work_dir)).with_output_types(int)
            | 'KeepShards' >> beam.Reshuffle()
        )


def _key_by_shard(row: Row, shards: int) -> tuple[int, Row]:
    return int.from_bytes(row[0][:8], 'little') % shards, row


class _EmbedShard(beam.DoFn):
    """(share, units) -> the share, once its file is there."""

    def __init__(self, settings: ClusterSettings, labels: tuple[str | None, ...], work_dir: str) -> None:
        self._settings, self._labels, self._work_dir = settings, labels, work_dir
        self._shared = shared.Shared()

    def process(self, element: tuple[int, Iterable[Row]]) -> Iterator[int]:
        shard, rows = element
        path = shard_path(self._work_dir, shard)
        if not FileSystems.exists(path):
            # Outside of `guarded`: an error here is about the model, so its text may be shown.
            embedder = self._shared.acquire(self._load)
            activity.report(activity.Activity('Embedding records'))
            with timed('embedding', self._work_dir):
                data = guarded(
                    lambda: embedded(rows, self._labels, embedder),
                    expected='every record to have an embedding',
                    work_dir=self._work_dir,
                    name='embed',
                )
            write_file(path, data)
        yield shard

    def _load(self) -> Embedder:
        with timed('loading', self._work_dir):
            return self._settings.load_embedder()


def embedded(rows: Iterable[Row], labels: tuple[str | None, ...], embedder: Embedder) -> bytes:
    """The file of a share: its units in the order of their hashes, whatever order they come in."""
    place = {label: group for group, label in enumerate(labels)}
    ordered = sorted(rows, key=lambda row: (row[0], place[row[1]], row[2]))
    texts = [text for _, _, of_unit in ordered for text in of_unit]
    counts = [len(of_unit) for _, _, of_unit in ordered]
    return safetensors_numpy.save({
        'vectors': np.ascontiguousarray(embedder.embed(texts), np.float32),
        'units': np.repeat(np.arange(len(ordered), dtype=np.int32), counts),
        'groups': np.repeat(np.array([place[label] for _, label, _ in ordered], np.int32), counts),
    })  # fmt: skip


def read_shard(work_dir: str, shard: int) -> Shard:
    """(vectors, unit of each, group of each) of a share; private."""
    tensors = safetensors_numpy.load(read_file(shard_path(work_dir, shard)))
    return tensors['vectors'], tensors['units'], tensors['groups']
