"""The job on machines that share only a network and one folder; each is a set of namespaces of this kernel.

A machine here has processes, network and /tmp of its own. Needs root and Linux's namespaces besides what
run_test.py needs; where something is missing, these tests are skipped and say what.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import pytest
import yaml

from tests.launch.flink import local_cluster
from tests.launch.flink.local_cluster import (
    ROOT,
    SCRIPT,
    Run,
    needs_model,
    script_environment,
    wait_for,
)

pytestmark = pytest.mark.run
PORT = 8081
# The ports of the page: of the job manager alone, of a task manager, and of both for metrics.
JOB_MANAGER, TASK_MANAGER, METRICS = {6123, 6124}, {6130, 6131}, set(range(6140, 6150))
# The project may lie in /tmp as well. The first process reads from a pipe that this process holds: however
# that ends, so does the machine.
_BOOT = """
exec 3<"$1" 4<"$2"
mount -t tmpfs tmpfs /tmp
mkdir -p "$1" "$2"
mount -c --bind /proc/self/fd/3 "$1" && exec 3<&-
mount -c --bind /proc/self/fd/4 "$2" && exec 4<&-
ip link set lo up && echo ready && exec cat
"""


@dataclasses.dataclass(frozen=True)
class Machine:
    """Namespaces, entered through their first process."""

    address: str
    pid: int
    environment: dict[str, str] = dataclasses.field(default_factory=lambda: {**os.environ})

    def command(self, command: Sequence[str]) -> list[str]:
        return ['nsenter', f'--target={self.pid}', '--net', '--mount', '--pid', '--', *command]

    def do(self, *command: str) -> str:
        """The output of a command on this machine.

        Raises:
            RuntimeError: It fails.
        """
        result = subprocess.run(
            self.command(command), env=self.environment, capture_output=True, text=True, timeout=900
        )
        if result.returncode:
            raise RuntimeError(f'{command} ended with {result.returncode}: {result.stdout}{result.stderr}')
        return result.stdout

    def flink(self, *command: str) -> str:
        return self.do(*SCRIPT, *command)

    def logs(self) -> dict[str, str]:
        folder = pathlib.Path(self.environment['XDG_STATE_HOME']) / 'dp-corpus' / 'flink' / 'log'
        return {path.name: path.read_text(errors='replace') for path in folder.iterdir()}

    def reaches(self, address: str, port: int) -> bool:
        script = f"import socket; socket.create_connection(('{address}', {port}), 2)"
        return (
            subprocess.run(self.command([sys.executable, '-c', script]), capture_output=True).returncode == 0
        )

    def listens(self) -> set[tuple[str, int]]:
        lines = self.do('ss', '-Hltn').splitlines()
        places = (line.split()[3].rpartition(':') for line in lines)
        return {(host.strip('[]').removeprefix('::ffff:'), int(port)) for host, _, port in places}

    def rest(self, path: str) -> Any:
        return json.loads(self.do('curl', '-sSf', f'http://localhost:{PORT}{path}'))


@contextlib.contextmanager
def boot(address: str, shared: pathlib.Path) -> Iterator[Machine]:
    """A machine without a link yet; all that runs there ends with it."""
    command = ['unshare', '--net', '--mount', '--pid', '--fork', '--mount-proc', 'sh', '-ec', _BOOT]
    with subprocess.Popen(
        [*command, 'sh', str(shared), str(ROOT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as first:
        assert first.stdin and first.stdout and first.stderr
        try:
            if first.stdout.readline() != b'ready\n':
                first.wait()
                pytest.skip(f'several machines are NOT tested here: {first.stderr.read().decode().strip()}')
            (child,) = psutil.Process(first.pid).children()
            yield Machine(address, child.pid)
        finally:
            first.stdin.close()
            first.wait(timeout=30)


@pytest.fixture(scope='module')
def machines(local_run: Run) -> Iterator[tuple[Machine, Machine]]:
    """Two machines with a cable between them."""
    if os.geteuid() != 0:
        pytest.skip('several machines are NOT tested here: namespaces need root')
    if missing := [name for name in ('unshare', 'nsenter', 'ip', 'ss', 'curl') if not shutil.which(name)]:
        pytest.skip(f'several machines are NOT tested here: no command {missing}')
    with boot('10.77.0.1', local_run.folder) as first, boot('10.77.0.2', local_run.folder) as second:
        # Not as one of the first machine's processes, for which the second one's have no ids.
        cable = f'ip link add wire type veth peer name wire netns {second.pid}'
        enter = ['nsenter', f'--target={first.pid}', '--net', *cable.split()]
        result = subprocess.run(enter, capture_output=True, text=True)
        if result.returncode:
            pytest.skip(f'several machines are NOT tested here: {result.stderr}')
        for machine in (first, second):
            machine.do('ip', 'address', 'add', f'{machine.address}/24', 'dev', 'wire')
            machine.do('ip', 'link', 'set', 'wire', 'up')
        yield first, second


def page_block(language: str) -> str:
    """A block of the page that says how to use several machines."""
    page = (ROOT / 'docs' / 'deploying' / 'flink.md').read_text()
    (block,) = re.findall(rf'^```{language}\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    return block


@pytest.fixture(scope='module')
def cluster(machines: tuple[Machine, Machine], local_run: Run) -> tuple[Machine, Machine]:
    """A cluster of both: the job manager on the first, a task manager on each, as the page says.

    It ends with the machines.
    """
    local_cluster.cache()
    folder = local_run.folder
    subprocess.run(['sh', '-ec', page_block('sh')], cwd=folder, check=True, capture_output=True)
    for machine in machines:
        text = page_block('yaml').replace('10.0.0.1', machines[0].address)
        text = text.replace('10.0.0.2', machine.address).replace('/etc/flink/', f'{folder}/')
        text = text.replace('PASSWORD', (folder / 'flink.password').read_text().strip())
        own = folder / machine.address
        own.mkdir()
        machine.environment.update(script_environment(own, **yaml.safe_load(text)))
    first, second = machines
    first.flink('jobmanager.sh', 'start')
    for machine in machines:
        machine.flink('taskmanager.sh', 'start')
    wait_for(lambda: first.reaches('localhost', PORT), 60, 'starting the job manager')
    wait_for(lambda: first.rest('/overview')['slots-total'] == 2, 120, 'registering')
    return first, second


def test_other_machines_reach_the_ports_of_the_page_and_no_other(cluster: tuple[Machine, Machine]) -> None:
    first, second = cluster
    loopback, every = {'127.0.0.1', '::1'}, {'*', '0.0.0.0', '::'}
    for machine, other, of_machine in (
        (first, second, JOB_MANAGER | TASK_MANAGER),
        (second, first, TASK_MANAGER),
    ):
        places = machine.listens()
        assert any(port == PORT for _, port in places) == (machine is first)
        assert {host for host, _ in places} <= loopback | every | {machine.address}
        assert {host for host, port in places if port in TASK_MANAGER} == {machine.address}
        reached = {port for _, port in places if other.reaches(machine.address, port)}
        assert reached - METRICS == of_machine
        assert reached & METRICS, 'the page speaks of metrics'


def test_ports_hang_up_on_who_lacks_the_key(cluster: tuple[Machine, Machine]) -> None:
    first, second = cluster
    # In TLS 1.3 a server looks at the other's certificate after the handshake of that one.
    script = """
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
with context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)) as connection:
    print(connection.version())
    try:
        connection.sendall(b'hello')
        print('answered', connection.recv(1))
    except ssl.SSLError as error:
        print(error.reason)
