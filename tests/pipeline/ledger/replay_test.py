"""Every row of a ledger is what replaying its log gives: an edit of any column is noticed."""

import pathlib
import shutil
import sqlite3
import typing

import pytest

from models.privacy.accounting import (
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    RunCost,
    SelfComposedDpEvent,
)
from pipeline.ledger import replay, tables
from pipeline.ledger.budget import BudgetExceeded
from pipeline.ledger.event import EventKind
from pipeline.ledger.ledger import Ledger

NOTICED = r'Somebody edited it.*restore a copy'
# The value that another tool would set, by column; for numbers something near and something far.
DATASETS: dict[str, tuple[str, ...]] = {
    'name': ("'other'",),
    'unit': ("'user'", "'example'"),
    'rho_budget': ('rho_budget * 1.01', '99.0'),
    'delta': ('delta / 2', '1e-3'),
    'epsilon_budget': ('NULL', '0.5'),
    'created': ("'2020-01-01T00:00:00.000+00:00'",),
    'renyi_order': ('1.5', 'NULL', 'renyi_order * 0.99'),
    'rho_bound': ('rho_budget', 'NULL', 'rho_bound * 0.99'),
    'failure_budget': ('failure_budget / 2', 'NULL', '1e-7'),
}
RUNS: dict[str, tuple[str, ...]] = {
    'dataset': ("'unused'",),
    'number': ('number + 1',),
    'run_id': ("'b'",),
    'rho': ('rho / 2', 'rho * (1 + 1e-9)'),
    'state': ("'settled'", "'reserved'"),
    'identity': ("'x'",),
    'key_commitment': ("'y'",),
    'rho_budget': ('rho_budget / 2',),
    'epsilon_budget': ('NULL', '0.5'),
    'delta': ('delta / 2',),
    'reserved_at': ("'2020-01-01T00:00:00.000+00:00'",),
    'settled_at': ("'2020-01-01T00:00:00.000+00:00'", 'NULL'),
    # Costs of the same price at the order: ε of the sum would be another.
    'cost': (
        "json_set(cost, '$.stages.training', json_object('kind', 'ZCDpEvent', 'rho', rho))",
        "'{}'",
    ),
    'renyi_order': ('1.5', 'NULL'),
    'failure': ('failure * 0.98', 'NULL', '1e-9'),
    'rho_bound': ('rho_budget', 'rho_bound / 2'),
}
# Columns of a line on which a row depends.
LINES: dict[str, tuple[str, ...]] = {
    'dataset': ("'unused'",),
    'run_id': ("'z'",),
    'kind': ("'refused'", "'resumed'"),
    'details': ("'{}'",),
    'at': ("'2020-01-01T00:00:00.000+00:00'",),
    'number': ('-number',),
}
# Columns of lines on which no row depends: a row has no time of a change of its budget, lines of a dataset
# name no run, and the first line stays the first.
FREE_OF_LINES = {
    ('dataset added', 'run_id'), ('dataset added', 'number'), ('budget changed', 'run_id'),
    ('budget changed', 'at'),
}  # fmt: skip
# Nothing depends on these, and nothing notices an edit: lines that changed no row, words for people, what
# lines before it say as well, and numbers of lines as long as their order stays.
FREE = (
    "UPDATE ledger_events SET details = '{}', at = 'then', run_id = 'z' WHERE kind IN ('refused', 'resumed')",
    "DELETE FROM ledger_events WHERE kind IN ('refused', 'resumed')",
    "UPDATE ledger_events SET details = '7' WHERE kind = 'settled'",
    "UPDATE ledger_events SET details = json_set(details, '$.reason', 'x') WHERE kind = 'budget changed'",
    "UPDATE ledger_events SET details = json_set(details, '$.before', 7) WHERE kind = 'budget changed'",
    'UPDATE ledger_events SET number = number + 1000',
)


def training() -> DpEvent:
    step = PoissonSampledDpEvent(sampling_probability=0.05, event=GaussianDpEvent(noise_multiplier=2.0))
    return SelfComposedDpEvent(event=step, count=20)


