"""A release that went into another run: what it cost, which ledger has it, and whose word that is.

A run may begin with texts that an earlier run released, or decode with its adapter. On the same records
the two compose, and so does all that went into the earlier one. So each release hands on the whole list
of what went into it (README, section 7).
"""

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence

from models.privacy.events import DpEvent
from models.privacy.public_numbers import Unit


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlierRelease:
    """A release that went into a run, directly or by way of another one. All fields are public.

    Attributes:
        run_id: Public name of the run that paid for it.
        method: What it did with the records, in words.
        unit: Whose presence it hides.
        epsilon: Of that run alone, at `delta`.
        delta: As that run set it.
        costs: Event of each of its stages, by name: what the sum with others is composed of.
        dataset: Name under which a ledger charged it; None, like the next two, where none did.
        run_number: Its place among the runs charged to that dataset, from 1.
        charged_rho: What the ledger charged it; None too where only its adapter's card tells of it.
        identity: What tells it from all others, in hexadecimal: the commitment to its run key, or the
            SHA-256 of its report or its card where that has none.
        told_by: Whose word all of this is: its 'report', or the 'card' of its adapter.
        through: The run that it went into, where that is another one of the list; None where it went into
            this run directly.
        sampled_by: The run that sampled the texts which went in from its adapter, for nothing; None where
            it released them, or the adapter, itself.
    """

    run_id: str
    method: str
    unit: Unit
    epsilon: float
    delta: float
    costs: Mapping[str, DpEvent]
    dataset: str | None
    run_number: int | None
    charged_rho: float | None
    identity: str
    told_by: typing.Literal['report', 'card']
    through: str | None = None
    sampled_by: str | None = None


def handed_on(release: EarlierRelease, went_in: Iterable[EarlierRelease] = ()) -> tuple[EarlierRelease, ...]:
    """A release and all that went into it, for the run that it goes into."""
    return release, *(
        dataclasses.replace(earlier, through=earlier.through or release.run_id) for earlier in went_in
    )


def each_once(*lists: Sequence[EarlierRelease]) -> tuple[EarlierRelease, ...]:
    """All releases of several lists, each once even if it went in on two ways; the direct ones first."""
    by_identity: dict[str, EarlierRelease] = {}
    for release in sorted(
        (release for each in lists for release in each), key=lambda release: release.through is not None
    ):
        by_identity.setdefault(release.identity, release)
    return tuple(by_identity.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSource:
    """A run that released texts which another run began with.

    Attributes:
        run_id: The run that paid for them.
        sampled_by: The run that sampled them from its adapter; None where it released them itself.
    """

    run_id: str
    sampled_by: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenTexts:
    """Texts that a run began with, for its report.

    Attributes:
        sources: The runs that released them.
        vouched: Whether nothing but the curator's word is known of some of them.
    """

    sources: tuple[TextSource, ...] = ()
    vouched: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOrigin:
    """The origin of texts that a run was given. Public.

    Attributes:
        releases: The runs that released them, and all that went into these, each once.
        vouched: Whether there are files among them of which nothing but the curator's word is known.
    """

    releases: tuple[EarlierRelease, ...] = ()
    vouched: bool = False

    @property
    def given(self) -> GivenTexts:
        """The texts as a report tells of them."""
        direct = [release for release in self.releases if release.through is None]
        sources = tuple(
            TextSource(run_id=release.run_id, sampled_by=release.sampled_by) for release in direct
        )
        return GivenTexts(sources=sources, vouched=self.vouched)
