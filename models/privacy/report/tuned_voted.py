"""A report's facts of training and votes on what it gave (METHOD 4f; README, sections 9, 10 and 11)."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import ClassVar, Literal

from models.privacy.events import DpEvent
from models.privacy.facts import Facts
from models.privacy.report import tuned, voted
from models.privacy.report.method import MethodFacts
from models.privacy.report.tuned import Tuned
from models.privacy.report.voted import Voted
from models.privacy.tuned_votes import TunedVotesParams


@typing.final
@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedVoted(MethodFacts):
    """An adapter is trained on the records, which then vote on texts of it. All of it is public.

    Attributes:
        kind: Name of the method in reports.
        mechanism: Every number that its guarantee depends on.
        releases: All releases that went in, each once: none so far.
        has_structure: Whether the texts have a structure.
    """

    did: ClassVar[str] = 'fine-tuning and votes on its texts'

    kind: Literal['tuned_voted'] = 'tuned_voted'
    mechanism: TunedVotesParams
    has_structure: bool = False

    @property
    def costs(self) -> Mapping[str, DpEvent]:
        of_steps, of_votes = self.mechanism.events
        return {tuned.STAGE: of_steps, voted.STAGE: of_votes}

    @property
    def parts(self) -> tuple[Facts, ...]:
        params = self.mechanism
        return (*Tuned(mechanism=params.tuning).parts, *Voted(mechanism=params.votes).parts)
