"""The whole job with --method fine-tune, on a real but tiny Gemma: charge, adapter, texts, resumption."""

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import hypothesis
import jax
import jsonschema
import numpy as np
import pytest
from hypothesis import strategies as st

from models import batching, cache
from models.decoders import device
from models.finetuning import adapter as adapters
from models.finetuning import train, units
from models.privacy.accounting import subsampled
from models.privacy.randomness import RunKey
from models.privacy.report import TunedTotals
from models.records import Record
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.methods.fine_tune import plan, released
from pipeline.plan import planned
from pipeline.release import released_corpus
from pipeline.run import folders
from pipeline.settings.job_config import JobConfig
from tests.launched import launch, report_of, rows_of
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
        'delta': 1e-2, 'epsilon': 2.0, 'tuning_steps': 4, 'expected_batch_size': 6, 'lora_rank': 2,
        'micro_batch_size': 4,
        'max_prompt_tokens': 24, 'max_example_tokens': 10, 'examples_per_label': 6, 'model': 'tiny',
        'prompt': 'pretrained', 'shards': 1,
    }  # fmt: skip
    return job_config(**(given | changed))


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / 'in.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in ROWS), encoding='utf-8')
    return tmp_path


@pytest.mark.first
def test_a_run_is_charged_once_and_releases_an_adapter_with_its_guarantee(folder: pathlib.Path) -> None:
    ledger = Ledger.create(str(folder / 'ledger.db'))
    ledger.add_dataset('fruit', unit='example', delta=1e-2, epsilon=20.0)
    run = config(folder, dataset='fruit', ledger=str(folder / 'ledger.db'))
    launch(run, [])
    params = methods.solve(run).params
    (charged,) = ledger.account('fruit').runs
    assert charged.cost == methods.solve(run).cost and charged.cost.stages['fine-tuning'] == params.event
    assert charged.rho == charged.cost.curve.rho_at(charged.renyi_order)
    # The corpus
    rows = rows_of(folder / 'out')
    assert sorted(row['label'] for row in rows) == ['a'] * 6 + ['b'] * 6
    assert {row['label_words'] for row in rows if row['label'] == 'a'} == {'apples'}
    assert all(0 < row['tokens'] <= 10 for row in rows)
    # The report
    report = report_of(folder / 'out')
    assert report.epsilon == subsampled.epsilon_of_event(params.event, 1e-2) <= 2.0
    assert report.rho_total is None and isinstance(report.corpus, TunedTotals)
    assert report.corpus.examples == 12 and report.ledger is not None and report.ledger.run_number == 1
    assert (report.settings['learning_rate'], report.settings['lora_rank']) == (0.01, 2)
    assert not {'batch_size', 'aggregate', 'adapter', 'label_mix', 'full'} & report.settings.keys()
    # The release stays the same, whoever asks again, and costs nothing.
    before = {path: path.read_bytes() for path in (folder / 'out').rglob('*') if path.is_file()}
    launch(run, [])
    assert before == {path: path.read_bytes() for path in (folder / 'out').rglob('*') if path.is_file()}
    assert len(ledger.account('fruit').runs) == 1
    # More of the adapter, without a record
    (folder / 'in.jsonl').unlink()
    given = job_config(
        adapter=str(folder / 'out'), method='fine-tune', model='tiny', output=str(folder / 'more'),
        examples_per_label=9, label_mix=('a=2', 'b=1'), micro_batch_size=4,
    )  # fmt: skip
    launch(given, [])
    labels = [row['label'] for row in rows_of(folder / 'more')]
    assert (labels.count('a'), labels.count('b'), len(labels)) == (12, 6, 18)
    more = report_of(folder / 'more')
    assert more.settings['label_mix'] == 'a=2, b=1'
    assert any('not counted in the records' in text for text in more.assumptions_of_curator)
    assert not any('shares of the texts' in text for text in report.assumptions_of_curator)
    assert more.epsilon == report.epsilon and more.ledger is None and more.units == 30
    assert "the run 'out'" in more.data_accesses[0] and "charged to 'fruit' as run 1" in more.data_accesses[0]
    assert not (folder / 'more' / 'adapter').exists()
    restricted = json.loads((folder / 'more.curator' / run_files.RESTRICTED_REPORT).read_text())
    assert restricted['records_read'] == 0
    assert len(ledger.account('fruit').runs) == 1


