"""A standalone Flink cluster on this machine, without Docker, and the job on it.

`launch/flink.sh start` runs a job manager, task managers and a pool that starts Python
workers; `launch/flink.sh run -- FLAGS` is `dp-corpus generate FLAGS` on them. Flink comes
from PyPI, where its two packages hold together what its binary release holds; Beam's job
server, which turns a pipeline into a Flink job, comes through Maven: as it is published, or
put together from the modules that it is made of. See flink.md.
"""

import http.client
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
import yaml

from launch import flink_supervisor
from launch.flink_supervisor import CLUSTER, LOGS, PROCESSES, SUPERVISOR

# Flink's minor must be the job server's. Beam 2.77 publishes job servers for 1.19 to 2.2, and 1.19
# is the one among them that the modules below are of.
FLINK = '1.19.3'
FLINK_MINOR = FLINK.rpartition('.')[0]
JOB_SERVER = f'beam-runners-flink-{FLINK_MINOR}-job-server'
# The modules of a job server where Maven lacks the published one. One set that resolves whole, and
# that the tests ran: of later versions some repositories hold only a part.
MODULES = '2.62.0'
_SLF4J = '1.7.30'  # of Beam 2.62
ASSEMBLED = f'{JOB_SERVER}-{MODULES}-assembled.jar'
_MAVEN_COPY = 'org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy'
_MAVEN_JAR = 'org.apache.maven.plugins:maven-jar-plugin:3.3.0:jar'
_MAVEN_SHADE = 'org.apache.maven.plugins:maven-shade-plugin:3.5.1:shade'
# -U: what was missing yesterday may be there today.
_MAVEN_OPTIONS = ('-B', '-q', '-U', '-Dstyle.color=never')
# One jar, and not a folder of them: engines that are given a job server as a file take it too.
_POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>dp-corpus</groupId><artifactId>job-server</artifactId><version>{MODULES}</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.beam</groupId><artifactId>beam-runners-flink-{FLINK_MINOR}</artifactId>
      <version>{MODULES}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>{_SLF4J}</version>
    </dependency>
  </dependencies>
  <build>
    <finalName>job-server</finalName>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId><artifactId>maven-shade-plugin</artifactId>
        <configuration>
          <createDependencyReducedPom>false</createDependencyReducedPom>
          <filters>
            <filter>
              <artifact>*:*</artifact>
              <excludes>
                <exclude>META-INF/*.SF</exclude>
                <exclude>META-INF/*.DSA</exclude>
                <exclude>META-INF/*.RSA</exclude>
              </excludes>
            </filter>
          </filters>
          <transformers>
            <transformer
                implementation="org.apache.maven.plugins.shade.resource.ServicesResourceTransformer"/>
            <transformer
                implementation="org.apache.maven.plugins.shade.resource.ManifestResourceTransformer">
              <mainClass>org.apache.beam.runners.flink.FlinkJobServerDriver</mainClass>
            </transformer>
          </transformers>
        </configuration>
      </plugin>
    </plugins>
  </build>
</project>
"""
# At its INFO the job server prints every step of every job.
_LOG_SETTINGS = 'org.slf4j.simpleLogger.defaultLogLevel=warn\n'
_MIN_JAVA = 11
_START_SECONDS = 120
# Else every step starts a worker of its own. A lost worker is kept for as long, so that steps are
# started again only later.
_WORKER_IDLE_SECONDS = 3
_RESTART_SECONDS = 6
EXIT_USAGE = 2

app = typer.Typer(
    name='launch/flink.sh',
    help='A Flink cluster on this machine, and the job on it.',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_CACHE_HOME = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache')
_STATE_HOME = pathlib.Path(os.environ.get('XDG_STATE_HOME') or pathlib.Path.home() / '.local' / 'state')
CacheFlag = Annotated[
    pathlib.Path, typer.Option('--cache', help='Folder of downloads, used again by later clusters.')
]
FolderFlag = Annotated[
    pathlib.Path, typer.Option('--folder', help='The cluster: its config, logs and state.')
]
JarFlag = Annotated[
    pathlib.Path | None,
    typer.Option('--job-server-jar', help="Beam's job server, where Maven cannot fetch it."),
]
DEFAULT_CACHE = _CACHE_HOME / 'dp-corpus' / 'flink'
DEFAULT_FOLDER = _STATE_HOME / 'dp-corpus' / 'flink'


@app.command()
def fetch(cache: CacheFlag = DEFAULT_CACHE) -> None:
    """Download Flink and Beam's job server (0.5 GB); the other commands do so when they need them."""
    print(f'Flink {FLINK}: {fetch_flink(cache)}')
    jar = fetch_job_server(cache)
    kind = f'put together from modules of Beam {MODULES}' if jar.name == ASSEMBLED else 'as Beam publishes it'
    print(f'Job server, {kind}: {jar}')


@app.command()
def start(
    task_managers: Annotated[int, typer.Option(min=1, help='Task managers: the machines, as it were.')] = 2,
    slots: Annotated[int, typer.Option(min=1, help='Slots of a task manager; one worker serves them.')] = 1,
    memory: Annotated[str, typer.Option(help="A task manager's memory; Python's comes on top.")] = '1536m',
    port: Annotated[int, typer.Option(help="Flink's REST interface and web page.")] = 8081,
    rpc_port: Annotated[int, typer.Option(help='Where task managers find the job manager.')] = 6123,
    pool_port: Annotated[int, typer.Option(help='Where task managers ask for Python workers.')] = 50000,
    folder: FolderFlag = DEFAULT_FOLDER,
    cache: CacheFlag = DEFAULT_CACHE,
) -> None:
    """Start a cluster and wait until every slot is there."""
    folder, cache = folder.absolute(), cache.absolute()
    check_java()
    if _alive(folder):
        raise FileExistsError(
            f'Expected no running cluster, got folder={str(folder)!r}, which has one. Stop it first: '
            'launch/flink.sh stop, or choose another --folder.'
        )
    for name, number in (('port', port), ('rpc_port', rpc_port), ('pool_port', pool_port)):
        if _listens(number):
            raise ValueError(
                f'Expected a free port, got {name}={number}, where something listens. Choose another '
                f'--{name.replace("_", "-")}.'
            )
    home = fetch_flink(cache)
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
        ('pool', [sys.executable, '-m', 'launch.worker_pool', f'--port={pool_port}'], _python_path()),
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
        supervisor = subprocess.Popen(
            [sys.executable, '-m', 'launch.flink_supervisor', str(folder)],
            env={**os.environ, **_python_path()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,  # outlives this terminal
        )
    _wait_until_up(folder, cluster, supervisor)
    print(f'Flink {FLINK}: http://localhost:{port}, {task_managers} task managers of {slots} slots')
    print(f'Logs:        {folder / LOGS}')
    print('Run the job: launch/flink.sh run -- --config FILE (the flags of dp-corpus generate)')


@app.command()
def run(
    flags: Annotated[
        list[str] | None,
        typer.Argument(help="Flags of dp-corpus generate; Beam's own follow after another --."),
    ] = None,
    parallelism: Annotated[int | None, typer.Option(min=1, help='Default: every slot.')] = None,
    job_server_jar: JarFlag = None,
    folder: FolderFlag = DEFAULT_FOLDER,
) -> None:
    """Run dp-corpus generate on the cluster and wait for its end; the exit code is its own.

    The same command again resumes a run that died, and spends nothing twice.
    """
    folder = folder.absolute()
    cluster = read_cluster(folder)
    if jobs := running_jobs(cluster['port']):
        raise RuntimeError(
            f'Expected an idle cluster, got running jobs={jobs}. Let them end, or end them: '
            'launch/flink.sh cancel.'
        )
    jar = job_server_jar or fetch_job_server(pathlib.Path(cluster['cache']))
    arguments = generate_command(
        flags or (),
        port=cluster['port'],
        pool_port=cluster['pool_port'],
        parallelism=parallelism or cluster['task_managers'] * cluster['slots'],
        jar=jar,
    )
    print(f'Watch it on http://localhost:{cluster["port"]}', file=sys.stderr, flush=True)
    # In place of this process, so that a signal ends the run and not only who waits for it.
    os.execve(arguments[0], arguments, {**os.environ, **_python_path()})


@app.command()
def status(folder: FolderFlag = DEFAULT_FOLDER) -> None:
    """Say which processes run, how often each was started, and what the cluster does."""
    folder = folder.absolute()
    cluster = read_cluster(folder)
    for name, process in sorted(flink_supervisor.read_processes(folder).items()):
        state = 'runs' if process.alive else 'is down'
        print(f'{name:14} {state}, pid {process.pid}, started {process.starts} times')
    overview = rest(cluster['port'], '/overview')
    print(f'task managers  {overview["taskmanagers"]} of {cluster["task_managers"]}')
    print(f'slots          {overview["slots-available"]} free of {overview["slots-total"]}')
    print(f'running jobs   {" ".join(running_jobs(cluster["port"])) or "none"}')


@app.command()
def cancel(folder: FolderFlag = DEFAULT_FOLDER) -> None:
    """Cancel the cluster's jobs: a launcher that was killed leaves its own running."""
    cluster = read_cluster(folder.absolute())
    for job in running_jobs(cluster['port']):
        rest(cluster['port'], f'/jobs/{job}?mode=cancel', 'PATCH')
        print(f'Cancelled {job}')


@app.command()
def stop(folder: FolderFlag = DEFAULT_FOLDER) -> None:
    """Stop the cluster. Finished batches of a run stay: the run goes on with the next one."""
    folder = folder.absolute()
    processes = flink_supervisor.read_processes(folder)
    supervisor = processes.pop(SUPERVISOR, None)
    if supervisor is not None and supervisor.alive:
        os.kill(supervisor.pid, signal.SIGTERM)
        until = time.monotonic() + 30
        while supervisor.alive and time.monotonic() < until:
            time.sleep(0.1)
    # Of a supervisor that was killed itself, the services are still there.
    for process in processes.values():
        if process.alive:
            flink_supervisor.end_group(process.pid)
    (folder / PROCESSES).unlink(missing_ok=True)
    print(f'Stopped. Logs stay in {folder / LOGS}')


def generate_command(
    flags: Sequence[str], *, port: int, pool_port: int, parallelism: int, jar: pathlib.Path
) -> list[str]:
    """`dp-corpus generate` with these flags, on Flink.

    Args:
        flags: Flags of generate; after a `--`, Beam's.
        port: Flink's REST interface.
        pool_port: The worker pool's.
        parallelism: Slots to use.
        jar: Beam's job server.

    Raises:
        ValueError: The flags name a runner themselves.
        FileNotFoundError: There is no such jar.
    """
    if not jar.is_file():
        raise FileNotFoundError(
            f'Expected the job server, got job_server_jar={str(jar)!r}, which is not there.'
        )
    split = flags.index('--') if '--' in flags else len(flags)
    own, beam = list(flags[:split]), list(flags[split + 1 :])
    if any(flag == '--runner' or flag.startswith('--runner=') for flag in own):
        raise ValueError(f'Expected no runner, got flags={own}. It is FlinkRunner here: leave it out.')
    return [
        *(sys.executable, '-m', 'pipeline.main', 'generate', *own, '--runner', 'FlinkRunner', '--'),
        f'--flink_master=localhost:{port}',
        f'--flink_version={FLINK_MINOR}',
        f'--flink_job_server_jar={jar.absolute()}',
        # Workers come from the pool, on the Python that has the model; DOCKER is Beam's default.
        '--environment_type=EXTERNAL',
        f'--environment_config=localhost:{pool_port}',
        f'--environment_cache_millis={1000 * _WORKER_IDLE_SECONDS}',
        f'--parallelism={parallelism}',
        *beam,
    ]


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


def fetch_flink(cache: pathlib.Path) -> pathlib.Path:
    """The folder of Flink, downloaded where it is not there yet.

    pip checks what it downloads against its index's checksum, and the folder appears
    whole or not at all, so that a download that was killed is not taken for one.

    Raises:
        RuntimeError: pip cannot download it.
    """
    home = cache / f'flink-{FLINK}'
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix='flink-') as temporary:
        downloads, made = pathlib.Path(temporary) / 'downloads', pathlib.Path(temporary) / 'home'
        pip = [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps', f'--dest={downloads}']
        # Scripts and config are in the wheel, jars in the source package. Nothing of the wheel is
        # imported, so it need not be of this Python: 3.11 is the last that it was built for.
        for options in (
            ('--only-binary=:all:', '--python-version=3.11', f'apache-flink=={FLINK}'),
            ('--no-binary=:all:', '--no-build-isolation', f'apache-flink-libraries=={FLINK}'),
        ):
            result = subprocess.run([*pip, *options], capture_output=True, text=True)
            if result.returncode:
                raise RuntimeError(
                    f'Expected pip to download {options[-1]}, got: {_last_lines(result.stderr)} Check the '
                    "network and pip's index."
                )
        with zipfile.ZipFile(next(downloads.glob('*.whl'))) as wheel:
            for name in wheel.namelist():
                if match := re.fullmatch(r'pyflink/((?:bin|conf)/[^/]+)', name):
                    _write(made / match[1], wheel.read(name))
        with tarfile.open(next(downloads.glob('*.tar.gz'))) as archive:
            for member in archive:
                match = re.fullmatch(r'[^/]+/deps/((?:lib|bin|plugins)/.+)', member.name)
                if match and (content := archive.extractfile(member)) is not None:
                    _write(made / match[1], content.read())
        for script in (made / 'bin').glob('*.sh'):
            script.chmod(0o755)
        made.rename(home)
    return home


def fetch_job_server(cache: pathlib.Path) -> pathlib.Path:
    """Beam's job server for this Flink, downloaded where it is not there yet.

    The published jar of the Beam that is installed, or, where Maven's repository does not
    hold that, one of Beam's modules of `MODULES`, whose name ends in -assembled. Maven checks
    what it downloads against its repository's checksums; the file appears whole or not at all.

    Args:
        cache: Folder of downloads. An assembled jar that it holds is used again.

    Raises:
        FileNotFoundError: There is no Maven.
        RuntimeError: Maven cannot download it.
    """
    version = importlib.metadata.version('apache-beam')
    published, assembled = cache / f'{JOB_SERVER}-{version}.jar', cache / ASSEMBLED
    for jar in (published, assembled):
        if jar.is_file():
            return jar
    maven = _find_maven()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix='job-server-') as temporary:
        folder = pathlib.Path(temporary)
        artifact = f'org.apache.beam:{JOB_SERVER}:{version}'
        answer = _run_maven(
            maven, folder, _MAVEN_COPY, f'-Dartifact={artifact}', '-DoutputDirectory=.', made=published.name
        )
        if answer is None:
            (folder / published.name).rename(published)
            return published
        # Of a repository that is not reached, Maven says 'Could not transfer artifact'.
        if f'Could not find artifact org.apache.beam:{JOB_SERVER}:' not in answer:
            raise _maven_failed(artifact, answer)
        print(
            f"Maven's repository does not hold {artifact}: putting a job server together from Beam's "
            f'modules of {MODULES} instead.',
            file=sys.stderr,
        )
        (folder / 'pom.xml').write_text(_POM, encoding='utf-8')
        _write(folder / 'target' / 'classes' / 'simplelogger.properties', _LOG_SETTINGS.encode())
        answer = _run_maven(maven, folder, _MAVEN_JAR, _MAVEN_SHADE, made='target/job-server.jar')
        if answer is not None:
            raise _maven_failed(f'org.apache.beam:beam-runners-flink-{FLINK_MINOR}:{MODULES}', answer)
        (folder / 'target' / 'job-server.jar').rename(assembled)
    return assembled


def _find_maven() -> str:
    maven = shutil.which('mvn')
    if maven is None:
        raise FileNotFoundError(
            "Expected Maven, which downloads Beam's job server, got no command mvn. Install it "
            '(Debian: apt-get install maven), or give the jar with --job-server-jar.'
        )
    return maven


def _run_maven(maven: str, folder: pathlib.Path, *arguments: str, made: str) -> str | None:
    """Runs Maven in a folder; None where it made that file, else its answer."""
    result = subprocess.run([maven, *_MAVEN_OPTIONS, *arguments], capture_output=True, text=True, cwd=folder)
    return None if result.returncode == 0 and zipfile.is_zipfile(folder / made) else result.stdout


def _maven_failed(artifact: str, answer: str) -> RuntimeError:
    return RuntimeError(
        f'Expected Maven to download {artifact}, got: {_first_error(answer)} Check the network and '
        "Maven's settings, or give the jar with --job-server-jar."
    )


def check_java() -> None:
    """Checks that there is a Java that Flink runs on.

    Raises:
        FileNotFoundError: There is none.
        RuntimeError: It is too old.
    """
    home = os.environ.get('JAVA_HOME')
    java = str(pathlib.Path(home) / 'bin' / 'java') if home else shutil.which('java')
    if java is None or not pathlib.Path(java).is_file():
        raise FileNotFoundError(
            f'Expected Java {_MIN_JAVA} or later, got no command java, JAVA_HOME={home!r}. Install it '
            '(Debian: apt-get install openjdk-17-jre-headless).'
        )
    text = subprocess.run([java, '-version'], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', text)
    if found is None or int(found[1]) < _MIN_JAVA:
        raise RuntimeError(
            f'Expected Java {_MIN_JAVA} or later, got java={java!r}, which answers {text.splitlines()[:1]}. '
            'Install 17, or set JAVA_HOME.'
        )


def read_cluster(folder: pathlib.Path) -> dict[str, Any]:
    """The settings of a running cluster.

    Raises:
        FileNotFoundError: None was started there, or it does not run.
    """
    if not _alive(folder):
        raise FileNotFoundError(
            f'Expected a running cluster, got folder={str(folder)!r}, which has none. Start it: '
            'launch/flink.sh start.'
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
    folder: pathlib.Path, cluster: Mapping[str, Any], supervisor: subprocess.Popen[bytes]
) -> None:
    until = time.monotonic() + _START_SECONDS
    missing = 'the job manager'
    while time.monotonic() < until and supervisor.poll() is None:
        time.sleep(0.5)
        processes = flink_supervisor.read_processes(folder)
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
    stop(folder)
    raise RuntimeError(
        f'Expected the cluster within {_START_SECONDS} seconds, got none of: {missing}. Read the logs '
        f'in {str(folder / LOGS)!r}.'
    )


def _alive(folder: pathlib.Path) -> bool:
    supervisor = flink_supervisor.read_processes(folder).get(SUPERVISOR)
    return supervisor is not None and supervisor.alive


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex(('localhost', port)) == 0


def _python_path() -> dict[str, str]:
    root = str(pathlib.Path(__file__).resolve().parents[1])
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


def _write(path: pathlib.Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _last_lines(text: str) -> str:
    return ' '.join(text.split('\n')[-4:]).strip()


def _first_error(text: str) -> str:
    return next((line for line in text.split('\n') if 'ERROR' in line), text.strip()[-300:])


def main() -> None:
    """Runs the command line; what cannot be carried out as asked ends with code 2 and one line."""
    try:
        app()
    except (OSError, RuntimeError, ValueError) as error:
        print(f'Error: {error}', file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from error


if __name__ == '__main__':
    main()
