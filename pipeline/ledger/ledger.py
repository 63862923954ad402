"""The ledger: a database that charges every run to its dataset before the first token (METHOD 7).

One ledger serves many datasets and many machines. Beside costs it holds times, and which runs ended and
which were resumed; `pipeline.ledger.released` is what others may read of it.

A charge is one transaction that holds the dataset's lock from reading the sum to writing
the charge: of two runs that ask for the last of a budget, only one gets it. A charge is never
taken back: a run that failed, or was cut short, has drawn noise on the records.
"""

import dataclasses
import datetime
import difflib
import math
import os
import typing
from collections.abc import Mapping
from typing import Any

import scipy.optimize  # noqa: F401 - conversions import it on their first call, which may hold a lock here
import sqlalchemy as sa

from models.privacy import report
from models.privacy.accounting import RunCost
from pipeline.ledger import replay, tables
from pipeline.ledger.account import Account
from pipeline.ledger.budget import (
    BudgetExceeded,
    Charge,
    Dataset,
    PrivacyFilter,
    Run,
    Unit,
    check_dataset,
    failure_budget_of,
    rho_of,
)
from pipeline.ledger.database import Database, lock_schema
from pipeline.ledger.event import Event, EventKind
from pipeline.ledger.tables import DATASETS, EVENTS, RUNS, SCHEMA_VERSION

# Relative: a later version of the library that computes some prices may round them in another way.
_PRICES_AGREE = 1e-6
# The same of shifts, which are searched for in steps: a search that rounds in another way ends a step beside.
_SHIFTS_AGREE = 1e-3


