"""Places of files: links and folders that somebody planted, and clocks that go backwards."""

import datetime
import os
import pathlib
import signal
from collections.abc import Iterator

import pytest

from models.privacy.accounting import RunCost
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger import ledger as ledgers
from pipeline.ledger.ledger import Ledger
from pipeline.run import folders
from transforms import durable


@pytest.fixture
def planted(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / 'out').mkdir()
    (tmp_path / 'secret').write_text('secret')
    return tmp_path


@pytest.fixture(autouse=True)
def _no_waiting_for_ever() -> Iterator[None]:
    def end(*_: object) -> None:
        raise TimeoutError('it waits for ever')

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(15)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize('target', ['secret', 'nowhere'])
def test_a_link_of_a_files_name_is_neither_followed_nor_published(planted: pathlib.Path, target: str) -> None:
    path = planted / 'out' / 'README.md'
    path.symlink_to(planted / target)
    with pytest.raises(FileExistsError, match=r'README\.md.*symbolic link'):
        durable.write_file(str(path), b'text')
    assert (planted / 'secret').read_text() == 'secret' and not (planted / 'nowhere').exists()
    assert [found.name for found in (planted / 'out').iterdir()] == ['README.md']


def test_a_writer_that_only_looks_publishes_what_the_link_names(
    planted: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = planted / 'out' / 'README.md'
    path.symlink_to(planted / 'secret')
    monkeypatch.setattr(durable, '_is_there', os.path.exists)
    durable.write_file(str(path), b'text')
    assert path.read_text() == 'secret'
    path.unlink()
    path.symlink_to(planted / 'nowhere')
    signal.alarm(2)
    with pytest.raises(TimeoutError):
        durable.write_file(str(path), b'text')


def test_a_folder_of_a_files_name_is_no_file(planted: pathlib.Path) -> None:
    (planted / 'out' / 'README.md').mkdir()
    with pytest.raises(FileExistsError, match=r'README\.md.*folder'):
        durable.write_file(str(planted / 'out' / 'README.md'), b'text')


def test_no_folder_of_a_release_lies_elsewhere(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'in.jsonl').write_text('{"text": "x"}\n')
    run = job_config(
        input=str(tmp_path / 'in.jsonl'), output=str(tmp_path / 'out'), delta=1e-6, epsilon=0.5,
        aggregate='difference', accounting='worst-case', dtype='float32',
    )  # fmt: skip
    folders.prepare(methods.solve(run, launch=True))
    (tmp_path / 'out' / 'data').rmdir()
    (tmp_path / 'elsewhere').mkdir()
    (tmp_path / 'out' / 'data').symlink_to(tmp_path / 'elsewhere')
    with pytest.raises(FileExistsError, match='folder of the release.*symbolic link'):
        folders.prepare(methods.solve(run, launch=True))


def test_a_clock_that_goes_backwards_changes_no_charge_and_no_order(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(str(tmp_path / 'ledger.db'))
    ledger.add_dataset('visits', unit='example', delta=1e-6, rho=1.0)
    moments = [datetime.datetime(2030 - year, 1, 1, tzinfo=datetime.UTC).isoformat() for year in range(40)]
    monkeypatch.setattr(ledgers, '_now', lambda: moments.pop(0))
    for number in range(4):
        entry = ledger.reserve(
            'visits', run_id=f'run-{number}', unit='example', cost=RunCost.of_rho({'generation': 0.25}),
            identity='i', key_commitment='k',
        )  # fmt: skip
        assert (entry.run_number, entry.rho_before) == (number + 1, 0.25 * number)
    ledger.settle('visits', 'run-0')
    account = ledger.account('visits')
    assert [run.run_id for run in account.runs] == [f'run-{number}' for number in range(4)]
    assert [event.run_id for event in ledger.events() if event.kind == 'reserved'] == [
        run.run_id for run in account.runs
    ]
    assert account.rho_left == 0