def test_a_run_leaves_how_fast_it_was_for_later_plans(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A run ends as ever where nothing can be left.
    (folder / 'file').touch()
    for cache_folder, output in ((folder / 'file', 'first'), (folder / 'cache', 'second')):
        monkeypatch.setenv(cache.VARIABLE, str(cache_folder))
        run = config(folder, dtype='float32', output=str(folder / output))
        launch(run, [])
        assert rows_of(folder / output)
    rows = [value for name, value in planned.planned(run).rows() if name == 'Training']
    assert len(rows) == 1 and rows[0].startswith('about ')


def test_a_run_of_all_weights_releases_a_difference_that_texts_are_sampled_from(folder: pathlib.Path) -> None:
    run = config(folder, full=True, lora_rank=8, tuning_steps=2)
    launch(run, [])
    report, card = report_of(folder / 'out'), released.read_card(str(folder / 'out'))
    assert card.lora_rank is None and report.settings['lora_rank'] is None
    assert 'full' not in report.settings and report.settings['learning_rate'] == 5e-4
    assert (
        card.epsilon == report.epsilon == subsampled.epsilon_of_event(methods.solve(run).params.event, 1e-2)
    )
    data = (folder / 'out' / 'adapter' / 'adapter.safetensors').read_bytes()
    difference = adapters.from_bytes(data, 'tiny', None)
    sizes = [leaf.size for leaf in jax.tree.leaves(difference)]
    assert sum(sizes) == tiny.ARCHITECTURE.num_parameters
    # Two steps of Adam, each of at most about the rate.
    largest = [float(np.abs(leaf).max()) for leaf in jax.tree.leaves(difference)]
    assert all(0 < of <= 2.1 * 5e-4 for of in largest)
    with pytest.raises(ValueError, match='Expected factors of rank 2 for'):
        adapters.from_bytes(data, 'tiny', 2)
    with pytest.raises(ValueError, match='Expected a difference of all weights for'):
        adapters.from_bytes(adapters.to_bytes(tiny.adapter(2)), 'tiny', None)
    # Texts of it
    assert len(rows_of(folder / 'out')) == 12
    (folder / 'in.jsonl').unlink()
    asked = {'method': 'fine-tune', 'model': 'tiny', 'examples_per_label': 3, 'micro_batch_size': 4}
    given = job_config(adapter=str(folder / 'out'), output=str(folder / 'more'), **asked)
    launch(given, [])
    assert len(rows_of(folder / 'more')) == 6 and report_of(folder / 'more').epsilon == report.epsilon
    assert 'low-rank' not in (folder / 'more' / 'README.md').read_text()
    found = plan.plan_run(methods.solve(given))
    assert found.lora_rank is None and found.adapter_parameters == tiny.ARCHITECTURE.num_parameters
    with pytest.raises(ValueError, match='Expected no full with .* no record is read'):
        methods.solve(job_config(adapter=str(folder / 'out'), full=True, **asked))


def test_a_card_of_another_version_is_refused(folder: pathlib.Path) -> None:
    launch(config(folder, noise_multiplier=4.0, epsilon=None, tuning_steps=1, examples_per_label=1), [])
    text = json.loads((folder / 'out' / 'adapter' / 'adapter.json').read_text())
    assert adapters.AdapterCard.from_json(json.dumps(text)).lora_rank == 2
    for version in (0, 3, None):
        with pytest.raises(ValueError, match='schema_version with: value should be 4'):
            adapters.AdapterCard.from_json(json.dumps(text | {'schema_version': version}))


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
        launch(run, [])
    assert 'a record of 30' not in str(failed.value)
    launch(run, [])
    assert taken == [0, 1, 2, 2, 3]
    # From the records alone, with the run's key, and without Beam.
    key = read_key(str(folder / 'out.curator'))
    records = [Record(text=row['text'], label=row['label'], record_id=row['id']) for row in ROWS]
    rows: list[units.Row] = [(batching.record_hash(key, of), of.label, [of.text]) for of in records]
    whole = train.Trainer(methods.of(run).prepare(methods.solve(run, launch=True))).train(
        units.in_order(rows), key
    )
    factors = (folder / 'out' / 'adapter' / 'adapter.safetensors').read_bytes()
    assert factors == adapters.to_bytes(whole)
    restored = adapters.from_bytes(factors, 'tiny', 2)
    assert jax.tree.structure(restored) == jax.tree.structure(whole)


@hypothesis.given(shares=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6), each=st.integers(1, 50))
def test_a_mix_has_as_many_texts_each_within_one_of_its_share(shares: list[float], each: int) -> None:
    labels = tuple(f'{number}=label {number}' for number in range(len(shares)))
    run = job_config(
        method='fine-tune', adapter='a', labels=labels, label_field='label', examples_per_label=each,
        label_mix=tuple(f'{number}={share!r}' for number, share in enumerate(shares)),
    )  # fmt: skip
    found = run.method.texts_of_labels(run.input)
    exact = [each * len(shares) * share / sum(shares) for share in shares]
    assert all(number >= 1 and abs(number - of) <= 1 for number, of in zip(found, exact, strict=True))
    # A label that has its one text though its share is none takes it from nobody.
    assert 0 <= sum(found) - each * len(shares) <= sum(of < 1 for of in exact)


