"""Durable batches, and the step that decodes one only where it is not finished."""

import dataclasses
import functools
import os
import pathlib
import threading
import traceback
import typing
from concurrent import futures

import apache_beam as beam
import pytest
from apache_beam.testing import util

from models import prompts
from models.assembly import GeneratorSettings
from models.privacy.ex_post import BatchLoss
from models.privacy.individual import BatchSpending
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey
from models.privacy.report import BatchFacts
from models.records import Batch, BatchId, SyntheticExample
from tests.samples import pipeline
from transforms import predict
from transforms.run_files import BATCHES_FOLDER, LOSSES_FOLDER, WORK_FOLDERS

# Nothing is there: a step that built its generator from these would fail.
NO_MODEL = GeneratorSettings(
    run_id='run',
    params=MechanismParams(
        batch_size=8, clip_bound=10.0, temperature=2.0, max_private_tokens=8, max_batch_tokens=8
    ),
    model='bundled',
    checkpoint='no-such-checkpoint',
    tokenizer='no-such-tokenizer',
    dtype='float32',
    micro_batch_size=8,
    max_prompt_tokens=64,
    template=prompts.read_template('pretrained'),
)
INDIVIDUAL = MechanismParams(
    batch_size=8,
    clip_bound=1.0,
    temperature=1.0,
    max_batch_tokens=8,
    public_top_k=16,
    aggregate='difference',
    accounting='individual',
    shift_bound=1.0,
    context_budget=0.25,
    omega=8.0,
)


def example(batch_id: str, index: int = 0) -> SyntheticExample:
    return SyntheticExample(
        text='é"\n\0\u2028', label=None, batch_id=batch_id, index_in_batch=index, private_tokens=3,
        public_tokens=0, truncated=True,
    )  # fmt: skip


@pytest.fixture
def work_dir(tmp_path: pathlib.Path) -> str:
    for folder in WORK_FOLDERS:
        (tmp_path / folder).mkdir()
    RunKey(bytes(32)).write(tmp_path / 'run.key')
    return str(tmp_path)


# --- Files -----------------------------------------------------------------------


def test_batches_round_trip(work_dir: str) -> None:
    examples = [example('0000-000001', 0), example('0000-000001', 1)]
    assert predict.read_batch(work_dir, '0000-000001') is None
    predict.write_batch(work_dir, '0000-000001', iter(examples))
    assert predict.read_batch(work_dir, '0000-000001') == examples
    predict.write_batch(work_dir, '0000-000002', [])
    assert predict.read_batch(work_dir, '0000-000002') == []


LOSS = BatchLoss(
    batch_id='0000-000001',
    minus_log_alpha=(0.1, 0.0),
    log_beta=(1e-17, 0.0),
    places=(0, 1),
    is_private=(True, False),
)
SPENDING = BatchSpending(batch_id='0000-000001', spent=(0.1, 1e-17), voters=(2, 2, 1), first_silent=2)
FACTS = [pytest.param(LOSS, 'losses', id='losses'), pytest.param(SPENDING, 'spending', id='spending')]


@pytest.mark.parametrize(
    'facts', [LOSS, SPENDING, dataclasses.replace(SPENDING, spent=(), first_silent=None)]
)
def test_facts_of_a_batch_round_trip(work_dir: str, facts: BatchFacts) -> None:
    predict.write_batch(work_dir, '0000-000001', [example('0000-000001')], facts)
    assert predict.read_facts(work_dir, '0000-000001', type(facts)) == facts


@pytest.mark.parametrize('facts, folder', FACTS)
def test_facts_are_there_before_their_batch(
    work_dir: str, monkeypatch: pytest.MonkeyPatch, facts: BatchFacts, folder: str
) -> None:
    real = predict.write_file

    def write_once(path: str, data: bytes) -> None:
        monkeypatch.setattr(predict, 'write_file', fail)
        real(path, data)

    def fail(*_: object) -> None:
        raise OSError('power cut')

    monkeypatch.setattr(predict, 'write_file', write_once)
    with pytest.raises(OSError, match='power cut'):
        predict.write_batch(work_dir, '0000-000001', [], facts)
    assert len(os.listdir(pathlib.Path(work_dir, folder))) == 1
    assert predict.read_batch(work_dir, '0000-000001') is None


def output_of(worker: int) -> tuple[list[SyntheticExample], BatchLoss]:
    """What one of several unlike accelerators makes of the same batch."""
    words = dataclasses.replace(example('0000-000001'), text=f'words of worker {worker}')
    return [words], dataclasses.replace(LOSS, log_beta=(float(worker), 0.0))


def kept(work_dir: str) -> tuple[list[SyntheticExample] | None, BatchLoss]:
    return predict.read_batch(work_dir, '0000-000001'), predict.read_facts(work_dir, '0000-000001', BatchLoss)