@typing.final
class Ledger:
    """The budgets of all datasets. Open one with `Ledger.open`, make one with `Ledger.create`.

    Formal guarantees, for any number of processes and machines that use one ledger, any of
    which may die at any moment:

    * The charges of a dataset never add up to more than its budget stood at when the last
      of them was made (but for a relative 1e-12, see `Account.fits`).
    * A charge that `reserve` returned is there from then on, and is never lowered.
    * A `reserve` that did not return charged the run in full, or not at all; the same call
      again gives the same answer in both cases, and charges nothing twice.

    They rest on the database: on SQLite's locks, which a network disk may not keep, and on
    a PostgreSQL server that loses no committed transaction.

    Attributes:
        where: The path or URL, without a password: fit to be shown.
    """

    def __init__(self, database: Database) -> None:
        self._database, self.where = database, database.where

    def __repr__(self) -> str:
        return f'Ledger({self.where!r})'

    @classmethod
    def open(cls, where: str) -> 'Ledger':
        """Opens the ledger at a path or URL.

        Raises:
            ValueError: No such address is known, or it holds a password.
            ConnectionError: Nothing answers there, or what does is no ledger of this version.
        """
        database = Database(where)
        shown = database.where
        if database.file is not None and not database.file.is_file():
            raise ConnectionError(
                f'Expected a ledger, got ledger={shown!r}, which is not there. Check the path; '
                '`dp-corpus ledger add` makes a new one. A run with a budget never starts without its ledger.'
            )
        with database.reading() as connection:
            version = tables.version_of(connection)
        if version != SCHEMA_VERSION:
            got = 'no tables of a ledger' if version is None else f'version={version}'
            remedy = (
                '`dp-corpus ledger add` makes them.'
                if version is None
                else 'Another dp-corpus made it: use that one.'
            )
            raise ConnectionError(
                f'Expected a ledger of version={SCHEMA_VERSION} at ledger={shown!r}, got {got}. {remedy}'
            )
        return cls(database)

    @classmethod
    def create(cls, where: str) -> 'Ledger':
        """Makes a ledger without any dataset; an SQLite file is readable by its owner alone.

        Raises:
            ValueError: As `open`.
            FileExistsError: There is a ledger, of this version or another.
            ConnectionError: Nothing answers there, or it cannot be written.
        """
        database = Database(where)
        if database.file is not None:
            try:
                os.close(os.open(database.file, os.O_RDWR | os.O_CREAT, 0o600))
            except OSError as error:
                raise ConnectionError(
                    f'Expected a place for a new ledger, got ledger={database.where!r}: {error.strerror}. '
                    'Make its folder, or choose another place.'
                ) from error
        with database.writing() as connection:
            lock_schema(connection)
            if tables.version_of(connection) is not None:
                raise FileExistsError(
                    f'Expected no ledger yet, got ledger={database.where!r}, which is one. Open it, or '
                    'choose another place.'
                )
            # A table or view of such a name is somebody else's, who could change what it holds.
            tables.METADATA.create_all(connection, checkfirst=False)
            connection.execute(tables.SCHEMA.insert().values(version=SCHEMA_VERSION))
        return cls(database)

    # ------------------------------------------------------------------ datasets

    def add_dataset(
        self,
        name: str,
        *,
        unit: Unit,
        delta: float,
        rho: float | None = None,
        epsilon: float | None = None,
        privacy_filter: PrivacyFilter = 'renyi',
    ) -> Account:
        """Adds a dataset with its budget.

        Raises:
            ValueError: A value out of range, or there is a dataset of this name.
        """
        check_dataset(name, unit=unit, delta=delta, rho=rho, epsilon=epsilon, privacy_filter=privacy_filter)
        dataset = Dataset(
            name=name,
            unit=unit,
            rho_budget=rho_of(rho, epsilon, delta, privacy_filter),
            delta=delta,
            epsilon_budget=epsilon,
            created=_now(),
            failure_budget=failure_budget_of(delta, privacy_filter),
        )
        with self._database.writing() as connection:
            # Else two that add it at once would both find nothing there: no row can be locked yet.
            lock_schema(connection)
            if connection.scalar(sa.select(DATASETS.c.name).where(DATASETS.c.name == name)) is not None:
                raise ValueError(
                    f'Expected a new dataset, got dataset={name!r}, which the ledger holds. Choose another '
                    'name; the budget of this one is changed with `dp-corpus ledger budget`.'
                )
            if _is_logged(connection, name):
                self._account(connection, name)  # refuses: somebody deleted its row, and would its charges
            connection.execute(DATASETS.insert().values(dataclasses.asdict(dataset)))
            facts = {'unit': unit, **_budget_facts(dataset)}
            _log(connection, name, 'dataset added', details=facts, at=dataset.created)
        return Account(dataset=dataset, runs=())

    def change_budget(
        self,
        name: str,
        *,
        rho: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        reason: str,
    ) -> Account:
        """Sets a dataset's budget anew, upwards or downwards; its charges stay as they are.

        Raises:
            ValueError: A value out of range, no reason, no such dataset, or another delta for a filter of
                Gaussians that a run was charged to: its failures were fixed by the one before.
        """
        if not reason.strip():
            raise ValueError(
                f'Expected a reason for the log, got reason={reason!r}. Say why the budget changes.'
            )
        with self._database.writing() as connection:
            account = self._account(connection, name, lock=True)
            before = account.dataset
            delta = before.delta if delta is None else delta
            if account.is_gaussian and account.runs and delta != before.delta:
                raise ValueError(
                    f'Expected delta={before.delta!r}, at which runs were charged to dataset={name!r}, got '
                    f'delta={delta!r}. Their chances of failure are parts of it: leave --delta out.'
                )
            changed = before.with_budget(rho=rho, epsilon=epsilon, delta=delta)
            columns = _budget_facts(changed) | _bound_facts(changed)
            connection.execute(DATASETS.update().where(DATASETS.c.name == name).values(columns))
            facts = {
                'reason': reason,
                'before': _budget_facts(before),
                'after': _budget_facts(changed),
                'renyi_order': changed.renyi_order,
            }
            _log(connection, name, 'budget changed', details=facts)
        return dataclasses.replace(account, dataset=changed)

    def account(self, name: str) -> Account:
        """A dataset with its runs."""
        with self._database.reading() as connection:
            return self._account(connection, name)

    def accounts(self) -> tuple[Account, ...]:
        """All datasets with their runs, by name."""
        with self._database.reading() as connection:
            # Names come from the log too: it still tells of a row that was deleted.
            names = sa.union(sa.select(DATASETS.c.name), sa.select(EVENTS.c.dataset))
            datasets: typing.Sequence[str] = connection.scalars(names).all()
            return tuple(self._account(connection, name) for name in sorted(datasets))

    def events(self, dataset: str | None = None) -> tuple[Event, ...]:
        """The log, oldest first, of one dataset or of all."""
        query = sa.select(EVENTS).order_by(EVENTS.c.number)
        if dataset is not None:
            query = query.where(EVENTS.c.dataset == dataset)
        with self._database.reading() as connection:
            return tuple(Event(**row._mapping) for row in connection.execute(query))

    # ---------------------------------------------------------------------- runs

    def reserve(
        self,
        dataset: str,
        *,
        run_id: str,
        unit: Unit,
        cost: RunCost,
        identity: str,
        key_commitment: str,
    ) -> report.LedgerEntry:
        """Charges a run in full, before its first token; free for one that was charged before.

        The same run is one of the same name, key, identity and cost. It draws the same noise,
        so whatever it releases is a function of what was paid for.

        Args:
            dataset: Name of the dataset.
            run_id: Public name of the run.
            unit: Its unit of privacy.
            cost: Its stages and their events.
            identity: Digest of input, config, model and code, under the run's key. A plain one would be
                a function of the records, and others may read this one.
            key_commitment: Digest that only the run's own key gives.

        Returns:
            The ledger's entry in the run's report; for a resumption, the entry of the first time.

        Raises:
            ValueError: Another unit than the dataset's, no such dataset, or another run of this name.
            BudgetExceeded: It costs more than is left. Nothing is charged.
            ConnectionError: The ledger is lost. Repeat the call to learn whether it charged.
        """
        charge = Charge(
            run_id=run_id,
            unit=unit,
            cost=cost,
            identity=identity,
            key_commitment=key_commitment,
        )
        refusal: ValueError | BudgetExceeded | None = None
        # Works out, and keeps, what takes a moment before the lock is held.
        self._warm(dataset, cost)
        with self._database.writing() as connection:
            account = self._account(connection, dataset, lock=True)
            run, before = account.run(run_id), account.dataset
            try:
                if run is not None:
                    account.check_resumption(run, charge)
                    _log(connection, dataset, 'resumed', run_id)
                else:
                    account = account.with_charge(charge, at=_now())
                    run = account.runs[-1]
                    connection.execute(RUNS.insert().values(dataset=dataset, **tables.row_of(run)))
                    if account.dataset != before:
                        connection.execute(
                            DATASETS.update()
                            .where(DATASETS.c.name == dataset)
                            .values(_bound_facts(account.dataset))
                        )
                    _log(connection, dataset, 'reserved', run_id, details=_charged(run), at=run.reserved_at)
            except (ValueError, BudgetExceeded) as error:
                # Leaves the block without an error, so that the log keeps the refusal.
                refusal = error
                facts = {'rho': _price(account, cost), 'reason': _reason(refusal)}
                _log(connection, dataset, 'refused', run_id, details=facts)
        if refusal is not None:
            raise refusal
        assert run is not None
        # Without the lock, since losses take a moment to compose.
        return account.entry(run)

    def _warm(self, dataset: str, cost: RunCost) -> None:
        cost.curve.rho_at(2.0)
        # Also the prices of runs that were charged before.
        account = self.account(dataset)
        if account.is_gaussian:
            _price(account, cost)

    def check(self, dataset: str, *, run_id: str | None, unit: Unit, cost: RunCost) -> report.LedgerEntry:
        """The answer that `reserve` would give now, as far as it can be known without a key; writes nothing.

        Raises:
            ValueError: As `reserve`.
            BudgetExceeded: As `reserve`.
            ConnectionError: The ledger is lost.
        """
        account = self.account(dataset)
        known = None if run_id is None else account.run(run_id)
        if known is not None:
            account.check_unit(unit)
            account.check_cost(known, cost)
            return account.entry(known)
        charge = Charge(run_id=run_id or '', unit=unit, cost=cost, identity='', key_commitment='')
        after = account.with_charge(charge, at=_now())
        return after.entry(after.runs[-1])

    def settle(self, dataset: str, run_id: str) -> Run:
        """Marks a run as finished. Its charge stays: a guarantee is stated for the cap.

        Settling a settled run changes nothing.

        Raises:
            ValueError: No such dataset, or it was never charged for this run.
        """
        with self._database.writing() as connection:
            account = self._account(connection, dataset, lock=True)
            run = account.run(run_id)
            if run is None:
                raise ValueError(
                    f'Expected a run that was charged to dataset={dataset!r}, got run_id={run_id!r}.'
                    f'{_near(run_id, [run.run_id for run in account.runs])} See `dp-corpus ledger show '
                    f'{dataset}`.'
                )
            if run.state == 'settled':
                return run
            settled: dict[str, Any] = {'state': 'settled', 'settled_at': _now()}
            connection.execute(
                RUNS.update().where(RUNS.c.dataset == dataset, RUNS.c.run_id == run_id).values(settled)
            )
            _log(connection, dataset, 'settled', run_id, at=settled['settled_at'])
        return dataclasses.replace(run, **settled)

    def _account(self, connection: sa.Connection, name: str, *, lock: bool = False) -> Account:
        if tables.version_of(connection) != SCHEMA_VERSION:
            # Another dp-corpus may have changed the tables since this process opened them.
            raise ConnectionError(
                f'Expected a ledger of version={SCHEMA_VERSION} at ledger={self.where!r}, got another since '
                'it was opened. Repeat the command with the dp-corpus that changed it.'
            )
        query = sa.select(DATASETS).where(DATASETS.c.name == name)
        row = connection.execute(query.with_for_update() if lock else query).one_or_none()
        if row is None and not _is_logged(connection, name):
            names: typing.Sequence[str] = connection.scalars(sa.select(DATASETS.c.name)).all()
            raise ValueError(
                f'Expected a dataset of the ledger, got dataset={name!r}, which it does not hold.'
                f'{_near(name, names)} `dp-corpus ledger show` lists them, `dp-corpus ledger add` adds one.'
            )
        account, edited = None, 'no row of it' if row is None else None
        try:
            if row is not None:
                account, edited = self._checked_account(connection, dict(row._mapping))
        except (AttributeError, KeyError, TypeError, ValueError):
            edited = 'a cost or a line of the log that nothing reads'
        if account is None or edited is not None:
            raise ValueError(
                f'Expected what was charged to dataset={name!r} to be what its log says, got {edited} in '
                f'ledger={self.where!r}. Somebody edited it, so what is left of the budget, and what it '
                'guarantees, is not known: restore a copy of the ledger. Until then no run is charged.'
            )
        return account

    @staticmethod
    def _checked_account(connection: sa.Connection, row: replay.Row) -> tuple[Account, str | None]:
        """The account of a dataset's row, and what of its rows its log does not bear out."""
        of_runs = sa.select(RUNS).where(RUNS.c.dataset == row['name']).order_by(RUNS.c.number)
        runs = [dict(run._mapping) for run in connection.execute(of_runs)]
        of_log = sa.select(EVENTS).where(EVENTS.c.dataset == row['name'], EVENTS.c.kind.in_(replay.KINDS))
        log = [Event(**line._mapping) for line in connection.execute(of_log.order_by(EVENTS.c.number))]
        account = Account(dataset=Dataset(**row), runs=tuple(map(tables.run_of, runs)))
        return account, _edited(account, row, runs, log)