VISIT = {
    'type': 'object',
    'properties': {
        'ward': {'enum': ['eye', 'ear']},
        'beds': {'type': 'integer', 'minimum': 0, 'maximum': 40},
    },
    'required': ['ward', 'beds'],
    'additionalProperties': False,
}


def structured(folder: pathlib.Path, **changed: Any) -> JobConfig:
    """A run on 30 records: two are no JSON and three break the schema; white space and keys are anyhow."""
    visits = [{'beds': number, 'ward': ('eye', 'ear')[number % 2]} for number in range(28)]
    visits[3]['ward'], visits[4]['beds'], visits[5]['more'] = 'leg', -1, 'of it'
    texts = [*(json.dumps(visit, indent=1) for visit in visits), 'no JSON', '{"ward": "ear"']
    rows = [{'text': text, 'id': str(number)} for number, text in enumerate(texts)]
    (folder / 'in.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows), encoding='utf-8')
    (folder / 'visit.json').write_text(json.dumps(VISIT), encoding='utf-8')
    given = {
        'json_schema': str(folder / 'visit.json'), 'prompt': 'pretrained-json', 'label_field': None,
        'labels': (), 'max_prompt_tokens': 400, 'max_example_tokens': 24, 'temperature': 4.0, 'top_p': 1.0,
    }  # fmt: skip
    return config(folder, **(given | changed))


def is_visit(text: str) -> bool:
    try:
        jsonschema.validate(json.loads(text), VISIT)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def restricted_of(output: pathlib.Path) -> dict[str, Any]:
    return json.loads((output.parent / f'{output.name}.curator' / run_files.RESTRICTED_REPORT).read_text())


@pytest.mark.first
def test_texts_have_the_structure_that_each_run_of_an_adapter_asks_for(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The number of kinds of text that come out is up to the key.
    monkeypatch.setattr(RunKey, 'new', lambda: RunKey(bytes(32)))
    run = structured(folder, examples_per_label=40)
    launch(run, [])
    rows, report = rows_of(folder / 'out'), report_of(folder / 'out')
    complete = [row['text'] for row in rows if not row['truncated']]
    assert len(complete) > 8 and len(set(complete)) > 4 and all(map(is_visit, complete))
    assert all(row['truncated'] for row in rows if not is_visit(row['text']))
    assert json.loads(str(report.settings['json_schema'])) == VISIT
    assert report.settings['close_truncated'] is False
    assert not {'regex', 'fixed', 'condition_on', 'condition_rho'} & report.settings.keys()
    assert any('masks what is sampled' in text for text in report.assumptions_enforced)
    assert any('without a look at the records' in text for text in report.assumptions_of_curator)
    restricted = restricted_of(folder / 'out')
    assert (restricted['records_read'], restricted['records_outside_structure']) == (30, 5)
    # The structure belongs to the run that samples, the prompt to the adapter.
    card = released.read_card(str(folder / 'out'))
    assert json.loads(str(card.prompt['schema'])) == VISIT
    (folder / 'in.jsonl').unlink()
    (folder / 'other.json').write_text(json.dumps({'type': 'boolean'}))
    of_visits = {'json_schema': run.method.json_schema, 'fixed': ('ward=ear',), 'close_truncated': True}
    for name, asked, is_valid in (
        ('plain', {}, None),
        ('fixed', of_visits, lambda text: is_visit(text) and json.loads(text)['ward'] == 'ear'),
        ('regex', {'regex': '[ab]{1,3}!'}, re.compile(r'[ab]{1,3}!').fullmatch),
        ('schema', {'json_schema': str(folder / 'other.json')}, {'true', 'false'}.__contains__),
    ):
        output = folder / name
        given = job_config(
            adapter=str(folder / 'out'), method='fine-tune', model='tiny', output=str(output),
            examples_per_label=6, micro_batch_size=4, temperature=4.0, **asked,
        )  # fmt: skip
        prepared = methods.of(given).prepare(methods.solve(given, launch=True))
        assert prepared.schema == card.prompt['schema'] and (prepared.structure is None) == (not asked)
        launch(given, [])
        texts = [row['text'] for row in rows_of(output) if name == 'fixed' or not row['truncated']]
        assert is_valid is None or (len(texts) > 2 and all(map(is_valid, texts)))
        assert report_of(output).epsilon == report.epsilon
        said = any('masks what is sampled' in text for text in report_of(output).assumptions_enforced)
        assert said == bool(asked)
        # It read no record, and counted none.
        assert restricted_of(output)['records_outside_structure'] is None
    assert report_of(folder / 'fixed').settings['fixed'] == 'ward=ear'
    assert report_of(folder / 'regex').settings['regex'] == '[ab]{1,3}!'


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
    launch(alone, [])
    (charged,) = ledger.account('fruit').runs
    assert charged.cost.stages['fine-tuning'] == methods.solve(alone).params.event
    launch(config(folder, run_id='same'), [])
    tensors = pathlib.PurePath('adapter', 'adapter.safetensors')
    trained = (folder / 'alone' / tensors).read_bytes()
    assert trained == (folder / 'out' / tensors).read_bytes()
    factors = jax.tree.leaves(adapters.from_bytes(trained, 'tiny', 2))
    assert all(np.any(np.asarray(leaf) != 0) for leaf in factors), 'a trained one is not the first one'
    cards = [json.loads((folder / of / 'adapter' / 'adapter.json').read_text()) for of in ('alone', 'out')]
    assert [card.pop('dataset') for card in cards] == ['fruit', None]
    assert [card.pop('run_number') for card in cards] == [1, None]
    assert cards[0] == cards[1]
    # Files that are left, and what is said of them
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
    given = job_config(
        adapter=str(folder / 'alone'), method='fine-tune', model='tiny', output=str(folder / 'more'),
        examples_per_label=3, micro_batch_size=4,
    )  # fmt: skip
    launch(given, [])
    assert len(rows_of(folder / 'more')) == 6
    with pytest.raises(ValueError, match='examples_per_label >= 1 with adapter='):
        job_config(adapter=str(folder / 'alone'), method='fine-tune', examples_per_label=0)


def test_an_adapter_without_its_guarantee_is_refused(folder: pathlib.Path) -> None:
    run = config(folder, noise_multiplier=4.0, epsilon=None, tuning_steps=1)
    launch(run, [])
    given = {'method': 'fine-tune', 'model': 'tiny', 'output': str(folder / 'more'), 'examples_per_label': 1}
    place = str(folder / 'out' / 'adapter')
    assert methods.solve(job_config(adapter=place, **given)).input.labels == ('a=apples', 'b')
    with pytest.raises(ValueError, match='Expected no input .* no record is read'):
        methods.solve(job_config(adapter=place, **given, input='in.jsonl'))
    card = folder / 'out' / 'adapter' / 'adapter.json'
    text = json.loads(card.read_text())
    for changed, said in (
        ({'epsilon_of_run': 0.1}, 'Expected the guarantee that the settings give'),
        ({'mechanism': {'seed': 1}}, 'as it was written'),
        ({'schema': 'peft'}, "schema with: value should be 'dp-corpus/adapter'"),
    ):
        card.write_text(json.dumps(text | changed))
        with pytest.raises(ValueError, match=said):
            methods.solve(job_config(adapter=place, **given))


def test_tokens_are_of_typical_texts_where_their_words_are_declared() -> None:
    """Ten words are 15 tokens; in training they are padded to a quarter of the cap."""

    def tokens(**changed: Any) -> tuple[int, int]:
        given = {
            'method': 'fine-tune', 'records': 10_000, 'epsilon': 6.0, 'delta': 1e-5, 'model': 'gemma3-270m',
            'max_prompt_tokens': 128, 'max_example_tokens': 64, 'examples_per_label': 80, 'tuning_steps': 10,
            'expected_batch_size': 32, 'checkpoint': '/weights', 'tokenizer': '/tokenizer.model',
        }  # fmt: skip
        found = methods.solve(job_config(**(given | changed))).tokens
        return found['training'], found['decoding']

    # Without labels there is one instruction, which is read once for all texts, and no wrong one.
    assert tokens() == tokens(typical_words=1000) == (10 * 32 * 64, 80 * 64 + 128)
    assert tokens(typical_words=10) == (10 * 32 * 16, 80 * 15 + 128)
    assert tokens(examples_per_label=0) == (10 * 32 * 64, 0)
    # With two labels a text stands after two instructions, at every fifth step or at each.
    labels = {'labels': ('a', 'b'), 'label_field': 'label'}
    assert tokens(**labels) == (2 * 10 * 32 * 64, 2 * (80 * 64 + 128))
    assert tokens(**labels, mismatch_every=5)[0] == 1.2 * 10 * 32 * 64
    # A unit's texts are all read.
    assert tokens(unit='user', unit_field='user', examples_per_context=2)[0] == 2 * 10 * 32 * 64


def test_memory_is_of_a_device_and_layers_that_are_computed_again_take_less() -> None:
    def needed(devices: int = 1, **changed: Any) -> int:
        given = {'method': 'fine-tune', 'records': 10_000, 'epsilon': 6.0, 'delta': 1e-5}
        return plan.needed_memory(methods.solve(job_config(**(given | changed))), 'float32', devices)

    # Beside the weights: 16 units on 8 devices are two on each, and 17 are three.
    two, three = (needed(micro_batch_size=size) for size in (2, 3))
    assert needed(8, micro_batch_size=16) == two < needed(8, micro_batch_size=17) == three < needed()
    assert needed(remat=True) < needed()
    # Instructions that all units share are held: of a few labels they are those of the micro-batch.
    of_labels = {
        count: needed(label_field='label', labels=tuple(f'label {place}' for place in range(count)))
        for count in (8, 9, 32, 33)
    }
    assert of_labels[8] < of_labels[9] < of_labels[32] > of_labels[33] == of_labels[8]
    # A second text of a unit shares its instruction.
    of_user = {'unit': 'user', 'unit_field': 'user'}
    assert needed() < needed(examples_per_context=2, **of_user) < 2 * needed()


def test_a_plan_of_all_weights_says_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(**changed: Any) -> JobConfig:
        given = {
            'method': 'fine-tune', 'records': 10_000, 'epsilon': 6.0, 'delta': 1e-5, 'tuning_steps': 10,
            'max_prompt_tokens': 32, 'max_example_tokens': 32,
        }  # fmt: skip
        return job_config(**(given | changed))

    full, factors = planned(full=True, micro_batch_size=16), planned(micro_batch_size=16)
    found, numbers = plan.plan_run(methods.solve(full)), full.method.model_sizes.num_parameters
    assert found.lora_rank is None and found.adapter_parameters == numbers
    (warned,) = found.warnings
    assert f'All {numbers:,} weights are trained' in warned and 'of each of 16 units take 0.4 GiB' in warned
    assert (
        f'--lora-rank 8 trains {plan.plan_run(methods.solve(factors)).adapter_parameters:,} numbers' in warned
    )
    # The difference, two moments, two limbs of a sum and of noise, and a gradient of each unit, of the
    # embedding twice.
    more = plan.needed_memory(methods.solve(full), 'float32') - plan.needed_memory(
        methods.solve(factors), 'float32'
    )
    embedding = full.method.model_sizes.num_embed * full.method.model_sizes.embed_dim
    assert more == 4 * (
        (numbers - factors.method.model_sizes.adapter_parameters(8)) * (7 + 16) + 16 * embedding
    )
    # Fewer gradients lie side by side where they are large, and texts are sampled as ever.
    files = {'checkpoint': '/weights', 'tokenizer': '/tokenizer.model'}
    for model, units_together in (('bundled', 4), ('gemma3-270m', 1), ('gemma2-2b', 1)):
        of_model = planned(full=True, model=model, **files)
        assert methods.solve(of_model).units_together == units_together
        assert of_model.method.rows_together == 64
    assert methods.solve(planned(full=True, micro_batch_size=8)).units_together == 8
    factors = planned(model='gemma3-270m', **files)
    assert methods.solve(factors).units_together == 4
    # An accelerator has more to do at once: one that the engine is asked for, or one of this machine.
    accelerator = 'type:nvidia-l4;count:1;install-nvidia-driver'
    assert methods.solve(factors.replace(accelerator=accelerator)).units_together == 16
    monkeypatch.setattr(device, 'has_plugin', lambda: True)
    assert methods.solve(factors).units_together == 16
    assert methods.solve(factors.replace(micro_batch_size=2)).units_together == 2


@pytest.mark.parametrize(
    'changed, said',
    [
        ({'records': None}, 'Expected a declared number of units'),
        ({'epsilon': None}, 'either epsilon or noise_multiplier'),
        ({'noise_multiplier': 1.0}, 'either epsilon or noise_multiplier'),
        ({'batch_size': 8}, r"no batch_size with method='fine-tune', .* Give --expected-batch-size"),
        ({'clip_bound': 2.0}, 'Give --clip-norm'),
        ({'clusters': 3}, 'no clusters with method'),
        ({'json_schema': 'a.json', 'condition_on': ('k',)}, 'Here the adapter learns .* with --fixed'),
        ({'regex': '(a'}, 'a group that ends'),
        ({'close_truncated': True}, 'json_schema or regex with close_truncated'),
        ({'fixed': ('k=x',)}, 'json_schema with fixed'),
        ({'clip_norm': 0.0}, 'finite clip_norm > 0'),
        ({'full': True}, 'Expected no lora_rank with full=True, got lora_rank=2. .* leave --lora-rank out'),
        ({'expected_batch_size': 31}, 'expected_batch_size <= the declared number'),
        ({'mismatch_weight': 1.0}, '0 <= mismatch_weight < 1'),
        ({'mismatch_every': 0}, 'mismatch_every >= 1'),
        ({'mismatch_every': 2, 'mismatch_weight': 0.0}, 'mismatch_weight > 0 with mismatch_every=2'),
        ({'top_p': 0.0}, '0 < top_p <= 1'),
        ({'label_mix': ('a', 'b=1')}, "LABEL=SHARE with a finite share > 0, got label_mix='a'"),
        ({'label_mix': ('a=1', 'b=0')}, "share > 0, got label_mix='b=0'"),
        ({'label_mix': ('a=inf', 'b=1')}, "finite share > 0, got label_mix='a=inf'"),
        ({'label_mix': ('a=1',)}, 'each declared label once'),
        ({'label_mix': ('a=1', 'a=1')}, 'each declared label once'),
        ({'label_mix': ('a=1', 'apples=1')}, 'each declared label once'),
        ({'label_mix_rho': 0.0}, 'finite label_mix_rho > 0'),
        ({'label_mix_rho': 1e-10}, 'Expected 1e-09 <= label_mix_rho <= 10'),
        ({'label_mix_rho': 0.1, 'label_mix': ('a=1', 'b=1')}, 'either label_mix or label_mix_rho, got'),
        ({'label_mix_rho': 0.1, 'labels': (), 'label_field': None}, 'two labels or more with label_mix_rho'),
        ({'label_mix_rho': 0.1, 'labels': ('a',)}, 'two labels or more with label_mix_rho=0.1'),
        ({'examples_per_label': -1}, 'examples_per_label >= 0'),
        ({'examples_per_label': 0}, 'no shards with examples_per_label=0, got shards=1. It is of texts'),
        ({'examples_per_label': 0, 'shards': None, 'top_p': 0.5}, 'no top_p with examples_per_label=0'),
        (
            {'examples_per_label': 0, 'shards': None, 'label_mix': ('a=1', 'b=2')},
            'no label_mix with examples_per',
        ),
        ({'examples_per_context': 2}, 'examples_per_context=1 where each record'),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    tmp_path: pathlib.Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        config(tmp_path, **changed)
