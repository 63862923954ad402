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

from launch.flink import distribution, main, supervisor
from launch.flink.job_server import fetch_job_server
from tests.launch.flink.local_cluster import ROOT, SCRIPT, Run, needs_model, script_environment

pytestmark = pytest.mark.run
PORT, RPC_PORT, TASK_MANAGER_PORT, POOL_PORT = 8081, 6123, 6130, 50000
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

    @property
    def folder(self) -> str:
        return '/tmp/its own cluster'  # of this machine's own /tmp

    def command(self, command: Sequence[str]) -> list[str]:
        return ['nsenter', f'--target={self.pid}', '--net', '--mount', '--pid', '--', *command]

    def do(self, *command: str) -> str:
        """What a command on this machine prints.

        Raises:
            RuntimeError: It fails.
        """
        result = subprocess.run(
            self.command(command), env=script_environment(), capture_output=True, text=True, timeout=900
        )
        if result.returncode:
            raise RuntimeError(f'{command} ended with {result.returncode}: {result.stdout}{result.stderr}')
        return result.stdout

    def flink(self, command: str, *flags: str) -> str:
        return self.do(*SCRIPT, command, f'--folder={self.folder}', *flags)

    def logs(self) -> dict[str, str]:
        own = pathlib.Path(f'/proc/{self.pid}/root{self.folder}/{supervisor.LOGS}')
        return {path.name: path.read_text(errors='replace') for path in own.iterdir()}

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


@pytest.fixture(scope='module')
def key(local_run: Run) -> list[str]:
    """Flags of a key made as the page says."""
    password, keystore = local_run.folder / 'flink.password', local_run.folder / 'flink.p12'
    page = (ROOT / 'docs' / 'deploying' / 'flink.md').read_text()
    found = re.search(r'^umask 077\n(.*\n)+?(?=```)', page, re.MULTILINE)
    assert found is not None
    subprocess.run(['sh', '-ec', found[0]], cwd=local_run.folder, check=True, capture_output=True)
    return [f'--keystore={keystore}', f'--keystore-password-file={password}']


@pytest.fixture(scope='module')
def cluster(machines: tuple[Machine, Machine], key: list[str]) -> tuple[Machine, Machine]:
    """A cluster of both: the job manager on the first, a task manager and a pool on each.

    It ends with the machines.
    """
    try:
        distribution.check_java()
        distribution.fetch_flink(main.DEFAULT_CACHE)
    except (OSError, RuntimeError) as error:
        pytest.skip(f'Flink cannot be had here: {error}')
    first, second = machines
    flags = ['--task-managers=1', *key]
    first.flink('start', f'--address={first.address}', *flags)
    second.flink('start', f'--address={second.address}', f'--job-manager={first.address}', *flags)
    return machines


def open_ports(*blocks: int) -> set[int]:
    return {first + i for first in blocks for i in range(3)}


def test_start_on_the_second_machine_returns_when_the_first_has_its_slot(
    cluster: tuple[Machine, Machine],
) -> None:
    overview = cluster[0].rest('/overview')
    assert (overview['taskmanagers'], overview['slots-total']) == (2, 2)
    assert 'task managers  2, of which this machine has 1' in cluster[0].flink('status')
    assert f'joined         {cluster[0].address}' in cluster[1].flink('status')
    with pytest.raises(RuntimeError, match='Expected the machine with the job manager'):
        cluster[1].flink('run', '--', '--help')


def test_other_machines_reach_the_ports_of_the_page_and_no_other(cluster: tuple[Machine, Machine]) -> None:
    page = (ROOT / 'docs' / 'deploying' / 'flink.md').read_text()
    assert '6123, 6124, 6125' in page and '6130, 6131, 6132' in page
    first, second = cluster
    loopback, every = {'127.0.0.1', '::1'}, {'*', '0.0.0.0', '::'}
    for machine, other, job_manager in ((first, second, open_ports(RPC_PORT)), (second, first, set())):
        places = machine.listens()
        assert ('127.0.0.1', POOL_PORT) in places
        assert any(port == PORT for _, port in places) == bool(job_manager)
        assert {port for host, port in places if host == machine.address} == open_ports(TASK_MANAGER_PORT)
        assert {port for host, port in places if host in every} == job_manager
        assert {host for host, _ in places} <= loopback | every | {machine.address}
        reached = {port for _, port in places if other.reaches(machine.address, port)}
        assert reached == open_ports(TASK_MANAGER_PORT) | job_manager


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
    for port in sorted(open_ports(RPC_PORT, TASK_MANAGER_PORT)):
        version, answer = second.do(sys.executable, '-c', script, first.address, f'{port}').splitlines()
        assert version == 'TLSv1.3' and answer.endswith('ALERT_BAD_CERTIFICATE'), (port, answer)


def test_who_finds_no_job_manager_is_told_at_once(cluster: tuple[Machine, Machine], key: list[str]) -> None:
    first, second = cluster
    elsewhere = ['--folder=/tmp/other', '--rpc-port=7100', '--pool-port=7001', '--task-manager-port=7010']
    command = [*SCRIPT, 'start', f'--address={second.address}', *key, *elsewhere]
    with pytest.raises(RuntimeError, match='Expected the job manager, .* nothing answers on rpc_port=7100'):
        second.do(*command, f'--job-manager={first.address}')
    with pytest.raises(RuntimeError, match='Expected an address of this machine'):
        second.do(*command, f'--address={first.address}')


# One machine with two task managers does the same in run_test.py.
@needs_model
def test_on_two_machines_the_corpus_is_the_local_one(
    cluster: tuple[Machine, Machine], local_run: Run
) -> None:
    first, second = cluster
    jar = os.environ.get('FLINK_JOB_SERVER_JAR')
    try:
        jar = jar or str(fetch_job_server(main.DEFAULT_CACHE))
    except (OSError, RuntimeError) as error:
        pytest.skip(f'the job on Flink is NOT tested here: {error} Or set FLINK_JOB_SERVER_JAR.')
    local_run.forget()
    first.flink('run', f'--job-server-jar={jar}', '--', '--quiet', *local_run.flags)
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
        assert 'SdkHarness' in told['pool.out'] and 'ssl' in told['taskmanager-0.out']
        assert [name for name, log in told.items() if password in log] == []
        assert [text for text in local_run.texts if any(text in log for log in told.values())] == []
