"""Every JSON that users meet is what its published schema says, and nothing else is."""

import copy
import dataclasses
import functools
import itertools
import json
import pathlib
import typing
from collections.abc import Iterator

import jsonschema
import numpy as np
import pytest

from models.audits.one_run import Bounds
from models.audits.result import CanaryAudit
from models.batch_plan import BatchPlan, Clustering
from models.clustering.centers import Centers
from models.finetuning import adapter
from models.privacy import accounting, gradients, report
from models.privacy.accounting import subsampled
from models.prompt_templates import PRESETS
from pipeline import comparison as plan_comparison
from pipeline import methods, model_list
from pipeline.check import input_check
from pipeline.check.records import check_records
from pipeline.commands import schema
from pipeline.config import job_config
from pipeline.estimate import Estimate
from pipeline.evaluation import evaluation, measures
from pipeline.ledger.budget import BudgetExceeded
from pipeline.ledger.ledger import Ledger
from pipeline.methods.evolve import plan as voting_plan
from pipeline.methods.fine_tune import plan as tuning_plan
from pipeline.methods.predict import plan
from pipeline.run import identity
from pipeline.schemas import documents, generated
from pipeline.settings.job_config import JobConfig
from tests import command_line
from tests.documents import check_document
from tests.models.privacy.report import golden_test
from tests.models.privacy.report.samples import INDIVIDUAL, SPENDING
from tests.pipeline.evaluation.placed import plain_sources
from tests.samples import assert_import_leaves

REPORTS = [
    'mean sparse user noisy later',
    'mean sparse record public first',
    'mean sparse record batches no-ledger',
    'median sparse slots public no-ledger',
    'individual plain slots noisy no-ledger',
]
INDIVIDUAL_RUN = {'aggregate': 'difference', 'max_private_tokens': None, 'epsilon': 3.0}


def canaries() -> CanaryAudit:
    bounds = Bounds(
        canaries=64, area=0.6, epsilon_at_least=0.57, epsilon_of_any=0.44, epsilon_of_curve=0.57,
        contradicts=False, most=2.5, scores_in=(1.5, 0.25), scores_out=(-0.5,),
    )  # fmt: skip
    return CanaryAudit(
        method='refine', attack='noisy votes and lists', reads='released', unit='example', seed=0, records=0,
        delta=1e-6, epsilon=3.0, confidence=0.95, bounds=bounds,
    )  # fmt: skip


def checked(path: pathlib.Path, **settings: typing.Any) -> input_check.InputCheck:
    config = job_config(input=str(path), output='x', text_field='text', epsilon=1.0, delta=1e-9, **settings)
    return check_records(config)


def evaluated(**beside: list[str]) -> evaluation.Evaluation:
    sources = plain_sources(['One text of a corpus.', 'And one more.'], **beside)
    return evaluation.evaluate([sources], [measures.MEASURES['surface'], measures.MEASURES['copies']])


def batch_plans() -> Iterator[BatchPlan]:
    yield BatchPlan(labels=(None,), batches_per_group=(4,), noisy_counts=None, contexts_rho=0.0)
    yield BatchPlan(
        labels=('a', 'b'), batches_per_group=(2, 1, 3), noisy_counts=(500, -3, 700), contexts_rho=0.01,
        clustering=CLUSTERING,
    )  # fmt: skip


CLUSTERING = Clustering(kept=((0, 2), (1,)), noisy_counts=((300, -2, 41), (7, 650, 12)), rho=0.0025)


def config(**settings: typing.Any) -> JobConfig:
    return job_config(
        **({'delta': 1e-6, 'aggregate': 'mean', 'max_private_tokens': 100, 'batch_size': 128} | settings)
    )


def centers_json(folder: pathlib.Path) -> str:
    Centers(
        vectors=np.eye(3, dtype=np.float32), embedder='tfidf', embedder_fingerprint='ab' * 32,
        corpus_fingerprint='cd' * 32, corpus_texts=5, seed=0, versions=(('numpy', '2.4.6'),),
    ).write(folder)  # fmt: skip
    return (folder / 'centers.json').read_text()


