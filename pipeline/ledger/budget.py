"""The budget of one dataset over all runs on it: what is spent, what is left, what may still start.

Arithmetic alone, without a database: `pipeline.ledger.ledger` keeps what this module decides over.
The costs of runs on the same records add up at every Rényi order (adaptive composition; BS Lemma
2.3), and only their sum is turned into epsilon (METHOD 7). Whether a run fits is decided at one order
that was fixed before the first of them; for costs in zCDP any order gives the same answer, that of
their sum of rho. models/privacy/README.md, section 7, proves what a budget promises.
"""

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

from models.privacy import accounting, report
from models.privacy.accounting import RunCost

Unit = Literal['example', 'user']
State = Literal['reserved', 'settled']


class BudgetExceeded(Exception):
    """A run asks for more than is left of its dataset's budget.

    Attributes:
        dataset: Name of the dataset.
        budget: Its budget, in rho.
        spent: What its runs were charged so far, in rho (at `order`).
        asked: What the run would cost, in rho (at `order`); its zCDP part where that is too much already.
        delta: The dataset's.
        order: The dataset's Rényi order, where one of the costs is not in zCDP; None otherwise.
    """

    def __init__(
        self,
        dataset: str,
        budget: float,
        spent: float,
        asked: float,
        *,
        delta: float,
        order: float | None = None,
        remedy: str = 'Ask for less (--epsilon or --max-private-tokens)',
    ) -> None:
        self.dataset, self.budget, self.spent, self.asked = dataset, budget, spent, asked
        self.delta, self.order = delta, order
        left = max(0.0, budget - spent)
        at = '' if order is None else f' and at the Rényi order α = {report.format_exact(order)}'
        super().__init__(
            f'Expected a run within what is left of the budget of dataset={dataset!r}, got '
            f'rho={_with_epsilon(asked, delta, order)}, '
            f'left={_with_epsilon(left, delta, order, upwards=False)} of '
            f'budget={report.format_down(budget, 6)}, at δ = {report.format_exact(delta)}{at}. The run does '
            f'not start: no token is sampled, and nothing is charged. {remedy}, or let whoever answers for '
            f'these records raise the budget: dp-corpus ledger budget {dataset} --reason WHY.'
        )

    def with_remedy(self, remedy: str) -> 'BudgetExceeded':
        """The same with other words for what to ask for instead."""
        return BudgetExceeded(
            self.dataset,
            self.budget,
            self.spent,
            self.asked,
            delta=self.delta,
            order=self.order,
            remedy=remedy,
        )


class OrderTooLow(ValueError):
    """A run's cost holds at no order as large as the one at which its dataset's budget is kept.

    Attributes:
        dataset: Name of the dataset.
        order: Its Rényi order.
        largest_order: The largest at which the run's cost is a bound.
    """

    def __init__(
        self, dataset: str, order: float, largest_order: float, *, remedy: str | None = None
    ) -> None:
        self.dataset, self.order, self.largest_order = dataset, order, largest_order
        remedy = remedy or f'Give --omega {reaching(order):.10g} or more: its orders then reach that one'
        super().__init__(
            f'Expected a cost that holds at the Rényi order α = {order!r}, at which the budget of '
            f'dataset={dataset!r} is kept, got largest_order={largest_order!r}. {remedy}.'
        )

    def with_remedy(self, remedy: str) -> 'OrderTooLow':
        """The same with other words for what to ask for instead."""
        return OrderTooLow(self.dataset, self.order, self.largest_order, remedy=remedy)


