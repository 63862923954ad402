"""Finished batches on disk, and what the curator learns of each."""

import dataclasses
import functools
import os
import pathlib
import traceback

import pytest

from models.privacy.ex_post import BatchLoss
from models.privacy.randomness import RunKey
from models.privacy.report import BatchFacts
from models.records import SyntheticExample
from tests.transforms.finished import FACTS, LOSS, SPENDING, example
from transforms import batch_files
from transforms.run_files import WORK_FOLDERS


@pytest.fixture
def work_dir(tmp_path: pathlib.Path) -> str:
    for folder in WORK_FOLDERS:
        (tmp_path / folder).mkdir()
    RunKey(bytes(32)).write(tmp_path / 'run.key')
    return str(tmp_path)


def test_batches_round_trip(work_dir: str) -> None:
    examples = [example('0000-000001', 0), example('0000-000001', 1)]
    assert batch_files.read_batch(work_dir, '0000-000001', batch_files.example_of) is None
    batch_files.write_batch(work_dir, '0000-000001', iter(examples))
    assert batch_files.read_batch(work_dir, '0000-000001', batch_files.example_of) == examples
    batch_files.write_batch(work_dir, '0000-000002', [])
    assert batch_files.read_batch(work_dir, '0000-000002', batch_files.example_of) == []


@pytest.mark.parametrize(
    'facts', [LOSS, SPENDING, dataclasses.replace(SPENDING, spent=(), first_silent=None)]
)
def test_facts_of_a_batch_round_trip(work_dir: str, facts: BatchFacts) -> None:
    batch_files.write_batch(work_dir, '0000-000001', [example('0000-000001')], facts)
    assert batch_files.read_facts(work_dir, '0000-000001', type(facts)) == facts


@pytest.mark.parametrize('facts, folder', FACTS)
def test_facts_are_there_before_their_batch(
    work_dir: str, monkeypatch: pytest.MonkeyPatch, facts: BatchFacts, folder: str
) -> None:
    real = batch_files.write_file

    def write_once(path: str, data: bytes) -> None:
        monkeypatch.setattr(batch_files, 'write_file', fail)
        real(path, data)

    def fail(*_: object) -> None:
        raise OSError('power cut')

    monkeypatch.setattr(batch_files, 'write_file', write_once)
    with pytest.raises(OSError, match='power cut'):
        batch_files.write_batch(work_dir, '0000-000001', [], facts)
    assert len(os.listdir(pathlib.Path(work_dir, folder))) == 1
    assert batch_files.read_batch(work_dir, '0000-000001', batch_files.example_of) is None


def output_of(worker: int) -> tuple[list[SyntheticExample], BatchLoss]:
    """The output of one of several unlike accelerators for the same batch."""
    words = dataclasses.replace(example('0000-000001'), text=f'words of worker {worker}')
    return [words], dataclasses.replace(LOSS, log_beta=(float(worker), 0.0))


def kept(work_dir: str) -> tuple[list[SyntheticExample] | None, BatchLoss]:
    return batch_files.read_batch(work_dir, '0000-000001', batch_files.example_of), batch_files.read_facts(
        work_dir, '0000-000001', BatchLoss
    )


def test_losses_are_of_the_worker_whose_examples_stay(work_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second worker writes both of its files between the two of the first."""
    real = batch_files.write_file

    def overtaken(path: str, data: bytes) -> None:
        monkeypatch.setattr(batch_files, 'write_file', real)
        real(path, data)
        batch_files.write_batch(work_dir, '0000-000001', *output_of(1))

    monkeypatch.setattr(batch_files, 'write_file', overtaken)
    batch_files.write_batch(work_dir, '0000-000001', *output_of(0))
    assert kept(work_dir) == output_of(1)


def test_equal_examples_keep_the_losses_that_came_first(work_dir: str) -> None:
    """They are of these examples too, and what one reader has read stays."""
    examples, loss = output_of(0)
    batch_files.write_batch(work_dir, '0000-000001', examples, loss)
    batch_files.write_batch(work_dir, '0000-000001', examples, output_of(1)[1])
    assert kept(work_dir) == (examples, loss)


@pytest.mark.parametrize('facts, folder', FACTS)
def test_a_batch_without_its_facts_is_named(work_dir: str, facts: BatchFacts, folder: str) -> None:
    batch_files.write_batch(work_dir, '0000-000001', [], facts)
    [path] = pathlib.Path(work_dir, folder).iterdir()
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f'{folder} of batch 0000-000001'):
        batch_files.read_facts(work_dir, '0000-000001', type(facts))


@pytest.mark.parametrize('damage', [b'', b'[{"text": "Zyxquortle', b'[{"words": "Zyxquortle"}]', b'7'])
@pytest.mark.parametrize('facts, folder', FACTS)
def test_a_damaged_batch_is_named_and_not_quoted(
    work_dir: str, damage: bytes, facts: BatchFacts, folder: str
) -> None:
    batch_files.write_batch(work_dir, '0000-000001', [], facts)
    of_facts = functools.partial(batch_files.read_facts, kind=type(facts))
    for place, read in (
        (folder, of_facts),
        ('batches', functools.partial(batch_files.read_batch, row=batch_files.example_of)),
    ):
        [path] = pathlib.Path(work_dir, place).iterdir()
        path.write_bytes(damage)
        with pytest.raises(ValueError, match=f'file={place}/{path.name} ') as caught:
            read(work_dir, '0000-000001')
        shown = ''.join(traceback.format_exception(caught.value))
        assert 'Zyxquortle' not in shown and caught.value.__context__ is None