@pytest.fixture(scope='module')
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Documents as the code writes them, by name."""
    folder = tmp_path_factory.mktemp('centers')
    records = folder / 'records.jsonl'
    records.write_text('{"text": "a record"}\n')
    restricted = golden_test.restricted_of(True)
    spending = report.context_spending(SPENDING, INDIVIDUAL)
    return {
        'privacy-report': [golden_test.made_of(key) for key in REPORTS],
        'restricted-report': [
            restricted.to_json(),
            dataclasses.replace(restricted, losses=None).to_json(),
            dataclasses.replace(restricted, losses=None, spending=spending).to_json(),
        ],
        'canary-audit': [canaries().to_json()],
        'input-check': [
            checked(records).to_json(),
            checked(records, label_field='text', labels=('b',)).to_json(),
        ],
        'evaluation': [evaluated().to_json(), evaluated(test=['Another text.']).to_json()],
        'run-plan': [
            made.to_json()
            for settings in (
                {},
                {'batches_per_label': 4},
                {'aggregate': 'median'},
                {'records': 10**6},
                INDIVIDUAL_RUN,
            )
            for made in run_plans(config(**settings))
        ],
        'tuning-plan': [each.to_json() for each in tuning_plans()],
        'voting-plan': [*(each.to_json() for each in voting_plans()), refining_plan(records).to_json()],
        'plan-comparison': [
            plan_comparison.compare({'records': 800, 'epsilon': 1.0, **wanted}).to_json()
            for wanted in ({}, {'typical_words': 40, 'examples': 10**6, 'model': 'gemma3-270m'})
        ],
        'adapter': [
            of.to_json()
            for of in (
                adapter_card(None, None),
                adapter_card('visits', (70, -2)),
                dataclasses.replace(adapter_card(None, None), lora_rank=None),
            )
        ],
        'batch-plan': [each.to_json() for each in batch_plans()],
        'clustering': [CLUSTERING.to_json()],
        'centers': [centers_json(folder)],
        'run': [
            json.dumps(
                identity.fingerprint(
                    methods.solve(config(input=str(records), output=str(folder / 'corpus')), launch=True)
                )
            )
        ],
        'failure': [failure()],
        'models': [model_list.model_list().to_json()],
        'fitted-centers': [fitted_centers(records, folder)],
        **ledgers(str(folder / 'ledger.db')),
    }


def estimates() -> Iterator[Estimate]:
    """Before the first run with a model, and after one."""
    yield Estimate(
        model='bundled', dtype='float32', device=None, training_hours=None, decoding_hours=None,
        memory_bytes=1,
    )  # fmt: skip
    yield Estimate(
        model='bundled', dtype='bfloat16', device='two cores', training_hours=0.0, decoding_hours=1.5,
        memory_bytes=2**30,
    )  # fmt: skip


def tuning_plans() -> Iterator[tuning_plan.TuningPlan]:
    """Without an estimate, and with one."""
    given = job_config(
        method='fine-tune', noise_multiplier=1.0, records=1000, delta=1e-4, tuning_steps=2, labels=('a', 'b'),
        label_field='label',
    )  # fmt: skip
    made = tuning_plan.plan_run(methods.solve(given))
    yield made
    yield tuning_plan.plan_run(methods.solve(given.replace(label_mix_rho=0.005)))
    for estimate in estimates():
        yield dataclasses.replace(made, estimate=estimate, rho_at_order=0.5)
    yield tuning_plan.plan_run(methods.solve(given.replace(full=True)))


def voting_plans() -> Iterator[voting_plan.VotingPlan]:
    """Without an estimate, with one, and of an endpoint."""
    given = job_config(method='evolve', epsilon=1.0, records=1000, labels=('a', 'b'), label_field='label')
    for estimate in (None, *estimates()):
        yield voting_plan.plan_run(methods.solve(given), estimate)
    asked = given.replace(
        endpoint='http://localhost:1/v1', endpoint_model='any', vote_noise=3.0, epsilon=None
    )
    yield voting_plan.plan_run(methods.solve(asked))


def refining_plan(texts: pathlib.Path) -> typing.Any:
    given = job_config(method='refine', epsilon=1.0, records=1000, corpus=str(texts))
    return methods.of(given).plan(methods.solve(given))


def adapter_card(dataset: str | None, mix: tuple[int, ...] | None) -> adapter.AdapterCard:
    params = gradients.TuningParams(
        units=100.0, expected_batch_size=10, tuning_steps=2, clip_norm=1.0, noise_multiplier=1.0,
        label_mix_rho=None if mix is None else 0.005,
    )  # fmt: skip
    return adapter.AdapterCard(
        run_id='visits', dataset=dataset, run_number=None if dataset is None else 1, model='bundled',
        weights='ab' * 32, lora_rank=4, factors='cd' * 32,
        epsilon=subsampled.epsilon_of_event(params.event, 1e-3),
        epsilon_of_run=subsampled.epsilon_of_event(params.event, 1e-3), delta=1e-3,
        mechanism=dataclasses.asdict(params), template=dataclasses.asdict(PRESETS['pretrained']),
        prompt={
            'label_name': 'Ward', 'text_name': 'Note', 'corpus_description': 'Notes.',
            'max_prompt_tokens': 32, 'max_example_tokens': 64, 'schema': None,
        },
        labels=('a=apples', 'b'), label_counts=mix,
    )  # fmt: skip


def run_plans(given: JobConfig) -> Iterator[plan.PredictionPlan]:
    """Without an estimate, and with one."""
    for estimate in (None, *estimates()):
        yield plan.plan_run(methods.solve(given), estimate)


def fitted_centers(records: pathlib.Path, folder: pathlib.Path) -> str:
    """What a command prints that fits centres."""
    words = [''.join(letters) for letters in itertools.product('bdfgk', 'aeiou', 'lmnrst', 'aou')]
    rng = np.random.default_rng(0)
    texts = [' '.join(rng.choice(words, 12)) for _ in range(300)]
    records.write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts))
    arguments = ('--input', str(records), '--output', str(folder / 'fitted'), '--count', '2', '--json')
    return command_line.in_this_process('centers', *arguments).stdout


COSTS: list[accounting.DpEvent] = [
    accounting.ZCDpEvent(rho=0.01),
    accounting.TruncatedZCDpEvent(rho=0.01, omega=40.0),
    accounting.GaussianDpEvent(noise_multiplier=20.0),
    accounting.DiscreteGaussianDpEvent(sigma=20.0),
    accounting.DiscreteGaussianVectorDpEvent(noise_multiplier=20.0, sensitivity=1024, cells=4),
    accounting.PoissonSampledDpEvent(
        sampling_probability=0.01, event=accounting.GaussianDpEvent(noise_multiplier=2.0)
    ),
    accounting.SelfComposedDpEvent(event=accounting.ZCDpEvent(rho=0.001), count=5),
    accounting.ComposedDpEvent(events=(accounting.ZCDpEvent(rho=0.001), accounting.ZCDpEvent(rho=0.002))),
]


def ledgers(where: str) -> dict[str, list[str]]:
    """A ledger with a run of each kind of cost, one of them finished and one refused."""
    opened = Ledger.create(where)
    opened.add_dataset('visits', unit='example', delta=1e-6, rho=1.0)
    opened.add_dataset('mails', unit='user', delta=1e-6, epsilon=3.0)
    for number, event in enumerate(COSTS):
        reserve(opened, f'run-{number}', event)
    opened.settle('visits', 'run-0')
    with pytest.raises(BudgetExceeded):
        reserve(opened, 'too-much', accounting.ZCDpEvent(rho=7.0))
    found = {}
    for name, flags in (('', ()), ('-restricted', ('--restricted',))):
        for document, command in (('ledger', ('export',)), ('ledger-accounts', ('show', '--json'))):
            done = command_line.in_this_process('ledger', *command, '--ledger', where, *flags)
            found[f'{document}{name}'] = [done.stdout]
    return found


def reserve(opened: Ledger, run_id: str, event: accounting.DpEvent) -> None:
    opened.reserve(
        'visits', run_id=run_id, unit='example', cost=accounting.RunCost(stages={'generation': event}),
        identity='i', key_commitment='k',
    )  # fmt: skip


def test_every_kind_of_cost_is_tried() -> None:
    assert {type(event) for event in COSTS} == set(typing.get_args(accounting.DpEvent))


def test_no_document_takes_the_place_of_another(written: dict[str, list[str]]) -> None:
    # Above all, what is the curator's never passes for what anyone may read.
    for name in NAMES:
        for other in NAMES:
            if other != name:
                with pytest.raises(jsonschema.ValidationError):
                    check_document(other, written[name][0])


def failure() -> str:
    """What a command prints for programs that cannot do its work."""
    return command_line.in_this_process('plan', '--json', '--batch-size', '0').stdout


NAMES = documents.names()


@pytest.mark.parametrize('name', NAMES)
def test_the_committed_schema_is_the_one_that_the_types_give(name: str) -> None:
    assert documents.committed(name) == generated.generate(name), (
        'run python -m pipeline.schemas.generated, and raise the schema_version if readers have to know'
    )


def test_no_schema_is_left_of_a_document_that_is_gone() -> None:
    folder = pathlib.Path(documents.__file__).parent
    assert {path.name for path in folder.glob('*.json')} == {f'{name}.schema.json' for name in NAMES}


def test_every_document_is_tried(written: dict[str, list[str]]) -> None:
    assert set(written) == set(NAMES)


@pytest.mark.parametrize('name', NAMES)
def test_what_is_written_is_valid(name: str, written: dict[str, list[str]]) -> None:
    for text in written[name]:
        check_document(name, text)


def places(node: typing.Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a parsed document; of a list the first and the last element."""
    yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from places(value, (*path, key))
    elif isinstance(node, list):
        for index in sorted({0, len(node) - 1} & set(range(len(node)))):
            yield from places(node[index], (*path, index))


