"""A cluster on this machine: its settings, its start and end, and what Flink answers of it."""

import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import yaml

from launch.flink import supervisor
from launch.flink.supervisor import CLUSTER, LOGS, PROCESSES, SUPERVISOR

_START_SECONDS = 300
# Else every step starts a worker of its own. A lost worker is kept for as long, so that steps are
# started again only later.
WORKER_IDLE_SECONDS = 3
_RESTART_SECONDS = 6


def start_cluster(
    folder: pathlib.Path,
    home: pathlib.Path,
    *,
    task_managers: int,
    slots: int,
    memory: str,
    port: int,
    rpc_port: int,
    pool_port: int,
    cache: pathlib.Path,
) -> None:
    """Starts a cluster and returns once every slot is there.

    Args:
        folder: The cluster's: config, logs and state. Absolute.
        home: Flink's (`distribution.fetch_flink`).
        task_managers: How many.
        slots: Of one task manager.
        memory: Of one task manager's process, as Flink writes it.
        port: REST interface.
        rpc_port: The job manager's.
        pool_port: The worker pool's.
        cache: Folder of downloads, for later commands. Absolute.

    Raises:
        RuntimeError: It was not up in time; it is stopped then.
    """
    for name in ('conf', LOGS, 'pid', 'tmp'):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # shuffled records may spill into tmp
    for path in (home / 'conf').iterdir():
        shutil.copyfile(path, folder / 'conf' / path.name)
    config = flink_config(folder, slots=slots, memory=memory, port=port, rpc_port=rpc_port)
    settings = yaml.safe_load((home / 'conf' / 'config.yaml').read_text(encoding='utf-8'))
    flat = {**_flatten(settings), **config}
    (folder / 'conf' / 'config.yaml').write_text(yaml.safe_dump(flat, width=10_000), encoding='utf-8')

    environment = {
        'FLINK_CONF_DIR': str(folder / 'conf'),
        'FLINK_LOG_DIR': str(folder / LOGS),
        'FLINK_PID_DIR': str(folder / 'pid'),
    }
    services = [
        ('jobmanager', [str(home / 'bin' / 'jobmanager.sh'), 'start-foreground'], environment),
        ('pool', [sys.executable, '-m', 'launch.flink.worker_pool', f'--port={pool_port}'], python_path()),
        *(
            (
                f'taskmanager-{index}',
                [str(home / 'bin' / 'taskmanager.sh'), 'start-foreground'],
                # Flink numbers its log files by process, and two that start at once may count alike.
                {**environment, 'FLINK_IDENT_STRING': f'{index}'},
            )
            for index in range(task_managers)
        ),
    ]
    cluster = {
        'port': port,
        'pool_port': pool_port,
        'task_managers': task_managers,
        'slots': slots,
        'cache': str(cache),
        'services': [
            {'name': name, 'command': command, 'environment': variables}
            for name, command, variables in services
        ],
    }
    (folder / CLUSTER).write_text(json.dumps(cluster, indent=2) + '\n', encoding='utf-8')
    (folder / PROCESSES).unlink(missing_ok=True)
    with open(folder / LOGS / f'{SUPERVISOR}.out', 'ab') as log:
        process = subprocess.Popen(
            [sys.executable, '-m', 'launch.flink.supervisor', str(folder)],
            env={**os.environ, **python_path()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,  # outlives this terminal
        )
    _wait_until_up(folder, cluster, process)


def check_free(folder: pathlib.Path, ports: Mapping[str, int]) -> None:
    """Checks that a cluster may start.

    Args:
        folder: The cluster's.
        ports: What it would listen on, by the name of the setting.

    Raises:
        FileExistsError: The folder has a running cluster.
        ValueError: Something listens on one of the ports.
    """
    if is_running(folder):
        raise FileExistsError(
            f'Expected no running cluster, got folder={str(folder)!r}, which has one. Stop it first: '
            'launch/flink/flink.sh stop, or choose another --folder.'
        )
    for name, number in ports.items():
        if _listens(number):
            raise ValueError(
                f'Expected a free port, got {name}={number}, where something listens. Choose another '
                f'--{name.replace("_", "-")}.'
            )


def stop_cluster(folder: pathlib.Path) -> None:
    """Stops what runs of a folder's cluster."""
    processes = supervisor.read_processes(folder)
    watcher = processes.pop(SUPERVISOR, None)
    if watcher is not None and watcher.alive:
        os.kill(watcher.pid, signal.SIGTERM)
        until = time.monotonic() + 30
        while watcher.alive and time.monotonic() < until:
            time.sleep(0.1)
    # Of a supervisor that was killed itself, the services are still there.
    for process in processes.values():
        if process.alive:
            supervisor.end_group(process.pid)
    (folder / PROCESSES).unlink(missing_ok=True)


def flink_config(
    folder: pathlib.Path, *, slots: int, memory: str, port: int, rpc_port: int
) -> dict[str, Any]:
    """What this cluster's config.yaml says beyond Flink's own.

    Args:
        folder: The cluster's.
        slots: Of one task manager.
        memory: Of one task manager's process, as Flink writes it.
        port: REST interface.
        rpc_port: The job manager's.
    """
    return {
        'jobmanager.rpc.port': rpc_port,
        'jobmanager.memory.process.size': '1024m',
        'taskmanager.memory.process.size': memory,
        # Each shuffle that a stage writes holds as many at least: of Flink's own 512, those of a job in two
        # rounds with clusters come to more than a task manager of this size has.
        'taskmanager.network.sort-shuffle.min-buffers': 128,
        'taskmanager.numberOfTaskSlots': slots,
        'parallelism.default': 1,
        'rest.port': port,
        'rest.bind-address': 'localhost',
        'rest.flamegraph.enabled': False,
        # A job comes through the job server; nobody uploads jars.
        'web.submit.enable': False,
        # A lost worker or machine repeats what it did; batches that are files are not decoded again.
        # Without checkpoints, Flink's own default is to give up.
        'restart-strategy.type': 'fixed-delay',
        'restart-strategy.fixed-delay.attempts': 10,
        'restart-strategy.fixed-delay.delay': f'{_RESTART_SECONDS} s',
        # A process that was killed is missed within seconds, and not within a minute.
        # Milliseconds: Flink 1.19 reads these three as bare numbers.
        'heartbeat.interval': 2000,
        'heartbeat.timeout': 20_000,
        # Until a killed task manager is back; then the job fails, with a reason.
        'slot.request.timeout': 120_000,
        'io.tmp.dirs': str(folder / 'tmp'),
    }


def read_cluster(folder: pathlib.Path) -> dict[str, Any]:
    """The settings of a running cluster.

    Raises:
        FileNotFoundError: None was started there, or it does not run.
    """
    if not is_running(folder):
        raise FileNotFoundError(
            f'Expected a running cluster, got folder={str(folder)!r}, which has none. Start it: '
            'launch/flink/flink.sh start.'
        )
    return json.loads((folder / CLUSTER).read_text(encoding='utf-8'))


def rest(port: int, path: str, method: str = 'GET') -> Any:
    """What Flink's REST interface answers.

    Raises:
        OSError: Nothing answers.
        RuntimeError: It answers with an error.
    """
    connection = http.client.HTTPConnection('localhost', port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status >= 400:
        raise RuntimeError(
            f'Expected an answer of Flink, got status={response.status} for path={path!r}. See its logs.'
        )
    return json.loads(body)


def running_jobs(port: int) -> list[str]:
    """Ids of jobs that have not ended."""
    ended = {'FINISHED', 'CANCELED', 'FAILED'}
    return [job['id'] for job in rest(port, '/jobs')['jobs'] if job['status'] not in ended]


def _wait_until_up(
    folder: pathlib.Path, cluster: Mapping[str, Any], watcher: subprocess.Popen[bytes]
) -> None:
    until = time.monotonic() + _START_SECONDS
    missing = 'the job manager'
    while time.monotonic() < until and watcher.poll() is None:
        time.sleep(0.5)
        processes = supervisor.read_processes(folder)
        if failing := [name for name, process in processes.items() if process.starts > 3]:
            missing = ', '.join(failing)
            break
        try:
            count = rest(cluster['port'], '/overview')['taskmanagers']
        except (OSError, RuntimeError):
            continue
        missing = f'{cluster["task_managers"] - count} task managers'
        if count == cluster['task_managers']:
            missing = 'the worker pool'
            if _listens(cluster['pool_port']):
                return
    stop_cluster(folder)
    raise RuntimeError(
        f'Expected the cluster within {_START_SECONDS} seconds, got none of: {missing}. Read the logs '
        f'in {str(folder / LOGS)!r}.'
    )


def is_running(folder: pathlib.Path) -> bool:
    """Whether the folder has a cluster whose supervisor lives."""
    watcher = supervisor.read_processes(folder).get(SUPERVISOR)
    return watcher is not None and watcher.alive


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex(('localhost', port)) == 0


def python_path() -> dict[str, str]:
    """The variable with which any Python finds this project."""
    root = str(pathlib.Path(__file__).resolve().parents[2])
    known = os.environ.get('PYTHONPATH')
    return {'PYTHONPATH': os.pathsep.join([root, *([known] if known else [])])}


def _flatten(settings: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
    """Nested YAML keys -> dotted ones; Flink reads both, but no mixture of them."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f'{prefix}{name}.')
        else:
            flat[f'{prefix}{name}'] = value
    return flat
