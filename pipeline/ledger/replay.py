"""The rows of a dataset and its runs as the ledger's log gives them: every column follows from its lines.

So an edit of any column is noticed, of those on which a guarantee depends and of all others. An edit of
the log is noticed where another row would follow from it. Whoever edits both in the same way is not
noticed: a ledger is no proof against those who may write it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.ledger.event import Event

# Lines of which a row depends; the others tell of what did not change one.
KINDS = ('dataset added', 'budget changed', 'reserved', 'settled')
# Columns of a run's row that keep its dataset as it stood when the run was charged.
_OF_DATASET = ('rho_budget', 'epsilon_budget', 'delta', 'rho_bound')

Row = dict[str, Any]


def replayed(log: Sequence[Event]) -> tuple[Row, list[Row]]:
    """The row of a dataset, and those of its runs in the order of charging.

    Args:
        log: Lines of `KINDS` on one dataset, oldest first.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: No ledger wrote these lines.
    """
    dataset: Row = {}
    runs: dict[str | None, Row] = {}
    for event in log:
        details = event.details
        match event.kind:
            case 'dataset added':
                if dataset:
                    raise ValueError('a dataset that was added twice')
                none = {'renyi_order': None, 'rho_bound': None, 'failure_budget': None}
                dataset = {'name': event.dataset, 'created': event.at, **none, **details}
            case 'budget changed':
                dataset |= {**details['after'], 'renyi_order': details.get('renyi_order')}
                if runs:
                    dataset['rho_bound'] = max(dataset['rho_bound'], dataset['rho_budget'])
            case 'reserved':
                dataset['renyi_order'] = details.get('renyi_order')
                dataset['rho_bound'] = max(dataset['rho_bound'] or 0.0, dataset['rho_budget'])
                runs[event.run_id] = {
                    'dataset': event.dataset,
                    'number': len(runs) + 1,
                    'run_id': event.run_id,
                    'state': 'reserved',
                    'reserved_at': event.at,
                    'settled_at': None,
                    **{name: dataset[name] for name in _OF_DATASET},
                    **details,
                }
            case 'settled':
                runs[event.run_id] |= {'state': 'settled', 'settled_at': event.at}
    return dataset, list(runs.values())


def difference(
    dataset: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], log: Sequence[Event]
) -> str | None:
    """The part of the rows that the log does not give, in words; None where it gives all of them.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: As `replayed`.
    """
    of_dataset, of_runs = replayed(log)
    if [run['run_id'] for run in runs] != [run['run_id'] for run in of_runs]:
        return 'other runs than were logged'
    for row, told in [(dataset, of_dataset), *zip(runs, of_runs, strict=True)]:
        other = [name for name, value in row.items() if name not in told or told[name] != value]
        if other:
            of_run = f' of run_id={row["run_id"]!r}' if 'run_id' in row else ''
            return f'another {" and ".join(other)}{of_run} than was logged'
    return None
