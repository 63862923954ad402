"""The tables of the ledger: their columns, their version, and a run as a row of them.

They hold no count of records, no path and no key.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from models.privacy.accounting import RunCost
from pipeline.ledger.budget import Run

SCHEMA_VERSION = 4

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
    # Added by migrations, so the database takes NULL; reading refuses it. `cost` is a `RunCost`.
    sa.Column('cost', sa.JSON),
    sa.Column('renyi_order', sa.Double),
    sa.Column('failure', sa.Double),
    sa.Column('rho_bound', sa.Double),
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


def version_of(connection: sa.Connection) -> int | None:
    """The version of the tables in a database; None where there are none."""
    if not sa.inspect(connection).has_table(SCHEMA.name):
        return None
    return connection.scalar(sa.select(SCHEMA.c.version))


def row_of(run: Run) -> dict[str, Any]:
    """A run as the columns of its row, but for the dataset."""
    values = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    return values | {'cost': run.cost.to_json_object()}


def run_of(row: Mapping[str, Any]) -> Run:
    """The run of a row, by column."""
    values = {name: value for name, value in row.items() if name != 'dataset'}
    return Run(**values | {'cost': RunCost.from_json_object(values['cost'])})
