"""A Flink cluster on this machine, its worker pool and supervisor, and the job on them, killed for real.

Flink's own part needs Java and what PyPI and Maven hold; where one is missing, those tests are skipped
and say what. The pool and the job's workers are tested without Flink too, through Beam's own portable
job service: the same workers, started in the same way.
"""

import contextlib
import dataclasses
import functools
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam
import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from launch import flink, flink_supervisor, worker_pool
from launch.demo_records import demo_records
from launch.flink_supervisor import Service
from pipeline.config import BUNDLED

ROOT = pathlib.Path(__file__).parents[2]
needs_model = pytest.mark.skipif(
    not (BUNDLED / 'checkpoint').exists(), reason='the bundled model has no checkpoint: train it first'
)
# Small, with what moves most data between steps: users, clusters and two noisy counts.
SETTINGS = {
    'text-field': 'text',
    'label-field': 'label',
    'labels': 'Billing,Delivery',
    'unit': 'user',
    'unit-field': 'customer',
    'record-id-field': 'id',
    'records': '150',
    'delta': '0.001',
    'max-private-tokens': '64',
    'max-batch-tokens': '64',
    'batch-size': '16',
    'aggregate': 'difference',
    'clusters': '2',
    'temperature': '1.0',
    'public-top-k': '256',
    'max-prompt-tokens': '96',
    'max-example-tokens': '24',
    'shards': '2',
}


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f'{what} took longer than {seconds} seconds'
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as connection:
        connection.bind(('localhost', 0))
        return connection.getsockname()[1]


@dataclasses.dataclass(frozen=True)
class Run:
    """One run that a local runner has finished: its corpus, and what every engine has to repeat."""

    texts: tuple[str, ...]
    folder: pathlib.Path
    flags: tuple[str, ...]
    output: pathlib.Path
    work_dir: pathlib.Path
    corpus: dict[str, bytes]
    batches: int

    @property
    def relative_flags(self) -> tuple[str, ...]:
        """The same flags for who works in the run's folder."""
        return tuple(flag.removeprefix(f'{self.folder}/') for flag in self.flags)

    def written(self) -> dict[str, int]:
        """When each finished batch was, in nanoseconds."""
        return {path.name: path.stat().st_mtime_ns for path in (self.work_dir / 'batches').glob('*.json')}

    def corpus_now(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.output / 'data').glob('*.parquet')}

    def finished(self) -> int:
        return len(self.written())

    def wait_for_batches(self, number: int, job: subprocess.Popen[bytes]) -> None:
        wait_for(lambda: self.finished() >= number or job.poll() is not None, 240, 'decoding')

    def forget(self) -> None:
        """Back to where the run knew its key and its plan, and had not decoded anything."""
        shutil.rmtree(self.output)
        for path in (self.work_dir / 'batches').iterdir():
            path.unlink()


def generate(flags: Sequence[str]) -> list[str]:
    return [sys.executable, '-m', 'pipeline.main', 'generate', '--quiet', *flags]


@pytest.fixture(scope='module')
def local_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp('local run')
    rows = list(demo_records(600))
    records = folder / 'records.jsonl'
    records.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    output = folder / 'corpus'
    pairs = {**SETTINGS, 'input': str(records), 'output': str(output)}
    flags = tuple(part for name, value in pairs.items() for part in (f'--{name}', value))
    subprocess.run(generate(flags), cwd=ROOT, check=True, timeout=300)
    run = Run(
        texts=tuple(row['text'] for row in rows),
        folder=folder,
        flags=flags,
        output=output,
        work_dir=folder / 'corpus.curator',
        corpus={path.name: path.read_bytes() for path in (output / 'data').glob('*.parquet')},
        batches=len(list((folder / 'corpus.curator' / 'batches').glob('*.json'))),
    )
    assert len(run.corpus) == 2 and run.batches >= 6
    return run


