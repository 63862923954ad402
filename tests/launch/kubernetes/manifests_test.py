import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from launch.flink.fetch import FLINK as FLINK_VERSION
from launch.flink.fetch import FLINK_MINOR, JOB_SERVER
from pipeline.asked.config import read_config
from pipeline.commands import exit_codes
from pipeline.run.beam_options import beam_options
from pipeline.settings.job_config import JobConfig

ROOT = pathlib.Path(__file__).parents[3]
FOLDER = ROOT / 'launch' / 'kubernetes'
MANIFESTS = {path.name: yaml.safe_load(path.read_text()) for path in FOLDER.glob('*.yaml')}
CRON_JOB = MANIFESTS['nightly.yaml']
JOB = CRON_JOB['spec']['jobTemplate']['spec']
LAUNCHER = JOB['template']['spec']
(SUBMIT,) = LAUNCHER['containers']
FLINK = MANIFESTS['flink.yaml']['spec']
TASK_MANAGER = FLINK['taskManager']['podTemplate']['spec']
FILES = MANIFESTS['files.yaml']['spec']
(POOL,) = TASK_MANAGER['initContainers']
# As the controller names a Job of the CronJob: the scheduled minute since 1970.
JOB_NAME = f'{CRON_JOB["metadata"]["name"]}-29660280'


def submitted() -> tuple[list[str], list[str]]:
    """The command of the launcher's container: our arguments, and Beam's after the bare --."""
    words = [word.replace('$(RUN_ID)', JOB_NAME) for word in (*SUBMIT['command'], *SUBMIT['args'])]
    place = words.index('--')
    return words[:place], words[place + 1 :]


def flags() -> dict[str, str]:
    pairs = (word.removeprefix('--').partition('=') for word in submitted()[0][2:])
    return {name.replace('-', '_'): value for name, _, value in pairs}


def beam_flags() -> dict[str, str]:
    pairs = (word.removeprefix('--').partition('=') for word in submitted()[1])
    return {name: value for name, _, value in pairs}


def config() -> JobConfig:
    """The config of a scheduled run, from the very file and flags of the manifests."""
    given = flags()
    assert given.pop('config') == '/etc/dp-corpus/run.toml'
    assert given.pop('quiet') == ''
    return read_config(str(FOLDER / 'run.toml'), given)


def test_the_launcher_runs_a_config_that_the_job_accepts() -> None:
    assert submitted()[0][:2] == ['dp-corpus', 'generate']
    accepted = config()
    assert accepted.output.name == JOB_NAME
    assert accepted.runner.runner == 'FlinkRunner'
    assert (accepted.budget.dataset is None, accepted.budget.ledger is None) == (False, False)


def test_beam_knows_its_options() -> None:
    options = beam_options(config().runner.runner, submitted()[1]).get_all_options()
    assert options['flink_submit_uber_jar'] is True
    assert options['environment_type'] == 'EXTERNAL'


def test_every_run_has_folders_of_its_own_on_the_shared_volume() -> None:
    accepted = config()
    assert accepted.output.output != accepted.output.curator
    for path in (str(accepted.output.output), accepted.output.curator):
        assert path.startswith('/data/') and path.endswith(f'/{JOB_NAME}')
    for pod, container in ((LAUNCHER, SUBMIT), (TASK_MANAGER, POOL)):
        mounts = {mount['name']: mount['mountPath'] for mount in container['volumeMounts']}
        volumes = {volume['name']: volume for volume in pod['volumes']}
        assert set(mounts) <= set(volumes)
        assert mounts['data'] == '/data'
        claim = volumes['data']['persistentVolumeClaim']['claimName']
        assert claim == MANIFESTS['volume.yaml']['metadata']['name']
    assert MANIFESTS['volume.yaml']['spec']['accessModes'] == ['ReadWriteMany']


def test_a_retried_pod_resumes_the_run_of_its_job() -> None:
    (run_id,) = [entry for entry in SUBMIT['env'] if entry['name'] == 'RUN_ID']
    assert run_id['valueFrom']['fieldRef']['fieldPath'] == "metadata.labels['batch.kubernetes.io/job-name']"
    # A container that restarts in its pod would be out of the failure policy's sight.
    assert LAUNCHER['restartPolicy'] == 'Never'
    assert JOB['backoffLimit'] > 0
    assert CRON_JOB['spec']['concurrencyPolicy'] == 'Forbid'


def test_a_run_that_the_budget_or_the_request_forbids_is_not_tried_again() -> None:
    rule = JOB['podFailurePolicy']['rules'][0]
    assert rule['action'] == 'FailJob'
    assert rule['onExitCodes']['containerName'] == SUBMIT['name']
    assert rule['onExitCodes']['operator'] == 'In'
    assert set(rule['onExitCodes']['values']) == {exit_codes.USAGE, exit_codes.BUDGET}


def test_one_task_manager_has_one_slot_one_pool_and_one_gpu() -> None:
    assert FLINK['flinkConfiguration']['taskmanager.numberOfTaskSlots'] == '1'
    assert POOL['resources']['limits']['nvidia.com/gpu'] == 1
    assert POOL['args'] == ['--worker_pool']
    # Flink's pods never restart a plain container, and a job without its pool waits for ever.
    assert POOL['restartPolicy'] == 'Always'
    assert [container['name'] for container in TASK_MANAGER['containers']] == ['flink-main-container']


