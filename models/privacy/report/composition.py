"""The releases that went into a run, and what all cost together."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from models.privacy import accounting
from models.privacy.accounting import subsampled
from models.privacy.earlier_release import EarlierRelease
from models.privacy.events import DpEvent, ZCDpEvent
from models.privacy.report.ledger import LedgerEntry


def check(releases: Iterable[EarlierRelease]) -> None:
    """Checks that each release is there once and states the epsilon that its costs give.

    Raises:
        ValueError: One does not.
    """
    seen: set[str] = set()
    for release in releases:
        computed = epsilon_alone(release.costs, release.delta)
        if not subsampled.is_same(release.epsilon, computed):
            raise ValueError(
                f'Expected epsilon to follow from the costs of run_id={release.run_id!r}, got '
                f'epsilon={release.epsilon!r}, computed={computed!r}. Restore its report as the run wrote it.'
            )
        if release.identity in seen:
            raise ValueError(
                f'Expected each release that went in once, got run_id={release.run_id!r} twice. Do not edit '
                'the report.'
            )
        seen.add(release.identity)


def epsilon_alone(costs: Mapping[str, DpEvent], delta: float) -> float:
    """epsilon of one run's stages, as its report states it."""
    curve = accounting.compose(map(accounting.curve_of, costs.values()))
    if not curve.sampled:
        return accounting.epsilon_of_events(costs.values(), delta)
    if len(costs) == 1:
        return subsampled.epsilon_of_event(next(iter(costs.values())), delta)
    return epsilon_together([costs], delta)


def epsilon_together(costs: Iterable[Mapping[str, DpEvent]], delta: float) -> float:
    """epsilon of several runs on the same records: the least that their losses or their curves give."""
    return accounting.epsilon_of_events([event for of_run in costs for event in of_run.values()], delta)


def epsilon_with(
    alone: float, costs: Mapping[str, DpEvent], releases: Sequence[EarlierRelease], delta: float
) -> float:
    """epsilon of a run and of the releases that went into it."""
    if not releases:
        return alone
    return max(alone, epsilon_together([costs, *(release.costs for release in releases)], delta))


def without_ledger(releases: Iterable[EarlierRelease], dataset: str | None) -> tuple[EarlierRelease, ...]:
    """Those that no sum of the run's ledger has."""
    return tuple(release for release in releases if dataset is None or release.dataset != dataset)


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)."""

    epsilon: float
    delta: float


def with_ledger(entry: LedgerEntry, releases: Sequence[EarlierRelease], delta: float) -> Guarantee:
    """The guarantee of all runs of a ledger up to this one and of releases that it has not.

    Args:
        entry: The run's.
        releases: All of one unit, that of the ledger; not empty.
        delta: At which the cost of the releases is taken where no sum of ρ is known.
    """
    costs = [release.costs for release in releases]
    if type(entry) is LedgerEntry:
        before = {'ledger': ZCDpEvent(rho=entry.rho_after)}
        return Guarantee(epsilon_together([before, *costs], entry.delta), entry.delta)
    # Basic composition: the bound of the second holds whatever the first released.
    return Guarantee(entry.epsilon_after + epsilon_together(costs, delta), entry.delta + delta)
