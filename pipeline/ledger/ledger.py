"""The ledger: a database that charges every run to its dataset before the first token (METHOD 7).

One ledger serves many datasets and many machines: an SQLite file on a local disk, or a
PostgreSQL database. It holds no count of records, no path, no key. It does hold times, and which
runs ended and which were taken up again; `pipeline.ledger.released` is what others may read of it.

A charge is one transaction that holds the dataset's lock from reading the sum to writing
the charge, so that of two runs that want the last of a budget one gets it. What is
charged stays charged: a run that failed, or was cut short, has drawn noise on the records.
"""

import contextlib
import dataclasses
import datetime
import difflib
import math
import os
import pathlib
import re
import sqlite3
import typing
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import scipy.optimize  # noqa: F401 - conversions import it on their first call, which may hold a lock here
import sqlalchemy as sa

from models.privacy import accounting, report
from models.privacy.accounting import RunCost
from pipeline.ledger import migrations
from pipeline.ledger.budget import Account, BudgetExceeded, Charge, Dataset, Run, Unit

__all__ = ['Account', 'BudgetExceeded', 'Dataset', 'Event', 'Ledger', 'Run']

SCHEMA_VERSION = 2
CONNECT_SECONDS = 10
LOCK_SECONDS = 60
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,99}')
# Any number will do, as long as all creators of ledgers take the same.
_CREATION_LOCK = 0x64705F636F72
_SYNCHRONOUS = sa.text(
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)

EventKind = typing.Literal['dataset added', 'budget changed', 'reserved', 'resumed', 'refused', 'settled']

