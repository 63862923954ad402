"""Elements of a bundle that are worked on together, so that no row of a model waits for the last ones."""

import abc
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

# Texts or records that a model reads together: a run that is killed computes them again.
TOGETHER = 256


class Together[Element, Output](beam.DoFn, abc.ABC):
    """Holds elements back until they are enough, or their bundle ends.

    What is made of an element may not depend on those beside it, since a bundle that is repeated may have
    others. `process` of a subclass gives what `wait` gives.

    Attributes:
        together: Size of elements that is enough.
    """

    together: int = TOGETHER

    def start_bundle(self) -> None:
        self._waiting: list[Element] = []
        self._size = 0

    def wait(self, element: Element, size: int = 1) -> Iterator[Output]:
        """Holds an element back, or works on it and those that wait."""
        self._waiting.append(element)
        self._size += size
        if self._size >= self.together:
            yield from self._all()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for output in self._all():
            yield GlobalWindows.windowed_value(output)

    def _all(self) -> Iterator[Output]:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting:
            yield from self.work(waiting)

    @abc.abstractmethod
    def work(self, elements: list[Element]) -> Iterator[Output]:
        """Outputs of the step for at least one element, in the order in which they came."""
