"""The image, built and run as Kubernetes runs it; `make image-check`."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest
from packaging.utils import canonicalize_name

from tests import setup_file
from tests.launch.image import container
from tests.launch.image.container import Store
from tests.launch.image.lock_test import pins

IMAGE = setup_file.ROOT / 'launch' / 'image'

pytestmark = [
    pytest.mark.run,
    pytest.mark.skipif(bool(container.missing()), reason=f'No image is built here. {container.missing()}.'),
]
KUBERNETES, DATAFLOW = 'localhost/dp-corpus:kubernetes', 'localhost/dp-corpus:dataflow'
BILL = 'usr/share/doc/dp-corpus/dp-corpus.cdx.json'
GENERATE = [
    'dp-corpus', 'generate', '--input', '/data/records.jsonl', '--label-field', 'label', '--labels', 'Hotel',
    '--epsilon', '5', '--delta', '1e-3', '--batch-size', '16', '--batches-per-label', '1',
    '--max-batch-tokens', '16', '--quiet',
]  # fmt: skip
# In place of an engine's, in a container without a network.
_JOB_SERVICE = 'python -m apache_beam.runners.portability.local_job_service_main --port 8099'


@pytest.fixture(scope='module')
def store() -> Iterator[Store]:
    """Both images of the variant for CPUs; some gigabytes, which are gone afterwards."""
    store = Store(pathlib.Path(tempfile.mkdtemp(prefix='dp-corpus-image-')))
    try:
        store.bases()
        store.build(KUBERNETES, 'cpu')
        store.build(DATAFLOW, 'cpu', '--target', 'dataflow')
        yield store
    finally:
        store.remove()


class Pod:
    """The image of Kubernetes with a volume at /data."""

    def __init__(self, root: pathlib.Path, image: dict[str, Any], folder: pathlib.Path) -> None:
        self.root, self.image, self.folder = root, image, folder
        self.data = folder / 'data'
        self.data.mkdir()
        rows = [{'text': f'The guest of room {n} found the bed hard.', 'label': 'Hotel'} for n in range(40)]
        (self.data / 'records.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
        user, group = (int(number) for number in image['User'].split(':'))
        os.chown(self.data, user, group)

    def run(self, *command: str, **changed: Any) -> 'subprocess.CompletedProcess[str]':
        bundle = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / 'bundle'
        return container.started(
            self.root, {**self.image, **changed}, list(command), bundle, {'/data': self.data}
        )

    def with_workers(self, seconds: int, **changed: Any) -> 'subprocess.CompletedProcess[str]':
        """A run whose workers the image's entry point starts, as it does on Flink; it has so many seconds."""
        script = f'{self._boot} --worker_pool & {_JOB_SERVICE} & timeout {seconds} "$@"'
        return self.run('sh', '-c', script, 'pod', *self._of_workers, **changed)

    def with_workers_until(
        self, text: str, seconds: int, **changed: Any
    ) -> 'subprocess.CompletedProcess[str]':
        """The same, which ends with status 3 as soon as a text is written."""
        script = f"""{self._boot} --worker_pool > /tmp/pool 2>&1 &
            {_JOB_SERVICE} > /tmp/service 2>&1 &
            timeout {seconds} "$@" > /tmp/run 2>&1 &
            until grep -q '{text}' /tmp/pool /tmp/service /tmp/run; do
                kill -0 $! || {{ cat /tmp/pool /tmp/service /tmp/run; wait $!; exit $?; }}
                sleep 1
            done
            cat /tmp/pool /tmp/service /tmp/run
            exit 3"""
        return self.run('sh', '-c', script, 'pod', *self._of_workers, **changed)

    @property
    def _boot(self) -> str:
        (boot,) = self.image['Entrypoint']
        return str(boot)

    @property
    def _of_workers(self) -> list[str]:
        beam = [
            '--job_endpoint=localhost:8099',
            '--environment_type=EXTERNAL',
            '--environment_config=localhost:50000',
        ]
        return [*GENERATE, '--output', '/data/corpus', '--runner', 'PortableRunner', '--', *beam]


@pytest.fixture
def pod(store: Store, tmp_path: pathlib.Path) -> Iterator[Pod]:
    with store.container(KUBERNETES) as (_, root):
        yield Pod(root, store.config(KUBERNETES), tmp_path)


def written(folder: pathlib.Path) -> set[str]:
    return {str(path.relative_to(folder)).split('/')[0] for path in folder.rglob('*')}