_METADATA = sa.MetaData()
_SCHEMA = sa.Table('ledger_schema', _METADATA, sa.Column('version', sa.Integer, nullable=False))
_DATASETS = sa.Table(
    'ledger_datasets',
    _METADATA,
    sa.Column('name', sa.String(100), primary_key=True),
    sa.Column('unit', sa.String(10), nullable=False),
    sa.Column('rho_budget', sa.Double, nullable=False),
    sa.Column('delta', sa.Double, nullable=False),
    sa.Column('epsilon_budget', sa.Double),
    sa.Column('created', sa.String(32), nullable=False),
    sa.Column('renyi_order', sa.Double),
    sa.Column('renyi_bound', sa.Double),
)
# The number is a key, so that even without the lock no two charges could follow the same sum.
_RUNS = sa.Table(
    'ledger_runs',
    _METADATA,
    sa.Column('dataset', sa.ForeignKey(_DATASETS.c.name), primary_key=True),
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
    # Added by a migration, so the database takes NULL; reading refuses it. `cost` is a `RunCost`.
    sa.Column('cost', sa.JSON),
    sa.Column('renyi_order', sa.Double),
    sa.UniqueConstraint('dataset', 'run_id'),
)
_EVENTS = sa.Table(
    'ledger_events',
    _METADATA,
    sa.Column('number', sa.Integer, primary_key=True),
    sa.Column('dataset', sa.ForeignKey(_DATASETS.c.name), nullable=False),
    sa.Column('run_id', sa.String(100)),
    sa.Column('kind', sa.String(20), nullable=False),
    sa.Column('details', sa.JSON, nullable=False),
    sa.Column('at', sa.String(32), nullable=False),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """One line of the ledger's log, to which lines are only added.

    Attributes:
        number: Ascending in time.
        dataset: Name of the dataset.
        run_id: The run that it is about; None for the dataset itself.
        kind: What happened.
        details: Further values, by name.
        at: UTC, ISO 8601.
    """

    number: int
    dataset: str
    run_id: str | None
    kind: EventKind
    details: Mapping[str, Any]
    at: str


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

    def __init__(self, engine: sa.Engine, where: str) -> None:
        self._engine, self.where = engine, where

    def __repr__(self) -> str:
        return f'Ledger({self.where!r})'

    @classmethod
    def open(cls, where: str) -> 'Ledger':
        """Opens the ledger at a path or URL; one of an older version is migrated, and stays so.

        Args:
            where: Path of an SQLite file, or `sqlite:///PATH`, or `postgresql://USER@HOST/DATABASE`.

        Raises:
            ValueError: No such address is known, or it holds a password.
            ConnectionError: Nothing answers there, or what does is no ledger of this version.
        """
        address = _address(where)
        shown = _shown(address)
        if address.drivername == 'sqlite' and not pathlib.Path(str(address.database)).is_file():
            raise ConnectionError(
                f'Expected a ledger, got ledger={shown!r}, which is not there. Check the path; '
                '`dp-corpus ledger add` makes a new one. A run with a budget never starts without its ledger.'
            )
        ledger = cls(_engine(address), shown)
        with ledger._reading() as connection:
            version = _version(connection)
        if version in migrations.MIGRATIONS:
            with ledger._writing() as connection:
                _lock_schema(connection)
                # Another process may have been first.
                migrations.migrate(connection, _version(connection), SCHEMA_VERSION)
                version = _version(connection)
        if version != SCHEMA_VERSION:
            found = 'no tables of a ledger' if version is None else f'version={version}'
            remedy = (
                '`dp-corpus ledger add` makes them.'
                if version is None
                else 'A newer dp-corpus made or migrated it: use that one.'
            )
            raise ConnectionError(
                f'Expected a ledger of version={SCHEMA_VERSION} at ledger={shown!r}, got {found}. {remedy}'
            )
        return ledger

    @classmethod
    def create(cls, where: str) -> 'Ledger':
        """Makes a ledger without any dataset; an SQLite file is readable by its owner alone.

        Raises:
            ValueError: As `open`.
            FileExistsError: There is a ledger, of this version or another.
            ConnectionError: Nothing answers there, or it cannot be written.
        """
        address = _address(where)
        shown = _shown(address)
        if address.drivername == 'sqlite':
            try:
                os.close(os.open(str(address.database), os.O_RDWR | os.O_CREAT, 0o600))
            except OSError as error:
                raise ConnectionError(
                    f'Expected a place for a new ledger, got ledger={shown!r}: {error.strerror}. Make its '
                    'folder, or choose another place.'
                ) from error
        ledger = cls(_engine(address), shown)
        with ledger._writing() as connection:
            _lock_schema(connection)
            if _version(connection) is not None:
                raise FileExistsError(
                    f'Expected no ledger yet, got ledger={shown!r}, which is one. Open it, or choose another '
                    'place.'
                )
            _METADATA.create_all(connection)
            connection.execute(_SCHEMA.insert().values(version=SCHEMA_VERSION))
        return ledger

    # ------------------------------------------------------------------ datasets

    def add_dataset(
        self, name: str, *, unit: Unit, delta: float, rho: float | None = None, epsilon: float | None = None
    ) -> Account:
        """Adds a dataset with its budget.

        Args:
            name: Public name, of letters, digits and '._-'.
            unit: Unit of privacy of all its runs.
            delta: delta at which all runs together are stated.
            rho: Budget in zCDP; either this or `epsilon`.
            epsilon: Budget at `delta`, turned into the largest rho that it allows.

        Raises:
            ValueError: A value out of range, or there is a dataset of this name.
        """
        check_dataset(name, unit=unit, delta=delta, rho=rho, epsilon=epsilon)
        dataset = Dataset(
            name=name,
            unit=unit,
            rho_budget=_budget(rho, epsilon, delta),
            delta=delta,
            epsilon_budget=epsilon,
            created=_now(),
        )
        with self._writing() as connection:
            if connection.scalar(sa.select(_DATASETS.c.name).where(_DATASETS.c.name == name)) is not None:
                raise ValueError(
                    f'Expected a new dataset, got dataset={name!r}, which the ledger holds. Choose another '
                    'name; the budget of this one is changed with `dp-corpus ledger budget`.'
                )
            connection.execute(_DATASETS.insert().values(dataclasses.asdict(dataset)))
            _log(connection, name, 'dataset added', details={'unit': unit, **_budget_facts(dataset)})
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

        Args:
            name: Of the dataset.
            rho: New budget in zCDP; either this or `epsilon`.
            epsilon: New budget at delta.
            delta: New delta; None keeps the one that stands.
            reason: Why, for the log.

        Raises:
            ValueError: A value out of range, no reason, or no such dataset.
        """
        if not reason.strip():
            raise ValueError(
                f'Expected a reason for the log, got reason={reason!r}. Say why the budget changes.'
            )
        with self._writing() as connection:
            account = self._account(connection, name, lock=True)
            before = account.dataset
            delta = before.delta if delta is None else delta
            changed = before.with_budget(
                rho_budget=_budget(rho, epsilon, delta), delta=delta, epsilon_budget=epsilon
            )
            columns = _budget_facts(changed) | _order_facts(changed)
            connection.execute(_DATASETS.update().where(_DATASETS.c.name == name).values(columns))
            facts = {'reason': reason, 'before': _budget_facts(before), 'after': _budget_facts(changed)}
            _log(connection, name, 'budget changed', details=facts)
        return dataclasses.replace(account, dataset=changed)

    def account(self, name: str) -> Account:
        """A dataset with its runs.

        Raises:
            ValueError: No such dataset.
        """
        with self._reading() as connection:
            return self._account(connection, name)

    def accounts(self) -> tuple[Account, ...]:
        """All datasets with their runs, by name."""
        with self._reading() as connection:
            names: typing.Sequence[str] = connection.scalars(sa.select(_DATASETS.c.name)).all()
            return tuple(self._account(connection, name) for name in sorted(names))

    def events(self, dataset: str | None = None) -> tuple[Event, ...]:
        """The log, oldest first, of one dataset or of all."""
        query = sa.select(_EVENTS).order_by(_EVENTS.c.number)
        if dataset is not None:
            query = query.where(_EVENTS.c.dataset == dataset)
        with self._reading() as connection:
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
            What the run's report says of the ledger; for a resumption, what it said the first time.

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
        refusal: ValueError | BudgetExceeded
        # Imports what the price of this kind of cost needs, before the lock is held.
        cost.curve.rho_at(2.0)
        with self._writing() as connection:
            account = self._account(connection, dataset, lock=True)
            known, known_order = account.run(run_id), account.dataset.renyi_order
            try:
                if known is not None:
                    account.check_resumption(known, charge)
                    _log(connection, dataset, 'resumed', run_id)
                    return account.entry(known)
                account = account.with_charge(charge, at=_now())
                run = account.runs[-1]
                connection.execute(_RUNS.insert().values(dataset=dataset, **_row(run)))
                if known_order is None:
                    connection.execute(
                        _DATASETS.update()
                        .where(_DATASETS.c.name == dataset)
                        .values(_order_facts(account.dataset))
                    )
                _log(connection, dataset, 'reserved', run_id, details={'rho': run.rho})
                return account.entry(run)
            except (ValueError, BudgetExceeded) as error:
                # Leaves the block without an error, so that the log keeps the refusal.
                refusal = error
            facts = {'rho': _price(account, cost), 'reason': _reason(refusal)}
            _log(connection, dataset, 'refused', run_id, details=facts)
        raise refusal

    def check(self, dataset: str, *, run_id: str | None, unit: Unit, cost: RunCost) -> report.LedgerEntry:
        """What `reserve` would answer now, as far as it can be known without a key; writes nothing.

        Args:
            dataset: Name of the dataset.
            run_id: Public name of the run; None for one that has no name yet.
            unit: Its unit of privacy.
            cost: Its stages and their events.

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
        with self._writing() as connection:
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
                _RUNS.update().where(_RUNS.c.dataset == dataset, _RUNS.c.run_id == run_id).values(settled)
            )
            _log(connection, dataset, 'settled', run_id)
        return dataclasses.replace(run, **settled)

    # -------------------------------------------------------------- transactions

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """One transaction that is alone with the SQLite file; PostgreSQL locks the dataset's row."""
        with self._errors(), self._engine.execution_options(writes=True).begin() as connection:
            if connection.dialect.name == 'postgresql':
                connection.execute(sa.text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"))
                # A server set to confirm what it may yet lose would lose charges.
                connection.execute(_SYNCHRONOUS)
            yield connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """One transaction that sees one state of the ledger."""
        with self._errors(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.IntegrityError:
            raise
        except sa.exc.DBAPIError as error:
            reason = ' '.join(str(error.orig).split())
        else:
            return
        raise ConnectionError(
            f'Expected a ledger that answers at ledger={self.where!r}, got: {reason}. Check that it is '
            'there, that this account may read and write it, and that nobody holds it; then repeat the '
            'command.'
        ) from None

    def _account(self, connection: sa.Connection, name: str, *, lock: bool = False) -> Account:
        if _version(connection) != SCHEMA_VERSION:
            # This process opened it before another one migrated it.
            raise ConnectionError(
                f'Expected a ledger of version={SCHEMA_VERSION} at ledger={self.where!r}, got another since '
                'it was opened. Repeat the command with the newest dp-corpus that uses it.'
            )
        query = sa.select(_DATASETS).where(_DATASETS.c.name == name)
        row = connection.execute(query.with_for_update() if lock else query).one_or_none()
        if row is None:
            names: typing.Sequence[str] = connection.scalars(sa.select(_DATASETS.c.name)).all()
            raise ValueError(
                f'Expected a dataset of the ledger, got dataset={name!r}, which it does not hold.'
                f'{_near(name, names)} `dp-corpus ledger show` lists them, `dp-corpus ledger add` adds one.'
            )
        runs = connection.execute(
            sa.select(*(column for column in _RUNS.c if column.name != 'dataset'))
            .where(_RUNS.c.dataset == name)
            .order_by(_RUNS.c.number)
        )
        return Account(dataset=Dataset(**row._mapping), runs=tuple(map(_run, runs)))


def check_dataset(
    name: str, *, unit: str, delta: float, rho: float | None = None, epsilon: float | None = None
) -> None:
    """Refuses what no dataset can be, before a ledger is made for it.

    Raises:
        ValueError: A value out of range; see `Ledger.add_dataset`.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f'Expected a dataset name of letters, digits and "._-", got dataset={name!r}. It is published.'
        )
    if unit not in typing.get_args(Unit):
        raise ValueError(
            f"Expected unit 'example' or 'user', got unit={unit!r}. Say whom the budget protects."
        )
    _budget(rho, epsilon, delta)


def _address(where: str) -> sa.URL:
    """The database's address; its `drivername` is 'sqlite' or 'postgresql+psycopg'."""
    if '://' not in where:
        if not where.strip():
            raise ValueError(f'Expected a path or a URL, got ledger={where!r}. Name the file of the ledger.')
        return sa.URL.create('sqlite', database=str(pathlib.Path(where).absolute()))
    try:
        url = sa.make_url(where)
    except (sa.exc.ArgumentError, ValueError):
        # Not quoted: what cannot be read may hold a password.
        raise ValueError(
            'Expected sqlite:///PATH or postgresql://USER@HOST/DATABASE as the ledger, got another text with '
            '"://". Check its spelling.'
        ) from None
    secrets = sorted(name for name in url.query if 'password' in name.lower())
    if url.password is not None or secrets:
        raise ValueError(
            f'Expected no password in the URL of the ledger, got one in {secrets or "it"}: it would be shown '
            'in logs. Leave it out, and set PGPASSFILE or PGPASSWORD, which the driver reads.'
        )
    if url.drivername in ('sqlite', 'sqlite+pysqlite') and url.database and not url.query:
        return sa.URL.create('sqlite', database=str(pathlib.Path(url.database).absolute()))
    if url.drivername in ('postgresql', 'postgresql+psycopg'):
        return url.set(drivername='postgresql+psycopg')
    raise ValueError(
        f'Expected sqlite:///PATH or postgresql://USER@HOST/DATABASE, got ledger={_shown(url)!r}. Other '
        'databases are not known, nor is one in memory: the next run would not find it.'
    )


def _shown(address: sa.URL) -> str:
    if address.drivername == 'sqlite':
        return str(address.database)
    return address.render_as_string(hide_password=True)


def _engine(address: sa.URL) -> sa.Engine:
    # One connection for each transaction: there are few, and they outlive no fork.
    if address.drivername != 'sqlite':
        own = {} if 'connect_timeout' in address.query else {'connect_timeout': CONNECT_SECONDS}
        engine = sa.create_engine(address, poolclass=sa.NullPool, hide_parameters=True, connect_args=own)
        sa.event.listen(engine, 'begin', _begin_postgresql)
        return engine
    path = urllib.parse.quote(str(address.database))

    def connect() -> sqlite3.Connection:
        # mode=rw: SQLite would make a missing file. Transactions begin by our word alone.
        return sqlite3.connect(f'file:{path}?mode=rw', uri=True, timeout=LOCK_SECONDS, isolation_level=None)

    engine = sa.create_engine('sqlite://', creator=connect, poolclass=sa.NullPool, hide_parameters=True)
    sa.event.listen(engine, 'begin', _begin_sqlite)
    return engine


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql('PRAGMA foreign_keys = ON')
    # EXTRA: a commit outlives a power cut as well.
    connection.exec_driver_sql('PRAGMA synchronous = EXTRA')
    writes = connection.get_execution_options().get('writes', False)
    connection.exec_driver_sql('BEGIN IMMEDIATE' if writes else 'BEGIN')


def _begin_postgresql(connection: sa.Connection) -> None:
    # Explicit, whatever the server's default. A stricter level would not see what was committed
    # while it waited for the lock, and would add to an old sum.
    writes = connection.get_execution_options().get('writes', False)
    level = 'READ COMMITTED, READ WRITE' if writes else 'REPEATABLE READ, READ ONLY'
    connection.exec_driver_sql(f'SET TRANSACTION ISOLATION LEVEL {level}')
    # So that a cost comes back as the number that was charged.
    connection.exec_driver_sql('SET LOCAL extra_float_digits = 1')


def _lock_schema(connection: sa.Connection) -> None:
    """Alone with the tables themselves until the transaction ends; an SQLite writer is that anyway."""
    if connection.dialect.name == 'postgresql':
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))


