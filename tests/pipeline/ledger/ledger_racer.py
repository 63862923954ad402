"""A process that charges a ledger when it is told to, for tests that race and kill it.

For every order, a mapping with `run_id`, `rho` and `key`, it waits for the monotonic time `at`, reserves,
and answers with the entry, or the name of the error.

Modes: `right` reserves as a run does. The others are wrong on purpose. `unlocked` looks up the sum and
charges in two transactions. `deferred` opens SQLite's transaction without IMMEDIATE. `stale` opens
PostgreSQL's at the level that the server prefers. They pause where it matters. `hang` is
right, but waits for its death before the commit.
"""

import dataclasses
import os
import time
from multiprocessing.connection import Connection
from typing import Any

import sqlalchemy as sa

from models.privacy import report
from models.privacy.accounting import RunCost
from pipeline.ledger import database, tables
from pipeline.ledger import ledger as ledgers
from pipeline.ledger.account import Account
from pipeline.ledger.budget import BudgetExceeded, Charge
from pipeline.ledger.ledger import Ledger

# Long enough that the wrong transactions of all racers overlap on a busy machine too.
PAUSE = 0.4


def reserve(ledger: Ledger, dataset: str, run_id: str, rho: float, key: str) -> report.LedgerEntry:
    return ledger.reserve(
        dataset,
        run_id=run_id,
        unit='example',
        cost=RunCost.of_rho({'generation': rho}),
        identity='i' * 64,
        key_commitment=key,
    )


def reserve_unlocked(ledger: Ledger, dataset: str, run_id: str, rho: float, key: str) -> report.LedgerEntry:
    """Check, then act: what a ledger must not do."""
    charge = Charge(
        run_id=run_id,
        unit='example',
        cost=RunCost.of_rho({'generation': rho}),
        identity='i' * 64,
        key_commitment=key,
    )
    account = ledger.account(dataset).with_charge(charge, at='now')
    time.sleep(PAUSE)
    with ledger._database.writing() as connection:
        taken = connection.scalar(sa.select(sa.func.max(tables.RUNS.c.number)))
        run = dataclasses.replace(account.runs[-1], number=(taken or 0) + 1)
        connection.execute(tables.RUNS.insert().values(dataset=dataset, **tables.row_of(run)))
        bound = ledgers._bound_facts(account.dataset)
        connection.execute(tables.DATASETS.update().where(tables.DATASETS.c.name == dataset).values(bound))
        details = ledgers._charged(run)
        ledgers._log(connection, dataset, 'reserved', run_id, details=details, at=run.reserved_at)
    return account.entry(account.runs[-1])


def main(
    where: str, dataset: str, mode: str, environment: dict[str, str], orders: Connection, answers: Connection
) -> None:
    """Serves orders until their end."""
    os.environ.update(environment)

    def hang(connection: sa.Connection) -> None:
        answers.send('hanging')
        time.sleep(600)

    if mode == 'deferred':
        database._begin_sqlite = lambda connection: connection.exec_driver_sql('BEGIN') and None
    if mode == 'stale':
        database._begin_postgresql = lambda connection: None
    ledger = Ledger.open(where)
    if mode in ('deferred', 'stale'):
        right = ledger._account

        def slowly(*arguments: Any, **options: Any) -> Account:
            account = right(*arguments, **options)
            time.sleep(PAUSE)
            return account

        ledger._account = slowly  # type: ignore[method-assign]
    if mode == 'hang':
        sa.event.listen(ledger._database.engine, 'commit', hang)
    answers.send('ready')
    while True:
        try:
            order: dict[str, Any] = orders.recv()
        except EOFError:
            return
        while time.monotonic() < order['at']:
            pass
        act = reserve_unlocked if mode == 'unlocked' else reserve
        try:
            entry = act(ledger, dataset, order['run_id'], order['rho'], order['key'])
            answer: dict[str, Any] = {'entry': dataclasses.asdict(entry)}
        except (BudgetExceeded, ValueError, ConnectionError, sa.exc.IntegrityError) as error:
            answer = {'error': type(error).__name__}
        answers.send(answer)
