"""A run's entry in the ledger: the runs on the same records so far, and their common guarantee."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

from models.privacy import accounting
from models.privacy.events import DpEvent

# Relative slack of a budget, because decimal numbers are not exact in binary.
BUDGET_SLACK = 1e-12
# By how much a sum of losses on a grid may lie above what it stands for, as a share and beyond it.
_GRID = 1e-3
# Relative difference of a given epsilon and that of the rho which it allows.
_SAME = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """The ledger's entry of a run: the runs on the dataset up to this one, and their sum.

    A function of what was charged up to this run alone, so it stays the same whatever
    is charged later, and a resumed run gives the same report. All of it is public.

    Attributes:
        dataset: Name under which the ledger keeps the records' budget.
        run_number: Place of this run among those charged to the dataset, from 1.
        rho_before: zCDP cost of all runs before it.
        rho: That of this run.
        rho_after: Their sum, which holds for all these runs together.
        epsilon_after: The same at `delta`: by the optimal-α bound, or less where the losses of all runs are
            known, as those of votes on texts are.
        delta: The dataset's, which need not be that of the run.
        rho_budget: What the dataset's runs might cost when this one was charged.
        epsilon_budget: The budget as it was given, where it was given so; None otherwise.
        rho_bound: The largest budget that had stood since the dataset's first charge: what outputs may have
            let in, and a lower budget does not take back.
        epsilon_bound: The same at `delta`: the guarantee where outputs decided on runs or their cost.
    """

    # By which share a charge may differ from what is computed here.
    tolerance: ClassVar[float] = 1e-9

    dataset: str
    run_number: int
    rho_before: float
    rho: float
    rho_after: float
    epsilon_after: float
    delta: float
    rho_budget: float
    epsilon_budget: float | None
    rho_bound: float
    epsilon_bound: float

    def __post_init__(self) -> None:
        if self.run_number < 1 or (self.rho_before > 0) != (self.run_number > 1) or not self.rho > 0:
            raise ValueError(
                'Expected a first run with nothing before it, or a later one with a cost before it, got '
                f'run_number={self.run_number!r}, rho_before={self.rho_before!r}, rho={self.rho!r}. '
                'Take the entry from the ledger and do not edit it.'
            )
        epsilon = self._epsilon_of_sum()
        if not (
            math.isclose(self.rho_before + self.rho, self.rho_after, rel_tol=1e-9) and self._follows(epsilon)
        ):
            raise ValueError(
                'Expected rho_after to be the sum and epsilon_after to follow from it, got '
                f'rho_after={self.rho_after!r}, sum={self.rho_before + self.rho!r}, '
                f'epsilon_after={self.epsilon_after!r}, computed={epsilon!r}. '
                'Take the entry from the ledger and do not edit it.'
            )
        # Twice the slack: the sum is rounded here, and exact where the ledger decides.
        if not self.rho_after <= self.rho_budget * (1 + 2 * BUDGET_SLACK):
            raise ValueError(
                f'Expected runs within their budget, got rho_after={self.rho_after!r}, '
                f'rho_budget={self.rho_budget!r}. Publish nothing of this run.'
            )
        if (
            self.rho_bound < self.rho_budget
            or (self.run_number == 1 and self.rho_bound != self.rho_budget)
            or not self._is_bound(self.epsilon_bound)
        ):
            raise ValueError(
                'Expected the largest budget since the first charge and its epsilon, got '
                f'rho_bound={self.rho_bound!r}, epsilon_bound={self.epsilon_bound!r}, '
                f'rho_budget={self.rho_budget!r}. Take the entry from the ledger and do not edit it.'
            )

    @property
    def is_by_rho(self) -> bool:
        """True if `epsilon_after` is that of `rho_after`, and not a smaller one of the losses."""
        by_rho = accounting.epsilon_from_rho(self.rho_after, self.delta)
        return self.epsilon_after >= by_rho * (1 - _SAME)

    def charge_of(self, costs: Sequence[DpEvent]) -> float | None:
        """The charge of a run with these costs; None where it cannot be charged so."""
        curve = accounting.compose(map(accounting.curve_of, costs))
        return None if curve.sampled else curve.rho

    def _epsilon_of_sum(self) -> float:
        return accounting.epsilon_from_rho(self.rho_after, self.delta)

    def _is_bound(self, epsilon: float) -> bool:
        # More where the dataset's order is not the best: outputs could have let in what it alone bounds.
        return epsilon >= accounting.epsilon_from_rho(self.rho_bound, self.delta) * (1 - _SAME)

    def _follows(self, computed: float) -> bool:
        # No cost of that ρ is less than a Gaussian mechanism's.
        least = accounting.epsilon_from_gaussian(self.rho_after, self.delta)
        return least * (1 - _SAME) <= self.epsilon_after <= computed * (1 + _SAME)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixedLedgerEntry(LedgerEntry):
    """The same where a run up to this one has a cost that is not in zCDP.

    Each of the costs in ρ is then a Rényi divergence at one order α, divided by α: for a zCDP cost its
    ρ. They add up and are held against the budget at that order. `epsilon_after` is that of the composed
    curve at its best order, or that of the distributions of all losses where each cost has one
    (`accounting.epsilon_of_events`), so it is at most what the sum at `order` converts to.

    Attributes:
        order: α, fixed when the dataset's first run was charged.
    """

    order: float

    def charge_of(self, costs: Sequence[DpEvent]) -> float | None:
        return accounting.compose(map(accounting.curve_of, costs)).rho_at(self.order)

    def _epsilon_of_sum(self) -> float:
        return accounting.epsilon_at_order(self.order, self.order * self.rho_after, self.delta)

    def _is_bound(self, epsilon: float) -> bool:
        return math.isclose(
            epsilon,
            accounting.epsilon_at_order(self.order, self.order * self.rho_bound, self.delta),
            rel_tol=_SAME,
        )

    def _follows(self, computed: float) -> bool:
        return 0 <= self.epsilon_after <= computed * (1 + _SAME)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianLedgerEntry(LedgerEntry):
    """The same where the dataset's costs are kept as those of Gaussian mechanisms with a chance of failure.

    Each of the costs in ρ is then μ²/2 of a Gaussian mechanism of shift μ, which dominates the run but for a
    probability (README, section 12). `epsilon_after` is that of the distributions of all losses.

    Attributes:
        failure: That probability for this run; 0 for most.
        failure_after: The sum of all runs up to this one.
        failure_budget: What it may come to; the budget holds at what is left of `delta`.
    """

    # A charge is searched for in steps, which another machine or library may round in another way.
    tolerance: ClassVar[float] = 1e-3

    failure: float
    failure_after: float
    failure_budget: float

    def __post_init__(self) -> None:
        if not 0 <= self.failure <= self.failure_after <= self.failure_budget < self.delta:
            raise ValueError(
                'Expected failures within what is kept for them, got '
                f'failure={self.failure!r}, failure_after={self.failure_after!r}, '
                f'failure_budget={self.failure_budget!r}, delta={self.delta!r}. Take the entry from the '
                'ledger and do not edit it.'
            )
        super().__post_init__()

    def charge_of(self, costs: Sequence[DpEvent]) -> float | None:
        return accounting.gaussian_rho(costs, self.failure)

    def _epsilon_of_sum(self) -> float:
        return accounting.epsilon_from_gaussian(self.rho_after, self.delta - self.failure_after)

    def _is_bound(self, epsilon: float) -> bool:
        bound = accounting.epsilon_from_gaussian(self.rho_bound, self.delta - self.failure_budget)
        return math.isclose(epsilon, bound, rel_tol=_SAME)

    def _follows(self, computed: float) -> bool:
        return 0 <= self.epsilon_after <= computed * (1 + _GRID) + _GRID


def check_charge(entry: LedgerEntry, costs: Iterable[DpEvent]) -> None:
    """Refuses an entry in which the charge is not the cost of the run.

    Args:
        entry: The run's.
        costs: Event of each of its stages; none without a price in advance.

    Raises:
        ValueError: The costs differ.
    """
    costs = list(costs)
    charge = entry.charge_of(costs) if costs else None
    if charge is None or not math.isclose(entry.rho, charge, rel_tol=entry.tolerance):
        raise ValueError(
            'Expected the ledger to have charged what the run costs, got '
            f'charged={entry.rho!r}, computed={charge!r}. Take the entry from the ledger and do not edit '
            'it. A run without a price in advance is charged to no ledger.'
        )


def epsilon_of_budget(
    rho: float,
    epsilon: float | None,
    delta: float,
    order: float | None = None,
    failure_budget: float | None = None,
) -> float:
    """The epsilon at delta of a budget, or of a part of one.

    Args:
        rho: The budget in zCDP, or at `order`.
        epsilon: What the user gave at delta; None if the budget was given in rho.
        delta: The dataset's.
        order: The one order that it bounds if not all costs are in zCDP; None otherwise.
        failure_budget: What of delta a filter of Gaussians keeps for failures; None in another filter.
    """
    if failure_budget is not None:
        return accounting.epsilon_from_gaussian(rho, delta - failure_budget) if epsilon is None else epsilon
    if order is None:
        return accounting.epsilon_from_rho(rho, delta) if epsilon is None else epsilon
    bound = accounting.epsilon_at_order(order, order * rho, delta)
    return epsilon if epsilon is not None and math.isclose(bound, epsilon, rel_tol=1e-6) else bound
