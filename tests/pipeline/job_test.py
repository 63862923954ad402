"""The whole job on local runners, with the bundled model: what it writes, repeats, refuses and hides.

Small sizes, so that a run takes seconds. Nothing here depends on what the model writes, only on
whether two runs write the same. The model is loaded once.
"""

import base64
import dataclasses
import hashlib
import json
import logging
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import traceback
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import datasets
import pandas as pd
import pyarrow.parquet as pq
import pytest

from models import batching
from models.bundled import FOLDER as BUNDLED
from models.generate.batch import BatchGenerator
from models.privacy import accounting, ex_post
from models.privacy.individual import BatchSpending
from models.privacy.randomness import RunKey
from models.privacy.report import Predicted, PrivacyReport, RestrictedReport
from models.records import Batch, Record
from pipeline import job, methods
from pipeline.asked.config import job_config
from pipeline.ledger import ledger
from pipeline.methods.predict import graph
from pipeline.run import charge, folders, identity
from pipeline.run.beam_options import beam_options
from pipeline.settings.job_config import JobConfig
from tests.launched import launch
from tests.one_model import one_model
from tests.samples import unpacked
from transforms import read, run_files
from transforms.batch_files import read_facts
from transforms.durable import RUN_KEY

pytestmark = pytest.mark.skipif(
    not (BUNDLED / 'checkpoint').exists(), reason='the bundled model has no checkpoint: train it first'
)

# Words that stand in records and may stand nowhere but on the curator's side.
CANARY = 'Zyxquortle'
LABELS = ('Billing', 'Delivery')
PRIVATE_TOKENS = 8
RELEASED = {'README.md', 'data', 'privacy_report.html', 'privacy_report.json'}

Row = dict[str, Any]


def some_rows(number: int = 40) -> list[Row]:
    """Records with canaries in every field, a few of them of one customer."""
    return [
        {
            'id': f'{CANARY}-id-{index}',
            'customer': f'{CANARY}-customer-{index % 13}',
            'text': f'{CANARY} writes message {index} on parcel {index * 7919 % 1000}, {CANARY}@example.org.',
            'label': LABELS[index * 5 % 3 % 2],
        }
        for index in range(number)
    ]


# One of every reason; a canary in each.
BAD_LINES = {
    read.Reason.NOT_TEXT: b'{"id": "1", "customer": "c", "label": "Billing", "text": "Zyxquortle \xff"}',
    read.Reason.MALFORMED: b'{"text": "Zyxquortle',
    read.Reason.MISSING_FIELD: b'{"id": "2", "customer": "c", "label": "Billing", "note": "Zyxquortle"}',
    read.Reason.MISSING_UNIT: b'{"id": "3", "label": "Billing", "text": "Zyxquortle"}',
    read.Reason.MISSING_RECORD_ID: b'{"customer": "c", "label": "Billing", "text": "Zyxquortle"}',
    read.Reason.WRONG_TYPE: b'{"id": "4", "customer": "c", "label": "Billing", "text": ["Zyxquortle"]}',
    read.Reason.BLANK_TEXT: b'{"id": "Zyxquortle", "customer": "c", "label": "Billing", "text": " "}',
    read.Reason.TOO_LONG: b'{"id": "5", "customer": "c", "label": "x", "text": "%s"}' % (b'Zyxquortle' * 200),
    read.Reason.UNDECLARED_LABEL: b'{"id": "6", "customer": "c", "label": "Zyxquortle", "text": "so"}',
}  # fmt: skip


def write_rows(path: pathlib.Path, rows: list[Row]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows), encoding='utf-8')
    return str(path)


def config(folder: pathlib.Path, rows: list[Row] | None = None, **settings: Any) -> JobConfig:
    """A small run in a folder of its own: `in.jsonl`, `out` and `out.curator`."""
    if 'input' not in settings:
        settings['input'] = write_rows(folder / 'in.jsonl', some_rows() if rows is None else rows)
    small = {
        'output': str(folder / 'out'), 'run_id': 'run', 'label_field': 'label', 'labels': LABELS,
        'record_id_field': 'id', 'batches_per_label': 2, 'batch_size': 8,
        'aggregate': 'mean', 'max_private_tokens': PRIVATE_TOKENS, 'delta': 1e-3, 'max_prompt_tokens': 64,
        'max_example_tokens': 8, 'micro_batch_size': 32, 'shards': 3,
    }  # fmt: skip
    return job_config(**(small | settings))


def work_dir(run: JobConfig) -> pathlib.Path:
    return pathlib.Path(run.output.curator)


def prepare_with_key_of(run: JobConfig, other: JobConfig) -> None:
    """Gives a run another one's secret before it starts; in the field no two runs share one."""
    folders.prepare(methods.solve(run, launch=True))
    shutil.copy2(work_dir(other) / RUN_KEY, work_dir(run) / RUN_KEY)


