"""A check of the input as a method sees it: its counts and its words, for the curator alone."""

import abc
from collections.abc import Callable, Iterator, Sequence

from pipeline.check.input_check import InputCheck

# Texts -> (tokens that there is room for, tokens of each text, from the shortest to the longest).
MeasureTexts = Callable[[Sequence[str]], tuple[int, list[int]]]


class InputView(abc.ABC):
    """The input as a method would take it.

    Attributes:
        room: Meaning of the room for a text, in words that follow its number of tokens.
        length_setting: The setting that gives texts more room.
    """

    room: str
    length_setting: str

    @property
    @abc.abstractmethod
    def expected_batch_size(self) -> int:
        """Contexts that a batch should hold, or units of a step: public."""

    @property
    @abc.abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Heads of the table of labels, after the label."""

    @abc.abstractmethod
    def of_label(self, records: int, units: int | None) -> tuple[int, int | None]:
        """(contexts, batches) of a declared label; batches None where contexts are in none."""

    @abc.abstractmethod
    def measure(self) -> MeasureTexts | None:
        """The function that measures texts, its tokenizer loaded; None of a method that reads no tokens."""

    @abc.abstractmethod
    def cells(self, contexts: int | None, batches: int | None) -> tuple[str, ...]:
        """The row of a label under `columns`, after its number of records."""

    @abc.abstractmethod
    def findings(self, found: InputCheck) -> Iterator[str]:
        """Findings on batches, a sentence or two each."""

    @abc.abstractmethod
    def wrong_number(self, found: InputCheck) -> tuple[int, str]:
        """(what the run would take of the declared number, what a plan is off by where that is wrong)."""
