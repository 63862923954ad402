"""The budget of one dataset, what is charged to it, and why a charge is refused.

Arithmetic alone, without a database; `pipeline.ledger.account` adds up the charges.
"""

import dataclasses
import math
import re
import typing
from collections.abc import Callable, Sequence
from typing import Literal

from models.privacy import accounting, report
from models.privacy.accounting import RunCost

Unit = Literal['example', 'user']
State = Literal['reserved', 'settled']
PrivacyFilter = Literal['renyi', 'gaussian']
# Share of δ, in a filter of Gaussians, that is kept for failures of sampled costs.
_FAILURE_SHARE = 0.5
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,99}')


class BudgetExceeded(Exception):
    """A run asks for more than is left of its dataset's budget.

    Attributes:
        budget: Its budget, in rho.
        spent: Charges of its runs so far, in rho (at `order`).
        asked: Cost of the run, in rho (at `order`); its zCDP part where that is too much already.
        delta: The dataset's.
        order: The dataset's Rényi order, where one of the costs is not in zCDP; None otherwise.
        failure_budget: The dataset's; None where its filter is no Gaussian's.
        sufficient: epsilon of a budget with which the run would fit; None where none is known.
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
        failure_budget: float | None = None,
        remedy: str = 'Ask for less (--epsilon or --max-private-tokens)',
        sufficient: float | None = None,
    ) -> None:
        self.dataset, self.budget, self.spent, self.asked = dataset, budget, spent, asked
        self.delta, self.order, self.sufficient = delta, order, sufficient
        self.failure_budget = failure_budget
        left = max(0.0, budget - spent)
        at = '' if order is None else f' and at the Rényi order α = {report.format_exact(order)}'

        def shown(rho: float, form: Callable[[float], str]) -> str:
            epsilon = report.epsilon_of_budget(rho, None, delta, order, failure_budget)
            return f'{form(rho)} (ε = {form(epsilon)} by itself)'

        super().__init__(
            f'Expected a run within what is left of the budget of dataset={dataset!r}, got '
            f'rho={shown(asked, report.format_up)}, left={shown(left, report.format_down)} of '
            f'budget={report.format_down(budget, 6)}, at δ = {report.format_exact(delta)}{at}. The run does '
            f'not start: no token is sampled, and nothing is charged. {remedy}, or let whoever answers for '
            f'these records raise the budget: dp-corpus ledger budget {dataset}'
            + ('' if sufficient is None else f' --epsilon {sufficient:g}')
            + ' --reason WHY.'
        )

    def with_remedy(self, remedy: str, sufficient: float | None = None) -> 'BudgetExceeded':
        """The same with other words for what to ask for instead, and a budget that would be enough."""
        return BudgetExceeded(
            self.dataset,
            self.budget,
            self.spent,
            self.asked,
            delta=self.delta,
            order=self.order,
            failure_budget=self.failure_budget,
            remedy=remedy,
            sufficient=sufficient,
        )


class OrderTooLow(ValueError):
    """A run's cost holds at no order as large as the one at which its dataset's budget is kept.

    Attributes:
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


class NotGaussian(ValueError):
    """A run's cost is of no Gaussian mechanism, and its dataset's filter takes no other."""

    def __init__(self, dataset: str, stages: Sequence[str]) -> None:
        self.dataset = dataset
        super().__init__(
            f'Expected a cost that Gaussian noise explains, which dataset={dataset!r} takes alone, got '
            f'stages={list(stages)!r}, of which less is known. Choose a method whose noise is Gaussian '
            '(docs/ledger.md, "Two filters", lists them). As long as nothing was charged, the records can be '
            'added under another name instead: dp-corpus ledger add --filter renyi takes every kind of run.'
        )


