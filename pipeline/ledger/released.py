"""The released part of a ledger, for others than the curator: budgets, charges and refusals, by the day.

The database holds more: the second at which a run began, whether and when it ended, and each time that
it was resumed. These depend on the records: the length of a run tells their number, and a failure
tells of the record that it failed on. So others read days only, and a run that failed looks
like one that finished: both are their charge.

Of the log they read datasets and their budgets, charges, and refusals of runs that were not
charged. A refusal of a charged run would tell that somebody tried to resume it. Lines get new numbers, since
gaps would tell how many are missing; reports state the order of charges, so it is no secret.
"""

import csv
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.ledger.account import Account
from pipeline.ledger.budget import Run
from pipeline.ledger.event import Event

RESTRICTED = (
    "Restricted to the curator: times, ends and resumptions of runs tell of the records. Others' view is the "
    'same command without --restricted.'
)
# Columns of the table of `to_csv`.
COLUMNS = (
    'kind', 'dataset', 'number', 'run_id', 'rho', 'rho_before', 'rho_after', 'epsilon_after',
    'delta', 'rho_budget', 'epsilon_budget', 'rho_bound', 'epsilon_bound', 'failure', 'failure_budget',
    'rho_by_stage', 'cost', 'identity', 'key_commitment', 'at', 'details',
)  # fmt: skip
RESTRICTED_COLUMNS = ('state', 'settled_at', 'audience')
_KINDS = ('dataset added', 'budget changed', 'reserved', 'refused')


def day(at: str) -> str:
    """The day of a time in ISO 8601."""
    return at[:10]


def released_events(events: Sequence[Event]) -> tuple[Event, ...]:
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
    """A dataset with its runs, for JSON; `restricted` to the curator, with times and the end of each run."""
    dataset = account.dataset
    return {
        'dataset': dataset.name,
        'unit': dataset.unit,
        'created': dataset.created if restricted else day(dataset.created),
        'delta': dataset.delta,
        'rho_budget': dataset.rho_budget,
        'rho_spent': account.rho_spent,
        'rho_left': account.rho_left,
        'rho_bound': account.rho_bound,
        'epsilon_budget': account.epsilon_budget,
        'epsilon_spent': account.epsilon_spent,
        'epsilon_left': account.epsilon_left,
        'epsilon_bound': account.epsilon_bound,
        'renyi_order': dataset.renyi_order,
        'filter': dataset.privacy_filter,
        'failure_budget': dataset.failure_budget,
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
        'rho_bound': run.rho_bound,
        'delta': run.delta,
        'failure': run.failure,
        'charged': day(run.reserved_at),
    }
    if not restricted:
        return facts
    return facts | {'state': run.state, 'reserved_at': run.reserved_at, 'settled_at': run.settled_at}


def to_json(accounts: Sequence[Account], events: Sequence[Event], *, restricted: bool = False) -> str:
    """The whole ledger as one JSON object; `restricted` for the curator alone."""
    # SQLAlchemy is heavy.
    from pipeline.ledger.tables import SCHEMA_VERSION

    ledger = {
        'schema': 'dp-corpus/ledger',
        'schema_version': SCHEMA_VERSION,
        **({'audience': RESTRICTED} if restricted else {}),
        'datasets': [facts_of(account, restricted=restricted) for account in accounts],
        'events': [
            dataclasses.asdict(event) for event in (events if restricted else released_events(events))
        ],
    }
    return json.dumps(ledger, indent=2, ensure_ascii=False) + '\n'


def to_csv(accounts: Sequence[Account], events: Sequence[Event], *, restricted: bool = False) -> str:
    """The whole ledger as one table: a line for each dataset, run and event, by `kind`.

    Columns are always the same and in the same order; a value that a line does not have is empty.
    Those that are restricted to the curator come last, with a column that says so on every line.
    """
    rows: list[Mapping[str, Any]] = []
    for account in accounts:
        dataset = account.dataset
        rows.append(
            {
                'kind': 'dataset',
                'dataset': dataset.name,
                'rho': account.rho_spent,
                'delta': dataset.delta,
                'rho_budget': dataset.rho_budget,
                'epsilon_budget': dataset.epsilon_budget,
                'rho_bound': account.rho_bound,
                'epsilon_bound': account.epsilon_bound,
                'failure_budget': dataset.failure_budget,
                'at': dataset.created if restricted else day(dataset.created),
                'details': {'unit': dataset.unit},
            }
        )
        for run in account.runs:
            entry = dataclasses.asdict(account.entry(run))
            facts = facts_of_run(account, run, restricted=restricted)
            rows.append({'kind': 'run', **entry, **facts, 'at': facts.get('reserved_at', facts['charged'])})
    shown = events if restricted else released_events(events)
    rows += [{**dataclasses.asdict(event), 'kind': f'event: {event.kind}'} for event in shown]
    columns = (*COLUMNS, *RESTRICTED_COLUMNS) if restricted else COLUMNS
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction='ignore', restval='', lineterminator='\n')
    writer.writeheader()
    for row in rows:
        marked = {**row, 'audience': RESTRICTED}
        writer.writerow({name: _cell(marked.get(name)) for name in columns})
    return text.getvalue()


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else value
