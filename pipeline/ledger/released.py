"""What of a ledger may leave the curator: budgets, charges and refusals, by the day.

The database knows more. When a run began to the second, whether and when it ended, and each time that
it was taken up again follow from how the run went: how long it took tells of the number of records,
and that it failed tells of a record that it failed on. So the view of others has days, and a run that
failed looks like one that finished: each is its charge.

Hence of the log only these lines: datasets and their budgets, charges, and refusals of runs that
were not charged. A refusal of a charged run is a resumption that was tried. Lines are numbered anew, since
gaps would tell how many are missing; their order is that of the charges, which reports state.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipeline.ledger.budget import Account, Run

if TYPE_CHECKING:
    from pipeline.ledger.ledger import Event

RESTRICTED = (
    "Restricted to the curator: times, ends and resumptions of runs tell of the records. Others' view is the "
    'same command without --restricted.'
)
_KINDS = ('dataset added', 'budget changed', 'reserved', 'refused')


def day(at: str) -> str:
    """The day of a time in ISO 8601."""
    return at[:10]


def released_events(events: Sequence['Event']) -> tuple['Event', ...]:
    """The lines of the log that others may read, numbered from 1, by the day.

    Args:
        events: The log of one dataset or of all, oldest first, and whole.
    """
    kept: list[Event] = []
    charged: set[tuple[str, str | None]] = set()
    for event in events:
        run = (event.dataset, event.run_id)
        if event.kind in _KINDS and not (event.kind == 'refused' and run in charged):
            kept.append(dataclasses.replace(event, number=len(kept) + 1, at=day(event.at)))
        if event.kind == 'reserved':
            charged.add(run)
    return tuple(kept)


def facts_of(account: Account, *, restricted: bool = False) -> dict[str, Any]:
    """A dataset with its runs, for JSON.

    Args:
        account: The dataset.
        restricted: Whether for the curator alone: times, and what became of each run.
    """
    dataset = account.dataset
    return {
        'dataset': dataset.name,
        'unit': dataset.unit,
        'created': dataset.created if restricted else day(dataset.created),
        'delta': dataset.delta,
        'rho_budget': dataset.rho_budget,
        'rho_spent': account.rho_spent,
        'rho_left': account.rho_left,
        'epsilon_budget': account.epsilon_budget,
        'epsilon_spent': account.epsilon_spent,
        'epsilon_left': account.epsilon_left,
        'renyi_order': dataset.renyi_order,
        'runs': [facts_of_run(account, run, restricted=restricted) for run in account.runs],
    }


def facts_of_run(account: Account, run: Run, *, restricted: bool = False) -> dict[str, Any]:
    """A charged run, for JSON; see `facts_of`."""
    facts = {
        'number': run.number,
        'run_id': run.run_id,
        'rho': run.rho,
        'rho_by_stage': account.rho_by_stage(run),
        'cost': run.cost.to_json_object(),
        'identity': run.identity,
        'key_commitment': run.key_commitment,
        'rho_budget': run.rho_budget,
        'epsilon_budget': run.epsilon_budget,
        'delta': run.delta,
        'charged': day(run.reserved_at),
    }
    if not restricted:
        return facts
    return facts | {'state': run.state, 'reserved_at': run.reserved_at, 'settled_at': run.settled_at}
