"""The step that decodes a batch only where it is not finished."""

import dataclasses
import pathlib

import apache_beam as beam
import pytest
from apache_beam.testing import util

from models import prompt_templates
from models.assembly import GeneratorSettings
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey
from models.privacy.report import BatchFacts
from models.records import Batch, BatchId
from tests.samples import pipeline
from tests.transforms.finished import FACTS, LOSS, example
from transforms import batch_files
from transforms.predict.decode import GenerateText
from transforms.run_files import WORK_FOLDERS

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
    template=prompt_templates.read_template('pretrained'),
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


@pytest.fixture
def work_dir(tmp_path: pathlib.Path) -> str:
    for folder in WORK_FOLDERS:
        (tmp_path / folder).mkdir()
    RunKey(bytes(32)).write(tmp_path / 'run.key')
    return str(tmp_path)


BATCHES = [Batch(batch_id=BatchId(group=0, index=index), label=None, contexts=()) for index in range(3)]


@pytest.mark.first
@pytest.mark.run
@pytest.mark.parametrize(
    'flags', [['--runner=FnApiRunner'], ['--runner=FnApiRunner', '--direct_runner_bundle_repeat=1']]
)
def test_finished_batches_are_read_back_without_a_model(work_dir: str, flags: list[str]) -> None:
    expected = []
    for batch in BATCHES:
        expected.append(example(str(batch.batch_id)))
        batch_files.write_batch(work_dir, str(batch.batch_id), expected[-1:])
    with pipeline(*flags) as root:
        found, losses = root | beam.Create(BATCHES) | GenerateText(NO_MODEL, work_dir)
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
        batch_files.write_batch(work_dir, of_batch.batch_id, [example(of_batch.batch_id)], of_batch)
    settings = dataclasses.replace(NO_MODEL, params=params)
    with pipeline() as root:
        found, restricted = root | beam.Create(BATCHES) | GenerateText(settings, work_dir)
        util.assert_that(found, util.equal_to([example(of_batch.batch_id) for of_batch in expected]))
        util.assert_that(restricted, util.equal_to(expected), label=folder)


@pytest.mark.first
@pytest.mark.run
def test_a_batch_that_is_not_finished_needs_the_model(work_dir: str) -> None:
    """The counterpart of the test above, which would pass if nothing were ever decoded."""
    batch_files.write_batch(work_dir, str(BATCHES[0].batch_id), [])
    with pytest.raises(Exception, match='no-such-checkpoint'), pipeline() as root:
        _ = root | beam.Create(BATCHES) | GenerateText(NO_MODEL, work_dir)