def test_losses_are_of_the_worker_whose_examples_stay(work_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second worker writes both of its files between the two of the first."""
    real = predict.write_file

    def overtaken(path: str, data: bytes) -> None:
        monkeypatch.setattr(predict, 'write_file', real)
        real(path, data)
        predict.write_batch(work_dir, '0000-000001', *output_of(1))

    monkeypatch.setattr(predict, 'write_file', overtaken)
    predict.write_batch(work_dir, '0000-000001', *output_of(0))
    assert kept(work_dir) == output_of(1)


def test_of_racing_workers_one_decides_on_examples_and_losses(tmp_path: pathlib.Path) -> None:
    workers, winners = 4, set()
    for turn in range(20):
        for folder in (BATCHES_FOLDER, LOSSES_FOLDER):
            (tmp_path / str(turn) / folder).mkdir(parents=True)
        place, starts = str(tmp_path / str(turn)), threading.Barrier(workers)

        def finish(worker: int, place: str = place, starts: threading.Barrier = starts) -> object:
            starts.wait()
            predict.write_batch(place, '0000-000001', *output_of(worker))
            return kept(place)

        with futures.ThreadPoolExecutor(workers) as pool:
            seen = list(pool.map(finish, range(workers)))
        winner = [output_of(worker) for worker in range(workers)].index(kept(place))
        assert seen == [output_of(winner)] * workers
        winners.add(winner)
    # Where one worker always is the first there is no race: chance would have it once in 4 ** 19.
    assert len(winners) > 1


def test_equal_examples_keep_the_losses_that_came_first(work_dir: str) -> None:
    """They are of these examples too, and what one reader has read stays."""
    examples, loss = output_of(0)
    predict.write_batch(work_dir, '0000-000001', examples, loss)
    predict.write_batch(work_dir, '0000-000001', examples, output_of(1)[1])
    assert kept(work_dir) == (examples, loss)


@pytest.mark.parametrize('facts, folder', FACTS)
def test_a_batch_without_its_facts_is_named(work_dir: str, facts: BatchFacts, folder: str) -> None:
    predict.write_batch(work_dir, '0000-000001', [], facts)
    [path] = pathlib.Path(work_dir, folder).iterdir()
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f'{folder} of batch 0000-000001'):
        predict.read_facts(work_dir, '0000-000001', type(facts))


@pytest.mark.parametrize('damage', [b'', b'[{"text": "Zyxquortle', b'[{"words": "Zyxquortle"}]', b'7'])
@pytest.mark.parametrize('facts, folder', FACTS)
def test_a_damaged_batch_is_named_and_not_quoted(
    work_dir: str, damage: bytes, facts: BatchFacts, folder: str
) -> None:
    predict.write_batch(work_dir, '0000-000001', [], facts)
    of_facts = functools.partial(predict.read_facts, kind=type(facts))
    for place, read in (
        (folder, of_facts),
        ('batches', predict.read_batch),
    ):
        [path] = pathlib.Path(work_dir, place).iterdir()
        path.write_bytes(damage)
        with pytest.raises(ValueError, match=f'file={place}/{path.name} ') as caught:
            read(work_dir, '0000-000001')
        shown = ''.join(traceback.format_exception(caught.value))
        assert 'Zyxquortle' not in shown and caught.value.__context__ is None


# --- The step --------------------------------------------------------------------

BATCHES = [Batch(batch_id=BatchId(group=0, index=index), label=None, contexts=()) for index in range(3)]


@pytest.mark.run
@pytest.mark.parametrize(
    'flags', [['--runner=FnApiRunner'], ['--runner=FnApiRunner', '--direct_runner_bundle_repeat=1']]
)
def test_finished_batches_are_read_back_without_a_model(work_dir: str, flags: list[str]) -> None:
    expected = []
    for batch in BATCHES:
        expected.append(example(str(batch.batch_id)))
        predict.write_batch(work_dir, str(batch.batch_id), expected[-1:])
    with pipeline(*flags) as root:
        found, losses = root | beam.Create(BATCHES) | predict.GenerateText(NO_MODEL, work_dir)
        util.assert_that(found, util.equal_to(expected))
        util.assert_that(losses, util.equal_to([]), label='no losses')


@pytest.mark.run
@pytest.mark.parametrize('facts, folder', FACTS)
def test_finished_batches_give_their_losses_or_spending_too(
    work_dir: str, facts: BatchFacts, folder: str
) -> None:
    """Those of a median, and those of individual accounting: a resumed run has the same."""
    params = dataclasses.replace(NO_MODEL.params, aggregate='median') if facts is LOSS else INDIVIDUAL
    expected = [dataclasses.replace(facts, batch_id=str(batch.batch_id)) for batch in BATCHES]
    for of_batch in expected:
        predict.write_batch(work_dir, of_batch.batch_id, [example(of_batch.batch_id)], of_batch)
    settings = dataclasses.replace(NO_MODEL, params=params)
    with pipeline() as root:
        found, restricted = root | beam.Create(BATCHES) | predict.GenerateText(settings, work_dir)
        util.assert_that(found, util.equal_to([example(of_batch.batch_id) for of_batch in expected]))
        util.assert_that(restricted, util.equal_to(expected), label=folder)


@pytest.mark.run
def test_a_batch_that_is_not_finished_needs_the_model(work_dir: str) -> None:
    """The counterpart of the test above, which would pass if nothing were ever decoded."""
    predict.write_batch(work_dir, str(BATCHES[0].batch_id), [])
    with pytest.raises(Exception, match='no-such-checkpoint'), pipeline() as root:
        _ = root | beam.Create(BATCHES) | predict.GenerateText(NO_MODEL, work_dir)


@pytest.mark.run
def test_a_key_that_others_could_read_is_refused(work_dir: str) -> None:
    os.chmod(pathlib.Path(work_dir, 'run.key'), 0o644)
    with pytest.raises(Exception, match='chmod 600'), pipeline() as root:
        _ = root | beam.Create(BATCHES) | predict.GenerateText(NO_MODEL, work_dir)


def test_columns_are_those_of_the_corpus() -> None:
    assert (
        list(predict.COLUMNS.meanings)
        == predict.COLUMNS.schema.names
        == [field.name for field in dataclasses.fields(SyntheticExample)]
    )
    hints = typing.get_type_hints(SyntheticExample)
    kinds = {str: 'string', str | None: 'string', int: 'integer', bool: 'boolean'}
    assert {name: kinds[hint] for name, hint in hints.items()} == {
        name: kind for name, (kind, _) in predict.COLUMNS.meanings.items()
    }
