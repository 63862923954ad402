"""A dataset's account: the runs that were charged to its budget, and whether a further run fits.

Arithmetic alone, without a database: `pipeline.ledger.ledger` stores what this module decides.
The costs of runs on the same records add up at every Rényi order (adaptive composition; BS Lemma
2.3), and only their sum is turned into epsilon (METHOD 7). Whether a run fits is decided at one order
that is fixed before the first run; for costs in zCDP every order gives the same answer, that of
their sum of rho. In a dataset whose filter is of Gaussians a cost is instead a Gaussian mechanism that
dominates the run. models/privacy/README.md, sections 7 and 12, proves what a budget guarantees.
"""

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from models.privacy import accounting, report
from models.privacy.accounting import RunCost
from pipeline.ledger.budget import BudgetExceeded, Charge, Dataset, NotGaussian, OrderTooLow, Run

# Nobody keeps a larger budget.
_MOST_EPSILON = 1000.0
# Shares 1/i² of all failures, for i = 1, 2, …, add up to one with this factor.
_FIRST_FAILURE = 6 / math.pi**2


def epsilon_of_costs(costs: Sequence[RunCost], delta: float) -> float:
    """epsilon of runs together: the least that their curves and their losses give."""
    return accounting.epsilon_of_events(_events(costs), delta)


