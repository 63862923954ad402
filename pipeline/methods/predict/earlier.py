"""Earlier releases that a run builds on: the ledger has to hold what they say that they were charged."""

import math

from pipeline.ledger.ledger import Ledger
from pipeline.methods.fine_tune import mechanism as fine_tuning
from pipeline.methods.fine_tune import released
from pipeline.methods.predict import reference
from pipeline.methods.predict.mechanism import Config


def check_adapter(config: Config, ledger: Ledger) -> None:
    """Refuses an adapter whose card says that it was charged where it was not: nothing would count its cost.

    As of a reference, one of a dataset that this ledger does not keep is of another ledger, and one that was
    charged to none says so: the report of either says that the curator vouches for other records.

    Raises:
        ValueError: The ledger does not hold the charge that the card claims.
    """
    if config.method.adapter is None:
        return
    card = released.read_card(config.method.adapter)
    if card.dataset is None:
        return
    accounts = (known for known in ledger.accounts() if known.dataset.name == card.dataset)
    account = next(accounts, None)
    if account is None and card.dataset != config.budget.dataset:
        return
    charged = None if account is None else account.run(card.run_id)
    if (
        charged is not None
        and charged.number == card.run_number
        and fine_tuning.is_charge_of(charged.cost, card.params)
    ):
        return
    raise ValueError(
        'Expected an adapter whose charge the ledger holds, got '
        f'adapter={config.method.adapter!r}, whose card says run_id={card.run_id!r}, '
        f'dataset={card.dataset!r}, run_number={card.run_number}, epsilon='
        f'{card.epsilon!r}. What it tells of the records would be in no sum: give the --ledger that charged '
        f'it, or another adapter. `dp-corpus ledger show {card.dataset}` lists the runs.'
    )


def check_reference(config: Config, ledger: Ledger) -> None:
    """Refuses text of a run that says it was charged and was not: its cost would be counted nowhere.

    A release of a dataset that this ledger does not keep is of another ledger, and one that was charged
    to none says so: of both the report lists what the curator vouches for.

    Raises:
        ValueError: The ledger does not hold the charge that the release claims.
    """
    release = reference.release_of(config)
    if release is None or release.dataset is None:
        return
    accounts = (known for known in ledger.accounts() if known.dataset.name == release.dataset)
    account = next(accounts, None)
    if account is None and release.dataset != config.budget.dataset:
        return
    charged = None if account is None else account.run(release.run_id)
    # The report has the ledger's own number, written and read as JSON.
    if (
        charged is not None
        and charged.number == release.run_number
        and (release.rho is None or math.isclose(charged.rho, release.rho, rel_tol=1e-12))
    ):
        return
    raise ValueError(
        'Expected an earlier release whose charge the ledger holds as the reference, got '
        f'reference={config.method.reference!r}, whose report says run_id={release.run_id!r}, '
        f'dataset={release.dataset!r}, run_number={release.run_number}, rho={release.rho!r}. Its text would '
        'carry into this corpus what this ledger does not add up: give the --ledger that charged it, or '
        f'choose another release, or public texts. `dp-corpus ledger show {release.dataset}` lists the runs.'
    )
