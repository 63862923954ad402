"""The whole job with --method tune-refine, and votes on texts of a released adapter, on a tiny Gemma."""

import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from models.finetuning.adapter import from_bytes
from models.privacy import text_votes
from models.privacy.accounting import subsampled
from models.privacy.report import TunedVoted, Voted
from models.privacy.tuned_votes import TunedVotesParams
from models.sampling.settings import AdapterFile
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.methods.tune_refine import graph
from pipeline.settings.job_config import JobConfig
from tests.documents import check_document
from tests.launched import launch, report_of, rows_of
from tests.models.finetuning import tiny
from tests.samples import write_rows
from transforms import run_files
from transforms.adapters import read_adapter
from transforms.finetune import train

pytestmark = pytest.mark.run

LABELS = ('billing', 'delivery')
WORDS = {
    'billing': ('invoice', 'refund', 'payment', 'charged'),
    'delivery': ('parcel', 'courier', 'late', 'road'),
}
CANARY = 'xqzzarn'
REGEX = '|'.join(f'({any_word})( ({any_word})){{1,2}}' for any_word in map('|'.join, WORDS.values()))
ROWS = [
    {
        'text': f'{WORDS[label][number % 4]} {WORDS[label][(number + 1) % 4]} {CANARY}',
        'label': label, 'id': str(number), 'user': f'user {number % 13}',
    }
    for number in range(40) for label in [LABELS[number % 2]]
]  # fmt: skip
OF_RECORDS: dict[str, Any] = {
    'label_field': 'label', 'labels': LABELS, 'record_id_field': 'id', 'records': 40, 'delta': 1e-2,
    'model': 'tiny', 'prompt': 'pretrained', 'dtype': 'float32', 'shards': 1, 'max_prompt_tokens': 32,
    'max_example_tokens': 40, 'lora_rank': 2, 'tuning_steps': 3, 'expected_batch_size': 8,
    'micro_batch_size': 8, 'temperature': 3.0, 'top_p': 1.0, 'regex': REGEX,
}  # fmt: skip


@pytest.fixture(autouse=True, scope='module')
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


def config(folder: pathlib.Path, **changed: Any) -> JobConfig:
    given = OF_RECORDS | {
        'method': 'tune-refine', 'input': str(folder / 'in.jsonl'), 'output': str(folder / 'out'),
        'epsilon': 30.0, 'candidates': 24, 'examples': 12, 'dataset': 'mail',
        'ledger': str(folder / 'ledger.db'),
    }  # fmt: skip
    return job_config(**(given | changed))


def filled(folder: pathlib.Path) -> pathlib.Path:
    write_rows(folder / 'in.jsonl', ROWS)
    Ledger.create(str(folder / 'ledger.db')).add_dataset('mail', unit='example', delta=1e-2, epsilon=500.0)
    return folder