def corpus(run: JobConfig) -> dict[str, bytes]:
    """File name -> content, of the corpus proper."""
    folder = pathlib.Path(str(run.output.output), 'data')
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def batches(run: JobConfig) -> dict[str, bytes]:
    """Batch id -> its finished file."""
    return {path.stem: path.read_bytes() for path in sorted((work_dir(run) / 'batches').iterdir())}


def report_of(run: JobConfig) -> PrivacyReport:
    return PrivacyReport.from_json(pathlib.Path(str(run.output.output), run_files.REPORT).read_text())


def restricted_of(run: JobConfig) -> RestrictedReport:
    """Without what the time of workers went to, which no two runs have alike."""
    text = (work_dir(run) / 'restricted_report.json').read_text()
    return dataclasses.replace(RestrictedReport.from_json(text), workers=())


def rows_of(run: JobConfig) -> list[Row]:
    return pq.read_table(pathlib.Path(str(run.output.output), 'data')).to_pylist()


@pytest.fixture(scope='module', autouse=True)
def _one_model() -> Iterator[None]:
    with one_model():
        yield


@pytest.fixture(scope='module')
def first(tmp_path_factory: pytest.TempPathFactory) -> JobConfig:
    """One finished run that most tests look at or compare with."""
    run = config(tmp_path_factory.mktemp('first'))
    launch(run, [])
    return run


# --- What a run writes -----------------------------------------------------------


@pytest.mark.first
@pytest.mark.run
def test_files(first: JobConfig) -> None:
    assert {path.name for path in pathlib.Path(str(first.output.output)).iterdir()} == RELEASED
    assert set(corpus(first)) == {f'train-0000{shard}-of-00003.parquet' for shard in range(3)}
    assert {path.name for path in work_dir(first).iterdir()} == {
        'batches', 'config.toml', 'errors', 'losses', 'plan.json', 'restricted_report.html',
        'restricted_report.json', 'run.json', 'run.key', 'spending', 'workers',
    }  # fmt: skip
    assert os.listdir(work_dir(first) / 'errors') == []


@pytest.mark.run
def test_the_curator_learns_what_the_time_went_to(first: JobConfig) -> None:
    text = (work_dir(first) / 'restricted_report.json').read_text()
    found, released = RestrictedReport.from_json(text), report_of(first)
    (worker,) = found.workers
    assert worker.loading_seconds > 0 and worker.decoding_seconds > 0 and worker.programs > 0
    assert worker.decoding_tokens > released.corpus.private_tokens > 0
    assert worker.training_seconds == worker.embedding_seconds == 0
    assert found.texts_written == released.corpus.examples > 0
    # It stays there.
    for path in pathlib.Path(str(first.output.output)).rglob('*.*'):
        assert b'decoding_seconds' not in path.read_bytes() and b'decoding_tokens' not in path.read_bytes()


