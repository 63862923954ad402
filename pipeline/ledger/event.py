"""One line of the ledger's log."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

EventKind = Literal['dataset added', 'budget changed', 'reserved', 'resumed', 'refused', 'settled']


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """One line of the ledger's log, to which lines are only added.

    Attributes:
        number: Ascending in time.
        run_id: The run that it is about; None for the dataset itself.
        at: UTC, ISO 8601.
    """

    number: int
    dataset: str
    run_id: str | None
    kind: EventKind
    details: Mapping[str, Any]
    at: str
