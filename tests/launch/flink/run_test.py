"""A Flink cluster on this machine, and the job on it, killed for real.

Needs Java and what PyPI and Maven hold; where one is missing, these tests are skipped and say what.
"""

import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from launch.flink import cluster as flink
from launch.flink import distribution, main, rest, supervisor
from launch.flink.job_server import fetch_job_server
from tests.launch.flink import local_cluster
from tests.launch.flink.local_cluster import (
    SCRIPT,
    Run,
    free_port,
    kill,
    needs_model,
    script_environment,
    starts,
    wait_for,
)
from tests.listening import Listener
from transforms import run_files

pytestmark = pytest.mark.run


@pytest.fixture(scope='module')
def listener() -> Listener:
    """Keeps where the cluster listens, and every command that uses it."""
    return Listener()


@pytest.fixture(scope='module')
def cluster(tmp_path_factory: pytest.TempPathFactory, listener: Listener) -> Iterator[pathlib.Path]:
    """A cluster of two task managers, in a folder with a space in its name.

    From its start to its stop, and whatever the tests did with it, this machine alone could reach it.
    """
    folder = tmp_path_factory.mktemp('flink cluster')
    try:
        distribution.check_java()
        distribution.fetch_flink(main.DEFAULT_CACHE)
    except (OSError, RuntimeError) as error:
        pytest.skip(f'Flink cannot be had here: {error}')
    ports = {name: free_port() for name in ('port', 'rpc-port', 'pool-port')}
    flags = [f'--folder={folder}', *(f'--{name}={port}' for name, port in ports.items())]
    try:
        started = listener.run([*SCRIPT, 'start', *flags], env=script_environment())
        assert started.returncode == 0, started.stderr
        yield folder
    finally:
        subprocess.run([*SCRIPT, 'stop', f'--folder={folder}'], env=script_environment(), check=True)
    places = listener.wait()
    assert not [place for place in places if place.is_reached_from_outside]
    assert set(ports.values()) <= {place.port for place in places}
    # Of Python's the pool alone: a launcher and its workers listen nowhere. A name has 15 letters at most.
    python = pathlib.Path(sys.executable).resolve().name[:15]
    assert {place.port for place in places if place.program in ('python', python)} == {ports['pool-port']}


@pytest.fixture(scope='module')
def job_server() -> pathlib.Path:
    """Beam's job server; FLINK_JOB_SERVER_JAR names one where Maven has none."""
    if named := os.environ.get('FLINK_JOB_SERVER_JAR'):
        return pathlib.Path(named)
    try:
        return fetch_job_server(main.DEFAULT_CACHE)
    except (OSError, RuntimeError) as error:
        pytest.skip(f'the job on Flink is NOT tested here: {error} Or set FLINK_JOB_SERVER_JAR.')


def task_managers(folder: pathlib.Path) -> set[str]:
    port = json.loads((folder / supervisor.CLUSTER).read_text())['port']
    return {entry['id'] for entry in rest.ask(port, '/taskmanagers')['taskmanagers']}


def told_by_flink(folder: pathlib.Path) -> str:
    """All that the REST interface says of jobs, and all that the processes logged."""
    port = json.loads((folder / supervisor.CLUSTER).read_text())['port']
    told = [path.read_text(errors='replace') for path in (folder / supervisor.LOGS).iterdir()]
    for job in rest.ask(port, '/jobs')['jobs']:
        for view in ('', '/config', '/plan', '/exceptions', '/accumulators'):
            told.append(json.dumps(rest.ask(port, f'/jobs/{job["id"]}{view}'), ensure_ascii=False))
    return '\n'.join(told)


# The cluster


def test_start_waits_until_every_slot_is_there(cluster: pathlib.Path) -> None:
    settings = flink.read_cluster(cluster)
    overview = rest.ask(settings['port'], '/overview')
    assert (overview['taskmanagers'], overview['slots-total']) == (2, 2)
    assert overview['flink-version'] == distribution.FLINK
    assert set(supervisor.read_processes(cluster)) == {
        'jobmanager', 'pool', 'supervisor', 'taskmanager-0', 'taskmanager-1',
    }  # fmt: skip


def test_flink_restarts_jobs_by_the_written_strategy(cluster: pathlib.Path) -> None:
    entries = rest.ask(flink.read_cluster(cluster)['port'], '/jobmanager/config')
    config = {entry['key']: entry['value'] for entry in entries}
    assert config['restart-strategy.type'] == 'fixed-delay'
    assert config['restart-strategy.fixed-delay.delay'] == '6 s'  # longer than workers are kept idle
    assert config['heartbeat.timeout'] == '20000'  # milliseconds


def test_flinks_rest_interface_takes_no_uploaded_code(cluster: pathlib.Path) -> None:
    connection = http.client.HTTPConnection('localhost', flink.read_cluster(cluster)['port'], timeout=10)
    connection.request('POST', '/jars/upload', body=b'')
    assert connection.getresponse().status == 404