@pytest.mark.run
def test_the_folder_loads_as_a_dataset(
    first: JobConfig, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    loaded = datasets.load_dataset(str(first.output.output), cache_dir=str(tmp_path), split='train')
    assert loaded.to_list() == rows_of(first)


@pytest.mark.first
@pytest.mark.run
def test_every_planned_batch_emits_at_most_its_private_tokens(first: JobConfig) -> None:
    frame = pd.read_parquet(pathlib.Path(str(first.output.output), 'data'))
    tokens = frame.groupby('batch_id')['private_tokens'].sum()
    assert sorted(tokens.index) == ['0000-000000', '0000-000001', '0001-000000', '0001-000001']
    # Without a threshold every token is private, and a batch uses up its cap.
    assert (tokens == PRIVATE_TOKENS).all() and (frame['public_tokens'] == 0).all()
    assert set(frame.loc[frame['batch_id'].str.startswith('0001'), 'label']) == {'Delivery'}


@pytest.mark.run
def test_an_empty_input_has_the_same_batches(tmp_path: pathlib.Path, first: JobConfig) -> None:
    run = config(tmp_path, rows=[{'id': '1', 'text': ' ', 'label': 'Billing'}])
    launch(run, [])
    assert batches(run).keys() == batches(first).keys()
    assert {row['batch_id'] for row in rows_of(run)} == set(batches(first))
    assert restricted_of(run).contexts_per_batch == dict.fromkeys(batches(first), 0)


@pytest.mark.first
@pytest.mark.run
def test_the_report_is_the_accountants(first: JobConfig) -> None:
    found = report_of(first)
    rho = PRIVATE_TOKENS * 0.5 * (10 / (8 * 2)) ** 2
    assert found.rho_total == pytest.approx(rho)
    assert found.epsilon == pytest.approx(accounting.epsilon_from_rho(rho, 1e-3))
    assert (found.run_id, found.delta) == ('run', 1e-3)
    assert found.corpus.private_tokens == 4 * PRIVATE_TOKENS
    assert found.corpus.examples == len(rows_of(first))


@pytest.mark.first
@pytest.mark.run
def test_the_restricted_report_has_the_true_counts(first: JobConfig) -> None:
    found = restricted_of(first)
    key = RunKey.read(work_dir(first) / RUN_KEY)
    sizes = dict.fromkeys(batches(first), 0)
    for row in some_rows():
        sizes[batch_of(key, row, first)] += 1
    assert dict(found.contexts_per_batch) == sizes and len(set(sizes.values())) > 1
    assert found.records_read == 40 and found.rejected_by_reason == {}
    assert [one.true_count for one in found.true_counts_by_group] == [
        sum(row['label'] == label for row in some_rows()) for label in LABELS
    ]


def batch_of(key: RunKey, row: Row, run: JobConfig) -> str:
    record = Record(text=row['text'], label=row['label'], record_id=row['id'])
    placed = batching.place(key, record, methods.solve(run).batch_plan)
    assert placed is not None
    return str(placed[0])


@pytest.mark.first
@pytest.mark.run
def test_permissions(first: JobConfig) -> None:
    assert stat.S_IMODE((work_dir(first) / RUN_KEY).stat().st_mode) == 0o600
    assert stat.S_IMODE(work_dir(first).stat().st_mode) == 0o700


@pytest.mark.run
@pytest.mark.parametrize(
    'settings',
    [
        {'aggregate': 'mean'},
        {'aggregate': 'median', 'unit': 'user', 'unit_field': 'customer'},
        {
            'aggregate': 'difference', 'max_private_tokens': None, 'context_budget': 0.5,
            'max_batch_tokens': 6, 'clusters': 2, 'clustering_rho': 50.0, 'batches_per_label': None,
        },
    ],
    ids=['mean', 'median by user', 'difference in clusters'],
)  # fmt: skip
def test_a_sample_of_units_is_all_that_a_run_takes(tmp_path: pathlib.Path, settings: dict[str, Any]) -> None:
    run = config(tmp_path, sample_rate=0.5, **settings)
    launch(run, [])
    key = RunKey.read(work_dir(run) / RUN_KEY)
    records = [
        Record(
            text=row['text'], label=row['label'], record_id=row['id'],
            unit=row['customer'] if run.budget.unit == 'user' else None,
        )
        for row in some_rows()
    ]  # fmt: skip
    kept = [record for record in records if batching.is_sampled(key, record, 0.5)]
    assert 0 < len(kept) < len(records)
    found = restricted_of(run)
    assert (found.records_read, found.records_left_out) == (len(records), len(records) - len(kept))
    contexts = kept if run.budget.unit == 'example' else {record.unit for record in kept}
    assert sum(found.contexts_per_batch.values()) == len(contexts)
    page = (work_dir(run) / run_files.RESTRICTED_PAGE).read_text()
    assert f'<dt>Records that the sample left out</dt><dd>{len(records) - len(kept)}</dd>' in page
    released = report_of(run)
    assert released.settings['sample_rate'] == 0.5
    (said,) = [row for row in released.assumptions_enforced if 'sample' in row]
    assert 'each with probability 0.5, whole or not at all' in said
    assert 'No amplification by sampling is claimed' in said
    with pytest.raises(FileExistsError, match='--sample-rate was 0.5 and is 0.25'):
        folders.check(methods.solve(run.replace(sample_rate=0.25), launch=True))


# --- The same run again ----------------------------------------------------------


@pytest.mark.first
@pytest.mark.run
def test_order_and_sharding_of_the_input_do_not_matter(tmp_path: pathlib.Path, first: JobConfig) -> None:
    rows = some_rows()[::-1]
    for part in range(3):
        write_rows(tmp_path / 'in' / f'{part}.jsonl', rows[part::3])
    run = config(tmp_path, input=str(tmp_path / 'in' / '*.jsonl'))
    prepare_with_key_of(run, first)
    launch(run, [])
    assert corpus(run) == corpus(first)


@pytest.mark.first
@pytest.mark.run
def test_one_record_less_changes_one_batch_at_most(tmp_path: pathlib.Path, first: JobConfig) -> None:
    gone, *rest = some_rows()
    run = config(tmp_path, rows=rest)
    prepare_with_key_of(run, first)
    launch(run, [])
    its_batch = batch_of(RunKey.read(work_dir(first) / RUN_KEY), gone, first)
    before, after = batches(first), batches(run)
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} <= {its_batch}
    assert (
        restricted_of(run).contexts_per_batch[its_batch] + 1
        == (restricted_of(first).contexts_per_batch[its_batch])
    )


@pytest.mark.run
def test_another_key_gives_another_corpus(tmp_path: pathlib.Path, first: JobConfig) -> None:
    run = config(tmp_path)
    launch(run, [])
    assert (work_dir(run) / RUN_KEY).read_bytes() != (work_dir(first) / RUN_KEY).read_bytes()
    # 32 tokens agree by chance less often than once in a billion runs.
    assert corpus(run) != corpus(first)


# --- The ledger ------------------------------------------------------------------


