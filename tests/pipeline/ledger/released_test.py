"""The part of a ledger that others may read: days and charges, the same for failed and finished runs."""

import csv
import io
import itertools
import json
import pathlib
import re
import typing
from collections.abc import Callable

import pytest
import typer.testing

from models.privacy.accounting import RunCost
from pipeline import main
from pipeline.ledger import ledger as ledger_lib
from pipeline.ledger import released
from pipeline.ledger.budget import BudgetExceeded
from pipeline.ledger.event import Event, EventKind
from pipeline.ledger.ledger import Ledger

pytestmark = [pytest.mark.heavy, pytest.mark.first]

# One way in which the same three charges on two days can have gone: after each, its fate.
Course = Callable[[Ledger, str], None]


def smoothly(ledger: Ledger, run_id: str) -> None:
    ledger.settle('visits', run_id)


def badly(ledger: Ledger, run_id: str) -> None:
    """Failed, taken up again, tried with another input, and failed for good."""
    charge(ledger, run_id)
    with pytest.raises(ValueError, match='another input'):
        charge(ledger, run_id, identity='other')
    charge(ledger, run_id)


def charge(ledger: Ledger, run_id: str, rho: float = 0.25, **changes: str) -> None:
    arguments: dict[str, typing.Any] = {'unit': 'example', 'identity': 'i' * 64, 'key_commitment': 'k' * 32}
    cost = RunCost.of_rho({'noisy_counts': 0.05, 'generation': rho - 0.05})
    ledger.reserve('visits', run_id=run_id, cost=cost, **(arguments | changes))


