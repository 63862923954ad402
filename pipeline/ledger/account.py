"""A dataset's account: the runs that were charged to its budget, and whether a further run fits.

Arithmetic alone, without a database: `pipeline.ledger.ledger` stores what this module decides.
The costs of runs on the same records add up at every Rényi order (adaptive composition; BS Lemma
2.3), and only their sum is turned into epsilon (METHOD 7). Whether a run fits is decided at one order
that is fixed before the first run; for costs in zCDP every order gives the same answer, that of
their sum of rho. models/privacy/README.md, section 7, proves what a budget guarantees.
"""

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from models.privacy import accounting, report
from models.privacy.accounting import RunCost
from pipeline.ledger.budget import BudgetExceeded, Charge, Dataset, OrderTooLow, Run

# Nobody keeps a larger budget.
_MOST_EPSILON = 1000.0


def epsilon_of_costs(costs: Sequence[RunCost], delta: float) -> float:
    """epsilon of runs together: of their sum of ρ, or the least that their curves and losses give."""
    curve = accounting.compose(cost.curve for cost in costs)
    if curve.is_zcdp:  # as each of their reports states it
        return curve.epsilon(delta)
    return accounting.epsilon_of_events([event for cost in costs for event in cost.stages.values()], delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Account:
    """A dataset and all runs that were charged to it, in the order of charging."""

    dataset: Dataset
    runs: tuple[Run, ...]

    @property
    def is_zcdp(self) -> bool:
        """Whether every charge is in zCDP, so that ρ is the sum at every order and not at one."""
        return all(run.cost.curve.is_zcdp for run in self.runs)

    @property
    def omega(self) -> float | None:
        """Largest Rényi order at which all charges together are a bound; None where it is every order."""
        return min((run.omega for run in self.runs if run.omega is not None), default=None)

    @property
    def rho_spent(self) -> float:
        """Sum of all charges, settled or not; where one is not in zCDP, at the dataset's order."""
        return math.fsum(self._prices)

    @property
    def rho_left(self) -> float:
        """What a further run may cost: in zCDP, or at the dataset's order."""
        return max(0.0, float(Fraction(self.dataset.rho_budget) - self._exactly_spent))

    @property
    def epsilon_spent(self) -> float:
        """epsilon of all runs together, at the dataset's delta."""
        return self._epsilon(self.runs, self.dataset.delta)

    @property
    def epsilon_budget(self) -> float:
        """epsilon of the budget at the dataset's delta: as given, or what its rho gives.

        Where a charge is not in zCDP the budget bounds one order alone, and converts there: the same,
        unless the budget was changed after the first charge.
        """
        dataset = self.dataset
        given, order = dataset.epsilon_budget, None if self.is_zcdp else dataset.order
        return report.epsilon_of_budget(dataset.rho_budget, given, dataset.delta, order)

    @property
    def epsilon_left(self) -> float:
        """epsilon of one further run that takes all that is left. Epsilons do not add up; rho does."""
        return accounting.epsilon_from_rho(self.rho_left, self.dataset.delta)

    @property
    def _exactly_spent(self) -> Fraction:
        return sum(map(Fraction, self._prices), Fraction(0))

    @property
    def _prices(self) -> list[float]:
        # For zCDP that is `run.rho`, whatever the order.
        order = self.dataset.order if self.runs else math.inf
        return [run.cost.curve.rho_at(order) for run in self.runs]

    def run(self, run_id: str) -> Run | None:
        """The run of this name, or None."""
        return next((run for run in self.runs if run.run_id == run_id), None)

    def fits(self, rho: float) -> bool:
        """Whether a further cost stays within the budget.

        The sum is exact. The budget has a relative slack of `report.BUDGET_SLACK` (1e-12): in
        binary, three times 0.1 is more than 0.3.
        """
        allowed = Fraction(self.dataset.rho_budget) * (1 + Fraction(report.BUDGET_SLACK))
        return self._exactly_spent + Fraction(rho) <= allowed

    def entry(self, run: Run) -> report.LedgerEntry:
        """What the report of a run says of the ledger: of the runs up to this one, none after it."""
        so_far = tuple(other for other in self.runs if other.number <= run.number)
        prices = {other.number: other.cost.curve.rho_at(run.renyi_order) for other in so_far}
        before = math.fsum(price for number, price in prices.items() if number < run.number)
        after = math.fsum(prices.values())
        facts: dict[str, Any] = {
            'dataset': self.dataset.name,
            'run_number': run.number,
            'rho_before': before,
            'rho': run.rho,
            'rho_after': after,
            'epsilon_after': self._epsilon(so_far, run.delta),
            'delta': run.delta,
            'rho_budget': run.rho_budget,
            'epsilon_budget': run.epsilon_budget,
        }
        if all(other.cost.curve.is_zcdp for other in so_far):
            return report.LedgerEntry(**facts)
        return report.MixedLedgerEntry(**facts, order=run.renyi_order)

    def epsilon_up_to(self, run: Run) -> float:
        """epsilon of all runs up to this one together, at the dataset's present delta."""
        so_far = [other for other in self.runs if other.number <= run.number]
        return self._epsilon(so_far, self.dataset.delta)

    def rho_by_stage(self, run: Run) -> dict[str, float]:
        """What a run was charged by name of the stage: ρ, or the cost at the dataset's order."""
        order = self.dataset.order
        return {name: accounting.curve_of(event).rho_at(order) for name, event in run.cost.stages.items()}

    @staticmethod
    def _epsilon(runs: Sequence[Run], delta: float) -> float:
        return epsilon_of_costs([run.cost for run in runs], delta)

    def price(self, cost: RunCost) -> float:
        """What a cost takes of the budget: ρ for zCDP, else its divergence at the dataset's order α, over α.

        Raises:
            OrderTooLow: Nothing is known of the cost at that order.
        """
        order = self.dataset.order
        rho = cost.curve.rho_at(order)
        if math.isinf(rho):
            raise OrderTooLow(self.dataset.name, order, cost.curve.largest_order)
        return rho

    def has_room(self, cost: RunCost) -> bool:
        """Whether a further run of this cost would fit, as `with_charge` decides it.

        Raises:
            ValueError: As `price`.
        """
        return self.fits(cost.curve.rho) and self.fits(self.price(cost))

    def sufficient_epsilon(self, cost: RunCost) -> float | None:
        """The smallest budget, as an epsilon of three digits, with which a run of this cost would fit.

        A larger budget is kept at another order, so it need not be larger by what the run costs now.

        Returns:
            At the dataset's delta; None where none up to a thousand is enough.
        """

        def is_enough(epsilon: float) -> bool:
            delta = self.dataset.delta
            raised = self.dataset.with_budget(
                rho_budget=accounting.rho_from_epsilon(epsilon, delta), epsilon_budget=epsilon, delta=delta
            )
            try:
                return dataclasses.replace(self, dataset=raised).has_room(cost)
            except OrderTooLow:
                return False

        low, high = self.epsilon_budget, _MOST_EPSILON
        if low >= high or not is_enough(high):
            return None
        while high / low > 1.001:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if is_enough(middle) else (middle, high)
        shown = float(f'{high:.3g}')
        return shown if is_enough(shown) else float(f'{1.005 * high:.3g}')

    def with_charge(self, charge: Charge, *, at: str) -> 'Account':
        """The account once a new run is charged.

        Args:
            charge: A run whose name the account does not hold.
            at: Now: UTC, ISO 8601.

        Raises:
            ValueError: The run's unit is not the dataset's, or its cost does not hold at its order.
            BudgetExceeded: It does not fit.
        """
        self.check_unit(charge.unit)
        # First what it costs at whatever order: with orders that reach the dataset's it would fit no better.
        rho = charge.cost.curve.rho
        if self.fits(rho):
            rho = self.price(charge.cost)
        if not self.fits(rho):
            is_zcdp = self.is_zcdp and charge.cost.curve.is_zcdp
            raise BudgetExceeded(
                self.dataset.name,
                self.dataset.rho_budget,
                self.rho_spent,
                rho,
                delta=self.dataset.delta,
                order=None if is_zcdp else self.dataset.order,
            )
        run = Run(
            number=len(self.runs) + 1,
            run_id=charge.run_id,
            rho=rho,
            cost=charge.cost,
            state='reserved',
            identity=charge.identity,
            key_commitment=charge.key_commitment,
            rho_budget=self.dataset.rho_budget,
            epsilon_budget=self.dataset.epsilon_budget,
            delta=self.dataset.delta,
            renyi_order=self.dataset.order,
            reserved_at=at,
            settled_at=None,
        )
        return Account(dataset=self.dataset.charged(), runs=(*self.runs, run))

    def check_resumption(self, run: Run, charge: Charge) -> None:
        """Refuses a run that only shares its name with one that was charged.

        Raises:
            ValueError: It has another key, input, config, model, code, unit or cost.
        """
        self.check_unit(charge.unit)
        name = f'run_id={run.run_id!r} on dataset={self.dataset.name!r}'
        if charge.key_commitment != run.key_commitment:
            raise ValueError(
                f"Expected the key of the charged run for {name}, got another run's. Its work directory was "
                'lost, or is another one: under this name two corpora would be released for one price. '
                'Restore the work directory to resume, or choose another --run-id, which is charged anew.'
            )
        if charge.identity != run.identity:
            raise ValueError(
                f'Expected what was charged for {name}, got another input, config, model or code. Repeat '
                'that run exactly to resume it, or choose another --run-id, which is charged anew.'
            )
        self.check_cost(run, charge.cost)

    def check_unit(self, unit: str) -> None:
        """Refuses a unit of privacy other than the dataset's.

        Raises:
            ValueError: See above.
        """
        if unit != self.dataset.unit:
            raise ValueError(
                f'Expected unit={self.dataset.unit!r} on dataset={self.dataset.name!r}, got unit={unit!r}. '
                'Costs of different units do not add up: run with the unit of the dataset, or add another '
                'dataset with a budget of its own.'
            )

    def check_cost(self, run: Run, cost: RunCost) -> None:
        """Refuses another cost than the one that a run was charged.

        Raises:
            ValueError: See above.
        """
        rho = cost.curve.rho_at(run.renyi_order)
        if rho != run.rho or cost.curve != run.cost.curve:
            raise ValueError(
                f'Expected rho={run.rho!r}, which run_id={run.run_id!r} was charged on '
                f'dataset={self.dataset.name!r}, got rho={rho!r}. Repeat that run exactly to resume it, or '
                'choose another --run-id, which is charged anew.'
            )