"""
    reached = {port for _, port in first.listens() if second.reaches(first.address, port)}
    assert reached > JOB_MANAGER | TASK_MANAGER
    for port in sorted(reached):
        version, answer = second.do(sys.executable, '-c', script, first.address, f'{port}').splitlines()
        assert version == 'TLSv1.3' and answer.endswith('ALERT_BAD_CERTIFICATE'), (port, answer)


# One machine with two task managers does the same in run_test.py.
@needs_model
def test_on_two_machines_the_corpus_is_the_local_one(
    cluster: tuple[Machine, Machine], local_run: Run
) -> None:
    first, second = cluster
    local_run.forget()
    first.flink('run', '--quiet', *local_run.flags)
    assert local_run.corpus_now() == local_run.corpus
    decoded = {machine.address: 0 for machine in cluster}
    (job,) = first.rest('/jobs')['jobs']
    for vertex in first.rest(f'/jobs/{job["id"]}')['vertices']:
        if 'Generate/{Decode' in vertex['name']:
            parts = first.rest(f'/jobs/{job["id"]}/vertices/{vertex["id"]}/taskmanagers')['taskmanagers']
            for part in parts:
                decoded[part['host'].rpartition(':')[0]] += part['metrics']['write-records']
    assert set(decoded) == {first.address, second.address} and min(decoded.values()) > 0, decoded

    password = (local_run.folder / 'flink.password').read_text().strip()
    for machine in cluster:
        told = machine.logs()
        assert any('ssl' in log and 'taskexecutor' in name for name, log in told.items())
        assert [name for name, log in told.items() if password in log] == []
        assert [text for text in local_run.texts if any(text in log for log in told.values())] == []
