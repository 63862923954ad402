"""The pool and the job's workers without Flink, killed for real.

Through Beam's own portable job service: the same workers, started in the same way.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from launch.flink import supervisor, worker_pool
from launch.flink.supervisor import Service
from tests.launch.flink.local_cluster import (
    ROOT,
    Run,
    free_port,
    generate,
    kill,
    listens,
    needs_model,
    starts,
    wait_for,
)
from tests.listening import Listener

pytestmark = pytest.mark.run


@pytest.fixture(scope='module')
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[pathlib.Path, int]]:
    """A supervised worker pool alone, and its port: the one place where it and its workers listen."""
    folder, port = tmp_path_factory.mktemp('pool'), free_port()
    command = (sys.executable, '-m', 'launch.flink.worker_pool', f'--port={port}')
    services = [dataclasses.asdict(Service(name='pool', command=command))]
    (folder / supervisor.CLUSTER).write_text(json.dumps({'services': services}))
    listener = Listener()
    with listener.popen(
        [sys.executable, '-m', 'launch.flink.supervisor', str(folder)],
        env={**os.environ, 'PYTHONPATH': str(ROOT)},
    ) as watcher:
        try:
            wait_for(lambda: listens(port), 60, 'starting a pool')
            yield folder, port
        finally:
            watcher.terminate()
    places = listener.wait()
    assert {place.port for place in places} == {port}
    assert not [place for place in places if place.is_reached_from_outside]


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
    log = (folder / supervisor.LOGS / 'pool.out').read_text(errors='replace')
    assert 'SdkHarness' in log  # workers did come from this pool
    assert [text for text in local_run.texts if text in log] == []


def workers(pool: supervisor.Started) -> dict[str, psutil.Process]:
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
    server = supervisor.read_processes(folder)['pool']
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
