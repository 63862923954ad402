"""The ledger on both databases: what it charges, what it refuses, and what races and kills leave."""

import contextlib
import dataclasses
import itertools
import pathlib
import random
import sqlite3
import stat
import time
import typing
from collections.abc import Callable, Iterator
from concurrent import futures
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import pytest
import sqlalchemy as sa

from models.privacy import accounting, report
from models.privacy.accounting import RunCost
from pipeline.ledger import tables
from pipeline.ledger.budget import BudgetExceeded
from pipeline.ledger.ledger import Ledger
from tests import fork_server
from tests.pipeline.ledger import ledger_racer

KEY = 'k' * 32
DELTA = 1e-6


@pytest.fixture
def ledger(where: str) -> Ledger:
    """A ledger with one dataset, `visits`, of ρ = 1."""
    made = Ledger.create(where)
    made.add_dataset('visits', unit='example', delta=DELTA, rho=1.0)
    return made


def reserve(ledger: Ledger, run_id: str, rho: float, **changes: typing.Any) -> report.LedgerEntry:
    arguments: dict[str, typing.Any] = {
        'dataset': 'visits',
        'unit': 'example',
        'cost': RunCost.of_rho({'noisy_counts': rho / 4, 'generation': rho - rho / 4}),
        'identity': 'i' * 64,
        'key_commitment': KEY,
    }
    return ledger.reserve(run_id=run_id, **(arguments | changes))


# ------------------------------------------------------------------- charging


def test_a_run_past_the_budget_is_refused_and_the_next_smaller_one_is_not(ledger: Ledger) -> None:
    reserve(ledger, 'a', 0.75)
    with pytest.raises(BudgetExceeded) as caught:
        reserve(ledger, 'b', 0.3)
    error = caught.value
    assert (error.dataset, error.budget, error.spent, error.asked) == ('visits', 1.0, 0.75, 0.3)
    left = report.format_down(accounting.epsilon_from_rho(0.25, DELTA))
    for said in (
        'got rho=0.3 ',
        f'left=0.25 (ε = {left}',
        'no token is sampled',
        'ledger budget visits',
    ):
        assert said in str(error), said
    reserve(ledger, 'b', 0.25)
    assert ledger.account('visits').rho_left == 0
    with pytest.raises(BudgetExceeded):
        reserve(ledger, 'c', 1e-9)
    assert [event.kind for event in ledger.events()] == [
        'dataset added', 'reserved', 'refused', 'reserved', 'refused'
    ]  # fmt: skip
    assert ledger.events()[2].details == {'rho': 0.3, 'reason': 'budget exceeded'}


@pytest.mark.parametrize(
    ('changes', 'said'),
    [
        ({'key_commitment': 'z' * 32}, 'key of the charged run'),
        ({'identity': 'z' * 64}, 'another input, config, model or code'),
        ({'cost': RunCost.of_rho({'generation': 0.125})}, 'got rho=0.125'),
        ({'unit': 'user'}, "unit='user'"),
    ],
)
def test_another_run_of_the_same_name_is_refused(
    ledger: Ledger, changes: dict[str, typing.Any], said: str
) -> None:
    reserve(ledger, 'a', 0.25)
    with pytest.raises(ValueError, match=said) as caught:
        reserve(ledger, 'a', 0.25, **changes)
    assert 'z' * 32 not in str(caught.value)
    assert ledger.account('visits').rho_spent == 0.25


def test_an_unknown_dataset_is_refused_with_its_neighbours(ledger: Ledger) -> None:
    ledger.add_dataset('mails', unit='user', delta=1e-5, epsilon=2.0)
    with pytest.raises(ValueError, match=r"dataset='visit'.*Did you mean visits\?"):
        reserve(ledger, 'a', 0.25, dataset='visit')
    with pytest.raises(ValueError, match="dataset='visit'"):
        ledger.check('visit', run_id='a', unit='example', cost=RunCost.of_rho({'all': 0.1}))


@pytest.mark.parametrize('rho', [0.0, -0.1, float('nan'), float('inf')])
def test_a_charge_is_a_finite_cost(ledger: Ledger, rho: float) -> None:
    with pytest.raises(ValueError, match='rho|free'):
        reserve(ledger, 'a', 0.1, cost=RunCost.of_rho({'generation': rho}))
    assert ledger.account('visits').runs == ()


