"""Flink's config.yaml for a cluster, and the ports that follow from it."""

import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import yaml

from launch.flink.network import Network

# Without it every step starts a worker of its own. Flink keeps a lost worker for as long, so it waits longer
# than this before it starts steps again.
WORKER_IDLE_SECONDS = 3
_RESTART_SECONDS = 6
# Each process of Flink gets one for calls, one for data (files of the job manager, shuffles of a task
# manager), and one for the metrics that Flink's web page shows.
_PORTS_OF_A_PROCESS = 3


def write_config(
    folder: pathlib.Path,
    home: pathlib.Path,
    *,
    slots: int,
    memory: str,
    port: int,
    rpc_port: int,
    network: Network | None = None,
) -> None:
    """Writes the config of a cluster, or of this machine's part of one, into FOLDER/conf.

    Args:
        folder: The cluster's. An absolute path.
        home: Folder of Flink, whose config files are copied.
        slots: Slots of each task manager.
        memory: Memory of each task manager's process, as Flink writes it: '1536m'.
        port: Port of the REST interface.
        rpc_port: Port of the job manager.
        network: This machine's place among several; None: the cluster is this machine alone.
    """
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


def flink_config(
    folder: pathlib.Path, *, slots: int, memory: str, port: int, rpc_port: int
) -> dict[str, Any]:
    """The entries of config.yaml that differ from Flink's own: see `write_config`."""
    return {
        'jobmanager.rpc.port': rpc_port,
        'jobmanager.memory.process.size': '1024m',
        'taskmanager.memory.process.size': memory,
        # Each shuffle of a stage holds at least this many buffers. With Flink's own 512, a job in two rounds
        # with clusters needs more than a task manager of this size has.
        'taskmanager.network.sort-shuffle.min-buffers': 128,
        'taskmanager.numberOfTaskSlots': slots,
        'parallelism.default': 1,
        'rest.port': port,
        'rest.bind-address': 'localhost',
        'rest.flamegraph.enabled': False,
        # A job comes through the job server; nobody uploads jars.
        'web.submit.enable': False,
        # The work of a lost worker or machine is repeated; batches that are files are not decoded again.
        # Without checkpoints Flink would give up by default.
        'restart-strategy.type': 'fixed-delay',
        'restart-strategy.fixed-delay.attempts': 10,
        'restart-strategy.fixed-delay.delay': f'{_RESTART_SECONDS} s',
        # Flink notices a killed process within seconds, and not only after a minute. The numbers are
        # milliseconds: Flink 1.19 reads these three without a unit.
        'heartbeat.interval': 2000,
        'heartbeat.timeout': 20_000,
        # Long enough for a killed task manager to come back; after it the job fails and says why.
        'slot.request.timeout': 120_000,
        'io.tmp.dirs': str(folder / 'tmp'),
    }


def network_config(network: Network, *, rpc_port: int) -> dict[str, Any]:
    """The further entries of config.yaml on each of several machines.

    Args:
        network: This machine's place.
        rpc_port: First of three ports of the job manager.
    """
    password = network.password_file.read_text(encoding='utf-8').strip()
    return {
        'jobmanager.rpc.address': network.job_manager,
        # The job manager takes a job's files to its file server at localhost, whatever its address.
        'jobmanager.bind-host': '0.0.0.0',
        # Flink would choose these ports at random, and no firewall could let them pass. The REST interface
        # stays at localhost: the job comes from this machine.
        'blob.server.port': rpc_port + 1,
        'metrics.internal.query-service.port': rpc_port + 2,
        'taskmanager.host': network.address,
        'taskmanager.bind-host': network.address,
        # Both ends show the same certificate, which they trust whatever name it has.
        'security.ssl.internal.enabled': True,
        'security.ssl.internal.keystore': str(network.keystore),
        'security.ssl.internal.keystore-password': password,
        'security.ssl.internal.key-password': password,
        'security.ssl.internal.truststore': str(network.keystore),
        'security.ssl.internal.truststore-password': password,
        'security.ssl.protocol': 'TLSv1.3',
        'security.ssl.algorithms': 'TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256',
    }


def task_manager_options(network: Network, index: int) -> list[str]:
    """The options of the command that starts one task manager: its ports.

    Args:
        network: This machine's place.
        index: The task manager's number on this machine, from 0.
    """
    first = network.task_manager_port + _PORTS_OF_A_PROCESS * index
    names = ('taskmanager.rpc.port', 'taskmanager.data.port', 'metrics.internal.query-service.port')
    return [f'-D{name}={first + i}' for i, name in enumerate(names)]


def listening_ports(
    *, task_managers: int, port: int, rpc_port: int, pool_port: int, network: Network | None = None
) -> dict[str, tuple[str, list[int]]]:
    """Where the processes of this machine would listen: name of the setting -> (address, ports).

    Args:
        task_managers: How many task managers this machine gets.
        port: Port of the REST interface.
        rpc_port: Port of the job manager; with a network the first of three.
        pool_port: Port of the worker pool.
        network: This machine's place among several. None: the cluster is this machine alone, and Flink
            chooses all ports that have no setting.
    """
    ports = {'pool_port': ('localhost', [pool_port])} if task_managers else {}
    if network is None:
        return ports | {'port': ('localhost', [port]), 'rpc_port': ('localhost', [rpc_port])}
    if not network.joins:
        ports['port'] = ('localhost', [port])
        ports['rpc_port'] = (network.address, [rpc_port + i for i in range(_PORTS_OF_A_PROCESS)])
    first, count = network.task_manager_port, _PORTS_OF_A_PROCESS * task_managers
    return ports | {'task_manager_port': (network.address, [first + i for i in range(count)])}


def _flatten(settings: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
    """Nested YAML keys -> dotted keys; Flink reads both, but not both in one file."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f'{prefix}{name}.')
        else:
            flat[f'{prefix}{name}'] = value
    return flat