@pytest.fixture(scope='module')
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """A cluster of two task managers, in a folder with a space in its name."""
    folder = tmp_path_factory.mktemp('flink cluster')
    try:
        flink.check_java()
        flink.fetch_flink(flink.DEFAULT_CACHE)
    except (OSError, RuntimeError) as error:
        pytest.skip(f'Flink cannot be had here: {error}')
    ports = [f'--{name}={free_port()}' for name in ('port', 'rpc-port', 'pool-port')]
    try:
        subprocess.run([*SCRIPT, 'start', f'--folder={folder}', *ports], env=script_environment(), check=True)
        yield folder
    finally:
        subprocess.run([*SCRIPT, 'stop', f'--folder={folder}'], env=script_environment(), check=True)


SCRIPT = (str(ROOT / 'launch' / 'flink.sh'),)


def script_environment() -> dict[str, str]:
    return {**os.environ, 'PYTHON': sys.executable}


@pytest.fixture(scope='module')
def job_server() -> pathlib.Path:
    """Beam's job server; FLINK_JOB_SERVER_JAR names one where Maven has none."""
    if named := os.environ.get('FLINK_JOB_SERVER_JAR'):
        return pathlib.Path(named)
    try:
        return flink.fetch_job_server(flink.DEFAULT_CACHE)
    except (OSError, RuntimeError) as error:
        pytest.skip(f'the job on Flink is NOT tested here: {error} Or set FLINK_JOB_SERVER_JAR.')


def kill(folder: pathlib.Path, name: str) -> None:
    """SIGKILL to a service and all that it started, as when a container is lost."""
    os.killpg(flink_supervisor.read_processes(folder)[name].pid, signal.SIGKILL)


def starts(folder: pathlib.Path, name: str) -> int:
    process = flink_supervisor.read_processes(folder).get(name)
    return 0 if process is None else process.starts


def task_managers(folder: pathlib.Path) -> set[str]:
    port = json.loads((folder / flink_supervisor.CLUSTER).read_text())['port']
    return {entry['id'] for entry in flink.rest(port, '/taskmanagers')['taskmanagers']}


def told_by_flink(folder: pathlib.Path) -> str:
    """All that the REST interface says of jobs, and all that the processes logged."""
    port = json.loads((folder / flink_supervisor.CLUSTER).read_text())['port']
    told = [path.read_text(errors='replace') for path in (folder / flink_supervisor.LOGS).iterdir()]
    for job in flink.rest(port, '/jobs')['jobs']:
        for view in ('', '/config', '/plan', '/exceptions', '/accumulators'):
            told.append(json.dumps(flink.rest(port, f'/jobs/{job["id"]}{view}'), ensure_ascii=False))
    return '\n'.join(told)


# The cluster


def test_start_waits_until_every_slot_is_there(cluster: pathlib.Path) -> None:
    settings = flink.read_cluster(cluster)
    overview = flink.rest(settings['port'], '/overview')
    assert (overview['taskmanagers'], overview['slots-total']) == (2, 2)
    assert overview['flink-version'] == flink.FLINK
    assert set(flink_supervisor.read_processes(cluster)) == {
        'jobmanager', 'pool', 'supervisor', 'taskmanager-0', 'taskmanager-1',
    }  # fmt: skip


def test_flink_restarts_jobs_by_the_written_strategy(cluster: pathlib.Path) -> None:
    entries = flink.rest(flink.read_cluster(cluster)['port'], '/jobmanager/config')
    config = {entry['key']: entry['value'] for entry in entries}
    assert config['restart-strategy.type'] == 'fixed-delay'
    assert config['restart-strategy.fixed-delay.delay'] == '6 s'  # longer than workers are kept idle
    assert config['heartbeat.timeout'] == '20000'  # milliseconds