@pytest.mark.parametrize(
    ('changes', 'said'),
    [
        ({'rho': None}, 'either rho or epsilon'),
        ({'epsilon': 2.0}, 'either rho or epsilon'),
        ({'rho': 0.0}, 'budget > 0'),
        ({'rho': float('nan')}, 'budget > 0'),
        ({'rho': float('inf')}, 'budget > 0'),
        ({'delta': 0.0}, 'delta=0.0'),
        ({'delta': 1.0}, 'delta=1.0'),
        ({'unit': 'person'}, "unit='person'"),
        ({'name': 'a b'}, "dataset='a b'"),
        ({'name': ''}, "dataset=''"),
        ({'name': 'visits'}, 'which the ledger holds'),
    ],
)
def test_a_dataset_is_refused(ledger: Ledger, changes: dict[str, typing.Any], said: str) -> None:
    arguments: dict[str, typing.Any] = {'name': 'new', 'unit': 'example', 'delta': 1e-6, 'rho': 1.0}
    arguments |= changes
    with pytest.raises(ValueError, match=said):
        ledger.add_dataset(arguments.pop('name'), **arguments)
    assert [account.dataset.name for account in ledger.accounts()] == ['visits']


# ------------------------------------------------------------------- places


@pytest.mark.parametrize('name', ['ledger.db', 'an odd name?mode=ro#%41 ä.db'])
def test_an_sqlite_ledger_is_its_owners_alone(tmp_path: pathlib.Path, name: str) -> None:
    Ledger.create(str(tmp_path / name)).add_dataset('visits', unit='example', delta=DELTA, rho=1.0)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert len(Ledger.open(str(tmp_path / name)).accounts()) == 1


def test_a_file_has_an_url_too(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = Ledger.create('sqlite:///ledger.db')
    monkeypatch.chdir('/')
    made.add_dataset('visits', unit='example', delta=DELTA, rho=1.0)
    for where in (f'{tmp_path}/ledger.db', f'sqlite:///{tmp_path}/ledger.db'):
        assert Ledger.open(where).where == str(tmp_path / 'ledger.db')
        assert len(Ledger.open(where).accounts()) == 1


def test_a_ledger_is_made_once(where: str) -> None:
    Ledger.create(where).add_dataset('visits', unit='example', delta=DELTA, rho=1.0)
    with pytest.raises(FileExistsError, match='which is one'):
        Ledger.create(where)
    assert len(Ledger.open(where).accounts()) == 1


def test_two_creators_make_one_ledger(where: str) -> None:
    def create(_: int) -> str:
        try:
            Ledger.create(where)
        except FileExistsError:
            return 'there'
        return 'made'

    with futures.ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(create, range(6))) == ['made', *['there'] * 5]


def test_of_many_that_add_one_dataset_one_does(where: str) -> None:
    ledger = Ledger.create(where)

    def add(turn: int) -> str:
        try:
            ledger.add_dataset(f'visits-{turn}', unit='example', delta=DELTA, rho=1.0)
        except ValueError as refusal:
            assert 'Expected a new dataset' in str(refusal)
            return 'there'
        return 'added'

    with futures.ThreadPoolExecutor(6) as pool:
        for turn in range(10):
            assert sorted(pool.map(add, [turn] * 6)) == ['added', *['there'] * 5]
    assert len(ledger.accounts()) == 10


def test_a_missing_file_is_no_new_ledger(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConnectionError, match='which is not there'):
        Ledger.open(str(tmp_path / 'none.db'))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConnectionError, match='Make its folder'):
        Ledger.create(str(tmp_path / 'no' / 'folder.db'))