def _edited(
    account: Account, dataset: replay.Row, runs: typing.Sequence[replay.Row], log: typing.Sequence[Event]
) -> str | None:
    """The part of an account's rows that its log does not bear out, in words; None where all agrees."""
    if (part := replay.difference(dataset, runs, log)) is not None:
        return part
    tolerance = _SHIFTS_AGREE if account.is_gaussian else _PRICES_AGREE
    if not all(
        math.isclose(account.price_of(run, run.cost), run.rho, rel_tol=tolerance) for run in account.runs
    ):
        return 'a cost that is not what was charged for it'
    return None


def _is_logged(connection: sa.Connection, dataset: str) -> bool:
    return (
        connection.scalar(sa.select(EVENTS.c.number).where(EVENTS.c.dataset == dataset).limit(1)) is not None
    )


def _price(account: Account, cost: RunCost) -> float | None:
    try:
        return account.price(cost)
    except ValueError:
        return None  # nothing is known of it at the dataset's order


def _budget_facts(dataset: Dataset) -> dict[str, float | None]:
    facts = {
        'rho_budget': dataset.rho_budget,
        'epsilon_budget': dataset.epsilon_budget,
        'delta': dataset.delta,
    }
    return facts if dataset.failure_budget is None else {**facts, 'failure_budget': dataset.failure_budget}


def _bound_facts(dataset: Dataset) -> dict[str, float | None]:
    return {'renyi_order': dataset.renyi_order, 'rho_bound': dataset.rho_bound}


def _charged(run: Run) -> dict[str, Any]:
    """Columns of a charge in the log: with the budgets before it, every column of the run's row."""
    row = tables.row_of(run)
    return {
        name: row[name] for name in ('rho', 'cost', 'identity', 'key_commitment', 'renyi_order', 'failure')
    }


def _log(
    connection: sa.Connection,
    dataset: str,
    kind: EventKind,
    run_id: str | None = None,
    *,
    details: Mapping[str, Any] | None = None,
    at: str | None = None,
) -> None:
    event = {'dataset': dataset, 'run_id': run_id, 'kind': kind, 'details': dict(details or {})}
    connection.execute(EVENTS.insert().values(event | {'at': at or _now()}))


def _reason(refusal: Exception) -> str:
    """A refusal in a few words: the message without its remedy."""
    return 'budget exceeded' if isinstance(refusal, BudgetExceeded) else str(refusal).partition('. ')[0]


def _near(name: str, names: typing.Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, 3)
    return f' Did you mean {" or ".join(near)}?' if near else ''


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')