def reserve(ledger: Ledger, name: str, run_id: str, event: DpEvent | None = None) -> None:
    cost = RunCost(stages={'training': event or training()})
    ledger.reserve(name, run_id=run_id, unit='example', cost=cost, identity='i', key_commitment='k')


def written(where: str) -> None:
    """Makes a ledger with each kind of line, in both filters, where the two budgets differ."""
    ledger = Ledger.create(where)
    for name, kept in (('gaussian', 'gaussian'), ('renyi', 'renyi')):
        ledger.add_dataset(name, unit='example', delta=1e-5, epsilon=8.0, privacy_filter=kept)  # type: ignore
        for run_id in ('a', 'a', 'c'):
            reserve(ledger, name, run_id)
            if run_id == 'c':
                ledger.settle(name, 'c')
            ledger.change_budget(name, epsilon=6.0, reason='less')
        with pytest.raises(BudgetExceeded):
            reserve(ledger, name, 'd', GaussianDpEvent(noise_multiplier=0.1))
    ledger.add_dataset('unused', unit='user', delta=1e-5, epsilon=1.0)


@pytest.fixture(scope='module')
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A ledger with each kind of line."""
    path = tmp_path_factory.mktemp('ledgers') / 'ledger.db'
    written(str(path))
    return path


@pytest.fixture
def copied(made: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copy(made, tmp_path))


def edit(path: pathlib.Path, statement: str) -> int:
    """Another tool's edit, which no foreign key stops; how many rows it changed to something else."""
    connection = sqlite3.connect(path, isolation_level=None)
    before = list(connection.iterdump())
    connection.execute(statement)
    changed = len(set(before) ^ set(connection.iterdump()))
    connection.close()
    return changed


def noticed(path: pathlib.Path, name: str) -> bool:
    """True if the dataset is refused, alone and among all, for an edit and nothing else."""
    ledger = Ledger.open(str(path))
    found = []
    for read in (lambda: ledger.account(name), ledger.accounts):
        try:
            read()
        except ValueError as error:
            assert 'Somebody edited it' in str(error) and 'restore a copy' in str(error)
            found.append(True)
        else:
            found.append(False)
    assert found[0] == found[1]
    return found[0]


def test_every_column_is_in_the_tables_of_edits() -> None:
    """A new column has to be thought about here."""
    assert set(DATASETS) == set(tables.DATASETS.c.keys()) and set(RUNS) == set(tables.RUNS.c.keys())
    assert set(LINES) == set(tables.EVENTS.c.keys())
    assert set(typing.get_args(EventKind)) == {*replay.KINDS, 'refused', 'resumed'}


EDITS = [
    *(('ledger_datasets', 'name', column, value) for column, found in DATASETS.items() for value in found),
    *(('ledger_runs', 'dataset', column, value) for column, found in RUNS.items() for value in found),
]


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('dataset', ['gaussian', 'renyi'])
@pytest.mark.parametrize(('table', 'key', 'column', 'value'), EDITS, ids=lambda value: str(value)[:30])
def test_an_edit_of_any_column_is_noticed(
    copied: pathlib.Path, dataset: str, table: str, key: str, column: str, value: str
) -> None:
    where = f"{key} = '{dataset}'" + (" AND run_id = 'a'" if table == 'ledger_runs' else '')
    number = ' + 100' if column == 'number' else ''
    changed = edit(copied, f'UPDATE {table} SET {column} = {value}{number} WHERE {where}')
    # Some values are what stands there, such as NULL in the filter that knows no order.
    assert noticed(copied, dataset) == (changed > 0)