def test_only_this_machine_reaches_the_cluster(cluster: pathlib.Path) -> None:
    processes = [process.pid for process in flink_supervisor.read_processes(cluster).values()]
    listening = {
        connection.laddr.ip
        for pid in processes
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
        for connection in process.net_connections('inet')
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening
    assert listening <= {'127.0.0.1', '::1', '::ffff:127.0.0.1'}


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
    assert result.returncode == flink.EXIT_USAGE
    assert 'Expected no running cluster' in result.stderr


# The job on Flink


@needs_model
@pytest.mark.parametrize('service', ['taskmanager-0', 'pool'])
def test_on_flink_the_corpus_is_the_local_one_whatever_is_killed(
    service: str, cluster: pathlib.Path, job_server: pathlib.Path, local_run: Run
) -> None:
    local_run.forget()
    command = [*SCRIPT, 'run', f'--folder={cluster}', f'--job-server-jar={job_server}', '--', '--quiet']
    before, screen = starts(cluster, service), local_run.folder / 'screen.txt'
    with (
        open(screen, 'wb') as shown,
        subprocess.Popen(
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
            local_run.wait_for_batches(1, job)
            kill(cluster, service)
            kept = local_run.written()
            assert 0 < len(kept) < local_run.batches, 'it was not killed while decoding'
            assert job.wait(timeout=240) == 0, screen.read_text(errors='replace')  # by itself
        finally:
            flink_supervisor.end_group(job.pid)  # the job server too
    assert starts(cluster, service) == before + 1
    assert local_run.corpus_now() == local_run.corpus
    assert kept.items() <= local_run.written().items()  # read back, not decoded

    told = told_by_flink(cluster) + screen.read_text(errors='replace')
    assert 'BeamApp' in told and 'SdkHarness' in told  # what was searched tells of jobs and of workers
    assert [text for text in local_run.texts if text in told] == []
    assert (local_run.work_dir / 'run.key').read_bytes().hex() not in told


# The job's workers, without Flink


@pytest.fixture(scope='module')
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[pathlib.Path, int]]:
    """A supervised worker pool alone, and its port."""
    folder, port = tmp_path_factory.mktemp('pool'), free_port()
    command = (sys.executable, '-m', 'launch.worker_pool', f'--port={port}')
    stopped = threading.Event()
    service = Service(name='pool', command=command, environment={'PYTHONPATH': str(ROOT)})
    thread = threading.Thread(target=flink_supervisor.supervise, args=(folder, [service], stopped))
    thread.start()
    try:
        wait_for(lambda: listens(port), 60, 'starting a pool')
        yield folder, port
    finally:
        stopped.set()
        thread.join()


def listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(('localhost', port)) == 0


@pytest.fixture(scope='module')
def job_service() -> Iterator[int]:
    """Beam's own portable job service, in place of Flink's; its port."""
    port = free_port()
    command = [sys.executable, '-m', 'apache_beam.runners.portability.local_job_service_main', f'-p={port}']
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as service:
        try:
            wait_for(lambda: listens(port), 60, 'starting the job service')
            yield port
        finally:
            service.kill()


@needs_model
def test_a_run_whose_workers_were_killed_goes_on_to_the_same_corpus(
    pool: tuple[pathlib.Path, int], job_service: int, local_run: Run
) -> None:
    folder, port = pool
    local_run.forget()
    beam = [
        *('--runner', 'PortableRunner', '--', f'--job_endpoint=localhost:{job_service}'),
        *('--environment_type=EXTERNAL', f'--environment_config=localhost:{port}'),
    ]
    with subprocess.Popen([*generate(local_run.flags), *beam], cwd=ROOT, stderr=subprocess.PIPE) as job:
        try:
            local_run.wait_for_batches(1, job)
            kill(folder, 'pool')
            left = local_run.batches - local_run.finished()
            # This service gives up where Flink would start the steps again.
            assert job.wait(timeout=120) == 1
        finally:
            job.kill()
    assert left > 0, 'nothing was left to decode when the pool was killed'
    assert local_run.corpus_now() == {}
    kept = local_run.written()
    wait_for(lambda: starts(folder, 'pool') == 2 and listens(port), 60, 'restarting the pool')

    subprocess.run([*generate(local_run.flags), *beam], cwd=ROOT, check=True, timeout=300)
    assert local_run.corpus_now() == local_run.corpus
    assert kept and kept.items() <= local_run.written().items()
    log = (folder / flink_supervisor.LOGS / 'pool.out').read_text(errors='replace')
    assert 'SdkHarness' in log  # workers did come from this pool
    assert [text for text in local_run.texts if text in log] == []


def workers(pool: flink_supervisor.Started) -> dict[str, psutil.Process]:
    """The living workers of a pool by the control endpoint that they were started for."""
    found = {}
    for process in psutil.Process(pool.pid).children():
        with contextlib.suppress(psutil.Error):
            if match := re.search(r'SdkHarness\("(.+?)"', ' '.join(process.cmdline())):
                found[match[1]] = process
    return found


def test_a_task_manager_ends_its_own_worker_and_not_that_of_the_same_number(
    pool: tuple[pathlib.Path, int],
) -> None:
    folder, port = pool
    server = flink_supervisor.read_processes(folder)['pool']
    # Two connections, as from two task managers.
    options = [('grpc.use_local_subchannel_pool', 1)]
    with (
        socket.create_server(('localhost', 0)) as silent,
        grpc.insecure_channel(f'localhost:{port}', options) as first,
        grpc.insecure_channel(f'localhost:{port}', options) as second,
    ):
        stubs = [beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel) for channel in (first, second)]
        endpoints = [f'{name}:{silent.getsockname()[1]}' for name in ('localhost', '127.0.0.1')]
        for stub, endpoint in zip(stubs, endpoints):
            request = beam_fn_api_pb2.StartWorkerRequest(worker_id='1-1')
            request.control_endpoint.url = endpoint
            assert stub.StartWorker(request).error == ''
        wait_for(lambda: set(workers(server)) == set(endpoints), 20, 'starting two workers')
        stubs[0].StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id='1-1'))
        assert list(workers(server)) == endpoints[1:]
        stubs[1].StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id='1-1'))
        assert workers(server) == {}


