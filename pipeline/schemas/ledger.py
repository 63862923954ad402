"""Types of the JSON of `dp-corpus ledger export`: `pipeline.ledger.released` writes dictionaries."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from models.privacy.accounting.run_cost import RunCost
from models.privacy.params import Unit
from pipeline.ledger.budget import PrivacyFilter


class ChargedRun(TypedDict):
    """One charged run, as anyone may see it.

    Attributes:
        number: Its place among the dataset's runs, from 1, in the order of their charging.
        run_id: Its public name.
        rho: Its charge: the full cost, whatever the run did with it.
        rho_by_stage: The same by name of the stage.
        cost: The same as events.
        identity: Digest of input, settings, model and code under the run's own key; it tells others nothing.
        key_commitment: Digest that only the run's own key gives.
        rho_budget: The dataset's budget when the run was charged.
        epsilon_budget: The same as it was given; null where it was given in ρ.
        rho_bound: The largest budget that had stood since the first charge.
        delta: The dataset's δ then.
        failure: Part of δ that the run took, where costs are kept as those of Gaussian mechanisms; null where
            it needs none.
        charged: The day, UTC.
    """

    number: int
    run_id: str
    rho: float
    rho_by_stage: Mapping[str, float]
    cost: RunCost
    identity: str
    key_commitment: str
    rho_budget: float
    epsilon_budget: float | None
    rho_bound: float
    delta: float
    failure: float | None
    charged: str


class DatasetAccount(TypedDict):
    """The budget of one dataset and the runs that were charged to it.

    Attributes:
        dataset: Its name.
        unit: Whose presence is hidden.
        created: The day, UTC.
        delta: Delta of all runs together.
        rho_budget: Largest cost of all runs together.
        rho_spent: Their cost so far.
        rho_left: Largest cost of a further run.
        rho_bound: Bound on the cost of all runs, earlier and later, whatever outputs decided: the largest
            budget since the first charge.
        epsilon_budget: `rho_budget` as ε at `delta`.
        epsilon_spent: ε of all runs together at `delta`: that of `rho_spent`, or less where losses tell more.
        epsilon_left: ε of one further run that takes all of `rho_left`.
        epsilon_bound: `rho_bound` as ε at `delta`: the guarantee of all outputs together.
        renyi_order: The order α at which costs outside zCDP are charged; null before there is one.
        filter: Rule for costs against the budget: at a Rényi order, or as those of Gaussian mechanisms.
        failure_budget: In the latter, the part of δ that all runs may take together; null in the former.
        runs: In the order of charging.
    """

    dataset: str
    unit: Unit
    created: str
    delta: float
    rho_budget: float
    rho_spent: float
    rho_left: float
    rho_bound: float
    epsilon_budget: float
    epsilon_spent: float
    epsilon_left: float
    epsilon_bound: float
    renyi_order: float | None
    filter: PrivacyFilter
    failure_budget: float | None
    runs: tuple[ChargedRun, ...]


class ReleasedLine(TypedDict):
    """One line of the ledger's log, as anyone may see it.

    Attributes:
        number: From 1, ascending in time.
        dataset: Name of the dataset.
        run_id: The run that it is about; null for the dataset itself.
        details: Further values, by name.
        at: The day, UTC.
        kind: Kind of event.
    """

    number: int
    dataset: str
    run_id: str | None
    details: Mapping[str, Any]
    at: str
    kind: Literal['dataset added', 'budget changed', 'reserved', 'refused']


class Export(TypedDict):
    """The whole ledger; all of it is public.

    Attributes:
        datasets: In the order of their names.
        events: The log, but for what tells how runs went.
    """

    datasets: tuple[DatasetAccount, ...]
    events: tuple[ReleasedLine, ...]
