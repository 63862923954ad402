"""A ledger on a server that others use too: whose tables it reads, who may write what, and TLS on the way."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from models.privacy.accounting import RunCost
from pipeline.ledger import tables
from pipeline.ledger.ledger import Ledger
from transforms.read.sources import database as source

pytestmark = pytest.mark.run
NAMES = [table.name for table in tables.METADATA.sorted_tables]


def run(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Runs statements in one transaction, as who the URL says; the rows of the last one."""
    engine = sa.create_engine(url.replace('postgresql:', 'postgresql+psycopg:'), poolclass=sa.NullPool)
    with engine.begin() as connection:
        for statement in statements:
            result = connection.exec_driver_sql(statement)
        return list(map(tuple, result.all())) if result.returns_rows else []


def reserve(ledger: Ledger, run_id: str) -> None:
    ledger.reserve(
        'visits', run_id=run_id, unit='example', cost=RunCost.of_rho({'votes': 0.1}), identity='i',
        key_commitment='k',
    )  # fmt: skip


@pytest.fixture
def url(postgresql: Callable[[], str]) -> str:
    url = postgresql()
    Ledger.create(url).add_dataset('visits', unit='example', delta=1e-6, epsilon=8.0)
    return url


@pytest.mark.first
def test_tables_of_another_schema_that_is_searched_first_are_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies, in the schema of the role's own name: what is charged to them, the ledger does not know."""
    before = Ledger.open(url)
    copies = [f'CREATE TABLE ledger.{name} (LIKE public.{name} INCLUDING ALL)' for name in NAMES]
    filled = [f'INSERT INTO ledger.{name} SELECT * FROM public.{name}' for name in NAMES]
    run(url, 'CREATE SCHEMA ledger', *copies, *filled)
    for act in (lambda: Ledger.open(url), lambda: reserve(before, 'a'), before.accounts):
        with pytest.raises(
            ConnectionError, match=r"8 tables or views of these names in schemas=\['ledger', "
        ):
            act()
    # By its name the ledger is found.
    named = f'{url}&options=-csearch_path%3Dpublic'
    reserve(Ledger.open(named), 'a')
    assert len(run(url, 'SELECT * FROM public.ledger_runs')) == 1
    # An open twin charges the copy.
    monkeypatch.setattr(tables, '_check_names', lambda connection: None)
    reserve(Ledger.open(url), 'b')
    assert len(run(url, 'SELECT * FROM public.ledger_runs')) == 1


@pytest.mark.first
@pytest.mark.parametrize(
    'statements',
    [
        ['ALTER TABLE ledger_events RENAME TO e', 'CREATE VIEW ledger_events AS SELECT * FROM e'],
        ['ALTER TABLE ledger_runs SET UNLOGGED'],
        ['CREATE ROLE mallory_{}', 'ALTER TABLE ledger_events OWNER TO mallory_{}'],
    ],
    ids=['view', 'unlogged', 'owner'],
)
def test_a_view_an_unlogged_table_and_another_owner_are_refused(url: str, statements: list[str]) -> None:
    run(url, *(statement.format(url.split('ledger_')[1][:8]) for statement in statements))
    with pytest.raises(ConnectionError, match='of one owner'):
        Ledger.open(url)


@pytest.mark.first
def test_a_table_that_was_there_before_is_none_of_a_new_ledger(postgresql: Callable[[], str]) -> None:
    """Who made it owns it, and could change what it holds."""
    for made in ('CREATE TABLE ledger_runs (theirs integer)', 'CREATE VIEW ledger_events AS SELECT 1 AS one'):
        url = postgresql()
        run(url, made)
        with pytest.raises(ConnectionError, match='already exists'):
            Ledger.create(url)
        with pytest.raises(ConnectionError, match='no tables of a ledger'):
            Ledger.open(url)


# Rights that docs/ledger.md tells an administrator to grant to those who run.
RIGHTS = (
    'GRANT SELECT ON ledger_schema, ledger_datasets, ledger_runs, ledger_events TO {role}',
    'GRANT INSERT ON ledger_runs, ledger_events TO {role}',
    'GRANT UPDATE (renyi_order, rho_bound) ON ledger_datasets TO {role}',
    'GRANT UPDATE (state, settled_at) ON ledger_runs TO {role}',
    'GRANT USAGE ON SEQUENCE ledger_events_number_seq TO {role}',
)


@pytest.mark.first
def test_who_runs_may_charge_and_settle_and_nothing_else(url: str) -> None:
    role = f'runner_{url.split("ledger_")[1][:8]}'
    run(url, f'CREATE ROLE {role} LOGIN', *(right.format(role=role) for right in RIGHTS))
    theirs = url.replace('ledger@', f'{role}@')
    ledger = Ledger.open(theirs)
    reserve(ledger, 'a')
    reserve(ledger, 'a')
    ledger.settle('visits', 'a')
    reserve(ledger, 'b')
    assert len(Ledger.open(url).account('visits').runs) == 2
    with pytest.raises(ConnectionError, match='permission denied'):
        ledger.change_budget('visits', epsilon=99.0, reason='more')
    with pytest.raises(ConnectionError, match='permission denied'):
        ledger.add_dataset('mails', unit='example', delta=1e-6, epsilon=8.0)
    for statement in (
        'DELETE FROM ledger_runs', 'DELETE FROM ledger_events', 'UPDATE ledger_runs SET rho = 0',
        "UPDATE ledger_events SET kind = 'refused'", 'UPDATE ledger_datasets SET rho_budget = 99',
        'UPDATE ledger_schema SET version = 2', 'DROP TABLE ledger_runs',
    ):  # fmt: skip
        with pytest.raises(sa.exc.ProgrammingError, match='permission denied|must be owner'):
            run(theirs, statement)
    # Edits within these rights are noticed.
    run(theirs, 'UPDATE ledger_datasets SET rho_bound = 1e-9')
    with pytest.raises(ValueError, match='another rho_bound than was logged'):
        Ledger.open(theirs).account('visits')


# ------------------------------------------------------------------ TLS


@pytest.fixture
def plain_server() -> Iterator[tuple[int, list[bytes]]]:
    """Answers that it knows no TLS, as a server, or whoever sits in between, may; what it is sent then."""
    heard: list[bytes] = []
    with socket.create_server(('127.0.0.1', 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(10)
                    # A request for TLS or GSSAPI is 8 bytes; a start with the user's name is more.
                    while sent := connection.recv(4096):
                        if len(sent) > 8:
                            heard.append(sent)
                            break
                        connection.sendall(b'N')

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def open_source(url: str) -> None:
    with source.connected(url):
        pass


@pytest.mark.first
@pytest.mark.parametrize('act', [Ledger.open, open_source], ids=['ledger', 'source'])
def test_nothing_is_sent_to_another_machine_without_tls(
    act: Callable[[str], object], plain_server: tuple[int, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv('PGSSLMODE', raising=False)
    port, heard = plain_server
    # The name of another machine, and where it is.
    there = f'postgresql://ward@db.example:{port}/notes?hostaddr=127.0.0.1'
    with pytest.raises(ConnectionError, match='SSL was required'):
        act(there)
    assert heard == []
    # An open twin, and what somebody may ask for: the driver's own choice goes on in plain text.
    with pytest.raises(ConnectionError):
        act(f'{there}&sslmode=prefer')
    assert b'ward' in heard.pop()
    # On this machine there is nobody in between.
    with pytest.raises(ConnectionError):
        act(f'postgresql://ward@127.0.0.1:{port}/notes')
    assert b'ward' in heard.pop()