def test_workers_run_on_the_python_of_the_pool_whatever_path_says() -> None:
    environment = worker_pool.worker_environment({'PATH': '/usr/bin:/bin'})
    found = shutil.which('python', path=environment['PATH'])
    assert found is not None and pathlib.Path(found).parent == pathlib.Path(sys.executable).parent
    worker_pool.check_workers(environment)


def test_a_python_without_this_project_is_refused(tmp_path: pathlib.Path) -> None:
    python = tmp_path / 'python'
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    with pytest.raises(RuntimeError, match='Expected workers with apache_beam .*No module named'):
        worker_pool.check_workers({'PATH': f'{tmp_path}:/usr/bin:/bin'})


# The supervisor


def test_a_service_that_ends_is_started_again_and_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    left = tmp_path / 'left.pid'
    script = f'sleep 1000 & echo $! > "{left}.tmp"; mv "{left}.tmp" "{left}"; wait'
    service = Service(name='parent', command=('/bin/sh', '-c', script))
    stopped = threading.Event()
    thread = threading.Thread(target=flink_supervisor.supervise, args=(tmp_path, [service], stopped))
    thread.start()
    try:
        wait_for(left.exists, 20, 'the first start')
        first, child = flink_supervisor.read_processes(tmp_path)['parent'], int(left.read_text())
        left.unlink()
        os.kill(first.pid, signal.SIGKILL)  # the parent alone
        wait_for(left.exists, 20, 'the second start')
        wait_for(functools.partial(is_dead, child), 5, 'ending the child')
        child = int(left.read_text())
        wait_for(lambda: starts(tmp_path, 'parent') == 2, 5, 'writing down the second start')
        assert not first.alive
    finally:
        stopped.set()
        thread.join()
    wait_for(functools.partial(is_dead, child), 5, 'ending the child')
    assert flink_supervisor.read_processes(tmp_path) == {}