def charged_config(folder: pathlib.Path, epsilon: float, **settings: Any) -> JobConfig:
    """A small run on a dataset whose budget is `epsilon` at delta 1e-3."""
    path = str(folder / 'ledger.db')
    ledger.Ledger.create(path).add_dataset('visits', unit='example', delta=1e-3, epsilon=epsilon)
    return config(folder, dataset='visits', ledger=path, **settings)


@pytest.mark.first
@pytest.mark.run
def test_a_run_is_charged_in_full_before_its_first_step(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = charged_config(tmp_path, 100.0)

    def fail(*_: object) -> None:
        account = ledger.Ledger.open(str(run.budget.ledger)).account('visits')
        assert [(one.run_id, one.state) for one in account.runs] == [('run', 'reserved')]
        assert account.rho_spent == accounting.generation_rho(methods.solve(run).params)
        raise OSError('the machine is gone')

    monkeypatch.setattr(job, 'build', fail)
    with pytest.raises(OSError, match='the machine is gone'):
        launch(run, [])
    monkeypatch.undo()
    # Charged until it is resumed, which is free: and then it is the run that it would have been.
    spent = ledger.Ledger.open(str(run.budget.ledger)).account('visits').rho_spent
    launch(run, [])
    account = ledger.Ledger.open(str(run.budget.ledger)).account('visits')
    assert account.rho_spent == spent
    assert [one.state for one in account.runs] == ['settled']
    entry = report_of(run).ledger
    assert entry == account.entry(account.runs[0])
    # The address of the ledger is nothing to the public, its name for the records is.
    released = b''.join(path.read_bytes() for path in pathlib.Path(str(run.output.output)).glob('*.*'))
    assert b'visits' in released and b'ledger.db' not in released


def test_the_ledger_tells_nothing_of_the_input(tmp_path: pathlib.Path) -> None:
    # One run twice, but for its key: a reader who knows all the rest cannot test a guess of it.
    plain, found = set(), set()
    for name in ('one.db', 'other.db'):
        opened = ledger.Ledger.create(str(tmp_path / name))
        opened.add_dataset('visits', unit='example', delta=1e-3, epsilon=100.0)
        run = config(tmp_path, dataset='visits', ledger=str(tmp_path / name))
        folders.prepare(methods.solve(run, launch=True))
        text = json.dumps(identity.fingerprint(methods.solve(run, launch=True)), sort_keys=True)
        plain.add(hashlib.sha256(text.encode()).hexdigest())
        charge.reserve(opened, methods.solve(run, launch=True))
        found.add(opened.account('visits').runs[0].identity)
        shutil.rmtree(run.output.curator)
        shutil.rmtree(str(run.output.output))
    assert len(plain) == 1 and len(found) == 2 and not plain & found


@pytest.mark.run
def test_workers_import_no_database() -> None:
    # They unpickle functions of `pipeline.run.render`, in threads that load the model meanwhile.
    code = "import sys, pipeline.job, pipeline.run.render; sys.exit('sqlalchemy' in sys.modules)"
    root = pathlib.Path(job.__file__).parents[1]
    assert subprocess.run([sys.executable, '-c', code], cwd=root).returncode == 0


@pytest.mark.run
def test_the_report_sums_up_the_runs_before_it(tmp_path: pathlib.Path) -> None:
    first_run = charged_config(tmp_path, 100.0)
    with pytest.MonkeyPatch.context() as patch:
        # It died before the ledger knew of its end: else it would not be resumed without its release.
        patch.setattr(charge, 'settle', lambda *_: None)
        launch(first_run, [])
    second = first_run.replace(output=str(tmp_path / 'second'), run_id='second')
    launch(second, [])
    entry = report_of(second).ledger
    assert entry is not None and entry.run_number == 2
    assert entry.rho_after == 2 * accounting.generation_rho(methods.solve(first_run).params)
    assert entry.epsilon_after == accounting.epsilon_from_rho(entry.rho_after, 1e-3)
    # A later run changes nothing about what an earlier one says when it is resumed.
    before = (pathlib.Path(str(first_run.output.output)) / run_files.REPORT).read_bytes()
    shutil.rmtree(str(first_run.output.output))
    launch(first_run, [])
    assert (pathlib.Path(str(first_run.output.output)) / run_files.REPORT).read_bytes() == before


@pytest.mark.run
def test_a_charged_name_with_another_key_is_refused(tmp_path: pathlib.Path) -> None:
    run = charged_config(tmp_path, 100.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charge, 'settle', lambda *_: None)
        launch(run, [])
    shutil.rmtree(run.output.curator)
    shutil.rmtree(str(run.output.output))
    with pytest.raises(ValueError, match='two corpora would be released for one price'):
        launch(run, [])
    assert not list(pathlib.Path(str(run.output.output), 'data').iterdir())


@pytest.mark.run
def test_a_settled_run_whose_report_is_missing_is_not_resumed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = charged_config(tmp_path, 100.0)
    launch(run, [])
    account = ledger.Ledger.open(str(run.budget.ledger)).account('visits')
    output, kept = pathlib.Path(str(run.output.output)), tmp_path / 'kept'
    before = {path: path.read_bytes() for path in output.rglob('*') if path.is_file()}
    launch(run, [])  # whole: a repetition writes nothing
    assert {path: path.read_bytes() for path in output.rglob('*') if path.is_file()} == before
    for lost in (output, output / run_files.REPORT):
        lost.rename(kept)
        with pytest.raises(ValueError, match='A finished run is not resumed: restore its release') as refused:
            launch(run, [])
        assert 'Message' not in str(refused.value) and not lost.exists()
        kept.rename(lost)
    launch(run, [])
    assert ledger.Ledger.open(str(run.budget.ledger)).account('visits') == account
    # The open twin resumes it, and would release whatever it drew.
    output.rename(kept)
    monkeypatch.setattr(charge, '_refuse_lost_release', lambda *_: None)
    launch(run, [])
    assert (output / run_files.REPORT).exists()


# --- Refusals --------------------------------------------------------------------


def test_local_paths_are_absolute_before_they_travel_to_workers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / 'in.jsonl', some_rows())
    run = config(tmp_path, input='in.jsonl, more-*.jsonl, gs://bucket/*.csv', output='out', run_id=None)
    found = methods.solve(run, launch=True).config
    assert found.input.input == f'{tmp_path}/in.jsonl,{tmp_path}/more-*.jsonl,gs://bucket/*.csv'
    assert (found.output.output, found.output.work_dir) == (f'{tmp_path}/out', f'{tmp_path}/out.curator')
    method = found.method
    assert (found.output.run_id, method.prompt, method.checkpoint) == ('out', run.method.prompt, None)
    assert methods.solve(found, launch=True).config == found
    # Told from another folder by other words, it is the same run.
    folders.prepare(methods.solve(config(tmp_path, input='in.jsonl', output='out', run_id=None), launch=True))
    (tmp_path / 'elsewhere').mkdir()
    monkeypatch.chdir(tmp_path / 'elsewhere')
    folders.prepare(
        methods.solve(config(tmp_path, input='../in.jsonl', output='../out', run_id='out'), launch=True)
    )


