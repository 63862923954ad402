"""A cluster on this machine, or this machine's part of a cluster of several: its start and its end."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from launch.flink import rest, supervisor
from launch.flink.config import task_manager_options, write_config
from launch.flink.environment import python_path
from launch.flink.network import Network
from launch.flink.ports import listens
from launch.flink.supervisor import CLUSTER, LOGS, PROCESSES, SUPERVISOR, Service

_START_SECONDS = 300
_REGISTERED = b'Successful registration at resource manager'


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
    network: Network | None = None,
) -> None:
    """Starts a cluster, or this machine's part of one, and returns once its slots are there.

    Args:
        folder: Gets the cluster's config, logs and state. An absolute path.
        home: Folder of Flink (`distribution.fetch_flink`).
        task_managers: How many task managers this machine gets.
        slots: Slots of each task manager.
        memory: Memory of each task manager's process, as Flink writes it: '1536m'.
        port: Port of the REST interface.
        rpc_port: Port of the job manager.
        pool_port: Port of the worker pool.
        cache: Folder of downloads, for later commands. An absolute path.
        network: This machine's place among several; None: the cluster is this machine alone.

    Raises:
        RuntimeError: The cluster did not start in time, and was stopped.
    """
    for name in ('conf', LOGS, 'pid', 'tmp'):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # shuffled records may spill into tmp
    write_config(folder, home, slots=slots, memory=memory, port=port, rpc_port=rpc_port, network=network)
    cluster = {
        'job_manager': network.job_manager if network is not None and network.joins else None,
        'port': port,
        'pool_port': pool_port,
        'task_managers': task_managers,
        'slots': slots,
        'cache': str(cache),
        'services': [
            dataclasses.asdict(service)
            for service in services_of(
                folder, home, task_managers=task_managers, pool_port=pool_port, network=network
            )
        ],
    }
    (folder / CLUSTER).write_text(json.dumps(cluster, indent=2) + '\n', encoding='utf-8')
    (folder / PROCESSES).unlink(missing_ok=True)
    logged = {path: path.stat().st_size for path in (folder / LOGS).iterdir()}
    with open(folder / LOGS / f'{SUPERVISOR}.out', 'ab') as log:
        process = subprocess.Popen(
            [sys.executable, '-m', 'launch.flink.supervisor', str(folder)],
            env={**os.environ, **python_path(os.environ)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,  # outlives this terminal
        )
    _wait_until_up(folder, cluster, process, logged)


def services_of(
    folder: pathlib.Path,
    home: pathlib.Path,
    *,
    task_managers: int,
    pool_port: int,
    network: Network | None = None,
) -> list[Service]:
    """The processes of a cluster on this machine.

    Args:
        folder: The cluster's. An absolute path.
        home: Folder of Flink.
        task_managers: How many task managers this machine has.
        pool_port: Port of the worker pool.
        network: This machine's place among several; None: the cluster is this machine alone.
    """
    environment = {
        'FLINK_CONF_DIR': str(folder / 'conf'),
        'FLINK_LOG_DIR': str(folder / LOGS),
        'FLINK_PID_DIR': str(folder / 'pid'),
    }
    services = []
    if network is None or not network.joins:
        job_manager = (str(home / 'bin' / 'jobmanager.sh'), 'start-foreground')
        services.append(Service(name='jobmanager', command=job_manager, environment=environment))
    if task_managers:
        pool = (sys.executable, '-m', 'launch.flink.worker_pool', f'--port={pool_port}')
        services.append(Service(name='pool', command=pool, environment=python_path(os.environ)))
    for index in range(task_managers):
        options = [] if network is None else task_manager_options(network, index)
        command = (str(home / 'bin' / 'taskmanager.sh'), 'start-foreground', *options)
        # Flink numbers its log files by process, and two that start at once may get the same number.
        numbered = {**environment, 'FLINK_IDENT_STRING': f'{index}'}
        services.append(Service(name=f'taskmanager-{index}', command=command, environment=numbered))
    return services


def check_stopped(folder: pathlib.Path) -> None:
    """Checks that a folder has no running cluster.

    Raises:
        FileExistsError: It has one.
    """
    if is_running(folder):
        raise FileExistsError(
            f'Expected no running cluster, got folder={str(folder)!r}, which has one. Stop it first: '
            'launch/flink/flink.sh stop, or choose another --folder.'
        )


def stop_cluster(folder: pathlib.Path) -> None:
    """Stops all processes of a folder's cluster that still run."""
    processes = supervisor.read_processes(folder)
    watcher = processes.pop(SUPERVISOR, None)
    if watcher is not None and watcher.alive:
        os.kill(watcher.pid, signal.SIGTERM)
        until = time.monotonic() + 30
        while watcher.alive and time.monotonic() < until:
            time.sleep(0.1)
    # A supervisor that was killed has left its services running.
    for process in processes.values():
        if process.alive:
            supervisor.end_group(process.pid)
    (folder / PROCESSES).unlink(missing_ok=True)


