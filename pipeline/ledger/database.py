"""The database of a ledger: where it is, and its transactions.

An SQLite file on a local disk, or a PostgreSQL database. A transaction that writes holds a lock from
its first statement (SQLite) or from the first row that it locks (PostgreSQL) until it ends.
"""

import contextlib
import pathlib
import sqlite3
import typing
import urllib.parse
from collections.abc import Iterator

import sqlalchemy as sa

from transforms import places

LOCK_SECONDS = 60
# Any number will do, as long as all who make ledgers take the same.
_CREATION_LOCK = 0x64705F636F72
_SYNCHRONOUS = sa.text(
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)


@typing.final
class Database:
    """A database that holds a ledger, or will hold one.

    Attributes:
        where: The path or URL, without a password: fit to be shown.
        file: The SQLite file; None for PostgreSQL.
        engine: SQLAlchemy's; each transaction has a connection of its own.
    """

    def __init__(self, where: str) -> None:
        """Connects to nothing yet.

        Args:
            where: Path of an SQLite file, or `sqlite:///PATH`, or `postgresql://USER@HOST/DATABASE`.

        Raises:
            ValueError: The address is of another kind, or it holds a password.
        """
        address = _address(where)
        self.where = _shown(address)
        self.file = pathlib.Path(str(address.database)) if address.drivername == 'sqlite' else None
        self.engine = _engine(address)

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction that is alone with the SQLite file; PostgreSQL locks the dataset's row."""
        with self._errors(), self.engine.execution_options(writes=True).begin() as connection:
            if connection.dialect.name == 'postgresql':
                connection.execute(sa.text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"))
                # A server set to confirm what it may yet lose would lose charges.
                connection.execute(_SYNCHRONOUS)
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One transaction that sees one state of the ledger."""
        with self._errors(), self.engine.begin() as connection:
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


def _address(where: str) -> sa.URL:
    """The database's address; its `drivername` is 'sqlite' or 'postgresql+psycopg'.

    Raises:
        ValueError: See `Database`.
    """
    if '://' not in where:
        if not where.strip():
            raise ValueError(f'Expected a path or a URL, got ledger={where!r}. Name the file of the ledger.')
        return sa.URL.create('sqlite', database=str(pathlib.Path(where).absolute()))
    try:
        url = sa.make_url(where)
    except (sa.exc.ArgumentError, ValueError):
        # The text is not quoted: it may hold a password.
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
    """The path or URL, without a password."""
    if address.drivername == 'sqlite':
        return str(address.database)
    return address.render_as_string(hide_password=True)


def _engine(address: sa.URL) -> sa.Engine:
    # One connection for each transaction: transactions are few, and no connection may outlive a fork.
    if address.drivername != 'sqlite':
        arguments = places.connect_arguments(address.host, address.query)
        engine = sa.create_engine(
            address, poolclass=sa.NullPool, hide_parameters=True, connect_args=arguments
        )
        sa.event.listen(engine, 'begin', _begin_postgresql)
        return engine
    path = urllib.parse.quote(str(address.database))

    def connect() -> sqlite3.Connection:
        # mode=rw: SQLite would make a missing file. Only our own BEGIN starts a transaction.
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


def lock_schema(connection: sa.Connection) -> None:
    """Keeps others from adding tables or data sets until the transaction ends; SQLite has one writer."""
    if connection.dialect.name == 'postgresql':
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
