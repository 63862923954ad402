"""The budget of one dataset over all runs on it: what is spent, what is left, what may still start.

Arithmetic alone, without a database: `pipeline.ledger.ledger` keeps what this module decides over.
The costs of runs on the same records add up in rho (adaptive composition of zCDP; BS Lemma
2.3), and only their sum is turned into epsilon (METHOD 7). models/privacy/README.md, section 7,
proves what a budget promises.
"""

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

from models.privacy import accounting, report

Unit = Literal['example', 'user']
State = Literal['reserved', 'settled']


class BudgetExceeded(Exception):
    """A run asks for more than is left of its dataset's budget.

    Attributes:
        dataset: Name of the dataset.
        budget: Its budget, in rho.
        spent: What its runs were charged so far, in rho.
        asked: What the run would cost, in rho.
    """

    def __init__(self, dataset: str, budget: float, spent: float, asked: float, *, delta: float) -> None:
        self.dataset, self.budget, self.spent, self.asked = dataset, budget, spent, asked
        left = max(0.0, budget - spent)
        super().__init__(
            f'Expected a run within what is left of the budget of dataset={dataset!r}, got '
            f'rho={_with_epsilon(asked, delta)}, left={_with_epsilon(left, delta, upwards=False)} of '
            f'budget={report.format_down(budget, 6)}, at δ = {report.format_exact(delta)}. The run does not '
            'start: no token is sampled, and nothing is charged. Ask for less (--epsilon or '
            '--max-private-tokens), or let whoever answers for these records raise the budget: '
            f'dp-corpus ledger budget {dataset} --reason WHY.'
        )


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
    """

    name: str
    unit: Unit
    rho_budget: float
    delta: float
    epsilon_budget: float | None
    created: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Charge:
    """What one run costs, and how the run is known again. All fields are public.

    Attributes:
        run_id: Public name of the run.
        unit: Its unit of privacy.
        rho_by_stage: zCDP cost by name of the stage.
        identity: Digest of what makes the run, input, config, model and code, under the run's own key:
            to anyone without that it tells nothing.
        key_commitment: Digest that only the run's own key gives.
    """

    run_id: str
    unit: Unit
    rho_by_stage: Mapping[str, float]
    identity: str
    key_commitment: str

    def __post_init__(self) -> None:
        costs = self.rho_by_stage.values()
        if not all(cost >= 0 and math.isfinite(cost) for cost in costs) or not self.rho > 0:
            raise ValueError(
                'Expected finite rho_by_stage >= 0, not all of them 0, got '
                f'rho_by_stage={dict(self.rho_by_stage)!r}. A run without a price in advance cannot be '
                'charged to a ledger: leave --dataset out.'
            )

    @property
    def rho(self) -> float:
        """zCDP cost of the whole run."""
        return math.fsum(self.rho_by_stage.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One charged run. All fields are public.

    Attributes:
        number: Its place among the dataset's runs, from 1, in the order of their charging.
        run_id: Public name, unique in the dataset.
        rho: What was charged: the full cost, whatever the run did with it.
        rho_by_stage: The same by name of the stage.
        state: 'reserved' from before the first token; 'settled' once the corpus is whole.
        identity: See `Charge`.
        key_commitment: See `Charge`.
        rho_budget: The dataset's budget when the run was charged.
        epsilon_budget: The same as it was given; None where it was given in rho.
        delta: The dataset's delta then.
        reserved_at: UTC, ISO 8601.
        settled_at: The same; None before.
    """

    number: int
    run_id: str
    rho: float
    rho_by_stage: Mapping[str, float]
    state: State
    identity: str
    key_commitment: str
    rho_budget: float
    epsilon_budget: float | None
    delta: float
    reserved_at: str
    settled_at: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Account:
    """A dataset and all runs that were charged to it, in the order of charging."""

    dataset: Dataset
    runs: tuple[Run, ...]

    @property
    def rho_spent(self) -> float:
        """Sum of all charges, settled or not."""
        return math.fsum(run.rho for run in self.runs)

    @property
    def rho_left(self) -> float:
        """What a further run may cost."""
        return max(0.0, float(Fraction(self.dataset.rho_budget) - self._exactly_spent))

    @property
    def epsilon_spent(self) -> float:
        """epsilon of all runs together, at the dataset's delta."""
        return accounting.epsilon_from_rho(self.rho_spent, self.dataset.delta)

    @property
    def epsilon_budget(self) -> float:
        """epsilon of the budget at the dataset's delta: as given, or what its rho gives."""
        given = self.dataset.epsilon_budget
        if given is not None:
            return given
        return accounting.epsilon_from_rho(self.dataset.rho_budget, self.dataset.delta)

    @property
    def epsilon_left(self) -> float:
        """epsilon of one further run that takes all that is left. Epsilons do not add up; rho does."""
        return accounting.epsilon_from_rho(self.rho_left, self.dataset.delta)

    @property
    def _exactly_spent(self) -> Fraction:
        return sum((Fraction(run.rho) for run in self.runs), Fraction(0))

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
        before = math.fsum(other.rho for other in self.runs if other.number < run.number)
        after = math.fsum(other.rho for other in self.runs if other.number <= run.number)
        return report.LedgerEntry(
            dataset=self.dataset.name,
            run_number=run.number,
            rho_before=before,
            rho=run.rho,
            rho_after=after,
            epsilon_after=accounting.epsilon_from_rho(after, run.delta),
            delta=run.delta,
            rho_budget=run.rho_budget,
            epsilon_budget=run.epsilon_budget,
        )

    def with_charge(self, charge: Charge, *, at: str) -> 'Account':
        """The account once a new run is charged.

        Args:
            charge: A run whose name the account does not hold.
            at: Now: UTC, ISO 8601.

        Raises:
            ValueError: The run's unit is not the dataset's.
            BudgetExceeded: It does not fit.
        """
        self.check_unit(charge.unit)
        if not self.fits(charge.rho):
            raise BudgetExceeded(
                self.dataset.name,
                self.dataset.rho_budget,
                self.rho_spent,
                charge.rho,
                delta=self.dataset.delta,
            )
        run = Run(
            number=len(self.runs) + 1,
            run_id=charge.run_id,
            rho=charge.rho,
            rho_by_stage=dict(charge.rho_by_stage),
            state='reserved',
            identity=charge.identity,
            key_commitment=charge.key_commitment,
            rho_budget=self.dataset.rho_budget,
            epsilon_budget=self.dataset.epsilon_budget,
            delta=self.dataset.delta,
            reserved_at=at,
            settled_at=None,
        )
        return dataclasses.replace(self, runs=(*self.runs, run))

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
        self.check_cost(run, charge.rho)

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

    def check_cost(self, run: Run, rho: float) -> None:
        """Refuses another cost than the one that a run was charged.

        Raises:
            ValueError: See above.
        """
        if rho != run.rho:
            raise ValueError(
                f'Expected rho={run.rho!r}, which run_id={run.run_id!r} was charged on '
                f'dataset={self.dataset.name!r}, got rho={rho!r}. Repeat that run exactly to resume it, or '
                'choose another --run-id, which is charged anew.'
            )


def _with_epsilon(rho: float, delta: float, *, upwards: bool = True) -> str:
    shown = report.format_up if upwards else report.format_down
    return f'{shown(rho)} (ε = {shown(accounting.epsilon_from_rho(rho, delta))} by itself)'
