"""Dataflow without a cloud: the whole job description and graph, built by Beam's own client.

Nothing is sent anywhere: the job is written to a local file, as for a classic template.
"""

import base64
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import urllib.parse
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
import pytest
import sqlalchemy as sa
import typer
from apache_beam.internal import pickler
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

from launch.dataflow import commands, profiles
from models.bundled import FOLDER as BUNDLED
from pipeline import job, main, methods
from pipeline.asked import config as config_lib
from pipeline.run import folders
from pipeline.run.beam_options import beam_options
from pipeline.settings.job_config import JobConfig
from tests.pipeline.conftest import postgresql  # noqa: F401 - a fixture
from tests.samples import unpacked, write_rows
from transforms import places, run_files
from transforms.durable import RUN_KEY
from transforms.read.sources import database

ROOT = pathlib.Path(__file__).parents[3]
CANARY = 'Zyxquortle'
# Else Dataflow keeps elements whose step failed, which are records, where the job is shown.
NO_SAMPLES = 'disable_always_on_exception_sampling'
IMAGE = 'images.example.org/a-project/dp-corpus:1'
PLACE = profiles.Place(
    project='a-project', region='us-central1', image=IMAGE, temp_location='gs://a-bucket/tmp'
)
ACCELERATOR = common_urns.resource_hints.ACCELERATOR.urn


def need_the_client() -> None:
    """Skips, loudly, where no job can be described."""
    if not (BUNDLED / 'checkpoint').exists():
        pytest.skip('the bundled model has no checkpoint: train it first')
    pytest.importorskip(
        'google.cloud.dataflow', reason="apache-beam[gcp] is not installed: pip install -e '.[gcp]'"
    )


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps Beam from looking for a user's credentials."""
    from apache_beam.internal.gcp import auth

    monkeypatch.setattr(auth._Credentials, '_credentials_init', True)
    monkeypatch.setattr(auth._Credentials, '_credentials', None)


@dataclasses.dataclass(frozen=True)
class Built:
    """The job that would go to Dataflow.

    Attributes:
        description: The job's JSON.
        graph: The pipeline.
        text: Both as bytes, with what functions hold unpacked.
    """

    description: dict[str, Any]
    graph: beam_runner_api_pb2.Pipeline
    text: bytes

    @property
    def pool(self) -> dict[str, Any]:
        (pool,) = self.description['environment']['workerPools']
        return pool


def records(folder: pathlib.Path) -> str:
    rows = [
        {'id': f'{CANARY}-{index}', 'text': f'{CANARY} writes {index}.', 'label': 'Billing'}
        for index in range(8)
    ]
    return write_rows(folder / 'in.jsonl', rows)


def flags(folder: pathlib.Path, **more: str) -> list[str]:
    given = {
        'input': records(folder), 'output': 'gs://a-bucket/runs/one', 'work-dir': 'gs://a-bucket/one.curator',
        'label-field': 'label', 'labels': 'Billing', 'record-id-field': 'id', 'batch-size': '8',
        'aggregate': 'mean', 'max-private-tokens': '8', 'delta': '1e-3', 'records': '1000',
    }  # fmt: skip
    return [f'--{name}={value}' for name, value in (given | more).items()]


def config_of(arguments: Sequence[str]) -> JobConfig:
    """The config as the command line would build it."""
    command = typer.main.get_command(main.app).commands['generate']  # type: ignore[attr-defined]
    with command.make_context('generate', list(arguments)) as context:
        given = {name: value for name, value in context.params.items() if name not in ('as_json', 'quiet')}
    return config_lib.read_config(given.pop('config'), given)


def build(folder: pathlib.Path, command: Sequence[str]) -> Built:
    """Carries the command out up to the moment where a job would be submitted."""
    need_the_client()
    assert list(command[:2]) == ['dp-corpus', 'generate']
    cut = command.index('--')
    config = config_of(command[2:cut])
    local = folder / 'job'
    local.mkdir()
    options = beam_options(
        config.runner.runner,
        [
            *command[cut + 1 :],
            '--no_auth',
            '--dataflow_endpoint=http://localhost:1',
            f'--temp_location={local}',
            f'--staging_location={local}',
            f'--template_location={local / "job.json"}',
            '--job_name=one',
        ],
    )
    root = beam.Pipeline(options=options)
    run = methods.solve(config, launch=True)
    job.build(root, run, methods.of(run).prepare(run))
    root.run()
    data, graph = (local / 'job.json').read_bytes(), b''
    for path in local.rglob('pipeline.pb'):
        graph = path.read_bytes()
    return Built(
        json.loads(data), beam_runner_api_pb2.Pipeline.FromString(graph), unpacked(data) + unpacked(graph)
    )