def test_a_ledger_that_is_lost_is_said_to_be(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'ledger.db'
    ledger = Ledger.create(str(path))
    path.unlink()
    with pytest.raises(ConnectionError, match='unable to open'):
        ledger.accounts()
    assert not path.exists()


def test_another_database_is_no_ledger(where: str, tmp_path: pathlib.Path) -> None:
    if '://' not in where:
        sqlite3.connect(where).close()
        pathlib.Path(where).touch()
    with pytest.raises(ConnectionError, match='no tables of a ledger'):
        Ledger.open(where)
    text = tmp_path / 'notes.txt'
    text.write_text('These are notes, and not a database of any kind.' * 20)
    with pytest.raises(ConnectionError, match='not a database'):
        Ledger.open(str(text))


def test_another_version_is_refused_at_the_door_and_inside(ledger: Ledger, where: str) -> None:
    reserve(ledger, 'a', 0.25)
    with ledger._database.writing() as connection:
        connection.execute(tables.SCHEMA.update().values(version=99))
    with pytest.raises(ConnectionError, match='version=1 .*version=99. Another dp-corpus made it'):
        Ledger.open(where)
    before = ledger.events()
    for act in (
        lambda: ledger.account('visits'),
        lambda: ledger.settle('visits', 'a'),
        lambda: ledger.change_budget('visits', rho=9.0, reason='more'),
        lambda: reserve(ledger, 'b', 0.1),
    ):
        with pytest.raises(ConnectionError, match='since it was opened'):
            act()
    assert ledger.events() == before


@pytest.mark.parametrize(
    'url',
    [
        'postgresql://me:s3cret@127.0.0.1/x',
        'postgresql+psycopg://me:s3cret@127.0.0.1/x',
        'postgresql://me@127.0.0.1/x?password=s3cret',
        'postgresql://me@127.0.0.1/x?sslpassword=s3cret',
        'mysql://me:s3cret@127.0.0.1/x',
        'postgresql://me:s3cret@127.0.0.1:notaport/x',
    ],
)
def test_a_password_is_refused_and_never_shown(url: str) -> None:
    for act in (Ledger.open, Ledger.create):
        with pytest.raises(ValueError) as caught:
            act(url)
        assert 's3cret' not in str(caught.value)


@pytest.mark.parametrize('where', ['', '  ', 'mysql://me@h/x', 'sqlite://', 'sqlite:///:memory:?x=1', '://'])
def test_an_unknown_address_is_refused(where: str) -> None:
    with pytest.raises(ValueError, match='Expected'):
        Ledger.open(where)


def test_an_unreachable_server_is_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv('PGPASSWORD', 's3cret')
    start = time.monotonic()
    for url in (f'postgresql://me@/x?host={tmp_path}', 'postgresql://me@127.0.0.1:1/x'):
        with pytest.raises(ConnectionError, match='Expected a ledger that answers') as caught:
            Ledger.open(url)
        assert 's3cret' not in str(caught.value) and caught.value.__cause__ is None
    assert time.monotonic() - start < 30


@pytest.mark.run
def test_a_ledger_of_other_peoples_database_stands_beside_their_tables(
    postgresql: Callable[[], str],
) -> None:
    url = postgresql()
    engine = sa.create_engine(url.replace('postgresql:', 'postgresql+psycopg:'), poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text('CREATE TABLE runs (theirs integer)'))
        connection.execute(sa.text('ALTER DATABASE ' + engine.url.database + ' SET synchronous_commit = off'))
    ledger = Ledger.create(url)
    with ledger._database.writing() as connection:
        assert connection.scalar(sa.text('SHOW synchronous_commit')) == 'on'
    assert ledger.accounts() == ()


@pytest.mark.run
def test_costs_come_back_as_they_were_charged(
    postgresql: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PGOPTIONS', '-c extra_float_digits=-5')
    ledger = Ledger.create(postgresql())
    ledger.add_dataset('visits', unit='example', delta=DELTA, epsilon=8.0)
    entry = reserve(ledger, 'a', 1 / 3)
    assert entry.rho == 1 / 3 and entry.rho_budget == accounting.rho_from_epsilon(8.0, DELTA)
    assert reserve(ledger, 'a', 1 / 3) == entry


def test_sqlite_commits_outlive_a_power_cut(tmp_path: pathlib.Path) -> None:
    ledger = Ledger.create(str(tmp_path / 'ledger.db'))
    with ledger._database.writing() as connection:
        assert connection.scalar(sa.text('PRAGMA synchronous')) == 3  # EXTRA


def test_nothing_of_a_machine_is_stored(ledger: Ledger, where: str) -> None:
    reserve(ledger, 'a', 0.25)
    stored = repr((ledger.accounts(), ledger.events()))
    assert str(pathlib.Path(where).parent) not in stored and str(pathlib.Path.home()) not in stored


# ------------------------------------------------------------------- races and deaths


@pytest.fixture(scope='module', autouse=True)
def warm_racers() -> Iterator[None]:
    with fork_server.preloaded(
        'tests.pipeline.ledger.ledger_racer', 'dp_accounting', 'scipy.optimize', 'psycopg',
        'sqlalchemy.dialects.postgresql.psycopg',
    ):  # fmt: skip
        yield


@dataclasses.dataclass
class Racer:
    """A process of `ledger_racer.main`."""

    process: BaseProcess
    orders: Connection
    answers: Connection

    @classmethod
    def start(cls, where: str, mode: str = 'right', environment: dict[str, str] | None = None) -> 'Racer':
        to_obey, orders = fork_server.CONTEXT.Pipe(duplex=False)
        answers, to_answer = fork_server.CONTEXT.Pipe(duplex=False)
        process = fork_server.CONTEXT.Process(
            target=ledger_racer.main, args=(where, 'visits', mode, environment or {}, to_obey, to_answer)
        )
        process.start()
        # Ends that only this process holds end with it.
        to_obey.close()
        to_answer.close()
        return cls(process, orders, answers)

    def tell(self, run_id: str, rho: float, *, at: float = 0.0, key: str = KEY) -> None:
        self.orders.send({'run_id': run_id, 'rho': rho, 'at': at, 'key': key})

    def hear(self) -> typing.Any:
        """The next answer; EOFError where the process died."""
        return self.answers.recv()

    def kill(self) -> list[typing.Any]:
        """Kills it now; what it had answered and nobody had heard."""
        self.process.kill()
        self.process.join()
        unheard = []
        with contextlib.suppress(EOFError, OSError):  # at the end, which may lie within an answer
            while True:
                unheard.append(self.answers.recv())
        return unheard

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.orders.close()
        self.answers.close()


@pytest.fixture
def racers(request: pytest.FixtureRequest) -> Iterator[Callable[..., list[Racer]]]:
    started: list[Racer] = []

    def start(
        where: str, count: int, mode: str = 'right', environment: dict[str, str] | None = None
    ) -> list[Racer]:
        new = [Racer.start(where, mode, environment) for _ in range(count)]
        started.extend(new)
        for racer in new:
            assert racer.hear() == 'ready'
        return new

    yield start
    for racer in started:
        racer.stop()


def race(racers: list[Racer], rho: float, names: list[str], keys: list[str] | None = None) -> list[dict]:
    """All racers at one moment; what each was answered."""
    at = time.monotonic() + 0.05
    for racer, name, key in zip(racers, names, keys or [KEY] * len(racers), strict=True):
        racer.tell(name, rho, at=at, key=key)
    return [racer.hear() for racer in racers]


COUNT = 5
ROUNDS = 12


@pytest.mark.first
@pytest.mark.run
def test_of_racing_runs_exactly_those_win_that_fit(
    ledger: Ledger, where: str, racers: Callable[..., list[Racer]]
) -> None:
    started = racers(where, COUNT)
    spent = 0
    for turn in range(ROUNDS):
        fit = turn % (COUNT + 1)
        # In decimals, whose binary sums are not exact: the slack has to let all that fit in.
        ledger.change_budget('visits', rho=round(0.1 * (spent + fit), 1) or 0.05, reason='next round')
        answers = race(started, 0.1, [f'run-{turn}-{index}' for index in range(COUNT)])
        won = [answer['entry'] for answer in answers if 'entry' in answer]
        assert len(won) == fit, answers
        assert [answer['error'] for answer in answers if 'error' in answer] == ['BudgetExceeded'] * (
            COUNT - fit
        )
        assert sorted(entry['run_number'] for entry in won) == list(range(spent + 1, spent + fit + 1))
        spent += fit
    account = ledger.account('visits')
    assert len(account.runs) == spent and [run.number for run in account.runs] == list(range(1, spent + 1))


@pytest.mark.run
def test_of_one_run_started_twice_one_is_charged(
    ledger: Ledger, where: str, racers: Callable[..., list[Racer]]
) -> None:
    started = racers(where, COUNT)
    for turn in range(4):
        answers = race(started, 0.1, [f'run-{turn}'] * COUNT)
        assert all(answer == answers[0] and 'entry' in answer for answer in answers)
        assert len(ledger.account('visits').runs) == turn + 1


@pytest.mark.first
@pytest.mark.run
def test_the_race_catches_a_ledger_that_checks_and_then_acts(
    ledger: Ledger, where: str, racers: Callable[..., list[Racer]]
) -> None:
    started = racers(where, COUNT, 'unlocked')
    # Wrong is not wrong every time: two that charge at the same instant may hit the same number,
    # which the database refuses. Twenty rounds without an overspending are.
    for turn in range(20):
        account = ledger.account('visits')
        ledger.change_budget('visits', rho=account.rho_spent + 0.1, reason='for one run')
        race(started, 0.1, [f'run-{turn}-{index}' for index in range(COUNT)])
        if ledger.account('visits').rho_spent > account.rho_spent + 0.15:
            return
    pytest.fail('no race found what is wrong')


def wrong_answers(
    ledger: Ledger, started: list[Racer], error: str, *, rounds: int = 2
) -> list[dict[str, typing.Any]]:
    """Answers of this error in races for a budget that has room for all."""
    found: list[dict[str, typing.Any]] = []
    ledger.change_budget('visits', rho=1_000.0, reason='for all')
    # The first charge writes the dataset's order as well, which another kind of error would show.
    reserve(ledger, 'first', 0.1)
    for turn in range(rounds):
        answers = race(started, 0.1, [f'run-{turn}-{index}' for index in range(len(started))])
        found += [answer for answer in answers if answer.get('error') == error]
    # Each charge has a number of its own, so a wrong transaction fails before it overspends.
    assert len(ledger.account('visits').runs) == 1 + rounds * len(started) - len(found)
    return found


@pytest.mark.run
def test_the_race_catches_a_transaction_that_is_not_immediate(
    tmp_path: pathlib.Path, racers: Callable[..., list[Racer]]
) -> None:
    where = str(tmp_path / 'ledger.db')
    ledger = Ledger.create(where)
    ledger.add_dataset('visits', unit='example', delta=DELTA, rho=1.0)
    assert wrong_answers(ledger, racers(where, COUNT, 'deferred'), 'ConnectionError')


@pytest.mark.run
def test_the_race_catches_a_transaction_that_adds_to_an_old_sum(
    postgresql: Callable[[], str], racers: Callable[..., list[Racer]]
) -> None:
    where = postgresql()
    ledger = Ledger.create(where)
    ledger.add_dataset('visits', unit='example', delta=DELTA, rho=1.0)
    preferred = {'PGOPTIONS': '-c default_transaction_isolation=repeatable\\ read'}
    assert wrong_answers(ledger, racers(where, 3, 'stale', preferred), 'IntegrityError')
    where = postgresql()
    ledger = Ledger.create(where)
    ledger.add_dataset('visits', unit='example', delta=DELTA, rho=1.0)
    assert not wrong_answers(ledger, racers(where, 3, 'right', preferred), 'IntegrityError')


@pytest.mark.first
@pytest.mark.run
def test_a_death_inside_the_transaction_charges_nothing(
    ledger: Ledger, where: str, racers: Callable[..., list[Racer]]
) -> None:
    before = (ledger.accounts(), ledger.events())
    for turn in range(2):
        (racer,) = racers(where, 1, 'hang')
        racer.tell(f'run-{turn}', 0.75)
        assert racer.hear() == 'hanging'
        # Readers neither wait for it nor see what it has not committed.
        assert (ledger.accounts(), ledger.events()) == before
        assert racer.kill() == []
    assert (ledger.accounts(), ledger.events()) == before
    start = time.monotonic()
    assert reserve(ledger, 'after', 0.75).run_number == 1
    assert time.monotonic() - start < 10


@pytest.mark.run
def test_deaths_at_any_moment_lose_no_charge_and_make_none_up(
    ledger: Ledger, where: str, racers: Callable[..., list[Racer]]
) -> None:
    ledger.change_budget('visits', rho=1_000.0, reason='for all')
    chance = random.Random(7)
    known: set[str] = set()
    # Six deaths, and more of them where a busy machine lets few charges happen before one.
    for death, racer in enumerate(
        itertools.chain(racers(where, 6), (racers(where, 1)[0] for _ in range(30)))
    ):
        if death >= 6 and len(known) > 6:
            break
        for index in range(200):
            racer.tell(f'run-{racer.process.pid}-{index}', 0.1)
        time.sleep(chance.uniform(0.02, 0.25))
        answers = racer.kill()
        known |= {f'run-{racer.process.pid}-{index}' for index in range(sum('entry' in a for a in answers))}
        runs = ledger.account('visits').runs
        charged = {run.run_id for run in runs}
        assert known <= charged and len(charged) <= len(known) + 1
        # The one that nobody heard of is found out about by asking again.
        for run_id in charged - known:
            reserve(ledger, run_id, 0.1, cost=RunCost.of_rho({'generation': 0.1}))
            known.add(run_id)
        assert [run.number for run in runs] == list(range(1, len(runs) + 1))
    assert len(known) > 6
    if '://' not in where:
        with sqlite3.connect(where) as connection:
            assert connection.execute('PRAGMA integrity_check').fetchone() == ('ok',)