@pytest.mark.run
def test_another_runs_output_is_refused(tmp_path: pathlib.Path, first: JobConfig) -> None:
    run = first.replace(work_dir=str(tmp_path / 'work'))
    with pytest.raises(FileExistsError, match="this run's, got output="):
        launch(run, [])
    assert not (tmp_path / 'work').exists()


def test_a_work_directory_with_other_files_is_refused(tmp_path: pathlib.Path) -> None:
    run = config(tmp_path)
    work_dir(run).mkdir()
    (work_dir(run) / 'thesis.txt').write_text('mine')
    with pytest.raises(FileExistsError, match="this run's, got work_dir="):
        launch(run, [])
    assert os.listdir(work_dir(run)) == ['thesis.txt']


@pytest.mark.parametrize(
    'options, match',
    [
        (['--no_such_option=1'], 'no_such_option'),
        (['stray'], 'stray'),
        (['--experiments=enable_data_sampling'], 'samples elements'),
        (['--experiments=a', '--experiments=b,enable_always_on_exception_sampling'], 'samples elements'),
    ],
)
def test_beam_options_are_checked_before_a_folder_is_made(
    tmp_path: pathlib.Path, options: list[str], match: str
) -> None:
    run = config(tmp_path)
    with pytest.raises(ValueError, match=match):
        launch(run, options)
    assert not work_dir(run).exists() and not pathlib.Path(str(run.output.output)).exists()


def test_a_missing_model_or_column_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match='checkpoint='):
        launch(config(tmp_path, checkpoint=str(tmp_path / 'none')), [])
    with pytest.raises(ValueError, match="'body'") as caught:
        launch(config(tmp_path, text_field='body'), [])
    assert CANARY not in str(caught.value)