def hinted(graph: beam_runner_api_pb2.Pipeline) -> dict[str, bytes]:
    """Unique name -> accelerator hint, of the steps that carry one."""
    environments = graph.components.environments
    return {
        step.unique_name: environments[step.environment_id].resource_hints[ACCELERATOR]
        for step in graph.components.transforms.values()
        if step.environment_id and ACCELERATOR in environments[step.environment_id].resource_hints
    }


# --- The job description ---------------------------------------------------------


@pytest.fixture(scope='module')
def right_fitted(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp('l4')
    command = commands.generate_command(profiles.PROFILES['nvidia-l4'], PLACE, flags(folder))
    return build(folder, command)


@pytest.mark.first
@pytest.mark.run
def test_the_accelerator_hint_is_on_the_decoding_step_and_nowhere_else(right_fitted: Built) -> None:
    found = hinted(right_fitted.graph)
    assert {name.split('/ParDo')[0] for name in found} == {'Generate/Decode'}
    assert set(found.values()) == {b'type:nvidia-l4;count:1;install-nvidia-driver:5xx'}
    others = {step.unique_name for step in right_fitted.graph.components.transforms.values()} - set(found)
    assert {name.split('/')[0] for name in others} >= {'Read', 'Generate', 'Corpus', 'Report'}


TUNING = {
    'method': 'fine-tune', 'epsilon': '3', 'tuning-steps': '4', 'expected-batch-size': '8',
    'examples-per-label': '4',
}  # fmt: skip


@pytest.mark.run
@pytest.mark.parametrize('texts', ['4', '0'])
def test_of_fine_tuning_the_hint_is_on_training_and_on_sampling_and_nowhere_else(
    texts: str, tmp_path: pathlib.Path
) -> None:
    given = [
        flag
        for flag in flags(tmp_path, **TUNING | {'examples-per-label': texts})
        if not flag.startswith(('--batch-size', '--aggregate', '--max-private-tokens'))
    ]
    found = hinted(
        build(tmp_path, commands.generate_command(profiles.PROFILES['nvidia-l4'], PLACE, given)).graph
    )
    steps = {name.split('/ParDo')[0] for name in found}
    assert steps == {'Generate/Train'} | ({'Generate/Sample'} if texts != '0' else set())
    assert set(found.values()) == {b'type:nvidia-l4;count:1;install-nvidia-driver:5xx'}


@pytest.mark.run
@pytest.mark.parametrize('name', ['nvidia-a100', 'tpu-v5e'])
def test_the_other_profiles_ask_for_every_worker(name: str, tmp_path: pathlib.Path) -> None:
    profile = profiles.PROFILES[name]
    place = dataclasses.replace(PLACE, zone='us-central1-a', max_num_workers=3)
    found = build(tmp_path, commands.generate_command(profile, place, flags(tmp_path)))
    assert hinted(found.graph) == {}
    assert found.pool['machineType'] == profile.machine_type
    assert found.pool['autoscalingSettings']['maxNumWorkers'] == 3
    environment = found.description['environment']
    assert environment['serviceOptions'] == [f'worker_accelerator={profile.worker_accelerator}']
    assert environment['workerZone'] == 'us-central1-a'


@pytest.mark.run
def test_workers(right_fitted: Built) -> None:
    pool, environment = right_fitted.pool, right_fitted.description['environment']
    assert pool['numThreadsPerWorker'] == 1 and pool['diskSizeGb'] == 100
    assert {image['containerImage'] for image in pool['sdkHarnessContainerImages']} == {IMAGE}
    assert {*profiles.EXPERIMENTS, NO_SAMPLES} <= set(environment['experiments'])
    assert 'use_multiple_sdk_containers' not in environment['experiments']
    options = environment['sdkPipelineOptions']['options']
    assert options['region'] == 'us-central1' and options['project'] == 'a-project'
    assert options['sdk_location'] == 'container' and options['save_main_session'] is False
    assert 'element_processing_timeout_minutes' not in options
    # No code is staged, which the image holds: only Beam's note of the launcher's packages.
    staged = {package['name'] for package in pool.get('packages', [])}
    assert staged <= {'submission_environment_dependencies.txt'}


@pytest.mark.run
def test_a_launcher_submits_and_ends(tmp_path: pathlib.Path) -> None:
    """A Flex Template's launcher must not wait, and is done although no report is there yet."""
    need_the_client()
    arguments = flags(tmp_path, output=str(tmp_path / 'out'), **{'work-dir': str(tmp_path / 'work')})
    done = subprocess.run(
        [
            sys.executable, str(ROOT / 'launch' / 'engine_main.py'), *arguments, '--runner=DataflowRunner',
            '--project=a-project', '--region=us-central1', '--job_name=one', '--no_save_main_session=true',
            '--sdk_location=container', f'--sdk_container_image={IMAGE}', '--labels={"team": "x"}',
            f'--temp_location={tmp_path}', f'--staging_location={tmp_path}', '--no_auth',
            f'--template_location={tmp_path / "job_object"}', '--dataflow_endpoint=http://localhost:1',
        ],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
        env=os.environ | {'PYTHONPATH': str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    description = json.loads((tmp_path / 'job_object').read_text())
    assert description['labels'] == {'team': 'x'}
    assert NO_SAMPLES in description['environment']['experiments']  # though nobody told the launcher
    assert (tmp_path / 'work' / RUN_KEY).exists() and not (tmp_path / 'out' / run_files.REPORT).exists()


# --- What must not be in it ------------------------------------------------------


@pytest.mark.first
@pytest.mark.run
def test_the_search_sees_into_functions(right_fitted: Built) -> None:
    assert b'max_prompt_tokens' in right_fitted.text and b'gs://a-bucket/one.curator' in right_fitted.text
    assert CANARY.encode() in unpacked(base64.b64encode(zlib.compress(bytes(range(256)) + CANARY.encode())))


@pytest.mark.first
@pytest.mark.run
def test_no_record_and_no_place_of_the_key(right_fitted: Built) -> None:
    assert CANARY.encode() not in right_fitted.text
    assert RUN_KEY.encode() not in right_fitted.text


@pytest.mark.run
def test_no_key(tmp_path: pathlib.Path) -> None:
    """With a work directory whose key exists while the graph is built."""
    local = {'output': str(tmp_path / 'out'), 'work-dir': str(tmp_path / 'work')}
    command = commands.generate_command(profiles.PROFILES['nvidia-l4'], PLACE, flags(tmp_path, **local))
    folders.prepare(methods.solve(config_of(command[2 : command.index('--')]), launch=True))
    secret = (tmp_path / 'work' / RUN_KEY).read_bytes()
    found = build(tmp_path, command)
    for form in (secret, secret.hex().encode(), base64.b64encode(secret), base64.urlsafe_b64encode(secret)):
        assert form not in found.text
    assert RUN_KEY.encode() not in found.text and CANARY.encode() not in found.text


@pytest.mark.first
@pytest.mark.run
def test_the_ledger_is_not_in_it(tmp_path: pathlib.Path) -> None:
    """Workers have no business with the ledger, and its URL names a host and a user."""
    ledger = 'postgresql://curator@ledger.internal/budgets'
    given = flags(tmp_path, dataset='tickets', ledger=ledger)
    found = build(tmp_path, commands.generate_command(profiles.PROFILES['nvidia-l4'], PLACE, given))
    assert b'ledger.internal' not in found.text


# --- Records of a database -------------------------------------------------------

PASSWORD = 'pw/t?%@of-a-test'
QUERY = "SELECT id, note AS text, 'Billing' AS label FROM notes"


@pytest.mark.run
def test_a_query_is_in_it_and_neither_its_password_nor_a_row_nor_a_range(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Workers find the ranges: each ends with a key of a record."""
    place: str = request.getfixturevalue('postgresql')()
    with sa.create_engine(sa.make_url(place).set(drivername='postgresql+psycopg')).begin() as connection:
        connection.exec_driver_sql('CREATE TABLE notes (id TEXT, note TEXT)')
        rows = [{'id': f'{CANARY}-{n:02}', 'note': f'{CANARY} writes {n}.'} for n in range(40)]
        connection.execute(sa.text('INSERT INTO notes VALUES (:id, :note)'), rows)
    monkeypatch.setenv(places.PASSWORD_VARIABLE, '')
    quoted = urllib.parse.quote(PASSWORD, safe='')
    given = flags(tmp_path, input=place.replace('ledger@', f'ledger:{quoted}@'), query=QUERY,
                  **{'partition-column': 'id'})  # fmt: skip
    found = build(tmp_path, commands.generate_command(profiles.PROFILES['nvidia-l4'], PLACE, given))
    # This server asks for none; a worker's own environment has it for one that does.
    assert os.environ[places.PASSWORD_VARIABLE] == PASSWORD
    for form in (PASSWORD.encode(), quoted.encode(), base64.b64encode(PASSWORD.encode())):
        assert form not in found.text
    assert QUERY.encode() in found.text and CANARY.encode() not in found.text
    # The steps of a Dataflow worker with the place, from the graph alone.
    split, read = (_function(found.graph, f'Read/{name}') for name in ('SplitFiles', 'ReadPieces'))
    pieces = split(place)
    # 40 rows in ranges of three, and those without a key.
    assert 10 < len(pieces) <= database.PARTITIONS + 1
    texts = [record.text for piece in pieces for record in read(piece)]
    assert sorted(texts) == sorted(row['note'] for row in rows)


def _function(graph: beam_runner_api_pb2.Pipeline, name: str) -> Callable[[Any], list[Any]]:
    """The elements that a step of the graph makes of one."""
    (step,) = (each for each in graph.components.transforms.values() if each.unique_name == name)
    payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
    do, given, named, *_ = pickler.loads(payload.do_fn.payload)
    return lambda element: list(do.process(element, *given, **named))
