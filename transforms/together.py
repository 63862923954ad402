"""Batches of a bundle, sampled together, so that no row of a model waits for the last texts of each."""

import abc
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

# Texts that are sampled together, where so many wait: a run that is killed samples them again.
TEXTS_TOGETHER = 256


class SampledTogether[Batch, Output](beam.DoFn, abc.ABC):
    """Holds batches back until their texts are enough, or their bundle ends.

    What is made of a batch may not depend on the batches beside it, since a bundle that is repeated may have
    others. `process` of a subclass gives what `wait` gives.

    Attributes:
        together: Texts that are enough.
    """

    together: int = TEXTS_TOGETHER

    def start_bundle(self) -> None:
        self._waiting: list[Batch] = []
        self._texts = 0

    def wait(self, batch: Batch, texts: int) -> Iterator[Output]:
        """Holds a batch of so many texts back, or samples it with those that wait.

        Args:
            batch: Not sampled yet.
            texts: Number of texts that it asks for.
        """
        self._waiting.append(batch)
        self._texts += texts
        if self._texts >= self.together:
            yield from self._all()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for output in self._all():
            yield GlobalWindows.windowed_value(output)

    def _all(self) -> Iterator[Output]:
        waiting, self._waiting, self._texts = self._waiting, [], 0
        if waiting:
            yield from self.sample(waiting)

    @abc.abstractmethod
    def sample(self, batches: list[Batch]) -> Iterator[Output]:
        """Samples batches, writes each, and gives what the step gives of it.

        Args:
            batches: At least one, in the order in which they came.
        """