@pytest.mark.run
@pytest.mark.parametrize('name', [RUN_KEY, run_files.PLAN])
def test_finished_batches_without_their_key_or_plan_are_refused(
    tmp_path: pathlib.Path, first: JobConfig, name: str
) -> None:
    run = config(tmp_path)
    folders.prepare(methods.solve(run, launch=True))
    shutil.copytree(work_dir(first) / 'batches', work_dir(run) / 'batches', dirs_exist_ok=True)
    folders.prepare(methods.solve(run, launch=True))  # whole: accepted
    (work_dir(run) / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        launch(run, [])
    assert not (work_dir(run) / name).exists()


# --- Nothing private gets out ----------------------------------------------------


def leaks(folder: pathlib.Path) -> list[str]:
    """Files under a folder whose name or content holds a canary, Parquet decompressed."""
    found = []
    for path in sorted(folder.rglob('*')):
        content = b''
        if path.is_file():
            content = path.read_bytes()
            if path.suffix == '.parquet':
                content += pd.read_parquet(path).to_json().encode()
        if CANARY in path.name or CANARY.encode() in content:
            found.append(path.name)
    return found


def messages(caplog: pytest.LogCaptureFixture) -> str:
    """Everything that was logged, with arguments and tracebacks."""
    return '\n'.join(
        f'{record.getMessage()} {record.__dict__} '
        f'{"".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""}'
        for record in caplog.records
    )


def test_the_search_finds_what_it_looks_for(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """A search that finds nothing anywhere would pass every test below."""
    pd.DataFrame({'text': [CANARY]}).to_parquet(tmp_path / 'a.parquet', compression='zstd')
    (tmp_path / f'{CANARY}.txt').write_text('')
    (tmp_path / 'b.html').write_text(f'<p>{CANARY}')
    assert len(leaks(tmp_path)) == 3
    logging.getLogger('any').warning('%s', CANARY)
    assert CANARY in messages(caplog)


@pytest.mark.run
@pytest.mark.parametrize('unit', ['example', 'user', 'clusters'])
def test_bad_rows_stop_nothing_and_leave_no_trace(
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    unit: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / 'in.jsonl'
    write_rows(path, some_rows())
    bad = {
        reason.name.lower(): line
        for reason, line in BAD_LINES.items()
        if unit == 'user' or reason is not read.Reason.MISSING_UNIT
    }
    with path.open('ab') as file:
        file.write(b'\n'.join(bad.values()) + b'\n')
    # Ends before its checksum: what follows its one record cannot be read.
    cut = tmp_path / 'cut.jsonl.gz'
    cut.write_bytes(zlib.compress(json.dumps(some_rows()[0]).encode() + b'\n', wbits=31)[:-4])
    per_unit: dict[str, Any] = {
        'example': {},
        'user': {'unit': 'user', 'unit_field': 'customer'},
        'clusters': {'clusters': 2, 'batches_per_label': None},
    }[unit]
    run = config(
        tmp_path, input=f'{path},{cut}', max_record_bytes=1_000, keep_rejected=True, **per_unit
    )  # fmt: skip
    result = launch(run, [])

    counted = dict(restricted_of(run).rejected_by_reason)
    assert counted.keys() == bad.keys() | {'unreadable_rest'}
    kept = (work_dir(run) / 'rejected.jsonl').read_text()
    assert kept.count(CANARY) > len(bad) / 2 and len(kept.splitlines()) == sum(counted.values())
    # Nothing of it anywhere else: not in the folder, the logs, the screen or the metrics.
    assert leaks(pathlib.Path(str(run.output.output))) == []
    assert leaks(work_dir(run)) == ['rejected.jsonl']
    said = messages(caplog) + ''.join(capfd.readouterr())
    assert CANARY not in said
    found = result.metrics().query()
    assert found['counters'] == [] and found['distributions'] == [] and found['gauges'] == []


@pytest.mark.first
@pytest.mark.run
def test_nothing_private_is_in_what_a_good_run_releases(first: JobConfig) -> None:
    assert leaks(pathlib.Path(str(first.output.output))) == []
    assert leaks(work_dir(first)) == []
    for name in RELEASED - {'data'}:
        text = pathlib.Path(str(first.output.output), name).read_text()
        for path in (str(first.input.input), str(work_dir(first)), os.path.dirname(str(first.output.output))):
            assert path not in text, 'a released file tells the layout of the machine'


@pytest.mark.first
@pytest.mark.run
def test_a_failure_keeps_its_details_with_the_curator(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)

    def fail(_: BatchGenerator, batch: Batch, *arguments: Any) -> Any:
        raise KeyError(next(text for context in batch.contexts for text in context.texts))

    monkeypatch.setattr(BatchGenerator, 'generate', fail)
    run = config(tmp_path)
    with pytest.raises(RuntimeError) as caught:
        launch(run, [])
    assert "step='Generate/Decode'" in str(caught.value)
    assert re.search(r'Expected batch \d{4}-\d{6} to decode, got error=KeyError\.', str(caught.value))
    shown = ''.join(traceback.format_exception(caught.value))
    assert CANARY not in shown + messages(caplog) + ''.join(capfd.readouterr())
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    details = [name for name in leaks(work_dir(run)) if name.startswith('00')]
    assert details and set(details) <= set(os.listdir(work_dir(run) / 'errors'))
    assert leaks(pathlib.Path(str(run.output.output))) == []
    assert re.findall(r'errors/(run\.\w+\.txt)', str(caught.value))[0] in os.listdir(work_dir(run) / 'errors')


@pytest.mark.run
def test_a_failure_of_another_step_is_not_quoted_either(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step over records that should never fail, failing with a record in its text."""

    def fail(key: RunKey, record: Record, plan: Any) -> Any:
        raise ValueError(f"{record.text} [while running '{record.text}']")

    monkeypatch.setattr(batching, 'place', fail)
    run = config(tmp_path)
    with pytest.raises(RuntimeError, match="step='Generate/Assign/KeyByBatch'") as caught:
        launch(run, [])
    assert 'may quote records' in str(caught.value)
    assert CANARY not in ''.join(traceback.format_exception(caught.value))
    assert len(leaks(work_dir(run) / 'errors')) == 1


@pytest.mark.parametrize('settings', [{}, {'clusters': 2, 'batches_per_label': None}], ids=str)
def test_the_pipeline_itself_holds_no_record_and_no_key(
    tmp_path: pathlib.Path, settings: dict[str, Any]
) -> None:
    """Runners show a pipeline's options and stage its functions."""
    run = config(tmp_path, **settings)
    solved = methods.solve(run, launch=True)
    prepared = graph.prepare(solved)
    folders.prepare(solved)
    options = beam_options(run.runner.runner, [])
    root = beam.Pipeline(options=options)
    job.build(root, solved, prepared)
    proto = unpacked(root.to_runner_api().SerializeToString())
    # The search sees into the functions: this stands in the settings of the decoder.
    assert b'max_prompt_tokens' in proto and b'Generate/Decode' in proto
    secret = (work_dir(run) / RUN_KEY).read_bytes()
    shown = proto + repr(options.get_all_options()).encode()
    assert CANARY.encode() not in shown
    for form in (secret, secret.hex().encode(), base64.b64encode(secret)):
        assert form not in shown


# --- Other kinds of runs ---------------------------------------------------------


@pytest.mark.run
def test_sparse_vector(tmp_path: pathlib.Path) -> None:
    # A threshold that no distance passes: every token is public, up to the cap on all tokens.
    run = config(tmp_path, threshold=50.0, threshold_noise_scale=0.1, max_batch_tokens=12)
    launch(run, [])
    found = report_of(run)
    assert found.corpus.private_tokens == 0 and found.corpus.public_tokens == 4 * 12
    per_token = 0.5 * (10 / (8 * 2)) ** 2 + 2 / (8 * 0.1) ** 2
    assert found.rho_total == pytest.approx(PRIVATE_TOKENS * per_token), 'the cap is charged, not the use'


CLUSTERED: dict[str, Any] = {
    'batches_per_label': None, 'clusters': 2, 'clustering_rho': 50.0, 'batch_size': 4,
    'aggregate': 'difference', 'accounting': 'worst-case',
}  # fmt: skip


@pytest.mark.run
def test_clusters_are_drawn_once_charged_and_shown(tmp_path: pathlib.Path) -> None:
    run = config(tmp_path, **CLUSTERED)
    launch(run, [])
    plan = json.loads((work_dir(run) / run_files.PLAN).read_text())
    clustering = json.loads((work_dir(run) / run_files.CLUSTERING).read_text())
    assert plan['clustering'] == clustering and plan['contexts_rho'] == clustering['rho'] == 25.0
    found = report_of(run)
    assert isinstance(found.method, Predicted) and found.method.clusters is not None
    groups = [(group.label, group.cluster) for group in found.plan]
    assert groups == [
        (label, kept) for label, both in zip(LABELS, clustering['kept'], strict=True) for kept in both
    ]
    assert [list(cells.counts) for cells in found.method.clusters.center_counts] == clustering['noisy_counts']
    assert [group.noisy_count for group in found.plan] == plan['noisy_counts']
    assert found.rho_total == pytest.approx(50.0 + PRIVATE_TOKENS * found.rho_per_private_token)
    assert len(batches(run)) == sum(plan['batches_per_group'])
    restricted = restricted_of(run)
    assert sum(restricted.contexts_per_batch.values()) == 40
    assert [
        (one.restricted_label, one.restricted_cluster) for one in restricted.true_counts_by_group
    ] == groups
    # A resumed run reads what it drew, and writes what it wrote.
    before = corpus(run)
    shutil.rmtree(str(run.output.output))
    launch(run, [])
    assert json.loads((work_dir(run) / run_files.CLUSTERING).read_text()) == clustering
    assert corpus(run) == before


@pytest.mark.run
def test_embeddings_go_no_further_than_the_choice_of_a_cluster(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    run = config(tmp_path, unit='user', unit_field='customer', **CLUSTERED)
    launch(run, [])
    embedder = graph.cluster_settings(methods.solve(run, launch=True)).load_embedder()
    vectors = embedder.embed([row['text'] for row in some_rows()])
    assert vectors.any(), 'the embedder knows none of the words'
    said = messages(caplog) + ''.join(capfd.readouterr())
    written = [
        path for top in (work_dir(run), pathlib.Path(str(run.output.output))) for path in top.rglob('*')
    ]
    everything = b'\0'.join(path.read_bytes() for path in written if path.is_file()) + said.encode()
    for vector in vectors[vectors.any(axis=1)]:
        assert vector.tobytes()[:64] not in everything
        assert str(float(vector[vector.argmax()])).encode() not in everything


@pytest.mark.run
def test_a_lost_clustering_is_refused(tmp_path: pathlib.Path) -> None:
    run = config(tmp_path, **CLUSTERED)
    launch(run, [])
    (work_dir(run) / run_files.CLUSTERING).unlink()
    with pytest.raises(FileNotFoundError, match=run_files.CLUSTERING):
        launch(run, [])


def test_centres_of_another_embedder_are_refused_before_a_folder_is_made(tmp_path: pathlib.Path) -> None:
    run = config(tmp_path, **CLUSTERED, centers=str(BUNDLED / 'centers'), embedder='decoder')
    with pytest.raises(ValueError, match='embedder of the centres'):
        launch(run, [])
    assert not work_dir(run).exists() and not pathlib.Path(str(run.output.output)).exists()


def check_not_shown(run: JobConfig, numbers: Iterable[float], shown: str) -> None:
    """No number that depends on the records is in what is released or shown.

    Numbers are compared to four significant digits. Those that three digits tell are left out: a page has
    public ones of these, such as an epsilon of 0.994, which a share of a budget may happen to equal.
    """
    private = {f'{value:.4g}' for value in numbers if float(f'{value:.3g}') != float(f'{value:.4g}')}
    for name in RELEASED - {'data'}:
        shown += pathlib.Path(str(run.output.output), name).read_text()
    # Places of a picture and sizes of a page's style are numbers too.
    shown = re.sub(r'<(svg|style).*?</\1>', '', shown, flags=re.DOTALL)
    public = {f'{float(number):.4g}' for number in re.findall(r'\d+\.\d+(?:e[-+]?\d+)?', shown)}
    assert private and public and private & public == set()


@pytest.mark.run
@pytest.mark.parametrize('threshold', [None, 0.5])
def test_the_loss_of_a_median_run_stays_with_the_curator(
    tmp_path: pathlib.Path, threshold: float | None, capfd: pytest.CaptureFixture[str]
) -> None:
    tested = {} if threshold is None else {'threshold': threshold, 'threshold_noise_scale': 0.3}
    run = config(tmp_path, aggregate='median', **tested)
    launch(run, [])
    params = methods.solve(run).params
    losses = [read_facts(str(work_dir(run)), batch_id, ex_post.BatchLoss) for batch_id in batches(run)]
    found = restricted_of(run).losses
    assert found is not None and found.run_ex_post_epsilon == max(of.epsilon(params) for of in losses) > 0
    assert found.run_paper_epsilon >= found.run_ex_post_epsilon
    tokens = sum(sum(loss.is_private) for loss in losses)
    released = report_of(run)
    assert released.corpus.private_tokens == tokens
    assert (released.statement, released.epsilon, released.rho_total) == ('ex-post', None, None)
    numbers = {value for loss in losses for value in (*loss.minus_log_alpha, *loss.log_beta)}
    numbers |= {loss.epsilon(params) for loss in losses} | {loss.paper_epsilon(params) for loss in losses}
    check_not_shown(run, numbers, ''.join(capfd.readouterr()))
    assert 'RESTRICTED' in (work_dir(run) / 'restricted_report.html').read_text().upper()
    # Losses are read back with their batches.
    before = corpus(run), restricted_of(run)
    shutil.rmtree(str(run.output.output))
    (work_dir(run) / 'restricted_report.json').unlink()
    launch(run, [])
    assert (corpus(run), restricted_of(run)) == before


@pytest.mark.first
@pytest.mark.run
def test_what_contexts_spend_stays_with_the_curator(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A budget that runs out within the stream: the text goes on, and nothing of it shows outside."""
    individual = {
        'aggregate': 'difference',
        'max_private_tokens': None,
        'clip_bound': 1.0,
        'context_budget': 0.05,
    }
    run = config(tmp_path, **individual, max_batch_tokens=24, reference_rounds=1)
    launch(run, [])
    spending = [read_facts(str(work_dir(run)), batch_id, BatchSpending) for batch_id in batches(run)]
    found = restricted_of(run).spending
    assert found is not None and restricted_of(run).losses is None
    assert set(found.spending_by_batch) == set(batches(run))
    spent = [value for batch in spending for value in batch.spent]
    assert 0 < max(spent) <= 0.05 and max(spent) > 0.04, 'the budget is not what ends the votes'
    assert any(batch.first_silent is not None for batch in spending)
    assert len(spent) == sum(restricted_of(run).contexts_per_batch.values())
    # A batch writes up to its public cap, whoever votes, and all of it is private.
    released = report_of(run)
    assert {len(batch.voters) for batch in spending} == {24}
    assert (released.corpus.private_tokens, released.corpus.public_tokens) == (4 * 24, 0)
    assert released.rho_total == 0.05 and released.omega == methods.solve(run).params.omega
    shares = [share for batch in found.spending_by_batch.values() for share in (batch.mean_share_spent,)]
    check_not_shown(run, (*spent, *shares), ''.join(capfd.readouterr()))
    # Spending is read back with its batch, and a batch that is decoded again spends the same.
    before = corpus(run), restricted_of(run)
    shutil.rmtree(str(run.output.output))
    (work_dir(run) / 'restricted_report.json').unlink()
    (work_dir(run) / 'batches' / f'{spending[0].batch_id}.json').unlink()
    launch(run, [])
    assert (corpus(run), restricted_of(run)) == before