def test_engines_read_who_runs_it_and_what(store: Store) -> None:
    kubernetes, dataflow = store.config(KUBERNETES), store.config(DATAFLOW)
    assert kubernetes['Entrypoint'] == dataflow['Entrypoint'] == ['/opt/apache/beam/boot']
    assert (kubernetes['User'], dataflow.get('User', '')) == ('1000:1000', '')
    assert kubernetes['Labels']['org.opencontainers.image.version'] == setup_file.values()['version']
    assert 'FLEX_TEMPLATE_PYTHON_PY_FILE=/template/launch/engine_main.py' in dataflow['Env']


def test_a_user_without_rights_can_write_to_tmp_and_the_volume_alone(pod: Pod) -> None:
    script = """id -u
        for folder in / /template /usr/local /weights /tmp /data; do
            touch $folder/x 2> /dev/null && echo $folder
        done
        grep -E "CapEff|NoNewPrivs" /proc/self/status"""
    done = pod.run('sh', '-c', script)
    assert done.stdout.split() == ['1000', '/tmp', '/data', 'CapEff:', '0' * 16, 'NoNewPrivs:', '1']


def test_it_says_its_version_and_plans(pod: Pod) -> None:
    assert pod.run('dp-corpus', '--version').stdout == f'dp-corpus {setup_file.values()["version"]}\n'
    done = pod.run('dp-corpus', 'plan', '--epsilon', '1', '--records', '1000', '--json')
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)['epsilon'] <= 1


def test_a_run_writes_its_folders_and_nothing_else(pod: Pod) -> None:
    done = pod.run(*GENERATE, '--output', '/data/corpus')
    assert done.returncode == 0, done.stdout + done.stderr
    assert pq.read_table(pod.data / 'corpus' / 'data').num_rows
    assert written(pod.data) == {'records.jsonl', 'corpus', 'corpus.curator'}


def test_the_entry_point_is_a_worker_pool_that_decodes(pod: Pod) -> None:
    """As the sidecar of launch/kubernetes/flink.yaml, with Beam's own job service in place of Flink."""
    done = pod.with_workers(seconds=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert pq.read_table(pod.data / 'corpus' / 'data').num_rows
    assert "Starting worker with command ['/opt/apache/beam/boot'" in done.stderr
    assert written(pod.data) == {'records.jsonl', 'corpus', 'corpus.curator'}
    assert 'found the bed hard' not in done.stdout + done.stderr


def test_a_worker_needs_a_place_for_its_options(pod: Pod) -> None:
    """Why the image starts in /tmp: Beam's boot program writes a file to where it starts, or ends."""
    told = 'unable to create pipeline_options.json'
    done = pod.with_workers_until(told, seconds=300, WorkingDir='/template')
    assert done.returncode == 3, done.stdout + done.stderr


def test_the_bill_names_what_is_installed_and_that_is_what_is_locked(pod: Pod) -> None:
    bill = json.loads((pod.root / BILL).read_text())
    assert bill['bomFormat'] == 'CycloneDX'
    named = {canonicalize_name(part['name']): part['version'] for part in bill['components']}
    locked = {name: str(version) for name, version in pins(IMAGE / 'requirements.txt').items()}
    more = {name: version for name, version in named.items() if locked.get(name) != version}
    assert set(more) == {'dp-corpus', 'pip'} and set(locked) <= set(named)
    (root,) = [entry for entry in bill['dependencies'] if entry['ref'].startswith('dp-corpus==')]
    assert len(root['dependsOn']) > 20


def test_the_launcher_of_a_template_starts_our_entry_point(store: Store, tmp_path: pathlib.Path) -> None:
    with store.container(DATAFLOW) as (_, root):
        assert os.access(root / container.LAUNCHER, os.X_OK) and (root / BILL).exists()
        image = {**store.config(DATAFLOW), 'User': '0:0'}
        (file,) = [value for value in image['Env'] if value.startswith('FLEX_TEMPLATE_PYTHON_PY_FILE=')]
        command = ['python', file.partition('=')[2], '--input=']
        done = container.started(root, image, command, tmp_path / 'bundle', {})
    assert done.returncode == 2 and 'Expected a value for input' in done.stderr


def test_no_registry_was_asked_and_no_certificate_stays(pod: Pod) -> None:
    """Files that the build was lent are not in the image."""
    assert not (pod.root / 'etc/pip.conf').exists() or not (pod.root / 'etc/pip.conf').read_text()
    found = shutil.which('dp-corpus', path=str(pod.root / 'usr/local/bin'))
    assert found is not None and re.match(r'#!/usr/local/bin/python', pathlib.Path(found).read_text())