def _row(run: Run) -> dict[str, Any]:
    values = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    return values | {'cost': run.cost.to_json_object()}


def _run(row: sa.Row[Any]) -> Run:
    values = dict(row._mapping)
    return Run(**values | {'cost': RunCost.from_json_object(values['cost'])})


def _price(account: Account, cost: RunCost) -> float | None:
    try:
        return account.price(cost)
    except ValueError:
        return None  # nothing is known of it at the dataset's order


def _version(connection: sa.Connection) -> int | None:
    if not sa.inspect(connection).has_table(_SCHEMA.name):
        return None
    return connection.scalar(sa.select(_SCHEMA.c.version))


def _budget(rho: float | None, epsilon: float | None, delta: float) -> float:
    if (rho is None) == (epsilon is None):
        raise ValueError(
            f'Expected a budget in either rho or epsilon, got rho={rho!r}, epsilon={epsilon!r}. Give one.'
        )
    given = rho if epsilon is None else epsilon
    assert given is not None
    if not (given > 0 and math.isfinite(given)):
        raise ValueError(
            f'Expected a finite budget > 0, got rho={rho!r}, epsilon={epsilon!r}. Give what all runs may '
            'cost.'
        )
    if not 0 < delta < 1:
        raise ValueError(f'Expected 0 < delta < 1, got delta={delta!r}. A usual choice is records ** -1.1.')
    return given if epsilon is None else accounting.rho_from_epsilon(epsilon, delta)


def _budget_facts(dataset: Dataset) -> dict[str, float | None]:
    return {
        'rho_budget': dataset.rho_budget,
        'epsilon_budget': dataset.epsilon_budget,
        'delta': dataset.delta,
    }


def _order_facts(dataset: Dataset) -> dict[str, float | None]:
    return {'renyi_order': dataset.renyi_order, 'renyi_bound': dataset.renyi_bound}


def _log(
    connection: sa.Connection,
    dataset: str,
    kind: EventKind,
    run_id: str | None = None,
    *,
    details: Mapping[str, Any] | None = None,
) -> None:
    event = {'dataset': dataset, 'run_id': run_id, 'kind': kind, 'details': dict(details or {}), 'at': _now()}
    connection.execute(_EVENTS.insert().values(event))


def _reason(refusal: Exception) -> str:
    """A refusal in a few words: the message without its remedy."""
    return 'budget exceeded' if isinstance(refusal, BudgetExceeded) else str(refusal).partition('. ')[0]


def _near(name: str, names: typing.Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, 3)
    return f' Did you mean {" or ".join(near)}?' if near else ''


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')
