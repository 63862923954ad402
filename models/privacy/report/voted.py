"""A report's facts of votes on whole texts (METHOD 4e; README, section 10)."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import ClassVar, Literal

from models.privacy.earlier_release import GivenTexts
from models.privacy.events import DpEvent
from models.privacy.facts import Facts, Reproduction, RhoStage, Sensitivity
from models.privacy.report.method import MethodFacts
from models.privacy.text_votes import SENSITIVITY, TextVoteParams

STAGE = 'Votes on texts'


@typing.final
@dataclasses.dataclass(frozen=True, kw_only=True)
class Voted(MethodFacts):
    """Votes on whole texts. All of it is public.

    Attributes:
        kind: Name of the method in reports.
        mechanism: Every number that its guarantee depends on.
        releases: All releases that went in, each once: those that the run was given, and what went into
            these.
        start: Texts of the first list that were given; None where they were sampled.
        adapter: SHA-256 of the adapter that texts were sampled with, in hexadecimal, which `releases[0]`
            released; None where they were sampled from public prompts.
        writes_texts: Whether the run sampled texts; one that only chooses among given ones did not.
        has_structure: Whether the texts have a structure.
    """

    did: ClassVar[str] = 'votes on whole texts'

    kind: Literal['voted'] = 'voted'
    mechanism: TextVoteParams
    start: GivenTexts | None = None
    adapter: str | None = None
    writes_texts: bool = True
    has_structure: bool = False

    @property
    def costs(self) -> Mapping[str, DpEvent]:
        return {STAGE: self.mechanism.event}

    @property
    def parts(self) -> tuple[Facts, ...]:
        params = self.mechanism
        votes = RhoStage(
            name=STAGE,
            rho=params.rho,
            explanation=(
                'In each round, a table of votes by label and candidate text with discrete Gaussian noise, '
                'from which the texts that stay follow.'
            ),
            formula='T/(2·noise²)',
            numbers=f'{params.rounds}/(2·{params.noise_scale:.6g}²)',
        )
        cost = Reproduction(
            settings=(
                f'rounds = {params.rounds}  # rounds of votes',
                f'noise = {params.noise_scale!r}  # scale of the noise on each cell, in votes',
            ),
            steps=('votes = rounds / (2 * noise ** 2)  # rho of the votes on texts',),
            cost='votes',
        )
        table = Sensitivity(quantity='The table of votes of a round (L2)', value=SENSITIVITY, formula='1')
        return (Facts(stages=(votes,), sensitivities=(table,), reproduction=cost),)