def _events(costs: Sequence[RunCost]) -> list[accounting.DpEvent]:
    return [event for cost in costs for event in cost.stages.values()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Account:
    """A dataset and all runs that were charged to it, in the order of charging."""

    dataset: Dataset
    runs: tuple[Run, ...]

    @property
    def is_zcdp(self) -> bool:
        """True if every charge is in zCDP and summed so, at every order and not at one."""
        return not self.is_gaussian and all(run.cost.curve.is_zcdp for run in self.runs)

    @property
    def omega(self) -> float | None:
        """Largest Rényi order at which all charges together are a bound; None where it is every order."""
        return min((run.omega for run in self.runs if run.omega is not None), default=None)

    @property
    def rho_spent(self) -> float:
        """Sum of all charges, settled or not; where one is not in zCDP, at the dataset's order."""
        return math.fsum(self._prices)

    @property
    def failure_spent(self) -> float:
        """Sum of the failures of all charges; zero in a filter that knows none."""
        return math.fsum(run.failure or 0.0 for run in self.runs)

    @property
    def rho_left(self) -> float:
        """Largest cost of a further run: in zCDP, or at the dataset's order."""
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
        return self.epsilon_of(self.dataset.rho_budget, self.dataset.epsilon_budget)

    @property
    def rho_bound(self) -> float:
        """Bound on all runs' cost, whatever outputs decided: the largest budget since the first charge."""
        dataset = self.dataset
        return dataset.rho_budget if dataset.rho_bound is None else dataset.rho_bound

    @property
    def lowered_from(self) -> float | None:
        """The same, where a smaller budget stands now; None where it is the one that stands."""
        return None if self.rho_bound == self.dataset.rho_budget else self.rho_bound

    @property
    def epsilon_bound(self) -> float:
        """epsilon of `rho_bound` at the dataset's delta: the guarantee of all outputs, earlier and later.

        It is that of the dataset's order, also where all charges are in zCDP: outputs could have let in
        others.
        """
        dataset = self.dataset
        return self._epsilon_of_bound(self.rho_bound, dataset, None if self.is_gaussian else dataset.order)

    @property
    def epsilon_left(self) -> float:
        """epsilon of one further run that takes all that is left. Epsilons do not add up; rho does."""
        return self.epsilon_of_further(self.rho_left)

    def epsilon_of_further(self, rho: float) -> float:
        """epsilon at the dataset's delta of one further run that takes so much of the budget."""
        delta = self.dataset.delta
        return self.epsilon_of(rho) if self.is_gaussian else accounting.epsilon_from_rho(rho, delta)

    @property
    def is_gaussian(self) -> bool:
        """True if costs are kept as those of Gaussian mechanisms."""
        return self.dataset.privacy_filter == 'gaussian'

    def epsilon_of(self, rho: float, epsilon: float | None = None) -> float:
        """epsilon at the dataset's delta of a budget like this one, which may be given as an epsilon."""
        dataset = self.dataset
        order = None if self.is_gaussian or self.is_zcdp else dataset.order
        return report.epsilon_of_budget(rho, epsilon, dataset.delta, order, dataset.failure_budget)

    @property
    def _exactly_spent(self) -> Fraction:
        return sum(map(Fraction, self._prices), Fraction(0))

    @property
    def _prices(self) -> list[float]:
        if self.is_gaussian:
            return [run.rho for run in self.runs]
        # For zCDP that is `run.rho`, whatever the order.
        order = self.dataset.order if self.runs else math.inf
        return [run.cost.curve.rho_at(order) for run in self.runs]

    def run(self, run_id: str) -> Run | None:
        """The run of this name, or None."""
        return next((run for run in self.runs if run.run_id == run_id), None)

    def fits(self, rho: float) -> bool:
        """True if a further cost stays within the budget.

        The sum is exact. The budget has a relative slack of `report.BUDGET_SLACK` (1e-12): in
        binary, three times 0.1 is more than 0.3.
        """
        allowed = Fraction(self.dataset.rho_budget) * (1 + Fraction(report.BUDGET_SLACK))
        return self._exactly_spent + Fraction(rho) <= allowed

    def entry(self, run: Run) -> report.LedgerEntry:
        """The ledger's entry in the report of a run: on the runs up to this one, none after it."""
        so_far = tuple(other for other in self.runs if other.number <= run.number)
        order = run.renyi_order
        prices = {
            other.number: other.rho if order is None else other.cost.curve.rho_at(order) for other in so_far
        }
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
            'rho_bound': run.rho_bound,
            'epsilon_bound': self._epsilon_of_bound(run.rho_bound, run, order),
        }
        if order is None:
            assert self.dataset.failure_budget is not None
            return report.GaussianLedgerEntry(
                **facts,
                failure=run.failure or 0.0,
                failure_after=math.fsum(other.failure or 0.0 for other in so_far),
                failure_budget=self.dataset.failure_budget,
            )
        if all(other.cost.curve.is_zcdp for other in so_far):
            return report.LedgerEntry(**facts)
        return report.MixedLedgerEntry(**facts, order=order)

    def epsilon_up_to(self, run: Run) -> float:
        """epsilon of all runs up to this one together, at the dataset's present delta."""
        so_far = [other for other in self.runs if other.number <= run.number]
        return self._epsilon(so_far, self.dataset.delta)

    def rho_by_stage(self, run: Run) -> dict[str, float]:
        """The charge of a run by name of the stage: ρ, or the cost at the order, or a Gaussian's."""
        if self.is_gaussian:
            parts = {name: RunCost(stages={name: event}) for name, event in run.cost.stages.items()}
            return {name: self._rho_of_gaussian(part, run.failure) for name, part in parts.items()}
        order = self.dataset.order
        return {name: accounting.curve_of(event).rho_at(order) for name, event in run.cost.stages.items()}

    def _epsilon_of_bound(self, rho_bound: float, at: Dataset | Run, order: float | None) -> float:
        """epsilon of the bound that stood for a dataset, or for a run when it was charged."""
        epsilon = at.epsilon_budget if at.rho_budget == rho_bound else None
        return report.epsilon_of_budget(rho_bound, epsilon, at.delta, order, self.dataset.failure_budget)

    def _epsilon(self, runs: Sequence[Run], delta: float) -> float:
        return epsilon_of_costs([run.cost for run in runs], delta)

    def price(self, cost: RunCost) -> float:
        """Price of a cost in the budget: ρ for zCDP, else its divergence at the dataset's order α, over α.

        In a filter of Gaussians half the square of the shift, with the failure that comes next.

        Raises:
            OrderTooLow: Nothing is known of the cost at that order.
            NotGaussian: No Gaussian mechanism is known that dominates it.
        """
        if self.is_gaussian:
            return self._rho_of_gaussian(cost, self._next_failure(cost))
        order = self.dataset.order
        rho = cost.curve.rho_at(order)
        if math.isinf(rho):
            raise OrderTooLow(self.dataset.name, order, cost.curve.largest_order)
        return rho

    def has_room(self, cost: RunCost) -> bool:
        """True if a further run of this cost would fit, as `with_charge` decides it."""
        return self.fits(self.asked(cost))

    def asked(self, cost: RunCost) -> float:
        """The budget that a further run takes: its price, or its part in zCDP where that is too much already.

        With orders that reach the dataset's such a run would fit no better.
        """
        at_any_order = cost.curve.rho
        return self.price(cost) if self.is_gaussian or self.fits(at_any_order) else at_any_order

    def sufficient_epsilon(self, cost: RunCost) -> float | None:
        """The smallest budget, as an epsilon of three digits, with which a run of this cost would fit.

        A larger budget is kept at another order, so it need not be larger by what the run costs now.

        Returns:
            At the dataset's delta; None where none up to a thousand is enough.
        """

        def is_enough(epsilon: float) -> bool:
            raised = self.dataset.with_budget(rho=None, epsilon=epsilon, delta=self.dataset.delta)
            try:
                return dataclasses.replace(self, dataset=raised).has_room(cost)
            except (OrderTooLow, NotGaussian):
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

        Raises:
            ValueError: The run's unit is not the dataset's, or its cost does not hold at its order.
            BudgetExceeded: It does not fit.
        """
        self.check_unit(charge.unit)
        rho = self.asked(charge.cost)
        if not self.fits(rho):
            is_zcdp = self.is_zcdp and charge.cost.curve.is_zcdp
            raise BudgetExceeded(
                self.dataset.name,
                self.dataset.rho_budget,
                self.rho_spent,
                rho,
                delta=self.dataset.delta,
                order=None if is_zcdp or self.is_gaussian else self.dataset.order,
                failure_budget=self.dataset.failure_budget,
            )
        dataset = self.dataset.charged()
        assert dataset.rho_bound is not None
        run = Run(
            number=len(self.runs) + 1,
            run_id=charge.run_id,
            rho=rho,
            cost=charge.cost,
            state='reserved',
            identity=charge.identity,
            key_commitment=charge.key_commitment,
            rho_budget=dataset.rho_budget,
            epsilon_budget=dataset.epsilon_budget,
            delta=dataset.delta,
            rho_bound=dataset.rho_bound,
            renyi_order=dataset.renyi_order,
            reserved_at=at,
            settled_at=None,
            failure=self._next_failure(charge.cost) if self.is_gaussian else None,
        )
        return Account(dataset=dataset, runs=(*self.runs, run))

    def check_resumption(self, run: Run, charge: Charge) -> None:
        """Refuses a run of another key, input, config, model, code, unit or cost than the charged one."""
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
        """Refuses a unit of privacy other than the dataset's."""
        if unit != self.dataset.unit:
            raise ValueError(
                f'Expected unit={self.dataset.unit!r} on dataset={self.dataset.name!r}, got unit={unit!r}. '
                'Costs of different units do not add up: run with the unit of the dataset, or add another '
                'dataset with a budget of its own.'
            )

    def price_of(self, run: Run, cost: RunCost) -> float:
        """The price that a cost would have had in the place of a run that was charged."""
        order = run.renyi_order
        return self._rho_of_gaussian(cost, run.failure) if order is None else cost.curve.rho_at(order)

    def _next_failure(self, cost: RunCost) -> float | None:
        """The failure of a further run: all that ever follow come to no more than the dataset's."""
        if self.dataset.failure_budget is None or not accounting.needs_failure(_events([cost])):
            return None
        earlier = sum(run.failure is not None for run in self.runs)
        return self.dataset.failure_budget * _FIRST_FAILURE / (earlier + 1) ** 2

    def _rho_of_gaussian(self, cost: RunCost, failure: float | None) -> float:
        rho = accounting.gaussian_rho(_events([cost]), failure or 0.0)
        if rho is None:
            unknown = [
                name
                for name, event in cost.stages.items()
                if accounting.gaussian_rho([event], failure or 0.0) is None
            ]
            raise NotGaussian(self.dataset.name, unknown)
        return rho

    def check_cost(self, run: Run, cost: RunCost) -> None:
        """Refuses another cost than the one that a run was charged."""
        try:
            rho = self.price_of(run, cost)
        except NotGaussian:
            rho = math.inf
        if rho != run.rho or cost.curve != run.cost.curve:
            raise ValueError(
                f'Expected rho={run.rho!r}, which run_id={run.run_id!r} was charged on '
                f'dataset={self.dataset.name!r}, got rho={rho!r}. Repeat that run exactly to resume it, or '
                'choose another --run-id, which is charged anew.'
            )
