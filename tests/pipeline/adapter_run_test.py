"""Private prediction with a released adapter: what decodes, what is charged, and what the report says."""

import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.finetuning import adapter as adapters
from models.privacy.accounting import compose, epsilon_of_events
from models.privacy.numbers import format_up
from models.privacy.randomness import RunKey
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.methods import workers
from pipeline.methods.fine_tune import released
from pipeline.methods.predict import graph, plan
from pipeline.plan.planned import planned
from pipeline.run import charge, folders
from pipeline.settings.job_config import JobConfig
from tests.launched import launch, report_of, rows_of
from tests.models.finetuning import tiny
from tests.samples import SECRET
from transforms import predict, run_files

pytestmark = pytest.mark.run
ROWS = [
    {'text': f'{"ab"[number % 2] * 3} {number % 20}', 'label': 'ab'[number % 2], 'id': str(number)}
    for number in range(30)
]
TENSORS, CARD = run_files.ADAPTER_TENSORS, run_files.ADAPTER_CARD


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One key for all runs, so that what differs between two of them is not the key."""
    monkeypatch.setattr(folders.RunKey, 'new', staticmethod(lambda: RunKey(SECRET)))
    with tiny.known():
        yield


@pytest.fixture(scope='module')
def trained(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with records, a ledger that charged an adapter, and the adapter."""
    folder = tmp_path_factory.mktemp('trained')
    (folder / 'in.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in ROWS), encoding='utf-8')
    ledger = Ledger.create(str(folder / 'ledger.db'))
    for name in ('fruit', 'parcels'):
        ledger.add_dataset(name, unit='example', delta=1e-2, epsilon=20.0)
    with tiny.known():
        launch(tuning(folder, dataset='fruit', ledger=str(folder / 'ledger.db')), [])
        # The first factors add nothing: enough of something to change which token is drawn.
        shutil.copytree(folder / 'adapter' / 'adapter', folder / 'strong')
        rewrite(folder / 'strong', lambda leaf, rng: rng.normal(size=leaf.shape))
        shutil.copytree(folder / 'adapter' / 'adapter', folder / 'zero')
        rewrite(folder / 'zero', lambda leaf, _: np.zeros(leaf.shape))
    return folder


def rewrite(folder: pathlib.Path, values: Any, **card: Any) -> None:
    """An adapter of other factors, with a card that names them."""
    rng = np.random.default_rng(3)
    shapes = tiny.Tiny().adapter_shapes('tiny', released.read_card(str(folder)).lora_rank)
    tree = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes)
    data = adapters.to_bytes(jax.tree.map(lambda leaf: np.float32(values(leaf, rng)), tree))
    (folder / TENSORS).write_bytes(data)
    text = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps(text | {'factors': adapters.digest(data)} | card))


def tuning(folder: pathlib.Path, **changed: Any) -> JobConfig:
    given = {
        'method': 'fine-tune', 'input': str(folder / 'in.jsonl'), 'output': str(folder / 'adapter'),
        'label_field': 'label', 'labels': ('a', 'b'), 'record_id_field': 'id', 'records': 30,
        'delta': 1e-2, 'noise_multiplier': 2.0, 'tuning_steps': 2, 'expected_batch_size': 6, 'lora_rank': 2,
        'micro_batch_size': 4, 'max_prompt_tokens': 24, 'max_example_tokens': 10, 'examples_per_label': 0,
        'model': 'tiny', 'prompt': 'pretrained',
    }  # fmt: skip
    return job_config(**(given | changed))


def config(trained: pathlib.Path, output: pathlib.Path, **changed: Any) -> JobConfig:
    given = {
        'method': 'predict', 'input': str(trained / 'in.jsonl'), 'output': str(output), 'run_id': 'votes',
        'label_field': 'label', 'labels': ('a', 'b'), 'record_id_field': 'id', 'delta': 1e-2,
        'accounting': 'worst-case', 'max_private_tokens': 12, 'batches_per_label': 1, 'batch_size': 8,
        'reference_rounds': 1, 'max_prompt_tokens': 48, 'max_example_tokens': 6, 'model': 'tiny',
        'prompt': 'pretrained', 'shards': 1, 'micro_batch_size': 16,
    }  # fmt: skip
    return job_config(**(given | changed))