def reaching(order: float) -> float:
    """An order of three decimals that is no less: what to give for --omega."""
    return math.ceil(1000 * order) / 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """What may be spent on one set of records. All fields are public.

    Attributes:
        name: Public name; every run on these records is charged under it.
        unit: Unit of privacy of all its runs, since costs of different units do not add up.
        rho_budget: What all runs together may cost in zCDP.
        delta: delta at which epsilon is stated for the runs together.
        epsilon_budget: The budget as it was given, where it was given so; None otherwise.
        created: UTC, ISO 8601.
        renyi_order: The order α at which costs are held against the budget: that at which the budget
            converts best. Fixed by the first charge, and None before; see `with_budget`.
        renyi_bound: What the runs charged so far surely stay within at that order, whatever their
            outputs: the largest α times ρ that stood. None before the first charge.
    """

    name: str
    unit: Unit
    rho_budget: float
    delta: float
    epsilon_budget: float | None
    created: str
    renyi_order: float | None = None
    renyi_bound: float | None = None

    def with_budget(self, *, rho_budget: float, epsilon_budget: float | None, delta: float) -> 'Dataset':
        """The dataset with another budget.

        Before the first charge the order follows the budget. Afterwards it may only fall, and only to an
        order at which the new budget holds all that the old ones could have let in: divergences grow
        with the order, so what was within `renyi_bound` at the old order is within it at a lower one.
        Any other order would be chosen after outputs were seen, and bound nothing (README, 7).
        """
        new = dataclasses.replace(self, rho_budget=rho_budget, epsilon_budget=epsilon_budget, delta=delta)
        if self.renyi_order is None or self.renyi_bound is None:
            return new
        order = accounting.optimal_order(rho_budget, delta)
        if order <= self.renyi_order and order * rho_budget >= self.renyi_bound:
            return dataclasses.replace(new, renyi_order=order, renyi_bound=order * rho_budget)
        return dataclasses.replace(new, renyi_bound=max(self.renyi_bound, self.renyi_order * rho_budget))

    def charged(self) -> 'Dataset':
        """The dataset once a run is charged: its order is fixed, while no output can have been seen."""
        if self.renyi_order is not None:
            return self
        return dataclasses.replace(self, renyi_order=self.order, renyi_bound=self.order * self.rho_budget)

    @property
    def order(self) -> float:
        """The fixed order, or the one that the first charge would fix."""
        if self.renyi_order is not None:
            return self.renyi_order
        return accounting.optimal_order(self.rho_budget, self.delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Charge:
    """What one run costs, and how the run is known again. All fields are public.

    Attributes:
        run_id: Public name of the run.
        unit: Its unit of privacy.
        cost: Its stages and their events.
        identity: Digest of what makes the run, input, config, model and code, under the run's own key:
            to anyone without that it tells nothing.
        key_commitment: Digest that only the run's own key gives.
    """

    run_id: str
    unit: Unit
    cost: RunCost
    identity: str
    key_commitment: str

    def __post_init__(self) -> None:
        curve = self.cost.curve
        if curve.rho == 0 and not curve.sampled:
            raise ValueError(
                f'Expected stages that are not all free, got stages={sorted(self.cost.stages)}. A run '
                'without a price in advance cannot be charged to a ledger: leave --dataset out.'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One charged run. All fields are public.

    Attributes:
        number: Its place among the dataset's runs, from 1, in the order of their charging.
        run_id: Public name, unique in the dataset.
        rho: What was charged: the full cost, whatever the run did with it. For zCDP its ρ; for other
            costs their Rényi divergence at `renyi_order`, over that order.
        cost: The same as events, by name of the stage.
        state: 'reserved' from before the first token; 'settled' once the corpus is whole.
        identity: See `Charge`.
        key_commitment: See `Charge`.
        rho_budget: The dataset's budget when the run was charged.
        epsilon_budget: The same as it was given; None where it was given in rho.
        delta: The dataset's delta then.
        renyi_order: The dataset's order then.
        reserved_at: UTC, ISO 8601.
        settled_at: The same; None before.
    """

    number: int
    run_id: str
    rho: float
    cost: RunCost
    state: State
    identity: str
    key_commitment: str
    rho_budget: float
    epsilon_budget: float | None
    delta: float
    renyi_order: float
    reserved_at: str
    settled_at: str | None

    @property
    def omega(self) -> float | None:
        """Largest Rényi order at which the run's cost is a bound; None where it is one at every order."""
        order = self.cost.curve.largest_order
        return None if math.isinf(order) else order


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
        """epsilon of runs together: their curves composed, and the sum converted at its best order."""
        return accounting.compose(run.cost.curve for run in runs).epsilon(delta)

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


def _with_epsilon(rho: float, delta: float, order: float | None, *, upwards: bool = True) -> str:
    shown = report.format_up if upwards else report.format_down
    return f'{shown(rho)} (ε = {shown(report.epsilon_of_budget(rho, None, delta, order))} by itself)'
