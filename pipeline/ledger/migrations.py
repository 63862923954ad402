"""From one version of the ledger's tables to the next, in one transaction.

A migration is written against its own versions of the tables, in SQL, and never changes once a
release has it: `tests/pipeline/ledger/migrations_test.py` runs it on ledgers that its version wrote.
"""

from collections.abc import Callable, Mapping

import sqlalchemy as sa

from models.privacy import accounting
from models.privacy.accounting import RunCost


def migrate(connection: sa.Connection, version: int | None, target: int, *, at: str) -> None:
    """Brings the tables from a version to the target; does nothing where they are there.

    Args:
        connection: A transaction that is alone with the tables.
        version: What they are now.
        target: What they shall be.
        at: Now: UTC, ISO 8601.
    """
    while version is not None and version < target:
        MIGRATIONS[version](connection, at)
        version += 1
        connection.execute(sa.text('UPDATE ledger_schema SET version = :version'), {'version': version})


def _events(connection: sa.Connection, at: str) -> None:
    """1 -> 2: a run's cost is events, and no longer ρ by stage alone; the dataset's order is fixed.

    Every cost of version 1 was zCDP. The column of ρ by stage goes: a program of version 1 that
    opened the ledger before can then charge nothing more.
    """
    double = sa.Double().compile(connection.dialect)
    for table, column in (
        ('ledger_datasets', f'renyi_order {double}'),
        ('ledger_datasets', f'renyi_bound {double}'),
        ('ledger_runs', 'cost JSON'),
        ('ledger_runs', f'renyi_order {double}'),
    ):
        connection.execute(sa.text(f'ALTER TABLE {table} ADD COLUMN {column}'))
    runs = sa.table(
        'ledger_runs',
        sa.column('dataset'),
        sa.column('number'),
        sa.column('rho_by_stage', sa.JSON),
        sa.column('cost', sa.JSON),
        sa.column('renyi_order'),
    )
    for row in connection.execute(sa.select(runs.c.dataset, runs.c.number, runs.c.rho_by_stage)).all():
        cost = RunCost.of_rho(row.rho_by_stage).to_json_object()
        connection.execute(
            runs.update().where(runs.c.dataset == row.dataset, runs.c.number == row.number).values(cost=cost)
        )
    datasets = sa.table(
        'ledger_datasets',
        *map(sa.column, ('name', 'rho_budget', 'delta', 'renyi_order', 'renyi_bound')),
    )
    charged = sa.select(runs.c.dataset).distinct()
    for row in connection.execute(sa.select(datasets).where(datasets.c.name.in_(charged))).all():
        # Any order would do: costs in zCDP alone are bounded at each of them.
        order = accounting.optimal_order(row.rho_budget, row.delta)
        bound = order * max(row.rho_budget, _largest_budget(connection, row.name))
        here = datasets.update().where(datasets.c.name == row.name)
        connection.execute(here.values(renyi_order=order, renyi_bound=bound))
        connection.execute(runs.update().where(runs.c.dataset == row.name).values(renyi_order=order))
    connection.execute(sa.text('ALTER TABLE ledger_runs DROP COLUMN rho_by_stage'))


def _failures(connection: sa.Connection, at: str) -> None:
    """2 -> 3: datasets whose costs are kept as those of Gaussian mechanisms; none is one yet."""
    double = sa.Double().compile(connection.dialect)
    for table, column in (('ledger_datasets', 'failure_budget'), ('ledger_runs', 'failure')):
        connection.execute(sa.text(f'ALTER TABLE {table} ADD COLUMN {column} {double}'))


def _bounds(connection: sa.Connection, at: str) -> None:
    """3 -> 4: the largest budget since the first charge, of datasets and runs, and a log that tells all.

    Lines of older versions tell a run's price and no more, so one line of each dataset adds the rest as it
    is found. The column of the bound at the order goes: a program of version 3 can then charge nothing more.
    """
    double = sa.Double().compile(connection.dialect)
    for table in ('ledger_datasets', 'ledger_runs'):
        connection.execute(sa.text(f'ALTER TABLE {table} ADD COLUMN rho_bound {double}'))
    connection.execute(sa.text('ALTER TABLE ledger_datasets DROP COLUMN renyi_bound'))
    datasets = sa.table('ledger_datasets', *map(sa.column, ('name', 'created', 'renyi_order', 'rho_bound')))
    told = ('reserved_at', 'settled_at', 'identity', 'key_commitment', 'renyi_order', 'failure')
    runs = sa.table(
        'ledger_runs', *map(sa.column, ('dataset', 'run_id', 'rho_bound', *told)), sa.column('cost', sa.JSON)
    )
    log = sa.table(
        'ledger_events',
        *map(sa.column, ('number', 'dataset', 'run_id', 'kind', 'at')),
        sa.column('details', sa.JSON),
    )
    for dataset in connection.execute(sa.select(datasets)).all():
        budget, bound = 0.0, None
        lines = sa.select(log).where(log.c.dataset == dataset.name).order_by(log.c.number)
        for line in connection.execute(lines).all():
            if line.kind in ('dataset added', 'budget changed'):
                budget = line.details.get('after', line.details)['rho_budget']
                bound = None if bound is None else max(bound, budget)
            elif line.kind == 'reserved':
                bound = max(bound or 0.0, budget)
                here = (runs.c.dataset == dataset.name, runs.c.run_id == line.run_id)
                connection.execute(runs.update().where(*here).values(rho_bound=bound))
        connection.execute(datasets.update().where(datasets.c.name == dataset.name).values(rho_bound=bound))
        found = connection.execute(sa.select(runs).where(runs.c.dataset == dataset.name)).all()
        details = {
            'dataset': {'created': dataset.created, 'renyi_order': dataset.renyi_order},
            'runs': {run.run_id: {name: run._mapping[name] for name in (*told, 'cost')} for run in found},
        }
        connection.execute(log.insert().values(dataset=dataset.name, kind='migrated', details=details, at=at))


def _largest_budget(connection: sa.Connection, dataset: str) -> float:
    """The largest budget in ρ that ever stood, by the log."""
    log = sa.table('ledger_events', *map(sa.column, ('dataset', 'kind')), sa.column('details', sa.JSON))
    found = connection.execute(
        sa.select(log.c.details).where(log.c.dataset == dataset, log.c.kind == 'budget changed')
    )
    budgets = [row.details[when]['rho_budget'] for row in found for when in ('before', 'after')]
    return max(budgets, default=0.0)


# By the version that each begins with.
MIGRATIONS: Mapping[int, Callable[[sa.Connection, str], None]] = {1: _events, 2: _failures, 3: _bounds}