def ledger_of(
    folder: pathlib.Path, course: Course, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> Ledger:
    """Charges on two days, with a refusal and a change of the budget; steps of the clock in `seconds`."""
    clock = itertools.count()
    day = '2026-03-01'

    def now() -> str:
        minutes, rest = divmod(next(clock) * seconds, 60)
        return f'{day}T08:{int(minutes):02d}:{rest:06.3f}+00:00'

    monkeypatch.setattr(ledger_lib, '_now', now)
    folder.mkdir()
    ledger = Ledger.create(str(folder / 'ledger.db'))
    ledger.add_dataset('visits', unit='example', delta=1e-6, rho=0.5)
    ledger.add_dataset('unused', unit='user', delta=1e-6, epsilon=3.0)
    charge(ledger, 'first')
    course(ledger, 'first')
    with pytest.raises(BudgetExceeded):
        charge(ledger, 'second', rho=0.5)
    day, clock = '2026-03-02', itertools.count()
    charge(ledger, 'second')
    course(ledger, 'second')
    ledger.change_budget('visits', rho=1.0, reason='a second year')
    charge(ledger, 'third')
    return ledger


def outputs(ledger: Ledger, *flags: str) -> dict[str, str]:
    """Everything that the commands write of a ledger, by command."""
    commands = {
        'show': ('show',),
        'show one': ('show', 'visits'),
        'show --json': ('show', '--json'),
        'json': ('export',),
        'csv': ('export', '--format', 'csv'),
    }
    if not flags:
        commands['page'] = ('plot', 'visits', '--html', '-')
    runner = typer.testing.CliRunner()
    found = {}
    for name, arguments in commands.items():
        command = ['ledger', *arguments, '--ledger', ledger.where, *flags]
        result = runner.invoke(main.app, command, env={'COLUMNS': '140'})
        assert result.exit_code == 0, result
        found[name] = result.output
    return found


@pytest.fixture
def pair(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Ledger, Ledger]:
    """The same charges on the same days, of short runs that finished and of long ones that failed."""
    return (
        ledger_of(tmp_path / 'a', smoothly, 0.01, monkeypatch),
        ledger_of(tmp_path / 'b', badly, 70, monkeypatch),
    )


def test_a_failed_run_and_a_finished_one_look_the_same(pair: tuple[Ledger, Ledger]) -> None:
    finished, failed = map(outputs, pair)
    for name in finished:
        assert finished[name] == failed[name], name


def test_nothing_is_finer_than_a_day_and_no_end_and_no_resumption_is_told(
    pair: tuple[Ledger, Ledger],
) -> None:
    for ledger, (name, text) in itertools.product(pair, outputs(pair[0]).items()):
        text = outputs(ledger)[name] if ledger is pair[1] else text
        assert '2026-03-02' in text, name
        for finer in (r'\d\d:\d\d', r'2026-03-0\dT', r'2026-03-0\d \d'):
            assert not re.search(finer, text), (name, finer)
        for word in ('settled', 'resumed', 'state', 'another input', 'reserved_at'):
            assert word not in text.lower(), (name, word)


def test_lines_of_the_log_are_numbered_without_gaps(pair: tuple[Ledger, Ledger]) -> None:
    for ledger in pair:
        events = json.loads(outputs(ledger)['json'])['events']
        assert [event['number'] for event in events] == list(range(1, 8))
        assert [(event['kind'], event['run_id']) for event in events] == [
            ('dataset added', None), ('dataset added', None), ('reserved', 'first'), ('refused', 'second'),
            ('reserved', 'second'), ('budget changed', None), ('reserved', 'third'),
        ]  # fmt: skip
        # The events of one dataset have the same lines, with numbers of their own.
        alone = released.released_events(ledger.events('visits'))
        assert [event.number for event in alone] == list(range(1, 7))


def test_what_is_public_is_all_there(pair: tuple[Ledger, Ledger]) -> None:
    found = json.loads(outputs(pair[1])['json'])
    visits = next(dataset for dataset in found['datasets'] if dataset['dataset'] == 'visits')
    assert list(found) == ['schema', 'schema_version', 'datasets', 'events']
    assert [(run['number'], run['run_id'], run['charged']) for run in visits['runs']] == [
        (1, 'first', '2026-03-01'), (2, 'second', '2026-03-02'), (3, 'third', '2026-03-02'),
    ]  # fmt: skip
    for run in visits['runs']:
        assert run['rho'] == 0.25 and run['rho_by_stage'] == {'noisy_counts': 0.05, 'generation': 0.2}
        assert RunCost.from_json_object(run['cost']).curve.rho == 0.25
    rows = list(csv.DictReader(io.StringIO(outputs(pair[1])['csv'])))
    assert [row['at'] for row in rows if row['kind'] == 'run'] == ['2026-03-01', '2026-03-02', '2026-03-02']


def test_the_curators_view_says_that_it_is_the_curators_and_holds_everything(
    pair: tuple[Ledger, Ledger],
) -> None:
    finished, failed = (outputs(ledger, '--restricted') for ledger in pair)
    for name in finished:
        assert finished[name] != failed[name], name
        assert ' '.join(finished[name].split()).count('Restricted to the curator'), name
    for ledger, text in zip(pair, (finished, failed), strict=True):
        document = json.loads(text['json'])
        assert next(iter(json.loads(text['show --json']))) == 'audience' == list(document)[2]
        assert len(document['events']) == len(ledger.events())
        assert [event['at'] for event in document['events']] == [event.at for event in ledger.events()]
        rows = list(csv.DictReader(io.StringIO(text['csv'])))
        # On every line: a row that is cut out of the table says it still.
        assert all(row['audience'] == released.RESTRICTED for row in rows)
        assert len(rows) == 2 + 3 + len(ledger.events())
        runs = [run for dataset in document['datasets'] for run in dataset['runs']]
        assert [run['reserved_at'] for run in runs] == [
            run.reserved_at for run in ledger.account('visits').runs
        ]
    states = [row['state'] for row in csv.DictReader(io.StringIO(finished['csv'])) if row['kind'] == 'run']
    assert states == ['settled', 'settled', 'reserved']
    assert 'settled' in finished['show'] and 'settled' not in failed['show'].replace('Settled', '')
    assert 'resumed' in failed['json'] and 'another input' in failed['csv']


def test_a_refusal_before_the_charge_is_public_and_one_after_it_is_not() -> None:
    def event(number: int, kind: EventKind, run_id: str, dataset: str = 'visits') -> Event:
        return Event(
            number=number, dataset=dataset, run_id=run_id, kind=kind, details={}, at='2026-01-01T00:00:00'
        )

    log = [
        event(3, 'refused', 'a'), event(4, 'reserved', 'a'), event(6, 'refused', 'a'),
        event(7, 'refused', 'a', 'mails'), event(9, 'settled', 'a'), event(12, 'refused', 'b'),
    ]  # fmt: skip
    lines = released.released_events(log)
    assert [(line.number, line.kind, line.run_id, line.dataset) for line in lines] == [
        (1, 'refused', 'a', 'visits'), (2, 'reserved', 'a', 'visits'), (3, 'refused', 'a', 'mails'),
        (4, 'refused', 'b', 'visits'),
    ]  # fmt: skip


def test_every_kind_of_line_is_public_or_known_to_be_the_curators() -> None:
    """A new kind has to be thought about here."""
    assert set(typing.get_args(EventKind)) == {*released._KINDS, 'settled', 'resumed'}