def test_each_column_was_edited_in_some_dataset(made: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """So that the test above does not pass for want of an edit."""
    for table, _, column, value in EDITS:
        number = ' + 100' if column == 'number' else ''
        statement = f'UPDATE {table} SET {column} = {value}{number}'
        if column == 'name':
            statement += " WHERE name = 'renyi'"
        if column == 'run_id':
            statement += " WHERE run_id = 'a'"
        if (table, column) == ('ledger_runs', 'dataset'):
            statement += " WHERE dataset = 'renyi'"
        assert edit(pathlib.Path(shutil.copy(made, tmp_path / 'l.db')), statement), statement


@pytest.mark.parametrize('kind', replay.KINDS)
@pytest.mark.parametrize(
    ('column', 'value'), [(name, each) for name, found in LINES.items() for each in found]
)
def test_an_edit_of_a_line_on_which_a_row_depends_is_noticed(
    copied: pathlib.Path, kind: str, column: str, value: str
) -> None:
    where = f"kind = '{kind}' AND dataset = 'renyi'"
    changed = edit(copied, f'UPDATE ledger_events SET {column} = {value} WHERE {where}')
    assert noticed(copied, 'renyi') == (changed > 0 and (kind, column) not in FREE_OF_LINES)


@pytest.mark.parametrize('statement', FREE)
def test_what_nothing_depends_on_may_be_edited(copied: pathlib.Path, statement: str) -> None:
    before = Ledger.open(str(copied)).accounts()
    assert edit(copied, statement)
    assert Ledger.open(str(copied)).accounts() == before


@pytest.mark.parametrize(
    'statement',
    [
        "UPDATE ledger_datasets SET unit = 'user'",
        "UPDATE ledger_datasets SET renyi_order = 1.5 WHERE name = 'renyi'",
        'UPDATE ledger_datasets SET rho_bound = rho_budget',
        'UPDATE ledger_datasets SET delta = 1e-3',
        "UPDATE ledger_runs SET failure = failure * 0.999 WHERE dataset = 'gaussian'",
        "UPDATE ledger_runs SET state = 'settled'",
        "UPDATE ledger_runs SET identity = 'x', key_commitment = 'y'",
    ],
)
def test_a_ledger_that_holds_prices_alone_against_its_log_is_told(
    copied: pathlib.Path, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(copied, statement)
    assert noticed(copied, 'gaussian' if 'gaussian' in statement else 'renyi')
    monkeypatch.setattr(replay, 'difference', lambda *_: None)
    Ledger.open(str(copied)).accounts()


@pytest.mark.parametrize(
    'statement',
    [
        "DELETE FROM ledger_runs WHERE run_id = 'a'",
        "DELETE FROM ledger_runs WHERE run_id = 'c'",
        'DELETE FROM ledger_events',
    ],
)
def test_a_run_or_a_log_that_was_deleted_is_noticed(copied: pathlib.Path, statement: str) -> None:
    edit(copied, statement)
    assert noticed(copied, 'renyi') and noticed(copied, 'gaussian')
    with pytest.raises(ValueError, match=NOTICED):
        reserve(Ledger.open(str(copied)), 'renyi', 'late')


def test_a_dataset_whose_row_was_deleted_is_not_forgotten(copied: pathlib.Path) -> None:
    """Else it could be added again, with a budget of which nothing is spent."""
    for statement in (
        "DELETE FROM ledger_datasets WHERE name = 'renyi'",
        "DELETE FROM ledger_runs WHERE dataset = 'renyi'",
    ):
        edit(copied, statement)
        ledger = Ledger.open(str(copied))
        with pytest.raises(ValueError, match=NOTICED):
            ledger.accounts()
        with pytest.raises(ValueError, match='got no row of it'):
            ledger.add_dataset('renyi', unit='example', delta=1e-5, epsilon=8.0)


def test_whoever_edits_rows_and_log_alike_is_not_noticed(copied: pathlib.Path) -> None:
    """Edits that SECURITY.md says cannot be noticed."""
    edit(copied, "UPDATE ledger_datasets SET unit = 'user'")
    edit(
        copied,
        "UPDATE ledger_events SET details = json_set(details, '$.unit', 'user') WHERE kind = 'dataset added'",
    )
    assert {account.dataset.unit for account in Ledger.open(str(copied)).accounts()} == {'user'}
