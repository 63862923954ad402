"""A ledger that an older version wrote, on both databases: nothing of it is lost, whoever opens it first."""

import pathlib
import re
import sqlite3
from concurrent import futures

import pytest
import sqlalchemy as sa

from models.privacy import accounting
from models.privacy.accounting import RunCost
from pipeline.ledger import migrations, tables
from pipeline.ledger.budget import BudgetExceeded
from pipeline.ledger.ledger import Ledger

VERSION_1, VERSION_2, VERSION_3 = (
    pathlib.Path(__file__).parent / name for name in ('version_1', 'version_2', 'version_3')
)
STAGES = {
    ('visits', 'first'): {'centers': 0.0, 'noisy_counts': 0.005, 'generation': 0.18707275390625},
    ('visits', 'second'): {'centers': 0.1, 'noisy_counts': 1 / 3, 'generation': 0.1 + 0.2},
    ('visits', 'third'): {'generation': 0.5},
    ('mails', 'first'): {'generation': 1e-9},
}


@pytest.fixture(params=['sqlite', pytest.param('postgresql', marks=pytest.mark.run)])
def where(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    """A ledger of version 1, from its dump."""
    return restored(request, VERSION_1, tmp_path)


def restored(request: pytest.FixtureRequest, version: pathlib.Path, tmp_path: pathlib.Path) -> str:
    """A ledger as a dump of it says."""
    dump = (version / f'{request.param}.sql').read_text()
    if request.param == 'sqlite':
        with sqlite3.connect(tmp_path / 'ledger.db') as connection:
            connection.executescript(dump)
        return str(tmp_path / 'ledger.db')
    url: str = request.getfixturevalue('postgresql')()
    with engine_of(url).begin() as connection:
        connection.exec_driver_sql(dump)
    return url


def engine_of(where: str) -> sa.Engine:
    url = where.replace('postgresql:', 'postgresql+psycopg:') if '://' in where else f'sqlite:///{where}'
    return sa.create_engine(url, poolclass=sa.NullPool)


def contents(where: str) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, whatever its columns."""
    names = ('ledger_schema', 'ledger_datasets', 'ledger_runs', 'ledger_events')
    with engine_of(where).begin() as connection:
        rows = {name: connection.exec_driver_sql(f'SELECT * FROM {name}').all() for name in names}
    return {name: sorted(map(tuple, found), key=repr) for name, found in rows.items()}


def lines_before_the_migration(found: dict[str, list[tuple[object, ...]]]) -> list[tuple[object, ...]]:
    """The log but for the line of each dataset that says what was found."""
    return [line for line in found['ledger_events'] if 'migrated' not in line]


def test_every_charge_budget_and_event_is_kept(where: str) -> None:
    before = contents(where)
    ledger = Ledger.open(where)
    accounts = {account.dataset.name: account for account in ledger.accounts()}
    assert sorted(accounts) == ['mails', 'unused', 'visits']
    runs = {(name, run.run_id): run for name, account in accounts.items() for run in account.runs}
    assert {key: run.cost for key, run in runs.items()} == {
        key: RunCost.of_rho(stages) for key, stages in STAGES.items()
    }
    assert {key: accounts[key[0]].rho_by_stage(run) for key, run in runs.items()} == STAGES
    for run in runs.values():
        assert run.rho == run.cost.rho
    visits = accounts['visits']
    assert [(run.number, run.run_id, run.state) for run in visits.runs] == [
        (1, 'first', 'settled'), (2, 'second', 'reserved'), (3, 'third', 'reserved'),
    ]  # fmt: skip
    assert visits.runs[0].settled_at is not None and visits.runs[1].settled_at is None
    assert [run.rho_budget for run in visits.runs] == [1.0, 1.0, 2.0]
    assert visits.dataset.rho_budget == 2.0 and accounts['mails'].dataset.epsilon_budget == 3.0
    # The log and whatever else no column was changed of: the same rows.
    after = contents(where)
    assert before['ledger_events'] == lines_before_the_migration(after)
    assert [kind.kind for kind in ledger.events('visits')] == [
        'dataset added', 'reserved', 'settled', 'reserved', 'resumed', 'refused', 'budget changed',
        'reserved', 'migrated',
    ]  # fmt: skip
    for old, new in zip(before['ledger_datasets'], after['ledger_datasets'], strict=True):
        assert new[: len(old)] == old
    assert after['ledger_schema'] == [(tables.SCHEMA_VERSION,)]


def test_what_reports_said_is_said_again(where: str) -> None:
    account = Ledger.open(where).account('visits')
    entry = account.entry(account.runs[1])
    assert type(entry).__name__ == 'LedgerEntry'
    assert (entry.rho_before, entry.rho, entry.rho_budget) == (account.runs[0].rho, account.runs[1].rho, 1.0)
    assert entry.epsilon_after == accounting.epsilon_from_rho(entry.rho_after, 1e-6)


def test_the_order_is_fixed_where_something_was_charged(where: str) -> None:
    datasets = {account.dataset.name: account.dataset for account in Ledger.open(where).accounts()}
    visits = datasets['visits']
    assert visits.renyi_order == accounting.optimal_order(2.0, 1e-6)
    assert visits.rho_bound == 2.0
    assert datasets['unused'].renyi_order is None and datasets['unused'].rho_bound is None


def test_it_goes_on_charging_where_it_stopped(where: str) -> None:
    ledger = Ledger.open(where)
    spent = ledger.account('visits').rho_spent
    same = {'unit': 'example', 'identity': 'i' * 64}
    again = RunCost.of_rho(STAGES['visits', 'second'])
    resumed = ledger.reserve('visits', run_id='second', cost=again, key_commitment='s' * 32, **same)
    assert resumed.run_number == 2 and ledger.account('visits').rho_spent == spent
    left = ledger.account('visits').rho_left
    with pytest.raises(BudgetExceeded):
        ledger.reserve(
            'visits', run_id='d', cost=RunCost.of_rho({'a': left + 1e-9}), key_commitment='d', **same
        )
    with pytest.raises(ValueError, match='key of the charged run'):
        ledger.reserve('visits', run_id='second', cost=again, key_commitment='z', **same)
    entry = ledger.reserve('visits', run_id='d', cost=RunCost.of_rho({'a': left}), key_commitment='d', **same)
    assert entry.run_number == 4 and entry.rho_before == spent


def test_opening_it_again_changes_nothing(where: str) -> None:
    Ledger.open(where)
    once = contents(where)
    Ledger.open(where)
    assert contents(where) == once
    with pytest.raises(FileExistsError):
        Ledger.create(where)
    assert contents(where) == once


def test_of_many_that_open_it_at_once_one_migrates(where: str) -> None:
    with futures.ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: Ledger.open(where), range(6)))
    accounts = [ledger.accounts() for ledger in opened]
    assert all(found == accounts[0] for found in accounts) and len(accounts[0][2].runs) == 3
    assert contents(where)['ledger_schema'] == [(tables.SCHEMA_VERSION,)]


def test_a_migration_is_whole_or_not_at_all(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(where)

    def dies(connection: sa.Connection, at: str) -> None:
        migrations._events(connection, at)
        raise OSError('the machine goes down')

    monkeypatch.setattr(migrations, 'MIGRATIONS', {1: dies})
    with pytest.raises(OSError, match='goes down'):
        Ledger.open(where)
    assert contents(where) == before
    monkeypatch.undo()
    assert len(Ledger.open(where).account('visits').runs) == 3


def test_a_program_of_version_1_can_charge_nothing_more(where: str) -> None:
    """It may have opened the ledger before: its own statements have to fail."""
    Ledger.open(where)
    made_it = (VERSION_1 / 'sqlite.sql').read_text()
    columns = re.findall(
        r'^\t(\w+) ', made_it[made_it.index('CREATE TABLE ledger_runs') :].split(');')[0], re.M
    )
    assert 'rho_by_stage' in columns
    listed = ', '.join(name for name in columns if name.islower())
    for statement in (
        f'SELECT {listed} FROM ledger_runs',
        f'INSERT INTO ledger_runs ({listed}) SELECT {listed} FROM ledger_runs',
    ):
        with pytest.raises(sa.exc.DBAPIError, match='rho_by_stage'), engine_of(where).begin() as connection:
            connection.exec_driver_sql(statement)


def test_a_newer_version_is_refused_at_the_door_and_inside(where: str) -> None:
    ledger = Ledger.open(where)
    with engine_of(where).begin() as connection:
        connection.exec_driver_sql(f'UPDATE ledger_schema SET version = {tables.SCHEMA_VERSION + 1}')
    before = contents(where)
    with pytest.raises(ConnectionError, match=rf'version={tables.SCHEMA_VERSION + 1}.*newer dp-corpus'):
        Ledger.open(where)
    for act in (
        lambda: ledger.account('visits'),
        lambda: ledger.settle('visits', 'second'),
        lambda: ledger.change_budget('visits', rho=9.0, reason='more'),
        lambda: ledger.reserve(
            'visits', run_id='x', unit='example', cost=RunCost.of_rho({'a': 0.1}), identity='i',
            key_commitment='k',
        ),
    ):  # fmt: skip
        with pytest.raises(ConnectionError, match='since it was opened'):
            act()
    assert contents(where) == before


# ------------------------------------------------------------------ version 2


@pytest.fixture(params=['sqlite', pytest.param('postgresql', marks=pytest.mark.run)])
def where_2(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    """A ledger of version 2, from its dump."""
    return restored(request, VERSION_2, tmp_path)


def test_of_version_2_every_charge_is_kept_and_no_filter_changes(where_2: str) -> None:
    before = contents(where_2)
    ledger = Ledger.open(where_2)
    visits = ledger.account('visits')
    assert [(run.run_id, run.state, run.failure) for run in visits.runs] == [
        ('first', 'settled', None), ('second', 'reserved', None), ('third', 'reserved', None),
    ]  # fmt: skip
    assert {account.dataset.privacy_filter for account in ledger.accounts()} == {'renyi'}
    kinds = [type(visits.entry(run)).__name__ for run in visits.runs]
    assert kinds == ['MixedLedgerEntry'] * 3
    after = contents(where_2)
    assert before['ledger_events'] == lines_before_the_migration(after)
    assert after['ledger_schema'] == [(tables.SCHEMA_VERSION,)]
    bounds = [run.rho_bound for run in visits.runs]
    assert bounds == [run.rho_budget for run in visits.runs] and visits.dataset.rho_bound == bounds[-1]
    for old, new, bound in zip(before['ledger_runs'], after['ledger_runs'], bounds, strict=True):
        assert new == (*old, None, bound)
    # The bound at the order went.
    for old, new in zip(before['ledger_datasets'], after['ledger_datasets'], strict=True):
        assert new[:-2] == old[:-1] and new[-2] is None


def test_of_version_2_a_charge_follows_and_a_dataset_of_gaussians_may_stand_beside(where_2: str) -> None:
    ledger = Ledger.open(where_2)
    left = ledger.account('visits').rho_left
    same = {'unit': 'example', 'identity': 'i' * 64}
    with pytest.raises(BudgetExceeded):
        ledger.reserve(
            'visits', run_id='d', cost=RunCost.of_rho({'a': left + 1e-9}), key_commitment='d', **same
        )
    entry = ledger.reserve('visits', run_id='d', cost=RunCost.of_rho({'a': left}), key_commitment='d', **same)
    assert entry.run_number == 4
    ledger.add_dataset('mails', unit='example', delta=1e-6, epsilon=1.0, privacy_filter='gaussian')
    assert Ledger.open(where_2).account('mails').dataset.failure_budget == 5e-7


def test_a_program_of_version_2_is_refused_once_it_is_migrated(where_2: str) -> None:
    """It asks for the version at each of its steps."""
    Ledger.open(where_2)
    with engine_of(where_2).begin() as connection:
        assert tables.version_of(connection) == tables.SCHEMA_VERSION > 2


# ------------------------------------------------------------------ version 3


@pytest.fixture(params=['sqlite', pytest.param('postgresql', marks=pytest.mark.run)])
def where_3(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    """A ledger of version 3, from its dump."""
    return restored(request, VERSION_3, tmp_path)


@pytest.mark.parametrize('name', ['gaussian', 'renyi'])
def test_of_version_3_the_largest_budget_since_the_first_charge_is_found(where_3: str, name: str) -> None:
    """Budgets were 20, 8 at the first charge, 5 at the second, 9 for no run, and 4 at the third."""
    account = Ledger.open(where_3).account(name)
    assert [run.epsilon_budget for run in account.runs] == [8.0, 5.0, 4.0]
    largest = [account.entry(run).epsilon_bound for run in account.runs]
    assert largest == pytest.approx([8.0, 8.0, 9.0], rel=1e-6)
    assert account.epsilon_bound == pytest.approx(9.0, rel=1e-6)
    assert account.dataset.rho_budget < account.runs[0].rho_bound == account.runs[1].rho_bound
    unused = Ledger.open(where_3).account('unused')
    assert unused.dataset.rho_bound is None and unused.rho_bound == 0.5


def test_of_version_3_runs_are_resumed_and_others_follow(where_3: str) -> None:
    ledger = Ledger.open(where_3)
    for name in ('gaussian', 'renyi'):
        cost = ledger.account(name).runs[1].cost
        same = {'unit': 'example', 'identity': 'i' * 64, 'cost': cost}
        first = ledger.reserve(name, run_id='second', key_commitment='s' * 32, **same)
        assert first.run_number == 2
        assert ledger.reserve(name, run_id='fourth', key_commitment='f', **same).run_number == 4
        assert len(Ledger.open(where_3).account(name).runs) == 4


def test_a_program_of_version_3_can_charge_nothing_more(where_3: str) -> None:
    """It may have opened the ledger before: its own statements have to fail."""
    Ledger.open(where_3)
    with pytest.raises(sa.exc.DBAPIError, match='renyi_bound'), engine_of(where_3).begin() as connection:
        connection.exec_driver_sql('SELECT name, renyi_bound FROM ledger_datasets')


def test_of_version_3_an_edit_before_the_migration_is_noticed_as_that_version_did(where_3: str) -> None:
    """What its log did not tell, nobody can hold against it: an identity, say."""
    with engine_of(where_3).begin() as connection:
        connection.exec_driver_sql("UPDATE ledger_runs SET rho = rho / 2 WHERE dataset = 'renyi'")
        connection.exec_driver_sql("UPDATE ledger_runs SET identity = 'x' WHERE dataset = 'gaussian'")
    ledger = Ledger.open(where_3)
    with pytest.raises(ValueError, match='another rho of run_id.*Somebody edited it'):
        ledger.account('renyi')
    assert ledger.account('gaussian').runs[0].identity == 'x'
    with engine_of(where_3).begin() as connection:
        connection.exec_driver_sql("UPDATE ledger_runs SET identity = 'y' WHERE dataset = 'gaussian'")
    with pytest.raises(ValueError, match='another identity of run_id'):
        ledger.account('gaussian')


@pytest.mark.parametrize('version', [VERSION_1, VERSION_2, VERSION_3], ids=lambda version: version.name)
@pytest.mark.parametrize('details', ['7', '{}', 'not JSON'])
def test_an_older_ledger_whose_log_nothing_reads_is_refused_and_stays(
    tmp_path: pathlib.Path, version: pathlib.Path, details: str
) -> None:
    where = str(tmp_path / 'ledger.db')
    with sqlite3.connect(where) as connection:
        connection.executescript((version / 'sqlite.sql').read_text())
        connection.execute('UPDATE ledger_events SET details = ?', [details])
    before = contents(where)
    with pytest.raises(ValueError, match='Somebody edited it: restore a copy of'):
        Ledger.open(where)
    assert contents(where) == before
