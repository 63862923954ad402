"""Starts Python workers when Flink asks for them: Beam's worker pool, for one machine.

`python -m launch.flink.worker_pool --port 50000` is Beam's own `apache_beam.runners.worker.worker_pool_main`
with three differences:

* It listens on this machine alone. Any program that reaches a pool can have it run any code, and workers see
  records.
* Workers use the Python of the pool. Beam's pool starts the first `python` on PATH; if a module is missing
  there, the job waits for ever.
* Several task managers can share it.
"""

import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Annotated

import apache_beam
import grpc
import typer
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import (
    BeamFnExternalWorkerPoolServicer,
    kill_process_gracefully,
)
from apache_beam.utils import thread_pool_executor

from launch.flink.environment import python_path

_PROBE = 'import apache_beam, models, transforms; print(apache_beam.__version__)'


class WorkerPool(BeamFnExternalWorkerPoolServicer):
    """Beam's pool, made safe for several task managers.

    Each task manager numbers its workers from one, and Beam's pool knows a worker by its number alone. So a
    task manager that ends its own worker could end that of another, which would then wait three minutes
    for it before Flink starts the step again.
    """

    def __init__(self) -> None:
        super().__init__(use_process=True)
        self._lock = threading.Lock()
        # (worker's number, connection of the task manager) -> process
        self._workers: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def StartWorker(
        self, request: beam_fn_api_pb2.StartWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        with self._lock:
            self._workers = {key: process for key, process in self._workers.items() if process.poll() is None}
            response = super().StartWorker(request, context)
            if not response.error:
                process = self._worker_processes.pop(request.worker_id)
                self._workers[request.worker_id, context.peer()] = process
        return response

    def StopWorker(
        self, request: beam_fn_api_pb2.StopWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        key = (request.worker_id, context.peer())
        with self._lock:
            same = [known for known in self._workers if known[0] == request.worker_id]
            # A connection that was idle for half an hour comes back as another one. If that leaves a doubt,
            # the worker is not ended: it ends by itself when its task manager closes the connection.
            if key not in self._workers and len(same) == 1:
                key = same[0]
            process = self._workers.pop(key, None)
        if process is not None:
            kill_process_gracefully(process)
        return beam_fn_api_pb2.StopWorkerResponse()

    def kill(self) -> None:
        """Kills every worker. Batches that are not written yet are decoded again, to the same text."""
        with self._lock:
            for process in self._workers.values():
                process.kill()


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which `python` is the Python of this process and can import this project.

    Args:
        environment: The environment so far.

    Raises:
        FileNotFoundError: The folder of this Python has no command `python`.
    """
    binaries = pathlib.Path(sys.executable).parent
    found = shutil.which('python', path=str(binaries))
    if found is None:
        raise FileNotFoundError(
            f'Expected a command python beside sys.executable={sys.executable!r}, got none: Beam starts '
            'workers by that name. Use the Python of a virtual environment.'
        )
    path = environment.get('PATH', os.defpath)
    return {**environment, 'PATH': f'{binaries}{os.pathsep}{path}', **python_path(environment)}


def check_workers(environment: Mapping[str, str]) -> None:
    """Starts `python` as the pool does, and imports what workers need.

    Args:
        environment: The environment of workers.

    Raises:
        RuntimeError: An import failed, and a job would wait for workers for ever; or Beam has another
            version, and workers could not read the steps of a job.
    """
    command = shutil.which('python', path=environment['PATH'])
    result = subprocess.run(
        [command or 'python', '-c', _PROBE], env=dict(environment), capture_output=True, text=True
    )
    expected = apache_beam.__version__
    answer = (result.stderr if result.returncode else result.stdout).strip().rpartition('\n')[-1]
    if result.returncode or answer != expected:
        raise RuntimeError(
            f'Expected workers with apache_beam {expected} and this project, got python={command!r}, which '
            f'answered: {answer!r}. Install the project there.'
        )


def main(
    port: Annotated[int, typer.Option(help='Port on localhost where Flink asks for workers.')] = 50000,
) -> None:
    """Serve until SIGTERM, then kill the workers."""
    environment = worker_environment(os.environ)
    check_workers(environment)
    os.environ.update(environment)
    logging.basicConfig(level=logging.INFO, format='%(asctime)s %(levelname)s %(name)s %(message)s')
    # Flink pings workers and pools more often than gRPC allows by default.
    options = [('grpc.http2.max_pings_without_data', 0), ('grpc.http2.max_ping_strikes', 0)]
    server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=options)
    pool = WorkerPool()
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.add_insecure_port(f'localhost:{port}')
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    server.start()
    logging.info('Workers at localhost:%s, of %s', port, sys.executable)
    stopped.wait()
    server.stop(grace=0)
    pool.kill()


if __name__ == '__main__':
    typer.run(main)
