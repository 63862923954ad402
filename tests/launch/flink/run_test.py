"""A Flink cluster on this machine, and the job on it, killed for real.

Needs Java and what PyPI and Maven hold; where one is missing, these tests are skipped and say what.
"""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from launch.flink import fetch
from tests.launch.flink import local_cluster
from tests.launch.flink.local_cluster import (
    SCRIPT,
    Cluster,
    Run,
    free_port,
    needs_model,
    script_environment,
)
from tests.listening import Listener
from transforms import run_files

pytestmark = pytest.mark.run


@pytest.fixture(scope='module')
def listener() -> Listener:
    """Keeps where the cluster listens, and every command that uses it."""
    return Listener()


@pytest.fixture(scope='module')
def cluster(tmp_path_factory: pytest.TempPathFactory, listener: Listener) -> Iterator[Cluster]:
    """A cluster of two task managers and a spare one, in a folder with a space in its name.

    From its start to its stop, and whatever the tests did with it, this machine alone could reach it.
    """
    local_cluster.cache()
    folder = tmp_path_factory.mktemp('flink cluster')
    ports = {name: free_port() for name in ('rest.port', 'jobmanager.rpc.port')}
    environment = script_environment(folder, **ports)
    cluster = Cluster(folder, ports['rest.port'], environment)
    try:
        for command in (['start-cluster.sh'], ['taskmanager.sh', 'start']):
            started = listener.run([*SCRIPT, *command], env=environment)
            assert started.returncode == 0, started.stderr
        cluster.wait_for_task_managers()
        yield cluster
    finally:
        cluster.stop()
    places = listener.wait()
    assert not [place for place in places if place.is_reached_from_outside]
    assert set(ports.values()) <= {place.port for place in places}
    # Launcher and workers listen nowhere. A name has 15 letters at most.
    python = pathlib.Path(sys.executable).resolve().name[:15]
    assert not [place for place in places if place.program in ('python', python)]


def told_by_flink(cluster: Cluster) -> str:
    """All that the REST interface says of jobs, and all that the processes logged."""
    told = [path.read_text(errors='replace') for path in (cluster.state / 'log').iterdir()]
    for job in cluster.ask('/jobs')['jobs']:
        for view in ('', '/config', '/plan', '/exceptions', '/accumulators'):
            told.append(json.dumps(cluster.ask(f'/jobs/{job["id"]}{view}'), ensure_ascii=False))
    return '\n'.join(told)


# The cluster


@pytest.mark.first
def test_it_is_the_flink_that_was_fetched_and_only_its_owner_enters(cluster: Cluster) -> None:
    assert cluster.ask('/overview')['flink-version'] == fetch.FLINK
    assert cluster.state.stat().st_mode & 0o777 == 0o700
    entries = {entry['key']: entry['value'] for entry in cluster.ask('/jobmanager/config')}
    assert entries['io.tmp.dirs'] == str(cluster.state / 'tmp')


@pytest.mark.first
def test_flink_restarts_jobs_by_the_written_strategy(cluster: Cluster) -> None:
    config = {entry['key']: entry['value'] for entry in cluster.ask('/jobmanager/config')}
    assert config['restart-strategy.type'] == 'fixed-delay'
    assert config['restart-strategy.fixed-delay.delay'] == '6 s'  # longer than workers are kept idle
    assert config['heartbeat.timeout'] == '20000'  # milliseconds


@pytest.mark.first
def test_flinks_rest_interface_takes_no_uploaded_code(cluster: Cluster) -> None:
    connection = http.client.HTTPConnection('localhost', cluster.port, timeout=10)
    connection.request('POST', '/jars/upload', body=b'')
    assert connection.getresponse().status == 404


@pytest.mark.first
def test_a_script_that_flink_does_not_have_is_refused(cluster: Cluster) -> None:
    result = subprocess.run([*SCRIPT, 'start'], env=cluster.environment, capture_output=True, text=True)
    assert result.returncode == 2
    assert 'Expected fetch, run or a script of Flink, got start' in result.stderr


# The job on Flink


@needs_model
@pytest.mark.parametrize(
    'kills',
    [
        pytest.param((('worker', 'task manager'),), marks=pytest.mark.first),
        (('worker',), ('task manager',)),
    ],
    ids=['at once', 'in turn'],
)
def test_on_flink_the_corpus_is_the_local_one_whatever_is_killed(
    cluster: Cluster, listener: Listener, local_run: Run, kills: tuple[tuple[str, ...], ...]
) -> None:
    """The spare task manager takes the place of the one that is killed."""
    local_run.forget()
    before, screen = cluster.task_managers(), local_run.folder / 'screen.txt'
    with (
        open(screen, 'wb') as shown,
        listener.popen(
            # Workers have another working directory than who gives these paths.
            [*SCRIPT, 'run', '--quiet', *local_run.relative_flags],
            env=cluster.environment,
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
                busy = cluster.busy()
                for kind in at_once:  # of two task managers, if both decode
                    (busy[0][1] if kind == 'worker' else busy[-1][0]).kill()
                written = local_run.written()
                assert len(kept) < len(written) < local_run.batches, 'it was not killed while decoding'
                assert kept.items() <= written.items()  # read back, not decoded
                kept = written
            assert job.wait(timeout=240) == 0, screen.read_text(errors='replace')  # by itself
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)  # the job server too
    assert local_run.corpus_now() == local_run.corpus
    assert kept.items() <= local_run.written().items()  # read back, not decoded
    listener.run([*SCRIPT, 'taskmanager.sh', 'start'], env=cluster.environment)
    cluster.wait_for_task_managers(other_than=before)

    told = told_by_flink(cluster) + screen.read_text(errors='replace')
    assert 'BeamApp' in told and 'RUNNING to FAILED' in told  # what was searched tells of jobs and of losses
    assert [text for text in (*local_run.texts, *local_run.keys) if text in told] == []
    assert (local_run.work_dir / 'run.key').read_bytes().hex() not in told


@needs_model
@pytest.mark.parametrize('method', local_cluster.OTHER_METHODS)
def test_on_flink_another_method_releases_what_it_releases_locally(
    cluster: Cluster, listener: Listener, tmp_path: pathlib.Path, method: str
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
    done = listener.run([*SCRIPT, 'run', '--quiet', *flags], env=cluster.environment, timeout=400)
    assert done.returncode == 0, done.stderr
    assert released() == local
    told = told_by_flink(cluster) + done.stdout + done.stderr
    texts = [json.loads(line)['text'] for line in (tmp_path / 'records.jsonl').read_text().splitlines()]
    assert [text for text in texts if text in told] == []
    assert (work_dir / run_files.RUN_KEY).read_bytes().hex() not in told