def read_cluster(folder: pathlib.Path) -> dict[str, Any]:
    """The settings of the folder's running cluster.

    Raises:
        FileNotFoundError: No cluster of this folder runs.
    """
    if not is_running(folder):
        raise FileNotFoundError(
            f'Expected a running cluster, got folder={str(folder)!r}, which has none. Start it: '
            'launch/flink/flink.sh start.'
        )
    return json.loads((folder / CLUSTER).read_text(encoding='utf-8'))


def read_job_manager(folder: pathlib.Path) -> dict[str, Any]:
    """The settings of the folder's running cluster, if this machine has its job manager.

    Raises:
        FileNotFoundError: No cluster of this folder runs.
        ValueError: This machine joined the job manager of another machine.
    """
    settings = read_cluster(folder)
    if settings['job_manager'] is not None:
        raise ValueError(
            f'Expected the machine with the job manager, got folder={str(folder)!r}, which joined '
            f'job_manager={settings["job_manager"]!r}. Give this command on that machine.'
        )
    return settings


def _wait_until_up(
    folder: pathlib.Path,
    cluster: Mapping[str, Any],
    watcher: subprocess.Popen[bytes],
    logged: Mapping[pathlib.Path, int],
) -> None:
    until = time.monotonic() + _START_SECONDS
    missing = 'the job manager'
    while time.monotonic() < until and watcher.poll() is None:
        time.sleep(0.5)
        processes = supervisor.read_processes(folder)
        if failing := [name for name, process in processes.items() if process.starts > 3]:
            missing = ', '.join(failing)
            break
        if cluster['job_manager'] is None:
            try:
                count = rest.ask(cluster['port'], '/overview')['taskmanagers']
            except (OSError, RuntimeError):
                continue
        else:
            count = _registered(folder, cluster['task_managers'], logged)
        missing = f'{cluster["task_managers"] - count} task managers'
        if count >= cluster['task_managers']:
            missing = 'the worker pool'
            if not cluster['task_managers'] or listens(cluster['pool_port'], 'localhost'):
                return
    stop_cluster(folder)
    raise RuntimeError(
        f'Expected the cluster within {_START_SECONDS} seconds, got none of: {missing}. Read the logs '
        f'in {str(folder / LOGS)!r}.'
    )


def _registered(folder: pathlib.Path, task_managers: int, logged: Mapping[pathlib.Path, int]) -> int:
    """How many task managers logged that they are registered.

    The job manager is on another machine, and its REST interface cannot be asked from here.
    """
    count = 0
    for index in range(task_managers):
        path = folder / LOGS / f'taskmanager-{index}.out'
        if path.exists():
            count += _REGISTERED in path.read_bytes()[logged.get(path, 0) :]
    return count


def is_running(folder: pathlib.Path) -> bool:
    """Whether the supervisor of the folder's cluster runs."""
    watcher = supervisor.read_processes(folder).get(SUPERVISOR)
    return watcher is not None and watcher.alive