def edited(document: typing.Any, path: tuple[str | int, ...], change: typing.Any) -> typing.Any:
    """A copy with `change` called on the container of the place and its key there."""
    found = copy.deepcopy(document)
    parent = found
    for part in path[:-1]:
        parent = parent[part]
    change(parent, path[-1])
    return found


def put(value: typing.Any, container: typing.Any, key: typing.Any) -> None:
    container[key] = value


# Objects whose keys are the run's own: any name will do there.
OPEN = {
    'settings',
    'mechanism',
    'versions',
    'rejected_by_reason',
    'rejected',
    'left_out',
    'contexts_per_batch',
    'loss_by_batch',
    'rho_by_stage',
    'stages',
    'details',
}


@pytest.mark.parametrize('name', NAMES)
def test_what_is_edited_is_not(name: str, written: dict[str, list[str]]) -> None:
    tried = 0
    for text in written[name][:2]:
        document = json.loads(text)
        for path in places(document):
            if 'details' in path[:-1]:
                continue  # any values by name
            here = value_at(document, path)
            wrong: list[typing.Any] = []
            if path:
                # No leaf is a list within a list, and no container an empty text.
                other: typing.Any = '' if isinstance(here, dict | list) else [[]]
                wrong.append(edited(document, path, functools.partial(put, other)))
            if path and isinstance(path[-1], str) and not OPEN & set(path[:-1][-1:]):
                wrong.append(edited(document, path, dict.pop))
            if isinstance(here, dict) and not OPEN & set(path[-1:]):
                wrong.append(edited(document, (*path, 'surprise'), functools.partial(put, 1)))
            for each in wrong:
                tried += 1
                with pytest.raises(jsonschema.ValidationError):
                    check_document(name, json.dumps(each))
                    pytest.fail(f'accepted with another {path}')
    assert tried >= 5


