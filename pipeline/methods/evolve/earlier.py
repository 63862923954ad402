"""The release that a run's first list comes from: the ledger has to hold what it says that it was charged."""

from pipeline.ledger.ledger import Ledger
from pipeline.methods.evolve import start_corpus


def check_start(start: str | None, dataset: str | None, ledger: Ledger) -> None:
    """Refuses texts of a run that says it was charged and was not: its cost would be counted nowhere.

    A release of a dataset that this ledger does not keep is of another ledger, and one that was charged to none
    says so: of both the report lists what the curator vouches for.

    Args:
        start: The corpus; None without.
        dataset: The dataset that the run is charged to.
        ledger: Its ledger.

    Raises:
        ValueError: The ledger does not hold the charge that the release claims.
    """
    earlier = None if start is None else start_corpus.earlier_corpus(start)
    if earlier is None or earlier.dataset is None:
        return
    accounts = (known for known in ledger.accounts() if known.dataset.name == earlier.dataset)
    account = next(accounts, None)
    if account is None and earlier.dataset != dataset:
        return
    charged = None if account is None else account.run(earlier.run_id)
    if charged is not None and charged.number == earlier.run_number:
        return
    raise ValueError(
        f'Expected a corpus whose charge the ledger holds, got start={start!r}, whose report says '
        f'run_id={earlier.run_id!r}, dataset={earlier.dataset!r}, run_number={earlier.run_number}. What it '
        'tells of the records would be in no sum: give the --ledger that charged it, or other texts. '
        f'`dp-corpus ledger show {earlier.dataset}` lists the runs.'
    )
