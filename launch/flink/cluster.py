"""A cluster on this machine: its settings, its start and end, and what Flink answers of it.

Or this machine's part of a cluster of several (`Network`).
"""

import dataclasses
import http.client
import ipaddress
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from launch.flink import supervisor
from launch.flink.supervisor import CLUSTER, LOGS, PROCESSES, SUPERVISOR

_START_SECONDS = 300
# Else every step starts a worker of its own. A lost worker is kept for as long, so that steps are
# started again only later.
WORKER_IDLE_SECONDS = 3
_RESTART_SECONDS = 6
# Each process of Flink gets one for calls, one for data (files of the job manager, shuffles of a task
# manager), and one for the metrics that Flink's web page shows.
_PORTS_OF_A_PROCESS = 3
_REGISTERED = b'Successful registration at resource manager'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """How this machine and the others of its cluster reach each other.

    Flink lets whoever reaches its ports run code and read shuffled records. Between machines, both
    ends of each connection therefore prove that they hold one key, and what passes is encrypted.

    Attributes:
        address: This machine's, for the others; task managers listen on no other.
        job_manager: Address of the machine with the job manager. This one's: it has it.
        task_manager_port: First of three ports for each task manager.
        keystore: The key, in a PKCS #12 file, the same on every machine. Absolute.
        password_file: Holds the keystore's password in one line.
    """

    address: str
    job_manager: str
    task_manager_port: int
    keystore: pathlib.Path
    password_file: pathlib.Path

    @property
    def joins(self) -> bool:
        """Whether the job manager is another machine's."""
        return self.job_manager != self.address


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
        folder: The cluster's: config, logs and state. Absolute.
        home: Flink's (`distribution.fetch_flink`).
        task_managers: How many on this machine.
        slots: Of one task manager.
        memory: Of one task manager's process, as Flink writes it.
        port: REST interface.
        rpc_port: The job manager's.
        pool_port: The worker pool's.
        cache: Folder of downloads, for later commands. Absolute.
        network: The other machines; None: there are none.

    Raises:
        RuntimeError: It was not up in time; it is stopped then.
    """
    for name in ('conf', LOGS, 'pid', 'tmp'):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # shuffled records may spill into tmp
    for path in (home / 'conf').iterdir():
        shutil.copyfile(path, folder / 'conf' / path.name)
    config = flink_config(folder, slots=slots, memory=memory, port=port, rpc_port=rpc_port)
    if network is not None:
        config |= network_config(network, rpc_port=rpc_port)
    settings = yaml.safe_load((home / 'conf' / 'config.yaml').read_text(encoding='utf-8'))
    flat = {**_flatten(settings), **config}
    written = folder / 'conf' / 'config.yaml'
    written.touch(mode=0o600)
    written.chmod(0o600)  # it holds the keystore's password
    written.write_text(yaml.safe_dump(flat, width=10_000), encoding='utf-8')

    environment = {
        'FLINK_CONF_DIR': str(folder / 'conf'),
        'FLINK_LOG_DIR': str(folder / LOGS),
        'FLINK_PID_DIR': str(folder / 'pid'),
    }
    job_manager = ('jobmanager', [str(home / 'bin' / 'jobmanager.sh'), 'start-foreground'], environment)
    command = [sys.executable, '-m', 'launch.flink.worker_pool', f'--port={pool_port}']
    pool = ('pool', command, python_path())
    services = [
        *([] if network is not None and network.joins else [job_manager]),
        *([pool] if task_managers else []),
        *(
            (
                f'taskmanager-{index}',
                [
                    *(str(home / 'bin' / 'taskmanager.sh'), 'start-foreground'),
                    *([] if network is None else _task_manager_options(network, index)),
                ],
                # Flink numbers its log files by process, and two that start at once may count alike.
                {**environment, 'FLINK_IDENT_STRING': f'{index}'},
            )
            for index in range(task_managers)
        ),
    ]
    cluster = {
        'job_manager': network.job_manager if network is not None and network.joins else None,
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
    logged = {path: path.stat().st_size for path in (folder / LOGS).iterdir()}
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
    _wait_until_up(folder, cluster, process, logged)


def listening_ports(
    *, task_managers: int, port: int, rpc_port: int, pool_port: int, network: Network | None = None
) -> dict[str, tuple[str, list[int]]]:
    """Where this machine's part would listen: the setting -> address, ports.

    Args:
        task_managers: How many on this machine.
        port: REST interface.
        rpc_port: The job manager's.
        pool_port: The worker pool's.
        network: The other machines; None: there are none, and Flink chooses what is not named here.
    """
    ports = {'pool_port': ('localhost', [pool_port])} if task_managers else {}
    if network is None:
        return ports | {'port': ('localhost', [port]), 'rpc_port': ('localhost', [rpc_port])}
    if not network.joins:
        ports['port'] = ('localhost', [port])
        ports['rpc_port'] = (network.address, [rpc_port + i for i in range(_PORTS_OF_A_PROCESS)])
    first, count = network.task_manager_port, _PORTS_OF_A_PROCESS * task_managers
    return ports | {'task_manager_port': (network.address, [first + i for i in range(count)])}


def check_free(folder: pathlib.Path, ports: Mapping[str, tuple[str, Iterable[int]]]) -> None:
    """Checks that a cluster may start.

    Args:
        folder: The cluster's.
        ports: Where it would listen (`listening_ports`).

    Raises:
        FileExistsError: The folder has a running cluster.
        ValueError: Something listens on one of the ports, or two settings name the same.
    """
    if is_running(folder):
        raise FileExistsError(
            f'Expected no running cluster, got folder={str(folder)!r}, which has one. Stop it first: '
            'launch/flink/flink.sh stop, or choose another --folder.'
        )
    taken: dict[int, str] = {}
    for name, (address, numbers) in ports.items():
        flag = f'--{name.replace("_", "-")}'
        for number in numbers:
            if number in taken:
                raise ValueError(
                    f'Expected ports of their own, got {number} for {taken[number]} and for {flag}. '
                    f'Choose another {flag}.'
                )
            if _listens(number, address):
                raise ValueError(
                    f'Expected a free port, got {name}={number}, where something listens. Choose another '
                    f'{flag}.'
                )
            taken[number] = flag


def check_network(network: Network, rpc_port: int) -> None:
    """Checks what can be known of the other machines before anything starts.

    Args:
        network: The other machines.
        rpc_port: The job manager's.

    Raises:
        FileNotFoundError: There is no keystore, or no file with its password.
        PermissionError: Other users of this machine may read the keystore or its password.
        ValueError: The address is not this machine's, or others cannot reach it, or no job
            manager answers where this machine joins.
    """
    for flag, path in (('--keystore', network.keystore), ('--keystore-password-file', network.password_file)):
        if not path.is_file():
            raise FileNotFoundError(
                f'Expected a file, got {flag} {str(path)!r}, which is not there. Make it once and copy it '
                'to every machine: launch/flink/README.md.'
            )
        if path.stat().st_mode & 0o077:
            raise PermissionError(
                f'Expected a file that its owner alone may read, got {flag} {str(path)!r} with mode '
                f'{path.stat().st_mode & 0o777:o}: who has it may run code on the cluster. Do chmod 600.'
            )
    try:
        found = socket.getaddrinfo(network.address, None, type=socket.SOCK_STREAM)
        family, _, _, _, place = found[0]
        with socket.socket(family) as own:
            own.bind((place[0], 0))
    except OSError as error:
        raise ValueError(
            f'Expected an address of this machine, got address={network.address!r}: {error}. '
            '`ip -brief address` lists them.'
        ) from error
    numeric = ipaddress.ip_address(place[0])
    if numeric.is_loopback or numeric.is_unspecified:
        raise ValueError(
            f'Expected an address at which the other machines reach this one, got '
            f'address={network.address!r}, which is {numeric} here. `ip -brief address` lists them.'
        )
    if network.joins and not _listens(rpc_port, network.job_manager):
        raise ValueError(
            f'Expected the job manager, got job_manager={network.job_manager!r}, where nothing answers on '
            f'rpc_port={rpc_port}. Start that machine first, and let this one pass its firewall.'
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


def network_config(network: Network, *, rpc_port: int) -> dict[str, Any]:
    """What config.yaml says besides on each of several machines.

    Args:
        network: The other machines.
        rpc_port: The job manager's.
    """
    password = network.password_file.read_text(encoding='utf-8').strip()
    return {
        'jobmanager.rpc.address': network.job_manager,
        # The job manager takes a job's files to its file server at localhost, whatever its address.
        'jobmanager.bind-host': '0.0.0.0',
        # Else Flink draws these, and no firewall could let them pass. REST stays this machine's: the job
        # comes from here.
        'blob.server.port': rpc_port + 1,
        'metrics.internal.query-service.port': rpc_port + 2,
        'taskmanager.host': network.address,
        'taskmanager.bind-host': network.address,
        # Both ends show the one certificate that they trust, whatever the name in it.
        'security.ssl.internal.enabled': True,
        'security.ssl.internal.keystore': str(network.keystore),
        'security.ssl.internal.keystore-password': password,
        'security.ssl.internal.key-password': password,
        'security.ssl.internal.truststore': str(network.keystore),
        'security.ssl.internal.truststore-password': password,
        'security.ssl.protocol': 'TLSv1.3',
        'security.ssl.algorithms': 'TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256',
    }


def _task_manager_options(network: Network, index: int) -> list[str]:
    first = network.task_manager_port + _PORTS_OF_A_PROCESS * index
    names = ('taskmanager.rpc.port', 'taskmanager.data.port', 'metrics.internal.query-service.port')
    return [f'-D{name}={first + i}' for i, name in enumerate(names)]


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


def read_job_manager(folder: pathlib.Path) -> dict[str, Any]:
    """The settings of a running cluster whose job manager is this machine's.

    Raises:
        FileNotFoundError: None was started there, or it does not run.
        ValueError: It joined the job manager of another machine.
    """
    settings = read_cluster(folder)
    if settings['job_manager'] is not None:
        raise ValueError(
            f'Expected the machine of the job manager, got folder={str(folder)!r}, which joined '
            f'job_manager={settings["job_manager"]!r}. Do it there.'
        )
    return settings


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
                count = rest(cluster['port'], '/overview')['taskmanagers']
            except (OSError, RuntimeError):
                continue
        else:
            count = _registered(folder, cluster['task_managers'], logged)
        missing = f'{cluster["task_managers"] - count} task managers'
        if count >= cluster['task_managers']:
            missing = 'the worker pool'
            if not cluster['task_managers'] or _listens(cluster['pool_port'], 'localhost'):
                return
    stop_cluster(folder)
    raise RuntimeError(
        f'Expected the cluster within {_START_SECONDS} seconds, got none of: {missing}. Read the logs '
        f'in {str(folder / LOGS)!r}.'
    )


def _registered(folder: pathlib.Path, task_managers: int, logged: Mapping[pathlib.Path, int]) -> int:
    """How many wrote that a job manager took them: the one who could be asked is another machine's."""
    count = 0
    for index in range(task_managers):
        path = folder / LOGS / f'taskmanager-{index}.out'
        if path.exists():
            count += _REGISTERED in path.read_bytes()[logged.get(path, 0) :]
    return count


def is_running(folder: pathlib.Path) -> bool:
    """Whether the folder has a cluster whose supervisor lives."""
    watcher = supervisor.read_processes(folder).get(SUPERVISOR)
    return watcher is not None and watcher.alive


def _listens(port: int, address: str) -> bool:
    try:
        with socket.create_connection((address, port), timeout=1):
            return True
    except OSError:
        return False


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