def reaching(order: float) -> float:
    """An order of three decimals that is no less: what to give for --omega."""
    return math.ceil(1000 * order) / 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """The budget of one set of records. All fields are public.

    Attributes:
        name: Public name; every run on these records is charged under it.
        unit: Unit of privacy of all its runs, since costs of different units do not add up.
        rho_budget: Largest cost of all runs together in zCDP.
        delta: delta at which epsilon is stated for the runs together.
        epsilon_budget: The budget as it was given, where it was given so; None otherwise.
        renyi_order: The order α at which costs are held against the budget: that at which the budget
            converts best. Fixed by the first charge, and None before; see `with_budget`.
        rho_bound: Bound on the cost of all runs, whatever outputs decided: the largest budget that stood
            since the first charge, at `renyi_order` where there is one. None before the first charge.
        failure_budget: For a filter of Gaussians: the part of delta that failures of all runs may take
            together. ρ is then half the square of a Gaussian mechanism's shift, `rho_budget` turns into
            epsilon at what is left of delta, and there is no order. None for the filter at an order.
    """

    name: str
    unit: Unit
    rho_budget: float
    delta: float
    epsilon_budget: float | None
    created: str
    renyi_order: float | None = None
    rho_bound: float | None = None
    failure_budget: float | None = None

    @property
    def privacy_filter(self) -> PrivacyFilter:
        """The rule by which costs are held against the budget."""
        return 'renyi' if self.failure_budget is None else 'gaussian'

    def with_budget(self, *, rho: float | None, epsilon: float | None, delta: float) -> 'Dataset':
        """The dataset with another budget, in rho or as an epsilon at delta.

        Before the first charge the order follows the budget. Afterwards it may only fall, and only to an
        order at which the new budget holds all that the old ones could have let in: divergences grow
        with the order, so what was within α times `rho_bound` at the old order is within it at a lower one.
        Any other order would be chosen after outputs were seen, and bound nothing (README, 7). A lower
        budget takes back nothing of what outputs could have let in before, so the largest one stays.

        Raises:
            ValueError: As `rho_of`.
        """
        rho_budget = rho_of(rho, epsilon, delta, self.privacy_filter)
        failure_budget = failure_budget_of(delta, self.privacy_filter)
        new = dataclasses.replace(
            self, rho_budget=rho_budget, epsilon_budget=epsilon, delta=delta, failure_budget=failure_budget
        )
        if self.rho_bound is None:
            return new
        new = dataclasses.replace(new, rho_bound=max(self.rho_bound, rho_budget))
        if self.renyi_order is None:
            return new
        order = accounting.optimal_order(rho_budget, delta)
        holds_all = order <= self.renyi_order and order * rho_budget >= self.renyi_order * self.rho_bound
        return dataclasses.replace(new, renyi_order=order) if holds_all else new

    def charged(self) -> 'Dataset':
        """The dataset once a run is charged: its order is fixed, while no output can have been seen."""
        if self.rho_bound is not None:
            return self
        order = self.order if self.privacy_filter == 'renyi' else None
        return dataclasses.replace(self, renyi_order=order, rho_bound=self.rho_budget)

    @property
    def order(self) -> float:
        """The fixed order, or the one that the first charge would fix."""
        if self.renyi_order is not None:
            return self.renyi_order
        return accounting.optimal_order(self.rho_budget, self.delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Charge:
    """The cost of one run, and its identity, by which it is known again. All fields are public.

    Attributes:
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
        rho: Its charge: the full cost, whatever the run did with it. For zCDP its ρ; for other
            costs their Rényi divergence at `renyi_order`, over that order; in a filter of Gaussians
            half the square of the shift.
        cost: The same as events, by name of the stage.
        state: 'reserved' from before the first token; 'settled' once the corpus is whole.
        rho_budget: The dataset's budget when the run was charged.
        epsilon_budget: The same as it was given; None where it was given in rho.
        delta: The dataset's delta then.
        rho_bound: The dataset's bound then: the largest budget that had stood since the first charge.
        renyi_order: The dataset's order then; None in a filter of Gaussians.
        failure: In that filter, the probability that the shift leaves out; None for a cost without any.
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
    rho_bound: float
    renyi_order: float | None
    reserved_at: str
    settled_at: str | None
    failure: float | None = None

    @property
    def omega(self) -> float | None:
        """Largest Rényi order at which the run's cost is a bound; None where it is one at every order."""
        order = self.cost.curve.largest_order
        return None if math.isinf(order) else order


def check_dataset(
    name: str,
    *,
    unit: str,
    delta: float,
    rho: float | None = None,
    epsilon: float | None = None,
    privacy_filter: PrivacyFilter = 'renyi',
) -> None:
    """Checks the values of a new dataset, before a ledger is made for it.

    Raises:
        ValueError: A value out of range; see `Ledger.add_dataset`.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f'Expected a dataset name of letters, digits and "._-", got dataset={name!r}. It is published.'
        )
    if unit not in typing.get_args(Unit):
        raise ValueError(
            f"Expected unit 'example' or 'user', got unit={unit!r}. Say whom the budget protects."
        )
    rho_of(rho, epsilon, delta, privacy_filter)


def failure_budget_of(delta: float, privacy_filter: PrivacyFilter) -> float | None:
    """The part of delta that a dataset's filter keeps for failures; None for one that knows none."""
    return _FAILURE_SHARE * delta if privacy_filter == 'gaussian' else None


def rho_of(rho: float | None, epsilon: float | None, delta: float, privacy_filter: PrivacyFilter) -> float:
    """A budget in rho, which is given in rho or as an epsilon at delta.

    Raises:
        ValueError: Both or neither are given, or one is out of range.
    """
    if (rho is None) == (epsilon is None):
        raise ValueError(
            f'Expected a budget in either rho or epsilon, got rho={rho!r}, epsilon={epsilon!r}. Give one.'
        )
    budget = rho if epsilon is None else epsilon
    assert budget is not None
    if not (budget > 0 and math.isfinite(budget)):
        raise ValueError(
            f'Expected a finite budget > 0, got rho={rho!r}, epsilon={epsilon!r}. Give what all runs may '
            'cost.'
        )
    if not 0 < delta < 1:
        raise ValueError(f'Expected 0 < delta < 1, got delta={delta!r}. A usual choice is records ** -1.1.')
    if epsilon is None:
        return budget
    failure_budget = failure_budget_of(delta, privacy_filter)
    if failure_budget is None:
        return accounting.rho_from_epsilon(epsilon, delta)
    return accounting.rho_from_gaussian(epsilon, delta - failure_budget)