@pytest.mark.parametrize('name', NAMES)
def test_nan_is_no_json(name: str, written: dict[str, list[str]]) -> None:
    document = json.loads(written[name][0])
    leaf = next(path for path in places(document) if not isinstance(value_at(document, path), dict | list))
    spoilt = edited(document, leaf, functools.partial(put, float('nan')))
    with pytest.raises(ValueError, match='NaN'):
        check_document(name, json.dumps(spoilt))


def value_at(document: typing.Any, path: tuple[str | int, ...]) -> typing.Any:
    for part in path:
        document = document[part]
    return document


def test_every_key_of_the_reports_is_explained() -> None:
    for name in ('privacy-report', 'restricted-report'):
        found = json.loads(documents.committed(name))
        assert all('description' in value for value in found['properties'].values())


def test_reports_are_read_by_version_and_the_schema_says_which() -> None:
    found = json.loads(documents.committed('privacy-report'))
    assert found['properties']['schema_version']['const'] == report.SCHEMA_VERSION
    assert found['additionalProperties'] is False


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(ValueError, match='Choose from: adapter, batch-plan'):
        documents.committed('repot')


def test_the_command_prints_a_schema_or_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    schema.schema('centers')
    assert capsys.readouterr().out == documents.committed('centers')
    schema.schema()
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == NAMES
    assert 'privacy_report.json in the corpus folder.' in listed


@pytest.mark.run
def test_a_schema_is_printed_at_once() -> None:
    # What a schema is made from is imported to make it, not to print it.
    assert_import_leaves('pipeline.commands.schema', 'pydantic', 'jax', 'apache_beam', 'numpy', 'scipy')