def test_a_killed_task_manager_is_back_within_a_minute(cluster: pathlib.Path) -> None:
    before, started = task_managers(cluster), starts(cluster, 'taskmanager-0')
    kill(cluster, 'taskmanager-0')
    wait_for(
        lambda: len(now := task_managers(cluster)) == 2 and len(now & before) == 1,
        60,
        'replacing a task manager',
    )
    assert starts(cluster, 'taskmanager-0') == started + 1
    assert starts(cluster, 'taskmanager-1') == 1


def test_a_second_cluster_in_the_folder_is_refused(cluster: pathlib.Path) -> None:
    result = subprocess.run(
        [*SCRIPT, 'start', f'--folder={cluster}'], env=script_environment(), capture_output=True, text=True
    )
    assert result.returncode == main.EXIT_USAGE
    assert 'Expected no running cluster' in result.stderr


# The job on Flink


@needs_model
@pytest.mark.parametrize(
    'kills',
    [pytest.param((('pool', 'taskmanager-0'),), marks=pytest.mark.first), (('pool',), ('taskmanager-0',))],
    ids=['at once', 'in turn'],
)
def test_on_flink_the_corpus_is_the_local_one_whatever_is_killed(
    cluster: pathlib.Path,
    listener: Listener,
    job_server: pathlib.Path,
    local_run: Run,
    kills: tuple[tuple[str, ...], ...],
) -> None:
    local_run.forget()
    services = [service for at_once in kills for service in at_once]
    command = [*SCRIPT, 'run', f'--folder={cluster}', f'--job-server-jar={job_server}', '--', '--quiet']
    before, screen = {name: starts(cluster, name) for name in services}, local_run.folder / 'screen.txt'
    with (
        open(screen, 'wb') as shown,
        listener.popen(
            # Workers have another working directory than who gives these paths.
            [*command, *local_run.relative_flags],
            env=script_environment(),
            stdout=shown,
            stderr=subprocess.STDOUT,
            cwd=local_run.folder,
            start_new_session=True,
        ) as job,
    ):
        try:
            kept: dict[str, int] = {}
            for at_once in kills:
                local_run.wait_for_batches(len(kept) + 1, job)
                for service in at_once:
                    kill(cluster, service)
                written = local_run.written()
                assert len(kept) < len(written) < local_run.batches, 'it was not killed while decoding'
                assert kept.items() <= written.items()  # read back, not decoded
                kept = written
            assert job.wait(timeout=240) == 0, screen.read_text(errors='replace')  # by itself
        finally:
            supervisor.end_group(job.pid)  # the job server too
    assert {name: starts(cluster, name) for name in services} == {name: n + 1 for name, n in before.items()}
    assert local_run.corpus_now() == local_run.corpus
    assert kept.items() <= local_run.written().items()  # read back, not decoded

    told = told_by_flink(cluster) + screen.read_text(errors='replace')
    assert 'BeamApp' in told and 'SdkHarness' in told  # what was searched tells of jobs and of workers
    assert [text for text in (*local_run.texts, *local_run.keys) if text in told] == []
    assert (local_run.work_dir / 'run.key').read_bytes().hex() not in told


@needs_model
@pytest.mark.parametrize('method', local_cluster.OTHER_METHODS)
def test_on_flink_another_method_releases_what_it_releases_locally(
    cluster: pathlib.Path, listener: Listener, job_server: pathlib.Path, tmp_path: pathlib.Path, method: str
) -> None:
    """Training is one element with all units before it, and so are the votes of a round on its texts.

    All noise follows from the run key, so it is the same byte for byte.
    """
    flags = local_cluster.method_flags(tmp_path, method)
    output, work_dir = tmp_path / 'out', tmp_path / 'out.curator'

    def released() -> dict[str, bytes]:
        found = [path for name in ('adapter', 'rounds', 'data') for path in output.glob(f'{name}/*')]
        return {str(path.relative_to(output)): path.read_bytes() for path in found}

    def forget() -> None:
        """Back to where the run knew its key and its plan, and had computed nothing."""
        shutil.rmtree(output)
        begun = {'run.json', run_files.RUN_KEY, 'config.toml', 'plan.json'}
        for path in sorted(work_dir.rglob('*'), reverse=True):  # what a folder holds, before the folder
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
            elif path.is_file() and path.name not in begun:
                path.unlink()

    subprocess.run(local_cluster.generate(flags), cwd=local_cluster.ROOT, check=True, timeout=400)
    local = released()
    assert {
        'fine-tune': {'adapter/adapter.json', 'adapter/adapter.safetensors'},
        'evolve': {'rounds/candidates-03.json', 'rounds/votes-02.json'},
    }[method] | {'data/train-00001-of-00002.parquet'} <= set(local)
    forget()
    command = [*SCRIPT, 'run', f'--folder={cluster}', f'--job-server-jar={job_server}', '--', '--quiet']
    done = listener.run([*command, *flags], env=script_environment(), timeout=400)
    assert done.returncode == 0, done.stderr
    assert released() == local
    told = told_by_flink(cluster) + done.stdout + done.stderr
    texts = [json.loads(line)['text'] for line in (tmp_path / 'records.jsonl').read_text().splitlines()]
    assert [text for text in texts if text in told] == []
    assert (work_dir / run_files.RUN_KEY).read_bytes().hex() not in told
