"""A check of the input as a method sees it: its counts and its words, for the curator alone."""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from pipeline.check.input_check import InputCheck
from pipeline.settings.job_config import JobConfig

# Texts -> (tokens that there is room for, tokens of each text, from the shortest to the longest).
MeasureTexts = Callable[[Sequence[str]], tuple[int, list[int]]]


@dataclasses.dataclass(frozen=True)
class InputView(abc.ABC):
    """The input as a method would take it: units that are in no batch, unless the method says otherwise.

    Attributes:
        room: Meaning of the room for a text, in words that follow its number of tokens.
        length_setting: The setting that gives texts more room.
    """

    config: JobConfig[Any]
    room: ClassVar[str] = 'are read of it'
    length_setting: ClassVar[str] = 'max_example_tokens'

    @property
    @abc.abstractmethod
    def expected_batch_size(self) -> int:
        """Contexts that a batch should hold, or units of a step: public."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Heads of the table of labels, after the label."""
        return ('records', 'units')

    def of_label(self, records: int, units: int | None) -> tuple[int, int | None]:
        """(contexts, batches) of a declared label; batches None where contexts are in none."""
        return round(self.config.input.sample_rate * (records if units is None else units)), None

    @abc.abstractmethod
    def measure(self) -> MeasureTexts | None:
        """The function that measures texts, its tokenizer loaded; None of a method that reads no tokens."""

    def cells(self, contexts: int | None, batches: int | None) -> tuple[str, ...]:
        """The row of a label under `columns`, after its number of records."""
        return ('' if contexts is None else f'{contexts:,}',)

    def findings(self, check: InputCheck) -> Iterator[str]:
        """Findings on batches, a sentence or two each."""
        yield from ()

    @abc.abstractmethod
    def off_by_number(self, check: InputCheck) -> str:
        """The part of a plan, in words, that a wrong number of units makes wrong."""


def measure_continuations(config: JobConfig[Any]) -> MeasureTexts:
    """The function that measures texts as the model writes them, beside the longest that it may write."""
    from pipeline.methods import workers

    writer = workers.prompt_writer(config.method, config.input)

    def lengths(texts: Sequence[str]) -> tuple[int, list[int]]:
        tokens = sorted(map(len, writer.continuations(texts, max_tokens=None)))
        return config.method.max_example_tokens, tokens

    return lengths
