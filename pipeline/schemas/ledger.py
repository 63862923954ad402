"""What `dp-corpus ledger` writes as JSON, as types: the view of others, and the curator's.

`pipeline.ledger.released` and `models.privacy.accounting.RunCost` write dictionaries; these say what
is in them.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from models.privacy.accounting.run_cost import NeighboringRelation
from models.privacy.params import Unit
from pipeline.ledger.budget import PrivacyFilter, State
from pipeline.ledger.event import EventKind


class ZCDp(TypedDict):
    """ρ-zCDP: a Rényi divergence of at most αρ at every order α > 1.

    Attributes:
        rho: ρ.
    """

    kind: Literal['ZCDpEvent']
    rho: float


class TruncatedZCDp(TypedDict):
    """(ρ, ω)-truncated zCDP: the same at orders up to ω only.

    Attributes:
        rho: ρ.
        omega: ω.
    """

    kind: Literal['TruncatedZCDpEvent']
    rho: float
    omega: float


class Gaussian(TypedDict):
    """Gaussian noise on a sum of sensitivity 1.

    Attributes:
        noise_multiplier: Its standard deviation.
    """

    kind: Literal['GaussianDpEvent']
    noise_multiplier: float


class DiscreteGaussian(TypedDict):
    """Discrete Gaussian noise on counts, of which a record moves one by 1.

    Attributes:
        sigma: Its scale.
    """

    kind: Literal['DiscreteGaussianDpEvent']
    sigma: float


class DiscreteGaussianVector(TypedDict):
    """Discrete Gaussian noise on whole numbers, of which a record moves several.

    Attributes:
        noise_multiplier: Its scale, over `sensitivity`.
        sensitivity: The largest L2 length of what a record adds.
        cells: The most numbers that it adds to.
    """

    kind: Literal['DiscreteGaussianVectorDpEvent']
    noise_multiplier: float
    sensitivity: int
    cells: int


class PoissonSampled(TypedDict):
    """A release from a random part of the records.

    Attributes:
        sampling_probability: Of each record, independently.
        event: The release.
    """

    kind: Literal['PoissonSampledDpEvent']
    sampling_probability: float
    event: Gaussian


class SelfComposed(TypedDict):
    """One release, several times.

    Attributes:
        event: The release.
        count: How often.
    """

    kind: Literal['SelfComposedDpEvent']
    event: 'Cost'
    count: int


class Composed(TypedDict):
    """Several releases, one after another.

    Attributes:
        events: The releases.
    """

    kind: Literal['ComposedDpEvent']
    events: tuple['Cost', ...]


type Cost = (
    ZCDp
    | TruncatedZCDp
    | Gaussian
    | DiscreteGaussian
    | DiscreteGaussianVector
    | PoissonSampled
    | SelfComposed
    | Composed
)
"""What one release costs, in the vocabulary of dp_accounting where that has a word."""


class CostOfRun(TypedDict):
    """A run's cost, stage by stage.

    Attributes:
        neighboring_relation: What two neighbouring datasets differ in.
        stages: What each stage costs, by its name.
    """

    schema: Literal['dp-corpus/run-cost']
    schema_version: Literal[1]
    neighboring_relation: NeighboringRelation
    stages: Mapping[str, Cost]


class ChargedRun(TypedDict):
    """One charged run, as anyone may see it.

    Attributes:
        number: Its place among the dataset's runs, from 1, in the order of their charging.
        run_id: Its public name.
        rho: What was charged: the full cost, whatever the run did with it.
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
    cost: CostOfRun
    identity: str
    key_commitment: str
    rho_budget: float
    epsilon_budget: float | None
    rho_bound: float
    delta: float
    failure: float | None
    charged: str


class ChargedRunOfCurator(ChargedRun):
    """One charged run, as the curator sees it.

    Attributes:
        state: 'reserved' from before the first token; 'settled' once the corpus is whole.
        reserved_at: UTC, ISO 8601.
        settled_at: The same; null before.
    """

    state: State
    reserved_at: str
    settled_at: str | None


class _Dataset(TypedDict):
    """The budget of one dataset and the runs that were charged to it.

    Attributes:
        dataset: Its name.
        unit: Whose presence is hidden.
        created: The day, UTC; for the curator the time.
        delta: Of all runs together.
        rho_budget: What they may cost together.
        rho_spent: What they cost so far.
        rho_left: What a further run may cost.
        rho_bound: What all runs stay within, earlier and later, whatever outputs decided: the largest budget
            since the first charge.
        epsilon_budget: `rho_budget` as ε at `delta`.
        epsilon_spent: ε of all runs together at `delta`: that of `rho_spent`, or less where losses tell more.
        epsilon_left: ε of one further run that takes all of `rho_left`.
        epsilon_bound: `rho_bound` as ε at `delta`: the guarantee of all outputs together.
        renyi_order: The order α at which costs outside zCDP are charged; null before there is one.
        filter: How costs are held against the budget: at a Rényi order, or as those of Gaussian mechanisms.
        failure_budget: In the latter, the part of δ that all runs may take together; null in the former.
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


class DatasetAccount(_Dataset):
    """The budget of one dataset and the runs that were charged to it.

    Attributes:
        runs: In the order of charging.
    """

    runs: tuple[ChargedRun, ...]


class DatasetAccountOfCurator(_Dataset):
    """The budget of one dataset, and what became of each run that was charged to it.

    Attributes:
        runs: In the order of charging.
    """

    runs: tuple[ChargedRunOfCurator, ...]


class _LogLine(TypedDict):
    """One line of the ledger's log.

    Attributes:
        number: From 1, ascending in time.
        dataset: Name of the dataset.
        run_id: The run that it is about; null for the dataset itself.
        details: Further values, by name.
        at: The day, UTC; for the curator the time.
        kind: What happened.
    """

    number: int
    dataset: str
    run_id: str | None
    details: Mapping[str, Any]
    at: str


class ReleasedLine(_LogLine):
    """One line of the ledger's log, as anyone may see it."""

    kind: Literal['dataset added', 'budget changed', 'reserved', 'refused']


class LogLine(_LogLine):
    """One line of the ledger's log."""

    kind: EventKind


class Accounts(TypedDict):
    """Budgets and runs; all of it is public.

    Attributes:
        datasets: In the order of their names.
    """

    datasets: tuple[DatasetAccount, ...]


class AccountsOfCurator(TypedDict):
    """Budgets and runs with their times. Restricted to the curator.

    Attributes:
        datasets: In the order of their names.
    """

    datasets: tuple[DatasetAccountOfCurator, ...]


class Export(Accounts):
    """The whole ledger; all of it is public.

    Attributes:
        datasets: In the order of their names.
        events: The log, but for what tells how runs went.
    """

    events: tuple[ReleasedLine, ...]


class ExportOfCurator(AccountsOfCurator):
    """The whole ledger with all times. Restricted to the curator.

    Attributes:
        datasets: In the order of their names.
        events: The log.
    """

    events: tuple[LogLine, ...]
