"""The whole job with --method fine-tune, on a real but tiny Gemma: charge, adapter, texts, resumption."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

from models import batching
from models.finetuning import adapter as adapters
from models.finetuning import train, units
from models.privacy.accounting import subsampled
from models.privacy.randomness import RunKey
from models.privacy.report import PrivacyReport, TunedTotals
from models.records import Record
from pipeline import fine_tuning, plan, tuning_plan
from pipeline.config import JobConfig
from pipeline.ledger.ledger import Ledger
from pipeline.run import folders, released_corpus, start
from tests.models.finetuning import tiny
from tests.samples import SECRET
from transforms import run_files
from transforms.durable import read_key

pytestmark = pytest.mark.run
ROWS = [
    {'text': f'{"ab"[number % 2] * 3} {number % 20}', 'label': 'ab'[number % 2], 'id': str(number)}
    for number in range(30)
]


@pytest.fixture(autouse=True)
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


def config(folder: pathlib.Path, **changed: Any) -> JobConfig:
    given = {
        'method': 'fine-tune', 'input': str(folder / 'in.jsonl'), 'output': str(folder / 'out'),
        'label_field': 'label', 'labels': ('a=apples', 'b'), 'record_id_field': 'id', 'records': 30,
        'delta': 1e-2, 'epsilon': 6.0, 'tuning_steps': 4, 'expected_batch_size': 6, 'lora_rank': 2,
        'micro_batch_size': 4,
        'max_prompt_tokens': 24, 'max_example_tokens': 10, 'examples_per_label': 6, 'model': 'tiny',
        'prompt': 'pretrained', 'shards': 1,
    }  # fmt: skip
    return JobConfig(**(given | changed))


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / 'in.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in ROWS), encoding='utf-8')
    return tmp_path


def report_of(output: pathlib.Path) -> PrivacyReport:
    return PrivacyReport.from_json((output / run_files.REPORT).read_text(encoding='utf-8'))


def rows_of(output: pathlib.Path) -> list[dict[str, Any]]:
    return [row for path in sorted((output / 'data').iterdir()) for row in pq.read_table(path).to_pylist()]


def test_a_run_is_charged_once_and_releases_an_adapter_with_its_guarantee(folder: pathlib.Path) -> None:
    ledger = Ledger.create(str(folder / 'ledger.db'))
    ledger.add_dataset('fruit', unit='example', delta=1e-2, epsilon=20.0)
    run = config(folder, dataset='fruit', ledger=str(folder / 'ledger.db'))
    start.run(run, [])
    params = fine_tuning.params(run)
    (charged,) = ledger.account('fruit').runs
    assert charged.cost == plan.run_cost(run) and charged.cost.stages['fine-tuning'] == params.event
    assert charged.rho == charged.cost.curve.rho_at(charged.renyi_order)
    # The corpus
    rows = rows_of(folder / 'out')
    assert sorted(row['label'] for row in rows) == ['a'] * 6 + ['b'] * 6
    assert {row['label_words'] for row in rows if row['label'] == 'a'} == {'apples'}
    assert all(0 < row['tokens'] <= 10 for row in rows)
    # The report
    report = report_of(folder / 'out')
    assert report.epsilon == subsampled.epsilon_of_event(params.event, 1e-2) <= 6.0
    assert report.rho_total is None and isinstance(report.corpus, TunedTotals)
    assert report.corpus.examples == 12 and report.ledger is not None and report.ledger.run_number == 1
    assert report.settings['learning_rate'] == run.learning_rate
    assert not {'batch_size', 'aggregate', 'adapter'} & report.settings.keys()
    # What it released stays the same, whoever asks again, and costs nothing.
    before = {path: path.read_bytes() for path in (folder / 'out').rglob('*') if path.is_file()}
    start.run(run, [])
    assert before == {path: path.read_bytes() for path in (folder / 'out').rglob('*') if path.is_file()}
    assert len(ledger.account('fruit').runs) == 1
    # More of the adapter, without a record
    (folder / 'in.jsonl').unlink()
    given = JobConfig(
        adapter=str(folder / 'out'), method='fine-tune', model='tiny', output=str(folder / 'more'),
        examples_per_label=9, micro_batch_size=4,
    )  # fmt: skip
    start.run(fine_tuning.with_adapter(given), [])
    assert len(rows_of(folder / 'more')) == 18
    more = report_of(folder / 'more')
    assert more.epsilon == report.epsilon and more.ledger is None and more.units == 30
    assert "the run 'out'" in more.data_accesses[0] and "charged to 'fruit' as run 1" in more.data_accesses[0]
    assert not (folder / 'more' / 'adapter').exists()
    restricted = json.loads((folder / 'more.curator' / run_files.RESTRICTED_REPORT).read_text())
    assert restricted['records_read'] == 0
    assert len(ledger.account('fruit').runs) == 1


def test_a_run_that_was_killed_in_training_ends_with_the_adapter_of_one_that_was_not(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = config(folder)
    step, taken = train.Trainer.step, []

    def dies_once(self: train.Trainer, state: Any, *rest: Any) -> Any:
        taken.append(int(state['step']))
        if len(taken) == 3:
            raise MemoryError('a record of 30')
        return step(self, state, *rest)

    monkeypatch.setattr(train.Trainer, 'step', dies_once)
    monkeypatch.setattr(train, 'CHECKPOINT_STEPS', 1)
    with pytest.raises(RuntimeError) as failed:
        start.run(run, [])
    assert 'a record of 30' not in str(failed.value)
    start.run(run, [])
    assert taken == [0, 1, 2, 2, 3]
    # From the records alone, with the run's key, and without Beam.
    key = read_key(str(folder / 'out.curator'))
    records = [Record(text=row['text'], label=row['label'], record_id=row['id']) for row in ROWS]
    rows: list[units.Row] = [(batching.record_hash(key, of), of.label, [of.text]) for of in records]
    whole = train.Trainer(fine_tuning.settings(run)).train(units.in_order(rows), key)
    released = (folder / 'out' / 'adapter' / 'adapter.safetensors').read_bytes()
    assert released == adapters.to_bytes(whole)
    restored = adapters.from_bytes(released, 'tiny', 2)
    assert jax.tree.structure(restored) == jax.tree.structure(whole)


def test_an_adapter_alone_is_that_of_a_run_with_texts(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders.RunKey, 'new', staticmethod(lambda: RunKey(SECRET)))
    ledger = Ledger.create(str(folder / 'ledger.db'))
    ledger.add_dataset('fruit', unit='example', delta=1e-2, epsilon=20.0)
    alone = config(
        folder, output=str(folder / 'alone'), run_id='same', examples_per_label=0, shards=None,
        dataset='fruit', ledger=str(folder / 'ledger.db'),
    )  # fmt: skip
    step, taken = train.Trainer.step, []

    def dies_once(self: train.Trainer, state: Any, *rest: Any) -> Any:
        taken.append(int(state['step']))
        if len(taken) == 3:
            raise MemoryError('a record of 30')
        return step(self, state, *rest)

    monkeypatch.setattr(train.Trainer, 'step', dies_once)
    with pytest.raises(RuntimeError):
        start.run(alone, [])
    assert not folders.is_finished(alone)
    start.run(alone, [])
    monkeypatch.setattr(train.Trainer, 'step', step)
    (charged,) = ledger.account('fruit').runs
    assert charged.cost.stages['fine-tuning'] == fine_tuning.params(alone).event
    start.run(config(folder, run_id='same'), [])
    tensors = pathlib.PurePath('adapter', 'adapter.safetensors')
    trained = (folder / 'alone' / tensors).read_bytes()
    assert trained == (folder / 'out' / tensors).read_bytes()
    factors = jax.tree.leaves(adapters.from_bytes(trained, 'tiny', 2))
    assert all(np.any(np.asarray(leaf) != 0) for leaf in factors), 'a trained one is not the first one'
    cards = [json.loads((folder / of / 'adapter' / 'adapter.json').read_text()) for of in ('alone', 'out')]
    assert [card.pop('dataset') for card in cards] == ['fruit', None]
    assert [card.pop('run_number') for card in cards] == [1, None]
    assert cards[0] == cards[1]
    # What is left, and what is said of it
    files = {str(path.relative_to(folder / 'alone')) for path in (folder / 'alone').rglob('*')}
    assert files == {
        'README.md', 'privacy_report.json', 'privacy_report.html', 'adapter', 'adapter/adapter.json',
        'adapter/adapter.safetensors',
    }  # fmt: skip
    report, other = report_of(folder / 'alone'), report_of(folder / 'out')
    assert not report.has_texts and other.has_texts and report.epsilon == other.epsilon
    assert report.corpus == TunedTotals(examples=0, sampled_tokens=0, truncated=0)
    assert 'This run sampled no text' in report.mechanism_output
    assert report.data_accesses[0].startswith('Covered: this run, from reading the records to the adapter')
    assert report.data_accesses[1].startswith('Covered together') and report.ledger is not None
    assert not {'top_p', 'temperature', 'examples_per_label', 'shards'} & report.settings.keys()
    page = (folder / 'alone' / 'privacy_report.html').read_text()
    card = (folder / 'alone' / 'README.md').read_text()
    assert 'The adapter was trained on records' in page and 'An adapter of rank 2' in page
    assert 'apples' in page and 'data_files' not in card and 'Adapter same' in card
    for text in (page, card):
        assert 'The corpus was made' not in text and 'synthetic texts' not in text
        assert '0 of the examples' not in text and 'truncated' not in text
    with pytest.raises(FileNotFoundError, match='Expected a release with texts, got reference='):
        released_corpus.list_shards(str(folder / 'alone'), 'reference')
    # Texts of it
    given = JobConfig(
        adapter=str(folder / 'alone'), method='fine-tune', model='tiny', output=str(folder / 'more'),
        examples_per_label=3, micro_batch_size=4,
    )  # fmt: skip
    start.run(fine_tuning.with_adapter(given), [])
    assert len(rows_of(folder / 'more')) == 6
    with pytest.raises(ValueError, match='examples_per_label >= 1 with adapter='):
        JobConfig(adapter=str(folder / 'alone'), method='fine-tune', examples_per_label=0)


def test_a_run_without_a_step_that_finished_has_no_report(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = config(folder, examples_per_label=0, shards=None)
    monkeypatch.setattr(train.Trainer, 'train', _fails)
    with pytest.raises(RuntimeError):
        start.run(run, [])
    assert not folders.is_finished(run)


def _fails(*_: Any) -> None:
    raise MemoryError('no adapter')


def test_an_adapter_without_its_guarantee_or_of_another_model_is_refused(folder: pathlib.Path) -> None:
    run = config(folder, noise_multiplier=4.0, epsilon=None, tuning_steps=1)
    start.run(run, [])
    given = {'method': 'fine-tune', 'model': 'tiny', 'output': str(folder / 'more'), 'examples_per_label': 1}
    released = str(folder / 'out' / 'adapter')
    assert fine_tuning.with_adapter(JobConfig(adapter=released, **given)).labels == ('a=apples', 'b')
    with pytest.raises(ValueError, match='Expected the model of the adapter, .* Give --model tiny'):
        fine_tuning.with_adapter(JobConfig(adapter=released, **(given | {'model': 'bundled'})))
    with pytest.raises(ValueError, match='Expected no input .* no record is read'):
        fine_tuning.with_adapter(JobConfig(adapter=released, **given, input='in.jsonl'))
    with pytest.raises(FileNotFoundError, match='an adapter has no guarantee'):
        fine_tuning.with_adapter(JobConfig(adapter=str(folder), **given))
    with pytest.raises(ValueError, match='weights that the adapter was trained on'):
        fine_tuning.with_adapter(JobConfig(adapter=released, **given, checkpoint=str(folder / 'in.jsonl')))
    card = folder / 'out' / 'adapter' / 'adapter.json'
    text = json.loads(card.read_text())
    for changed, said in (
        ({'epsilon': 0.1}, 'Expected the guarantee that the settings give'),
        ({'mechanism': {'seed': 1}}, 'An adapter without'),
        ({'schema': 'peft'}, 'Without it an adapter has no guarantee'),
    ):
        card.write_text(json.dumps(text | changed))
        with pytest.raises(ValueError, match=said):
            fine_tuning.with_adapter(JobConfig(adapter=released, **given))


def test_a_plan_says_noise_time_and_memory(folder: pathlib.Path) -> None:
    from pipeline import calibration

    run = config(folder)
    found = tuning_plan.plan_run(run)
    assert found.epsilon <= 6.0 and found.noise_multiplier == fine_tuning.params(run).noise_multiplier
    assert found.examples == 12 and found.sampling_probability == 0.2
    rates = calibration.known('bundled', dtype='float32')
    slow, fast = (tuning_plan.estimate(config(folder, tuning_steps=steps), rates) for steps in (400, 4))
    assert slow.training_hours == pytest.approx(100 * fast.training_hours)
    larger = config(folder, micro_batch_size=64)
    assert tuning_plan.needed_memory(larger, 'float32') > tuning_plan.needed_memory(run, 'float32')
    assert folders.is_finished(run) is False


@pytest.mark.parametrize(
    'changed, said',
    [
        ({'records': None}, 'Expected a declared number of units'),
        ({'epsilon': None}, 'either epsilon or noise_multiplier'),
        ({'noise_multiplier': 1.0}, 'either epsilon or noise_multiplier'),
        ({'batch_size': 8}, r"no batch_size with method='fine-tune', .* Give --expected-batch-size"),
        ({'clip_bound': 2.0}, 'Give --clip-norm'),
        ({'aggregate': 'mean'}, 'No batch of contexts votes'),
        ({'clusters': 3}, 'no clusters with method'),
        ({'json_schema': 'a.json'}, 'not held to a structure'),
        ({'clip_norm': 0.0}, 'finite clip_norm > 0'),
        ({'expected_batch_size': 31}, 'expected_batch_size <= the declared number'),
        ({'mismatch_weight': 1.0}, '0 <= mismatch_weight < 1'),
        ({'top_p': 0.0}, '0 < top_p <= 1'),
        ({'examples_per_label': -1}, 'examples_per_label >= 0'),
        ({'examples_per_label': 0}, 'no shards with examples_per_label=0, got shards=1. It is of texts'),
        ({'examples_per_label': 0, 'shards': None, 'top_p': 0.5}, 'no top_p with examples_per_label=0'),
        ({'examples_per_context': 2}, 'examples_per_context=1 where each record'),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    tmp_path: pathlib.Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        config(tmp_path, **changed)


def test_private_prediction_refuses_settings_of_fine_tuning() -> None:
    with pytest.raises(
        ValueError, match="no tuning_steps with method='predict', got tuning_steps=7. It is a"
    ):
        JobConfig(epsilon=1.0, delta=1e-5, tuning_steps=7)