def test_ports_and_names_agree() -> None:
    (port,) = POOL['ports']
    assert POOL['startupProbe']['tcpSocket']['port'] == port['name']
    assert beam_flags()['environment_config'] == f'localhost:{port["containerPort"]}'
    service = f'{MANIFESTS["flink.yaml"]["metadata"]["name"]}-rest'
    assert beam_flags()['flink_master'] == f'http://{service}:8081'
    operator = MANIFESTS['network.yaml']['spec']['ingress'][1]
    assert [entry['port'] for entry in operator['ports']] == [8081]


def test_the_version_of_flink_is_that_of_the_local_cluster() -> None:
    minor = beam_flags()['flink_version']
    assert minor == FLINK_MINOR
    assert FLINK['flinkVersion'] == f'v{minor.replace(".", "_")}'
    assert re.fullmatch(rf'flink:{re.escape(FLINK_VERSION)}-java\d+', FLINK['image'])
    jar = pathlib.PurePath(beam_flags()['flink_job_server_jar']).name
    assert jar == f'{JOB_SERVER}.jar'


def test_a_lost_task_manager_restarts_the_job() -> None:
    configuration = FLINK['flinkConfiguration']
    assert all(isinstance(value, str) for value in configuration.values())
    assert configuration['restart-strategy.type'] == 'fixed-delay'
    assert int(configuration['restart-strategy.fixed-delay.attempts']) > 0
    # A lost worker is kept for as long as an idle one: steps must not get it back.
    delay = configuration['restart-strategy.fixed-delay.delay'].removesuffix(' s')
    assert int(beam_flags()['environment_cache_millis']) < 1000 * int(delay)


def test_the_password_comes_from_a_secret_and_reaches_the_launcher_alone() -> None:
    (password,) = [entry for entry in SUBMIT['env'] if entry['name'] == 'PGPASSWORD']
    assert 'value' not in password
    assert set(password['valueFrom']) == {'secretKeyRef'}
    elsewhere = [name for name in MANIFESTS if name != 'nightly.yaml']
    assert not any('PGPASSWORD' in (FOLDER / name).read_text() for name in elsewhere)
    assert not any('password' in word.lower() for part in submitted() for word in part)
    assert not any(document['kind'] == 'Secret' for document in MANIFESTS.values())


@pytest.mark.parametrize('pod', [LAUNCHER, TASK_MANAGER, FILES], ids=['launcher', 'task manager', 'files'])
def test_no_pod_opens_the_run_key_to_the_group(pod: dict[str, Any]) -> None:
    assert pod['securityContext']['fsGroupChangePolicy'] == 'OnRootMismatch'


@pytest.mark.parametrize('container', [SUBMIT, POOL], ids=['submit', 'worker pool'])
def test_the_image_is_read_only_but_for_tmp(container: dict[str, Any]) -> None:
    """As `make image-check` runs it."""
    context = container['securityContext']
    assert context['readOnlyRootFilesystem'] is True and context['allowPrivilegeEscalation'] is False
    assert context['capabilities'] == {'drop': ['ALL']}
    assert {'/tmp', '/data'} <= {mount['mountPath'] for mount in container['volumeMounts']}
    # Beam's boot program writes to where it starts, and the image starts in /tmp.
    assert 'workingDir' not in container


def test_launcher_and_workers_are_one_user() -> None:
    """The key is its owner's alone, and both read it. It is the image's own user."""
    users = {context['runAsUser'] for context in (LAUNCHER['securityContext'], POOL['securityContext'])}
    assert users == {FILES['securityContext']['runAsUser']}
    dockerfile = (ROOT / 'launch' / 'image' / 'Dockerfile').read_text()
    assert [f'{user}:{user}' for user in users] == re.findall(r'^USER (\S+)$', dockerfile, re.MULTILINE)
    groups = {pod['securityContext']['fsGroup'] for pod in (LAUNCHER, TASK_MANAGER, FILES)}
    assert len(groups) == 1


def test_pods_are_those_that_the_network_policy_is_for() -> None:
    chosen = MANIFESTS['network.yaml']['spec']['podSelector']['matchLabels'].items()
    metadata = [
        JOB['template']['metadata'],
        *(FLINK[role]['podTemplate']['metadata'] for role in ('jobManager', 'taskManager')),
    ]
    assert all(chosen <= entry['labels'].items() for entry in metadata)


def test_kustomize_takes_every_file() -> None:
    kustomization = MANIFESTS['kustomization.yaml']
    assert set(kustomization['resources']) == set(MANIFESTS) - {'kustomization.yaml', 'files.yaml'}
    (generated,) = kustomization['configMapGenerator']
    (config_volume,) = [volume for volume in LAUNCHER['volumes'] if 'configMap' in volume]
    assert config_volume['configMap']['name'] == generated['name']
    assert all((FOLDER / name).is_file() for name in generated['files'])
    (image,) = kustomization['images']
    assert {SUBMIT['image'], POOL['image']} == {image['name']}


@pytest.mark.first
@pytest.mark.run
def test_kustomize_builds_one_set_of_manifests() -> None:
    if shutil.which('kubectl') is None:
        pytest.skip('needs kubectl, which is not on PATH')
    built = subprocess.run(
        ['kubectl', 'kustomize', str(FOLDER)],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    documents = {document['kind']: document for document in yaml.safe_load_all(built.stdout)}
    (image,) = MANIFESTS['kustomization.yaml']['images']
    name = f'{image["newName"]}:{image["newTag"]}'
    pods = (
        documents['CronJob']['spec']['jobTemplate']['spec']['template']['spec']['containers'],
        documents['FlinkDeployment']['spec']['taskManager']['podTemplate']['spec']['initContainers'],
    )
    assert [container['image'] for containers in pods for container in containers] == [name, name]
    assert all(
        document['metadata'].get('namespace') == 'dp-corpus'
        for kind, document in documents.items()
        if kind != 'Namespace'
    )
