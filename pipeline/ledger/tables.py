"""The tables of the ledger: their columns, their version, and a run as a row of them.

They hold no count of records, no path and no key.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from models.privacy.accounting import RunCost
from pipeline.ledger.budget import Run

SCHEMA_VERSION = 1

METADATA = sa.MetaData()
SCHEMA = sa.Table('ledger_schema', METADATA, sa.Column('version', sa.Integer, nullable=False))
DATASETS = sa.Table(
    'ledger_datasets',
    METADATA,
    sa.Column('name', sa.String(100), primary_key=True),
    sa.Column('unit', sa.String(10), nullable=False),
    sa.Column('rho_budget', sa.Double, nullable=False),
    sa.Column('delta', sa.Double, nullable=False),
    sa.Column('epsilon_budget', sa.Double),
    sa.Column('created', sa.String(32), nullable=False),
    sa.Column('renyi_order', sa.Double),
    sa.Column('failure_budget', sa.Double),
    sa.Column('rho_bound', sa.Double),
)
# The number is a key, so that even without the lock no two charges could follow the same sum.
RUNS = sa.Table(
    'ledger_runs',
    METADATA,
    sa.Column('dataset', sa.ForeignKey(DATASETS.c.name), primary_key=True),
    sa.Column('number', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('run_id', sa.String(100), nullable=False),
    sa.Column('rho', sa.Double, nullable=False),
    sa.Column('state', sa.String(10), nullable=False),
    sa.Column('identity', sa.String(128), nullable=False),
    sa.Column('key_commitment', sa.String(128), nullable=False),
    sa.Column('rho_budget', sa.Double, nullable=False),
    sa.Column('epsilon_budget', sa.Double),
    sa.Column('delta', sa.Double, nullable=False),
    sa.Column('reserved_at', sa.String(32), nullable=False),
    sa.Column('settled_at', sa.String(32)),
    # A `RunCost`.
    sa.Column('cost', sa.JSON, nullable=False),
    sa.Column('renyi_order', sa.Double),
    sa.Column('failure', sa.Double),
    sa.Column('rho_bound', sa.Double, nullable=False),
    sa.UniqueConstraint('dataset', 'run_id'),
)
EVENTS = sa.Table(
    'ledger_events',
    METADATA,
    sa.Column('number', sa.Integer, primary_key=True),
    sa.Column('dataset', sa.ForeignKey(DATASETS.c.name), nullable=False),
    sa.Column('run_id', sa.String(100)),
    sa.Column('kind', sa.String(20), nullable=False),
    sa.Column('details', sa.JSON, nullable=False),
    sa.Column('at', sa.String(32), nullable=False),
)


# Query for all that a name may stand for in PostgreSQL, on the schemas that are searched for it.
_NAMED = sa.text(
    'SELECT n.nspname, c.relkind::text, c.relpersistence::text, c.relowner::bigint '
    'FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace '
    "WHERE c.relname IN :names AND c.relkind IN ('r', 'p', 'v', 'm', 'f') "
    'AND n.nspname = ANY (pg_catalog.current_schemas(true))'
).bindparams(sa.bindparam('names', [table.name for table in METADATA.sorted_tables], expanding=True))


def version_of(connection: sa.Connection) -> int | None:
    """The version of the tables in a database; None where there are none.

    Raises:
        ConnectionError: One of their names stands for something else as well, or instead.
    """
    if not sa.inspect(connection).has_table(SCHEMA.name):
        return None
    if connection.dialect.name == 'postgresql':
        _check_names(connection)
    return connection.scalar(sa.select(SCHEMA.c.version))


def _check_names(connection: sa.Connection) -> None:
    """Refuses names that another's schema, view or table answers to: charges would go there."""
    rows: Any = connection.execute(_NAMED).all()
    kinds = {(kind, persistence) for _, kind, persistence, _ in rows}
    places = {(schema, owner) for schema, _, _, owner in rows}
    if len(rows) != len(METADATA.tables) or len(places) != 1 or kinds != {('r', 'p')}:
        schemas = sorted({schema for schema, *_ in rows})
        raise ConnectionError(
            'Expected each table of a ledger once on the search path, logged, in one schema and of one '
            f'owner, got {len(rows)} tables or views of these names in schemas={schemas}. Somebody else may '
            'have made one: remove it, or name the schema of the ledger in its URL '
            '(?options=-csearch_path%3DSCHEMA).'
        )


def row_of(run: Run) -> dict[str, Any]:
    """A run as the columns of its row, but for the dataset."""
    values = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    return values | {'cost': run.cost.to_json_object()}


def run_of(row: Mapping[str, Any]) -> Run:
    """The run of a row, by column."""
    values = {name: value for name, value in row.items() if name != 'dataset'}
    return Run(**values | {'cost': RunCost.from_json_object(values['cost'])})
