"""Every JSON that others read is what its published schema says, and nothing else is."""

import copy
import dataclasses
import functools
import json
import pathlib
import typing
from collections.abc import Iterator

import jsonschema
import pytest

from models.finetuning import adapter
from models.privacy import accounting, gradients
from models.privacy.accounting import subsampled
from models.prompt_templates import PRESETS
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.commands import schema
from pipeline.evaluation import evaluation, measures
from pipeline.ledger.budget import BudgetExceeded
from pipeline.ledger.ledger import Ledger
from pipeline.methods.estimate import Estimate
from pipeline.methods.evolve import plan as voting_plan
from pipeline.methods.fine_tune import plan as tuning_plan
from pipeline.methods.method import RunPlan
from pipeline.methods.predict import plan
from pipeline.schemas import documents, generated
from pipeline.settings.job_config import JobConfig
from tests import command_line
from tests.documents import check_document
from tests.models.privacy.report import golden_test
from tests.pipeline.evaluation.placed import plain_sources
from tests.pipeline.pages import every_page
from tests.samples import assert_import_leaves

REPORTS = [
    'mean sparse user noisy later',
    'mean sparse record public first',
    'mean sparse record batches no-ledger',
    'median sparse slots public no-ledger',
    'individual plain slots noisy no-ledger',
]
INDIVIDUAL_RUN = {'aggregate': 'difference', 'max_private_tokens': None, 'epsilon': 3.0}


def evaluated(**beside: list[str]) -> evaluation.Evaluation:
    sources = plain_sources(['One text of a corpus.', 'And one more.'], **beside)
    return evaluation.evaluate([sources], [measures.MEASURES['surface'], measures.MEASURES['copies']])


def config(**settings: typing.Any) -> JobConfig:
    return job_config(
        **({'delta': 1e-6, 'aggregate': 'mean', 'max_private_tokens': 100, 'batch_size': 128} | settings)
    )


@pytest.fixture(scope='module')
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Documents as the code writes them, by name."""
    folder = tmp_path_factory.mktemp('written')
    records = folder / 'records.jsonl'
    records.write_text('{"text": "a record"}\n')
    run_settings = (
        {}, {'batches_per_label': 4}, {'aggregate': 'median'}, {'records': 10**6}, INDIVIDUAL_RUN,
    )  # fmt: skip
    plans = [
        *(made for settings in run_settings for made in run_plans(config(**settings))),
        *tuning_plans(),
        *tuned_voting_plans(),
        *voting_plans(),
        refining_plan(records),
    ]
    cards = (
        adapter_card(None, None),
        adapter_card('visits', (70, -2)),
        dataclasses.replace(adapter_card(None, None), lora_rank=None),
    )
    return {
        'privacy-report': [
            *(golden_test.made_of(key) for key in REPORTS),
            *(made.to_json() for made in every_page.reports().values()),
        ],
        'evaluation': [evaluated().to_json(), evaluated(test=['Another text.']).to_json()],
        'plan': [made.to_json() for made in plans],
        'adapter': [card.to_json() for card in cards],
        'failure': [failure()],
        'ledger': [exported_ledger(str(folder / 'ledger.db'))],
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


def tuned_voting_plans() -> Iterator[RunPlan]:
    """Without an estimate, and with one."""
    given = job_config(
        method='tune-refine', epsilon=1.0, records=1000, labels=('a', 'b'), label_field='label'
    )
    for estimate in (None, *estimates()):
        yield methods.of(given).plan(methods.solve(given), estimate)


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
        mechanism=params, template=PRESETS['pretrained'],
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


def exported_ledger(where: str) -> str:
    """A ledger with a run of each kind of cost, one of them finished and one refused."""
    opened = Ledger.create(where)
    opened.add_dataset('visits', unit='example', delta=1e-6, rho=1.0)
    opened.add_dataset('mails', unit='user', delta=1e-6, epsilon=3.0)
    for number, event in enumerate(COSTS):
        reserve(opened, f'run-{number}', event)
    opened.settle('visits', 'run-0')
    with pytest.raises(BudgetExceeded):
        reserve(opened, 'too-much', accounting.ZCDpEvent(rho=7.0))
    return command_line.in_this_process('ledger', 'export', '--ledger', where).stdout


def reserve(opened: Ledger, run_id: str, event: accounting.DpEvent) -> None:
    opened.reserve(
        'visits', run_id=run_id, unit='example', cost=accounting.RunCost(stages={'generation': event}),
        identity='i', key_commitment='k',
    )  # fmt: skip


def test_every_kind_of_cost_is_tried() -> None:
    assert {type(event) for event in COSTS} == set(typing.get_args(typing.get_args(accounting.DpEvent)[0]))


def test_no_document_takes_the_place_of_another(written: dict[str, list[str]]) -> None:
    # Above all, what is the curator's never passes for what anyone may read.
    for name in NAMES:
        for other in NAMES:
            if other != name:
                with pytest.raises(jsonschema.ValidationError):
                    check_document(other, written[name][0])


def failure() -> str:
    """The output, for programs, of a command that cannot do its work."""
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
OPEN = {'settings', 'versions', 'rejected', 'left_out', 'rho_by_stage', 'stages', 'details', 'costs'}


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


def test_every_key_of_a_report_and_a_card_is_explained() -> None:
    for name in ('privacy-report', 'adapter'):
        found = json.loads(documents.committed(name))
        assert all('description' in value for value in found['properties'].values())


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(ValueError, match='Choose from: adapter, evaluation'):
        documents.committed('repot')


def test_the_command_prints_a_schema_or_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    schema.schema('ledger')
    assert capsys.readouterr().out == documents.committed('ledger')
    schema.schema()
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == NAMES
    assert 'privacy_report.json in the corpus folder.' in listed


@pytest.mark.run
def test_a_schema_is_printed_at_once() -> None:
    # The sources of a schema are imported to make it, not to print it.
    assert_import_leaves('pipeline.commands.schema', 'pydantic', 'jax', 'apache_beam', 'numpy', 'scipy')
