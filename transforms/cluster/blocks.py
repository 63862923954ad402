"""Steps that work on whole blocks of records."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.utils import shared
from apache_beam.utils.windowed_value import WindowedValue

from models.clustering.centers import ClusterSettings
from models.records import Record
from transforms.durable import guarded

# Embedders and `Centers.nearest` work on whole blocks. The last block of a bundle is smaller, which changes
# no row: each row is a function of its own text.
BLOCK_RECORDS = 256
EMBEDDING = np.dtype('<f4')


class BlockDoFn(beam.DoFn):
    """Collects the records of a bundle until a block is full; each record keeps its time and its window."""

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