def test_an_adapter_changes_the_tokens_and_one_of_zeros_does_not(
    trained: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    texts = {}
    for name in (None, 'zero', 'strong'):
        run = config(trained, tmp_path / str(name), adapter=name and str(trained / name))
        launch(run, [])
        texts[name] = rows_of(tmp_path / str(name))
    assert texts[None] and texts['zero'] == texts[None] != texts['strong']
    without, with_one = report_of(tmp_path / 'None'), report_of(tmp_path / 'strong')
    # The run's own mechanism is what it is without.
    assert with_one.method.mechanism == without.method.mechanism and with_one.stages == without.stages
    assert with_one.releases[0].run_id == 'adapter' and "(run 'adapter'), are (ε = " in with_one.guarantee
    assert (with_one.epsilon or 0.0) > (with_one.epsilon_of_run or 0.0) == without.epsilon
    assert not any('adapter' in row.lower() for row in without.assumptions_of_curator)


def test_records_vote_with_a_difference_of_all_weights(trained: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run = tuning(trained, full=True, lora_rank=8, output=str(tmp_path / 'full'))
    launch(run, [])
    texts = {}
    for name, size in (('zero', 0.0), ('strong', 0.3)):
        shutil.copytree(tmp_path / 'full' / 'adapter', tmp_path / name)
        rewrite(tmp_path / name, lambda leaf, rng, size=size: size * rng.normal(size=leaf.shape))
        voted = config(trained, tmp_path / f'{name}-votes', adapter=str(tmp_path / name))
        launch(voted, [])
        texts[name] = rows_of(tmp_path / f'{name}-votes')
    plain = config(trained, tmp_path / 'plain')
    launch(plain, [])
    assert texts['zero'] == rows_of(tmp_path / 'plain') != texts['strong']
    report = report_of(tmp_path / 'strong-votes')
    assert report.settings['adapter_sha256'] == released.read_card(str(tmp_path / 'strong')).factors


def test_the_public_prompt_is_read_by_the_adapted_model(
    trained: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Without a record only public rows decide: they differ with the adapter."""
    (tmp_path / 'in.jsonl').write_text('{"text": "none", "label": "c", "id": "1"}\n')
    texts = {}
    for name in ('zero', 'strong'):
        given = {'input': str(tmp_path / 'in.jsonl'), 'adapter': str(trained / name)}
        launch(config(trained, tmp_path / name, **given), [])
        texts[name] = rows_of(tmp_path / name)
    assert texts['zero'] != texts['strong']
    # And in numbers: the decoder of a run's generator is the model with the factors.
    run = config(trained, tmp_path / 'out', adapter=str(trained / 'strong'))
    with_factors, without = (
        predict.load_generator(graph.generator_settings(methods.solve(of, launch=True))).decoder
        for of in (run, config(trained, tmp_path / 'out'))
    )
    factors = adapters.from_bytes((trained / 'strong' / TENSORS).read_bytes(), 'tiny', 2)
    prompt = workers.prompt_writer(run.method, run.input).public_prompt('a')
    logits = [
        np.asarray(model.logits(model.weights, model.prefill([prompt] * 8)[0][0]))
        for model in (with_factors, without, tiny_decoder(with_factors, factors))
    ]
    np.testing.assert_array_equal(logits[0], logits[2])
    assert np.abs(logits[0] - logits[1]).max() > 0.1


def tiny_decoder(like: Any, factors: Any) -> Any:
    """The same model, put together here."""
    return tiny.Tiny().load_decoder(
        'tiny', '', shapes=like.shapes, dtype='float32', adapter=jax.tree.map(np.asarray, factors)
    )


def test_both_costs_are_in_one_sum_and_the_report_says_so(
    trained: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    shutil.copy(trained / 'ledger.db', tmp_path / 'ledger.db')
    ledger = Ledger.open(str(tmp_path / 'ledger.db'))
    charged = {'dataset': 'fruit', 'ledger': str(tmp_path / 'ledger.db')}
    run = config(trained, tmp_path / 'out', adapter=str(trained / 'adapter'), **charged)
    assert plan.plan_run(methods.solve(run)).warnings == () and charge.ask(methods.solve(run)).fits
    launch(run, [])
    first, second = ledger.account('fruit').runs
    report = report_of(tmp_path / 'out')
    assert report.ledger is not None and report.ledger.run_number == 2
    assert report.ledger.rho_before == pytest.approx(first.cost.curve.rho_at(second.renyi_order))
    enforced = ' '.join(report.assumptions_enforced)
    assert "The run 'adapter' went in." in enforced and "as run 1 on dataset 'fruit'" in enforced
    assert 'the sum of all runs has both costs' in enforced
    card = released.read_card(str(trained / 'adapter'))
    assert report.settings['adapter_epsilon'] == card.epsilon
    assert report.settings['adapter_sha256'] == card.factors
    (together,) = [row for row in report.data_accesses if row.startswith('Covered with what went in')]
    assert "the run 'adapter' (fine-tuning; ε = " in together
    assert report.epsilon == pytest.approx(report.ledger.epsilon_after, rel=0.02)
    assert 'adapter' not in report.settings and str(trained) not in report.to_json()
    assert not any('others than these' in row for row in report.assumptions_of_curator)
    below = 'The weights below the adapter were not trained on these records.'
    assert below in report.assumptions_of_curator
    assert 'The model was not trained on these records.' not in report.assumptions_of_curator
    page = (tmp_path / 'out' / 'privacy_report.html').read_text()
    assert card.factors in page
    readme = (tmp_path / 'out' / 'README.md').read_text()
    assert 'with the released adapter of the run' in readme


@pytest.fixture(scope='module')
def samples(trained: pathlib.Path) -> pathlib.Path:
    """Free texts of the adapter that was charged."""
    with tiny.known():
        given = job_config(
            adapter=str(trained / 'adapter'), method='fine-tune', model='tiny', shards=1,
            output=str(trained / 'samples'), examples_per_label=8, min_example_tokens=1,
        )  # fmt: skip
        launch(given, [])
    # So small a model writes no words and ends no text, and nothing else can be voted on.
    (shard,) = (trained / 'samples' / 'data').iterdir()
    words = ('refund', 'payment', 'parcel', 'courier', 'address', 'account', 'price', 'road')
    rows = [
        {**row, 'text': f'the {words[place % 8]} of the {words[place // 8]}', 'truncated': False}
        for place, row in enumerate(pq.read_table(shard).to_pylist())
    ]
    pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(shard)), shard)
    return trained / 'samples'


def refining(trained: pathlib.Path, samples: pathlib.Path, output: pathlib.Path, ledger: pathlib.Path) -> Any:
    return job_config(
        method='refine', corpus=str(samples), input=str(trained / 'in.jsonl'), output=str(output),
        label_field='label', labels=('a', 'b'), record_id_field='id', records=30, delta=1e-2, epsilon=1.0,
        keep=3, dataset='fruit', ledger=str(ledger), shards=1,
    )  # fmt: skip


def test_texts_of_an_adapter_carry_its_card_and_what_refines_them_adds_to_its_charge(
    trained: pathlib.Path, samples: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    card = released.read_card(str(trained / 'adapter'))
    assert released.card_of_texts(str(samples)) == card
    shutil.copy(trained / 'ledger.db', tmp_path / 'ledger.db')
    run = refining(trained, samples, tmp_path / 'out', tmp_path / 'ledger.db')
    asked = charge.ask(methods.solve(run))
    launch(run, [])
    report = report_of(tmp_path / 'out')
    assert any(
        "The first list was sampled, by the run 'samples', from the adapter that the run 'adapter' released."
        in row
        for row in report.assumptions_enforced
    )
    assert any(
        "The run 'adapter' went in. The ledger charged it before this run, as run 1 on dataset 'fruit'" in row
        for row in report.assumptions_enforced
    )
    # Alone the votes are stated in zCDP, which is more than both by their losses.
    assert report.ledger is not None and report.epsilon_of_run is not None
    least = max(report.epsilon_of_run, report.ledger.epsilon_after)
    assert report.epsilon == pytest.approx(least, rel=1e-3)
    # Both releases together, by their losses: less than Rényi divergences add up to.
    account = Ledger.open(str(tmp_path / 'ledger.db')).account('fruit')
    events = [event for each in account.runs for event in each.cost.stages.values()]
    assert len(account.runs) == 2
    assert report.ledger.epsilon_after == asked.epsilon_together == epsilon_of_events(events, 1e-2)
    assert card.epsilon < report.ledger.epsilon_after
    assert report.ledger.epsilon_after < compose(each.cost.curve for each in account.runs).epsilon(1e-2)
    assert asked.epsilon_together is not None
    together = f'together ε = {format_up(asked.epsilon_together)} at'
    assert any(together in text for _, text in asked.rows(1e-2))


def test_what_refines_texts_of_an_adapter_is_refused_where_the_ledger_lacks_its_charge(
    trained: pathlib.Path, samples: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    ledger = Ledger.create(str(tmp_path / 'other.db'))
    ledger.add_dataset('fruit', unit='example', delta=1e-2, epsilon=20.0)
    run = refining(trained, samples, tmp_path / 'out', tmp_path / 'other.db')
    with pytest.raises(ValueError, match="a corpus whose charge the ledger holds, .*run_id='adapter'"):
        launch(run, [])
    # As the reference of votes on tokens too.
    votes = config(
        trained, tmp_path / 'out', reference=str(samples), reference_size=1, dataset='fruit',
        ledger=str(tmp_path / 'other.db'), aggregate='difference', accounting='individual', epsilon=1.0,
        max_private_tokens=None, max_batch_tokens=8, records=30,
    )  # fmt: skip
    with pytest.raises(ValueError, match="Expected an earlier release whose charge .*run_id='adapter'"):
        charge.ask(methods.solve(votes))
    assert ledger.account('fruit').runs == () and not (tmp_path / 'out').exists()


@pytest.mark.parametrize('of', ['no ledger', 'this ledger', 'another ledger', 'other records'])
def test_where_nothing_adds_up_the_report_says_whose_figures_these_are(
    trained: pathlib.Path, tmp_path: pathlib.Path, of: str
) -> None:
    place, given = tmp_path / 'adapter', {}
    shutil.copytree(trained / 'strong', place)
    if of in ('this ledger', 'other records'):
        shutil.copy(trained / 'ledger.db', tmp_path / 'ledger.db')
        given = {'dataset': 'parcels', 'ledger': str(tmp_path / 'ledger.db')}
    if of in ('no ledger', 'this ledger'):
        rewrite(place, lambda leaf, _: leaf, dataset=None, run_number=None)
    if of == 'another ledger':
        rewrite(place, lambda leaf, _: leaf, dataset='letters')
    run = config(trained, tmp_path / 'out', adapter=str(place), **given)
    run_plan = planned(run.replace(dataset=None, ledger=None))
    assert run_plan.notes[0].startswith(
        "Run 'adapter' went in. On the same records all of it together has ε = "
    )
    launch(run, [])
    report = report_of(tmp_path / 'out')
    # The plan, like the report, leads with both together.
    assert run_plan.epsilon_together == report.epsilon and str(report.epsilon)[:6] in run_plan.price()
    (vouched,) = [row for row in report.assumptions_of_curator if 'others than these' in row]
    assert "counts the run 'adapter' too, which went in" in vouched
    there = {'another ledger': "'letters'", 'other records': "'fruit'"}.get(of)
    assert f'charged {"to no ledger" if there is None else f"to dataset {there} of a ledger"}' in vouched
    here = "to dataset 'parcels' of a ledger" if given else 'to no ledger'
    assert f'this run {here}, and no sum of a ledger has both' in vouched
    assert (report.epsilon or 0.0) > (report.epsilon_of_run or 0.0)
    (said,) = [row for row in report.data_accesses if row.startswith('Covered with what went in')]
    assert "the run 'adapter' (fine-tuning; ε = " in said
    assert ('The sum of the ledger lacks' in said) == bool(given)
    assert "the run 'adapter' (fine-tuning; ε = " in (tmp_path / 'out' / 'README.md').read_text()


@pytest.mark.parametrize(
    'changed', [{'run_id': 'nobody'}, {'run_number': 2}, {'dataset': 'parcels'}, {'steps': 3}], ids=str
)
def test_an_adapter_that_claims_a_charge_which_the_ledger_does_not_hold_is_refused(
    trained: pathlib.Path, tmp_path: pathlib.Path, changed: dict[str, Any]
) -> None:
    place = tmp_path / 'adapter'
    shutil.copytree(trained / 'adapter' / 'adapter', place)
    text = json.loads((place / CARD).read_text())
    if 'steps' in changed:
        # Another training than what was charged: fewer steps cost less.
        params = released.read_card(str(place)).mechanism
        fewer = {'tuning_steps': params.tuning_steps - 1}
        given = tuning(trained, **fewer)
        from models.privacy.accounting import subsampled

        epsilon = subsampled.epsilon_of_event(methods.solve(given).params.event, 1e-2)
        of_fewer = {'epsilon': epsilon, 'epsilon_of_run': epsilon}
        changed = {'mechanism': text['mechanism'] | fewer, **of_fewer}
    (place / CARD).write_text(json.dumps(text | changed))
    charged = {'dataset': 'fruit', 'ledger': str(trained / 'ledger.db')}
    run = config(trained, tmp_path / 'out', adapter=str(place), **charged)
    ledger = Ledger.open(str(trained / 'ledger.db'))
    before = ledger.events()
    for asked in (
        lambda: charge.ask(methods.solve(run)),
        lambda: charge.check(ledger, methods.solve(run, launch=True)),
        lambda: launch(run, []),
    ):
        with pytest.raises(ValueError, match='Expected an adapter whose charge the ledger holds'):
            asked()
    assert ledger.events() == before and not (tmp_path / 'out').exists()


def test_an_adapter_that_does_not_go_with_the_run_is_refused_before_anything_is_made(
    trained: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    place = tmp_path / 'adapter'
    shutil.copytree(trained / 'strong', place)
    damaged = bytearray((place / TENSORS).read_bytes())
    damaged[-1] ^= 1
    (place / TENSORS).write_bytes(damaged)
    refused = [
        ({'adapter': str(place)}, ValueError, 'Expected the factors that the card of the adapter names'),
        ({'adapter': str(tmp_path / 'none')}, FileNotFoundError, 'an adapter has no guarantee'),
        (
            {'adapter': str(trained / 'strong'), 'checkpoint': str(trained / 'in.jsonl')},
            ValueError,
            'weights that the adapter was trained on',
        ),
        (
            {'adapter': str(trained / 'strong'), 'model': 'bundled'},
            ValueError,
            'Expected the model of the adapter',
        ),
    ]
    for changed, error, said in refused:
        with pytest.raises(error, match=said):
            launch(config(trained, tmp_path / 'out', **changed), [])
    assert not (tmp_path / 'out').exists() and not (tmp_path / 'out.curator').exists()
    # Sampling from it looks at the factors too.
    given = job_config(adapter=str(place), method='fine-tune', model='tiny', output=str(tmp_path / 'more'))
    with pytest.raises(ValueError, match='factors that the card'):
        methods.solve(given)
    # A file that changes after the launch is noticed where it is loaded.
    run = config(trained, tmp_path / 'out', adapter=str(trained / 'strong'))
    made = graph.generator_settings(methods.solve(run, launch=True))
    assert made.adapter is not None
    with pytest.raises(ValueError, match='factors that the card'):
        made.build(bytes(damaged))
    with pytest.raises(ValueError, match='exactly where there is an adapter'):
        made.build()


def test_a_run_is_resumed_with_its_own_adapter_alone(trained: pathlib.Path, tmp_path: pathlib.Path) -> None:
    place = tmp_path / 'adapter'
    shutil.copytree(trained / 'strong', place)
    run = config(trained, tmp_path / 'out', adapter=str(place))
    launch(run, [])
    before = rows_of(tmp_path / 'out')
    launch(run, [])
    assert rows_of(tmp_path / 'out') == before
    rewrite(place, lambda leaf, _: np.zeros(leaf.shape))
    with pytest.raises(FileExistsError, match='The weights, the tokenizer, the adapter'):
        launch(run, [])
