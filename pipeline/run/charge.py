"""A run and its ledger: asked before a folder is made, charged before the first step, settled at the end."""

import json
import math
import warnings
from typing import TYPE_CHECKING

from models.privacy import report
from pipeline import fine_tuning
from pipeline.config import JobConfig
from pipeline.ledger.budget import BudgetExceeded, OrderTooLow
from pipeline.plan import cost_to_charge, fitting, fitting_words, paid_centers, with_order
from pipeline.run import identity
from pipeline.run import reference as read_reference
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
        ValueError: Its reference, or its adapter, is an earlier release that claims a charge which the ledger
            does not hold.
    """
    check_earlier(ledger, config)
    account = ledger.account(str(config.dataset))
    cost = cost_to_charge(config, account)
    try:
        ledger.check(str(config.dataset), run_id=config.resolved_run_id, unit=config.unit, cost=cost)
    except BudgetExceeded as error:
        raise error.with_remedy(fitting_words(fitting(config, account), config.resolved_delta)) from None
    except OrderTooLow as error:
        raise with_order(error, config, account) from None


def check_earlier(ledger: 'Ledger', config: JobConfig) -> None:
    """Refuses earlier releases that say they were charged and were not: see both that it calls.

    Raises:
        ValueError: The ledger does not hold a charge that one of them claims.
    """
    check_reference(ledger, config)
    check_adapter(ledger, config)


def check_adapter(ledger: 'Ledger', config: JobConfig) -> None:
    """Refuses an adapter whose card says that it was charged where it was not: nothing would count its cost.

    As of a reference, one of a dataset that this ledger does not keep is of another ledger, and one that was
    charged to none says so: the report of either says that the curator vouches for other records.

    Raises:
        ValueError: The ledger does not hold the charge that the card claims.
    """
    if config.adapter is None or not config.votes:
        return
    card = fine_tuning.read_card(config.adapter)
    if card.dataset is None:
        return
    accounts = (known for known in ledger.accounts() if known.dataset.name == card.dataset)
    account = next(accounts, None)
    if account is None and card.dataset != config.dataset:
        return
    charged = None if account is None else account.run(card.run_id)
    if (
        charged is not None
        and charged.number == card.run_number
        and all(charged.cost.stages.get(name) == of for name, of in fine_tuning.cost(card.params).items())
    ):
        return
    raise ValueError(
        f'Expected an adapter whose charge the ledger holds, got adapter={config.adapter!r}, whose card says '
        f'run_id={card.run_id!r}, dataset={card.dataset!r}, run_number={card.run_number}, epsilon='
        f'{card.epsilon!r}. What it tells of the records would be in no sum: give the --ledger that charged '
        f'it, or another adapter. `dp-corpus ledger show {card.dataset}` lists the runs.'
    )


def check_reference(ledger: 'Ledger', config: JobConfig) -> None:
    """Refuses text of a run that says it was charged and was not: its cost would be counted nowhere.

    A release of a dataset that this ledger does not keep is of another ledger, and one that was charged
    to none says so: of both the report lists what the curator vouches for.

    Raises:
        ValueError: The ledger does not hold the charge that the release claims.
    """
    release = read_reference.release_of(config)
    if release is None or release.dataset is None or release.rho is None:
        return
    accounts = (known for known in ledger.accounts() if known.dataset.name == release.dataset)
    account = next(accounts, None)
    if account is None and release.dataset != config.dataset:
        return
    charged = None if account is None else account.run(release.run_id)
    # The report has the ledger's own number, written and read as JSON.
    if (
        charged is not None
        and charged.number == release.run_number
        and math.isclose(charged.rho, release.rho, rel_tol=1e-12)
    ):
        return
    raise ValueError(
        'Expected an earlier release whose charge the ledger holds as the reference, got '
        f'reference={config.reference!r}, whose report says run_id={release.run_id!r}, '
        f'dataset={release.dataset!r}, run_number={release.run_number}, rho={release.rho!r}. Its text would '
        'carry into this corpus what this ledger does not add up: give the --ledger that charged it, or '
        f'choose another release, or public texts. `dp-corpus ledger show {release.dataset}` lists the runs.'
    )


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