@pytest.fixture(scope='module')
def first(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of a finished run."""
    folder = filled(tmp_path_factory.mktemp('first'))
    launch(config(folder), [])
    return folder


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob('*') if path.is_file()}


@pytest.mark.first
def test_texts_of_the_adapter_stay_that_records_favour(first: pathlib.Path) -> None:
    rows, report = rows_of(first / 'out'), report_of(first / 'out')
    assert 2 <= len(rows) <= 12 and {row['label'] for row in rows} <= set(LABELS)
    assert {(row['round'], row['parents'], row['truncated']) for row in rows} == {(1, '', False)}
    assert all(
        set(row['text'].split()) <= {word for words in WORDS.values() for word in words} for row in rows
    )
    released = {path.name for path in (first / 'out' / 'rounds').iterdir()}
    assert released == {'candidates-01.json', 'votes-01.json'}
    # The adapter stays with the curator, and no record is in what is released.
    assert not (first / 'out' / run_files.ADAPTER_FOLDER).exists()
    assert (first / 'out.curator' / run_files.ADAPTER_TENSORS).exists()
    assert not any(CANARY.encode() in data for data in contents(first / 'out').values())
    check_document('privacy-report', (first / 'out' / run_files.REPORT).read_text())
    assert isinstance(report.method, TunedVoted) and report.units == 40


@pytest.mark.first
def test_both_stages_share_epsilon_and_are_charged_once(first: pathlib.Path) -> None:
    report = report_of(first / 'out')
    params = report.method.mechanism
    assert isinstance(params, TunedVotesParams)
    assert report.epsilon == params.epsilon(1e-2) and 29.5 < report.epsilon <= 30.0
    noise = text_votes.solve_noise_scale(epsilon=18.0, delta=1e-2, rounds=1, nearest=params.nearest)
    assert params.noise_scale == noise
    assert subsampled.epsilon_of_event(params.tuning.event, 1e-2) < 30.0
    assert [stage.name for stage in report.stages] == ['Fine-tuning', 'Votes on texts']
    assert report.reproduction.count('together.compose') == 2
    (charged,) = Ledger.open(str(first / 'ledger.db')).account('mail').runs
    assert set(charged.cost.stages) == {'noisy_counts', 'fine-tuning', 'votes_on_texts'}
    assert charged.cost.stages['fine-tuning'] == params.tuning.event
    assert charged.cost.stages['votes_on_texts'] == params.votes.event
    # The same command again changes and costs nothing.
    before = contents(first / 'out')
    launch(config(first), [])
    assert contents(first / 'out') == before
    assert len(Ledger.open(str(first / 'ledger.db')).account('mail').runs) == 1


@pytest.mark.first
def test_pasted_lines_print_epsilon(first: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(first / 'out')
    exec(report.reproduction, {})
    assert capsys.readouterr().out == f'epsilon = {report.epsilon:.10g}\n'


@pytest.mark.parametrize(
    'kept', [('adapter', 'tuning/'), ('adapter', 'tuning/', 'batches/'), ('embeddings/', 'rounds/')], ids=str
)
def test_a_run_that_died_anywhere_goes_on_to_the_same_corpus(
    first: pathlib.Path, kept: tuple[str, ...]
) -> None:
    before, rounds = contents(first / 'out'), contents(first / 'out.curator' / 'rounds')
    always = (run_files.RUN_KEY, run_files.RUN, run_files.CONFIG, run_files.PLAN)
    for folder in ('out', 'out.curator'):
        for name in contents(first / folder):
            if folder == 'out' or not name.startswith((*always, *kept)):
                (first / folder / name).unlink()
    if 'tuning/' not in kept:
        # A checkpoint is a folder: without its files it is damaged, and no training that has not begun.
        shutil.rmtree(first / 'out.curator' / run_files.TUNING_FOLDER)
    # A ledger in which no run is settled.
    (first / 'ledger.db').unlink()
    filled(first)
    with pytest.MonkeyPatch.context() as patch:
        if 'adapter' in kept:
            patch.setattr(train, '_train', lambda *_: pytest.fail('An adapter that is there is trained anew'))
        launch(config(first), [])
    assert contents(first / 'out') == before
    assert contents(first / 'out.curator' / 'rounds') == rounds


def test_users_train_and_vote_as_one_unit_each(tmp_path: pathlib.Path) -> None:
    folder = filled(tmp_path)
    run = config(
        folder, unit='user', unit_field='user', records=13, examples_per_context=3, dataset=None, ledger=None
    )
    launch(run, [])
    report = report_of(folder / 'out')
    assert (report.unit, report.method.mechanism.examples_per_context) == ('user', 3)
    assert report.method.mechanism.votes.event.event.cells == 3 * report.method.mechanism.nearest
    assert 'they make one gradient, and have one vote' in report.unit_of_privacy


def test_records_of_any_script_and_a_label_of_nobody_have_their_treatment(tmp_path: pathlib.Path) -> None:
    """No words, scripts without spaces, letters that the tokens spell byte by byte, and JSON."""
    folder = filled(tmp_path)
    strange = (
        '?!',
        '发票已付款请确认',
        'พัสดุมาช้ามาก',
        '\U00010330\U00010331\U00010332',
        '{"a": [1, "b"]}',
        '\u202ea\u0301',
    )
    rows = [*ROWS, *(ROWS[0] | {'text': text, 'id': f's{place}'} for place, text in enumerate(strange))]
    write_rows(folder / 'in.jsonl', [*rows, ROWS[0] | {'text': ' \t', 'id': 'blank'}])
    launch(config(folder, labels=(*LABELS, 'nobody'), dataset=None, ledger=None), [])
    restricted = json.loads(
        (folder / 'out.curator' / run_files.RESTRICTED_REPORT).read_text(encoding='utf-8')
    )
    assert restricted['records_read'] == len(rows) + 1
    assert restricted['rejected_by_reason'] == {'blank_text': 1}
    # Each trains as it is, whatever the structure of the texts.
    assert restricted['records_outside_structure'] == len(rows)
    # Noise alone stands in the cells of the label without a record, so it gets few texts or none.
    texts = rows_of(folder / 'out')
    assert texts and sum(row['label'] == 'nobody' for row in texts) < len(texts) / 2
    assert not any(
        text.encode() in data for text in strange[1:] for data in contents(folder / 'out').values()
    )


def test_settings_that_do_not_go_together_are_refused(tmp_path: pathlib.Path) -> None:
    for changed, said in (
        ({'epsilon': None, 'dataset': None, 'ledger': None}, 'Expected epsilon with method'),
        ({'records': None}, 'declared number of units for votes'),
        ({'candidates': 8}, 'candidates >= examples=12'),
        ({'vote_share': 1.0}, '0 < vote_share < 1'),
        ({'expected_batch_size': 80}, 'lower --expected-batch-size|units=40'),
        ({'vote_noise': 3.0}, 'follows from --epsilon and --vote-share'),
        ({'adapter': 'somewhere'}, 'The run trains its own'),
    ):
        with pytest.raises(ValueError, match=said):
            methods.solve(config(tmp_path, **changed))


def test_workers_get_no_ledger(tmp_path: pathlib.Path) -> None:
    run = methods.solve(config(filled(tmp_path)), launch=True).for_workers()
    for part in (run, run.tuning, run.voting):
        assert part.budget.ledger is part.budget.dataset is None
    prepared = graph.prepare(run)
    assert prepared.tuning.params == run.params.tuning and prepared.voting.params == run.params.votes
    assert prepared.voting.source is not None and prepared.tuning.mismatch_weight == 0


# --- Votes on texts of a released adapter -------------------------------------------


@pytest.fixture(scope='module')
def trained(first: pathlib.Path) -> pathlib.Path:
    """A released adapter."""
    given = {
        name: value for name, value in OF_RECORDS.items() if name not in ('temperature', 'top_p', 'shards')
    }
    run = job_config(
        method='fine-tune', input=str(first / 'in.jsonl'), output=str(first / 'adapter'), epsilon=9.0,
        examples_per_label=0, **given,
    )  # fmt: skip
    launch(run, [])
    return first / 'adapter'


def voting(first: pathlib.Path, output: pathlib.Path, **changed: Any) -> JobConfig:
    of_training = ('lora_rank', 'tuning_steps', 'expected_batch_size', 'prompt', 'max_prompt_tokens',
                   'max_example_tokens')  # fmt: skip
    given = {name: value for name, value in OF_RECORDS.items() if name not in of_training}
    given |= {
        'method': 'evolve', 'input': str(first / 'in.jsonl'), 'output': str(output), 'epsilon': 12.0,
        'candidates': 16, 'examples': 8, 'unvoted': 0,
    }  # fmt: skip
    return job_config(**(given | changed))


def test_records_vote_on_texts_of_a_released_adapter(
    first: pathlib.Path, trained: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    launch(voting(first, tmp_path / 'out', adapter=str(trained)), [])
    rows, report = rows_of(tmp_path / 'out'), report_of(tmp_path / 'out')
    assert rows and isinstance(report.method, Voted) and report.method.mechanism.rounds == 1
    assert [release.run_id for release in report.releases] == ['adapter']
    assert (report.epsilon or 0.0) > (report.epsilon_of_run or 0.0)
    (said,) = (row for row in report.assumptions_enforced if 'SHA-256' in row)
    assert "the adapter that the run 'adapter' released" in said
    assert not any('public prompts' in row for row in report.assumptions_enforced)
    # Further rounds ask for fresh texts, since instructions show none.
    launch(voting(first, tmp_path / 'two', adapter=str(trained), rounds=2, children=6, unvoted=4), [])
    assert {row['parents'] for row in rows_of(tmp_path / 'two')} == {''}


def test_an_adapter_that_does_not_go_with_the_run_is_refused(
    first: pathlib.Path, trained: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for changed, said in (
        ({'labels': ('billing', 'other')}, 'Expected the labels of the adapter'),
        ({'shots': 2}, 'no shots with adapter'),
        ({'corpus_description': 'Mail.'}, 'Expected no corpus_description with an adapter'),
        ({'adapter': str(tmp_path)}, 'folder of a released adapter'),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=said):
            methods.solve(voting(first, tmp_path / 'out', **({'adapter': str(trained)} | changed)))


def test_an_adapter_is_read_whole_or_refused(trained: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder = trained / run_files.ADAPTER_FOLDER
    data = (folder / run_files.ADAPTER_TENSORS).read_bytes()
    read = read_adapter(AdapterFile(folder=str(folder), rank=2), 'tiny')
    expected = from_bytes(data, 'tiny', 2)
    assert jax.tree.structure(read) == jax.tree.structure(expected)
    for got, wanted in zip(jax.tree.leaves(read), jax.tree.leaves(expected), strict=True):
        assert np.array_equal(got, wanted) and np.any(got)
    with pytest.raises(ValueError, match='Expected the adapter that was trained'):
        read_adapter(AdapterFile(folder=str(folder), rank=2, sha256='0' * 64), 'tiny')
    with pytest.raises(ValueError, match='factors of rank 3'):
        read_adapter(AdapterFile(folder=str(folder), rank=3), 'tiny')
