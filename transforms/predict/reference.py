"""Complete examples of the first round -> the reference texts of the second round (METHOD 4c)."""

from collections.abc import Iterable

import apache_beam as beam

from models.batch_plan import BatchPlan
from models.records import SyntheticExample
from models.reference import ReleasedReference, pick
from transforms.durable import draw_once


class PickTexts(beam.CombineFn):
    """Complete examples -> the candidates of each group for its reference texts, in bounded memory."""

    def __init__(self, size: int) -> None:
        self._size = size

    def create_accumulator(self) -> dict[int, tuple[str, ...]]:
        return {}

    def add_input(
        self, accumulator: dict[int, tuple[str, ...]], example: SyntheticExample
    ) -> dict[int, tuple[str, ...]]:
        group = int(example.batch_id.partition('-')[0])
        accumulator[group] = pick((*accumulator.get(group, ()), example.text), self._size)
        return accumulator

    def merge_accumulators(
        self, accumulators: Iterable[dict[int, tuple[str, ...]]]
    ) -> dict[int, tuple[str, ...]]:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            for group, texts in accumulator.items():
                merged[group] = pick((*merged.get(group, ()), *texts), self._size)
        return merged

    def extract_output(self, accumulator: dict[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
        return accumulator


def keep_reference(
    texts: dict[int, tuple[str, ...]], plan: BatchPlan, path: str, size: int
) -> ReleasedReference:
    """Writes the reference that the first round released to `path`, and returns what the file holds.

    The reference is a function of finished batches, and these never change. So every attempt finds the
    same reference: see `draw_once`.

    Raises:
        ValueError: The file holds another reference. Finished batches may have used it.
    """
    released = ReleasedReference.of(texts, plan, size)
    kept = ReleasedReference.from_json(draw_once(path, released.to_json))
    if kept != released:
        raise ValueError(
            'Expected the reference that the first round released, got another one in reference.json of '
            'the work directory. Restore the finished batches of the first round, or start a new run.'
        )
    return kept