def is_dead(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_folder_has_one_supervisor(tmp_path: pathlib.Path) -> None:
    stopped = threading.Event()
    service = Service(name='sleeper', command=('sleep', '1000'))
    thread = threading.Thread(target=flink_supervisor.supervise, args=(tmp_path, [service], stopped))
    thread.start()
    try:
        wait_for(lambda: starts(tmp_path, 'sleeper') == 1, 20, 'the start')
        with pytest.raises(FileExistsError, match='Expected no other supervisor'):
            flink_supervisor.supervise(tmp_path, [service], stopped)
    finally:
        stopped.set()
        thread.join()


# Commands and downloads


def test_flags_of_generate_and_of_beam_keep_their_sides(tmp_path: pathlib.Path) -> None:
    jar = tmp_path / 'job server.jar'
    jar.touch()
    settings: dict[str, Any] = {'port': 1, 'pool_port': 2, 'parallelism': 3, 'jar': jar}
    command = flink.generate_command(['--config', 'c.toml', '--', '--job_name=n'], **settings)
    own, beam = command[: command.index('--')], command[command.index('--') + 1 :]
    assert own[-4:] == ['--config', 'c.toml', '--runner', 'FlinkRunner']
    assert beam == [
        '--flink_master=localhost:1',
        f'--flink_version={flink.FLINK_MINOR}',
        f'--flink_job_server_jar={jar}',
        '--environment_type=EXTERNAL',
        '--environment_config=localhost:2',
        '--environment_cache_millis=3000',
        '--parallelism=3',
        '--job_name=n',
    ]
    with pytest.raises(ValueError, match='Expected no runner'):
        flink.generate_command(['--runner=FnApiRunner'], **settings)
    with pytest.raises(FileNotFoundError, match='Expected the job server'):
        flink.generate_command([], **{**settings, 'jar': tmp_path / 'no.jar'})


def test_beam_knows_the_flink_that_is_started() -> None:
    from apache_beam.options.pipeline_options import FlinkRunnerOptions

    assert flink.FLINK_MINOR in FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS


def test_a_download_that_fails_leaves_no_flink(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.delenv('PIP_FIND_LINKS', raising=False)
    with pytest.raises(RuntimeError, match=r'Expected pip to download apache-flink'):
        flink.fetch_flink(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_repository_that_is_not_reached_is_no_reason_to_put_a_job_server_together(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which('mvn') is None:
        pytest.skip('needs Maven, which is not on PATH')
    nowhere = [
        f'-D{scheme}.proxy{part}' for scheme in ('http', 'https') for part in ('Host=localhost', 'Port=1')
    ]
    monkeypatch.setenv('MAVEN_OPTS', ' '.join(nowhere))
    with pytest.raises(
        RuntimeError, match=r'Expected Maven to download org\.apache\.beam:.* Check the network'
    ):
        flink.fetch_job_server(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ''


def test_a_job_server_that_was_fetched_is_used_again_without_maven(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    assembled = tmp_path / flink.ASSEMBLED
    assembled.touch()
    assert flink.fetch_job_server(tmp_path) == assembled
    published = tmp_path / f'{flink.JOB_SERVER}-{apache_beam.__version__}.jar'
    published.touch()
    assert flink.fetch_job_server(tmp_path) == published


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (flink.check_java, 'Expected Java'),
        (lambda: flink.fetch_job_server(pathlib.Path('nowhere')), 'Expected Maven'),
    ],
    ids=['java', 'maven'],
)
def test_what_is_not_installed_is_named(
    call: Callable[[], Any], message: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    monkeypatch.delenv('JAVA_HOME', raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=message):
        call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('command', ['run', 'status', 'cancel'])
def test_commands_without_a_cluster_say_how_to_start_one(command: str, tmp_path: pathlib.Path) -> None:
    result = subprocess.run(
        [*SCRIPT, command, f'--folder={tmp_path}'], env=script_environment(), capture_output=True, text=True
    )
    assert result.returncode == flink.EXIT_USAGE
    assert 'Expected a running cluster' in result.stderr
    assert 'launch/flink.sh start' in result.stderr
    assert 'Traceback' not in result.stderr
