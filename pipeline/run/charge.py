"""A run and its ledger: asked before a folder is made, charged before the first step, settled at the end."""

import json
import warnings
from typing import TYPE_CHECKING

from models.privacy import report
from pipeline.config import JobConfig
from pipeline.ledger.budget import BudgetExceeded
from pipeline.plan import cost_to_charge, fitting, fitting_words, paid_centers
from pipeline.run import identity
from transforms.durable import read_key

if TYPE_CHECKING:
    from pipeline.ledger.ledger import Ledger


def open_ledger(where: str) -> 'Ledger':
    """The ledger of a run, which the launcher alone opens."""
    # Not at the top: a run without a ledger needs no database.
    from pipeline.ledger.ledger import Ledger

    return Ledger.open(where)


def check(ledger: 'Ledger', config: JobConfig) -> None:
    """Asks whether a run may start; the binding answer is `reserve`'s.

    Raises:
        BudgetExceeded: It does not fit into what the dataset has left; it names what would.
    """
    account = ledger.account(str(config.dataset))
    cost = cost_to_charge(config, account)
    try:
        ledger.check(str(config.dataset), run_id=config.resolved_run_id, unit=config.unit, cost=cost)
    except BudgetExceeded as error:
        raise error.with_remedy(fitting_words(fitting(config, account), config.resolved_delta)) from None


def centers_run(ledger: 'Ledger', config: JobConfig) -> str | None:
    """The earlier charge that paid for the run's centres; None where the run pays, or they are free."""
    return paid_centers(config, ledger.account(str(config.dataset)))


def reserve(ledger: 'Ledger', config: JobConfig) -> report.LedgerEntry:
    """Charges a prepared run to its dataset; free where that was done before."""
    key = read_key(config.resolved_work_dir)
    # Under the key: a plain digest of the input would let anyone who sees the ledger test a guess of it.
    digest = key.hash('identity', json.dumps(identity.fingerprint(config), sort_keys=True).encode(), size=32)
    return ledger.reserve(
        str(config.dataset),
        run_id=config.resolved_run_id,
        unit=config.unit,
        cost=cost_to_charge(config, ledger.account(str(config.dataset))),
        identity=digest.hex(),
        key_commitment=key.commitment(config.resolved_run_id),
    )


def settle(ledger: 'Ledger', config: JobConfig) -> None:
    """Notes in the ledger that a run is finished; warns where the ledger cannot be reached."""
    dataset, run_id = str(config.dataset), config.resolved_run_id
    try:
        ledger.settle(dataset, run_id)
    except ConnectionError as error:
        # The corpus is whole and paid for: what is missing is a note.
        warnings.warn(
            f'Expected the ledger to note that run_id={run_id!r} is finished, got: {error} The run is; '
            f'when the ledger is back: dp-corpus ledger settle {dataset} {run_id}.',
            stacklevel=2,
        )
