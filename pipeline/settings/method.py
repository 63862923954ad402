"""The base of every method's settings, whichever panels it is made of."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from models import extras
from pipeline.settings import panel
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.output import Output


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodSettings(panel.Panel, abc.ABC):
    """All settings of one method: its own panels, and those that it shares with others.

    Attributes:
        name: The method's, of the flag --method.
        panels: Titles of its panels, in the order of `--help`.
        added_help: Its additions to the help of settings that it shares with others, by their names.
    """

    name: ClassVar[str]
    panels: ClassVar[tuple[str, ...]]
    added_help: ClassVar[Mapping[str, str]] = {}

    def check_budget(self, budget: Budget) -> None:
        """Refuses a budget that the method cannot have; asked first, before the rest of the run."""
        return

    @abc.abstractmethod
    def check_run(self, declared: Input, budget: Budget, output: Output, delta: float | None) -> None:
        """Refuses settings that do not go with those that every run has; reads no file but named public ones.

        `delta` is as given, or from the declared number of records; None of a run that reads none.
        """

    def extras(self, *, is_local: bool) -> tuple[str, ...]:
        """Extras of this package that a run needs here; workers of other machines have their own."""
        return (extras.GEMMA,)

    @property
    def reads_records(self) -> bool:
        """True if the run reads records; otherwise all that it writes follows from an earlier release."""
        return True

    @property
    def writes_texts(self) -> bool:
        """True if the run leaves a corpus."""
        return True
