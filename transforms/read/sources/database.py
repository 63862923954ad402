"""The rows of a query: PostgreSQL, or a SQLite file.

A key column cuts the result into ranges of about equal numbers of rows, which workers read at the same
time. Each range is streamed: from a server-side cursor of PostgreSQL, or from the SQLite file.

Errors name the kind of what went wrong, and quote the database only where it had no row before it: when it
looked at the query alone. The text of another error may quote rows, and SQLAlchemy's own may quote a
password. The password is in none of the values here: it comes from the environment of each process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from models import spelling
from transforms import places
from transforms.read import column_types
from transforms.read.errors import check_columns
from transforms.read.formats.format import RawRow
from transforms.read.rules import RecordFields, Table
from transforms.read.sources.source import Part, Source

if TYPE_CHECKING:
    import sqlalchemy as sa

# Ranges of the key: so many workers can read at the same time, and so often the query is run.
PARTITIONS = 16
_ROWS_AT_ONCE = 1_000
# Types of PostgreSQL that are text: text, varchar, char, name, and a literal of no known type. What an
# extension adds (citext) or a user (enumerations) has a number from here on.
_TEXT_TYPES, _FIRST_OWN_TYPE = frozenset({25, 1043, 1042, 19, 705}), 16384
# Types whose values are taken as PostgreSQL writes them: Python may have no value for one, and the driver's
# error would end the run for one row. So it is with an infinite date, and a number of 5,000 digits in JSON.
_TAKEN_AS_TEXT: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(('date', 'timestamp', 'timestamptz'), column_types.moment),
    **dict.fromkeys(('time', 'timetz', 'interval', 'json', 'jsonb', 'uuid'), str),
    'float4': spelling.Single,
}
_NAMES = (
    'Name the columns as --query does (SELECT id, note AS text FROM notes), each once. PostgreSQL writes '
    'names in lower case unless they are quoted.'
)


class Database(Source):
    """A query of a database: `postgresql://USER@HOST/DATABASE` or `sqlite:///FILE`."""

    header_remedy = _NAMES

    def owns(self, place: str) -> bool:
        return places.is_database(place)

    def look(self, place: str) -> None:
        url = _url(place)
        if url.drivername == places.SQLITE and not os.path.isfile(str(url.database)):
            raise FileNotFoundError(
                f'Expected a SQLite file, got none at input={place!r}. Check the path: sqlite:///notes.db is '
                'relative to this folder, sqlite:////data/notes.db is not.'
            )

    def header(self, place: str, table: Table) -> tuple[str, ...]:
        with _reading(place) as connection:
            return tuple(str(column[0]) for column in _look_at(connection, place, _query(place, table)))

    def check(self, place: str, fields: RecordFields) -> None:
        with _reading(place) as connection:
            columns = _look_at(connection, place, _query(place, fields.table))
        key = fields.table.partition_column
        needed = fields.names if key is None or key in fields.names else (*fields.names, key)
        # As of a file: a name that occurs twice says nothing.
        names = [column[0] for column in columns]
        check_columns(
            place,
            needed,
            [name for name in names if names.count(name) == 1],
            _NAMES,
        )
        if key is not None:
            with _reading(place) as connection:
                # A type without an order has no ranges.
                _look_at(connection, place, _query(place, fields.table), key)
        if connection.dialect.name == places.POSTGRESQL:
            (kind,) = (column[1] for column in columns if column[0] == fields.text)
            if kind not in _TEXT_TYPES and kind < _FIRST_OWN_TYPE:
                raise ValueError(
                    f'Expected text in the text column, got column={fields.text!r} of another type in '
                    f'input={place!r}. Convert it in --query: {fields.text}::text AS {fields.text}.'
                )

    def parts(self, place: str, table: Table) -> Iterator[Part]:
        """None for the whole result; else (first key, end) of each range, and () for rows without a key."""
        if table.partition_column is None:
            yield None
            return
        with _reading(place) as connection:
            key = connection.dialect.identifier_preparer.quote_identifier(table.partition_column)
            # The first key of every range but the first. A range is given by comparisons alone, so that
            # each row is in one range, whatever is written meanwhile, and whatever type the key has.
            each = f'((total + {PARTITIONS - 1}) / {PARTITIONS})'
            rows = _run(
                connection,
                place,
                f'SELECT k FROM (SELECT {key} AS k, ROW_NUMBER() OVER (ORDER BY {key}) - 1 AS place, '
                f'COUNT(*) OVER () AS total FROM ({{query}}\n) AS records WHERE {key} IS NOT NULL) AS keys '
                f'WHERE place > 0 AND place - (place / {each}) * {each} = 0 ORDER BY place',
                _query(place, table),
            )
            # Bytes of SQLite are either no key that has an order among texts, or a text that is not UTF-8.
            keys = (first for (first,) in rows if not isinstance(first, bytes))
            # An infinite date has its place in the order, too.
            firsts = list(
                dict.fromkeys(str(key) if isinstance(key, column_types.Unspelled) else key for key in keys)
            )
        yield from zip([None, *firsts], [*firsts, None])
        yield ()

    def rows(self, place: str, part: Part, fields: RecordFields, *, whole: bool = False) -> Iterator[RawRow]:
        for values in _values(place, part, fields, whole=whole):
            yield values, _json(values)

    def digest(self, place: str, fields: RecordFields) -> str:
        # A sum: the order of a result is the database's own affair.
        rows, total = 0, 0
        for values in _values(place, None, fields):
            row = _json([values[name] for name in fields.names])
            total += int.from_bytes(hashlib.sha256(row).digest(), 'little')
            rows += 1
        return hashlib.sha256(f'{rows} {total % 2**256}'.encode()).hexdigest()


def _values(
    place: str, part: Part, fields: RecordFields, *, whole: bool = False
) -> Iterator[dict[str, object]]:
    """The needed columns of the rows of one part, or all columns, as other formats have them."""
    query = _query(place, fields.table)
    with _reading(place) as connection:
        # Again: SQLite takes the quoted name of a column that is not there for a text.
        names = [column[0] for column in _look_at(connection, place, query)]
        if missing := [name for name in (*fields.names, *_key(fields.table)) if names.count(name) != 1]:
            raise ValueError(f'Expected the columns that the query had when the run began, got {missing=}.')
        wanted = [(name, names.index(name)) for name in (names if whole else fields.names)]
        where, bounds = _condition(connection, part, fields.table)
        sql = f'SELECT * FROM ({{query}}\n) AS records{where}'
        for row in _run(connection, place, sql, query, bounds):
            values = {name: row[position] for name, position in wanted}
            yield {name: bytes(one) if isinstance(one, memoryview) else one for name, one in values.items()}


def _key(table: Table) -> tuple[str, ...]:
    return () if table.partition_column is None else (table.partition_column,)


def _condition(connection: sa.Connection, part: Part, table: Table) -> tuple[str, tuple[object, ...]]:
    if part is None or table.partition_column is None:
        return '', ()
    key = connection.dialect.identifier_preparer.quote_identifier(table.partition_column)
    if not part:
        return f' WHERE {key} IS NULL', ()
    least, end = part
    mark = '%s' if connection.dialect.name == places.POSTGRESQL else '?'
    conditions = [f'{key} IS NOT NULL']
    conditions += [f'{key} >= {mark}'] if least is not None else []
    conditions += [f'{key} < {mark}'] if end is not None else []
    return f' WHERE {" AND ".join(conditions)}', tuple(bound for bound in part if bound is not None)


def _json(values: object) -> bytes:
    """Values as JSON, whatever they are: decimals by their digits, other types as Python shows them."""
    return json.dumps(values, default=str).encode()


def _query(place: str, table: Table) -> str:
    if table.query is None:
        raise ValueError(
            f'Expected a query for a database, got input={place!r} without one. Give --query '
            "'SELECT id, note AS text FROM notes'."
        )
    return table.query.strip().rstrip(';')


def _url(place: str) -> sa.URL:
    """The address without a password; its `drivername` is 'sqlite' or 'postgresql+psycopg'."""
    import sqlalchemy as sa

    scheme = place.strip().partition('://')[0].lower()
    try:
        url = sa.make_url(place.strip())
    except (sa.exc.ArgumentError, ValueError):
        url = None
    if url is not None and places.has_password(place):
        raise ValueError(
            'Expected the URL of a database without a password, got one with it. Leave it out, and set '
            f'{places.PASSWORD_VARIABLE}, PGPASSWORD or PGPASSFILE.'
        )
    if url is not None and scheme in ('sqlite', 'sqlite+pysqlite') and url.database and not url.query:
        return sa.URL.create(places.SQLITE, database=url.database)
    if url is not None and scheme in ('postgresql', 'postgres', 'postgresql+psycopg') and url.database:
        return url.set(drivername='postgresql+psycopg')
    # Not quoted: a text that cannot be parsed may hold a password anywhere.
    raise ValueError(
        'Expected postgresql://USER@HOST/DATABASE or sqlite:///FILE, got another URL of a database, of '
        f'scheme={scheme!r}. Write the rows of other databases to Parquet or CSV files.'
    )


@contextlib.contextmanager
def _reading(place: str) -> Iterator[sa.Connection]:
    """One transaction that reads one state of the database, and cannot write."""
    with connected(place) as connection:
        yield connection.execution_options(stream_results=True, yield_per=_ROWS_AT_ONCE)


@contextlib.contextmanager
def connected(place: str, *, writes: bool = False) -> Iterator[sa.Connection]:
    """One transaction, which ends well only if the block does.

    Args:
        place: URL of the database, without a password.
        writes: Whether it may write; else it sees one state of the database.

    Raises:
        ValueError: The URL is of another database, or holds a password.
        ConnectionError: The database does not answer.
    """
    import sqlalchemy as sa

    url = _url(place)
    if url.drivername == places.SQLITE:
        engine = _sqlite(str(url.database), 'rwc' if writes else 'ro')
        if writes:
            # The driver begins a transaction with the first row alone, and a new table would stay.
            sa.event.listen(engine, 'begin', lambda one: one.exec_driver_sql('BEGIN IMMEDIATE'))
    else:
        arguments: dict[str, Any] = places.connect_arguments(url.host, url.query)
        if password := os.environ.get(places.PASSWORD_VARIABLE):
            arguments['password'] = password
        engine = sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True, connect_args=arguments)
        if not writes:
            sa.event.listen(engine, 'connect', _take_as_text)
            sa.event.listen(engine, 'begin', _begin_reading)
    reason = None
    try:
        connection = engine.connect()
        transaction = connection.begin()
    except sa.exc.DBAPIError as error:
        reason = ' '.join(str(error.orig).split())
    if reason is not None:
        raise ConnectionError(
            f'Expected a database that answers at {place!r}, got: {reason}. Check that it is there and that '
            f'this account may use it; {places.PASSWORD_VARIABLE}, PGPASSWORD or PGPASSFILE holds its '
            'password, on workers too.'
        )
    with connection, transaction:
        yield connection


def _sqlite(file: str, mode: str) -> sa.Engine:
    import sqlalchemy as sa

    path = urllib.parse.quote(os.path.abspath(file))

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(f'file:{path}?mode={mode}', uri=True, timeout=places.CONNECT_SECONDS)
        # The driver's own error quotes a text that is not UTF-8.
        connection.text_factory = _text_or_bytes
        return connection

    return sa.create_engine('sqlite://', creator=connect, poolclass=sa.NullPool, hide_parameters=True)


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _take_as_text(connection: Any, _: object) -> None:
    """Has the driver of PostgreSQL convert the texts of some types as this project does."""
    for name, convert in _TAKEN_AS_TEXT.items():
        connection.adapters.register_loader(name, _loader(convert))


def _loader(convert: Callable[[str], object]) -> Any:
    from psycopg import adapt

    class FromText(adapt.Loader):
        def load(self, data: Any) -> object:
            return convert(bytes(data).decode())

    return FromText


def _begin_reading(connection: sa.Connection) -> None:
    connection.exec_driver_sql('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY')
    # One way to write values, whatever the server's own settings are; of floats the shortest.
    for setting in ("datestyle = 'ISO'", "intervalstyle = 'postgres'", 'extra_float_digits = 1'):
        connection.exec_driver_sql(f'SET LOCAL {setting}')


def _look_at(
    connection: sa.Connection, place: str, query: str, key: str | None = None
) -> Sequence[tuple[Any, ...]]:
    """The columns of a query, perhaps in the order of one, without a row of it: (name, type, ...) of each."""
    import sqlalchemy as sa

    reason, order = None, ''
    if key is not None:
        order = f'ORDER BY {connection.dialect.identifier_preparer.quote_identifier(key)} '
    try:
        result = connection.exec_driver_sql(
            _filled(connection, f'SELECT * FROM ({{query}}\n) AS records {order}LIMIT 0', query)
        )
        columns = list(result.cursor.description)  # type: ignore[union-attr]
        result.close()
    except sa.exc.DBAPIError as error:
        reason = _of_query(error)
    if reason is not None:
        raise ValueError(
            f'Expected a query that the database takes, got query={query!r} at input={place!r}, and it says: '
            f'{reason}. Give one SELECT, as --query.'
        )
    return columns


def _run(
    connection: sa.Connection, place: str, sql: str, query: str, bounds: tuple[object, ...] = ()
) -> Iterator[Sequence[Any]]:
    """The rows of a statement around the query, streamed."""
    import sqlalchemy as sa

    kind = None
    try:
        yield from connection.exec_driver_sql(_filled(connection, sql, query), bounds)
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        kind = _kind(error)
    if kind is not None:
        raise ConnectionError(
            f'Expected all rows of the query at input={place!r}, got error={kind}, whose text may quote rows '
            'and is not shown. Run the query in a client of the database to see it.'
        )


def _filled(connection: sa.Connection, sql: str, query: str) -> str:
    # The driver of PostgreSQL takes a % for a mark of a bound; names of columns are quoted for it already.
    is_postgresql = connection.dialect.name == places.POSTGRESQL
    return sql.replace('{query}', query.replace('%', '%%') if is_postgresql else query)


def _of_query(error: sa.exc.DBAPIError) -> str:
    """A database's words on a query before it has read a row."""
    if (state := getattr(error.orig, 'sqlstate', None)) is None:
        return ' '.join(str(error.orig).split()) if isinstance(error.orig, sqlite3.Error) else _kind(error)
    # Syntax, unknown names and missing rights. Others may come from a row.
    return error.orig.diag.message_primary if state.startswith('42') else _kind(error)  # type: ignore[union-attr]


def _kind(error: Exception) -> str:
    import sqlalchemy as sa

    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    state = getattr(cause, 'sqlstate', None) or getattr(cause, 'sqlite_errorname', None)
    return type(cause).__name__ + (f' ({state})' if state else '')
