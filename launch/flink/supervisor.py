"""Keeps the processes of a cluster on one machine running, as Kubernetes does on many machines.

`python -m launch.flink.supervisor FOLDER` starts the services of FOLDER/cluster.json. When a service ends, it
starts the service again a second later. Each service is a process group of its own. When the service ends,
all processes of its group are killed, as in a container: a pool that was killed must not leave workers behind
that nobody can stop.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping

import psutil

CLUSTER = 'cluster.json'
PROCESSES = 'processes.json'
LOGS = 'log'
SUPERVISOR = 'supervisor'
_LOCK = 'supervisor.lock'
_RESTART_SECONDS = 1.0
_LOOK_SECONDS = 0.2
_STOP_SECONDS = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Service:
    """One process to keep running.

    Attributes:
        name: Names the log file, log/NAME.out.
        command: What to start.
        environment: Variables besides those of the supervisor.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Started:
    """A process as it was started.

    Attributes:
        pid: Id of the process and of its group.
        created: When it was started, in seconds since 1970: a system uses an id again.
        starts: How often the service has been started.
    """

    pid: int
    created: float
    starts: int

    @property
    def alive(self) -> bool:
        """Whether this process still runs, and not a later process with the same id."""
        try:
            process = psutil.Process(self.pid)
            return process.create_time() == self.created and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


def supervise(folder: pathlib.Path, services: Iterable[Service], stopped: threading.Event) -> None:
    """Keeps services running until `stopped` is set; then ends them and returns.

    Args:
        folder: Gets processes.json and the logs. A folder has one supervisor at a time.
        services: What to keep running.
        stopped: Ends the supervision.

    Raises:
        FileExistsError: Another supervisor has this folder.
    """
    (folder / LOGS).mkdir(parents=True, exist_ok=True)
    with open(folder / _LOCK, 'w') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileExistsError(
                f'Expected no other supervisor, got folder={str(folder)!r}, which has one. Stop that cluster '
                'first, or choose another folder.'
            ) from error
        running: dict[str, subprocess.Popen[bytes]] = {}
        started = {SUPERVISOR: _started(os.getpid(), 1)}
        due = {service.name: 0.0 for service in services}
        try:
            while not stopped.wait(_LOOK_SECONDS):
                changed = False
                for service in services:
                    process = running.get(service.name)
                    if process is not None and process.poll() is not None:
                        end_group(process.pid)
                        del running[service.name]
                        due[service.name] = time.monotonic() + _RESTART_SECONDS
                        _log(f'{service.name} ended with {process.returncode}')
                    elif process is None and time.monotonic() >= due[service.name]:
                        starts = started[service.name].starts + 1 if service.name in started else 1
                        running[service.name] = _start(folder, service)
                        started[service.name] = _started(running[service.name].pid, starts)
                        _log(f'{service.name} started, start number {starts}')
                        changed = True
                if changed:
                    _write_processes(folder, started)
        finally:
            for process in running.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
            until = time.monotonic() + _STOP_SECONDS
            for process in running.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=max(0.0, until - time.monotonic()))
                end_group(process.pid)
                process.wait()
            (folder / PROCESSES).unlink(missing_ok=True)


def end_group(pid: int) -> None:
    """Kills all processes of a group that still run."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def read_processes(folder: pathlib.Path) -> dict[str, Started]:
    """The processes of a folder's cluster, by service and `SUPERVISOR`; empty if none were started."""
    try:
        entries = json.loads((folder / PROCESSES).read_text(encoding='utf-8'))
    except FileNotFoundError:
        return {}
    return {name: Started(**entry) for name, entry in entries.items()}


def _start(folder: pathlib.Path, service: Service) -> subprocess.Popen[bytes]:
    with open(folder / LOGS / f'{service.name}.out', 'ab') as log:
        return subprocess.Popen(
            service.command,
            env={**os.environ, **service.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )


def _started(pid: int, starts: int) -> Started:
    try:
        return Started(pid, psutil.Process(pid).create_time(), starts)
    except psutil.NoSuchProcess:  # it has ended already, and is started again
        return Started(pid, 0.0, starts)


def _write_processes(folder: pathlib.Path, started: Mapping[str, Started]) -> None:
    entries = {name: dataclasses.asdict(process) for name, process in started.items()}
    temporary = folder / f'{PROCESSES}.tmp'
    temporary.write_text(json.dumps(entries, indent=2) + '\n', encoding='utf-8')
    temporary.rename(folder / PROCESSES)


def _log(line: str) -> None:
    print(time.strftime('%Y-%m-%d %H:%M:%S'), line, flush=True)


def main() -> None:
    """Supervises the services of the folder that is the only argument, until SIGTERM."""
    folder = pathlib.Path(sys.argv[1])
    entries = json.loads((folder / CLUSTER).read_text(encoding='utf-8'))['services']
    services = [
        Service(name=entry['name'], command=tuple(entry['command']), environment=entry['environment'])
        for entry in entries
    ]
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    supervise(folder, services, stopped)


if __name__ == '__main__':
    main()
