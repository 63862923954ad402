"""The commands of a Flink cluster on this machine, or of this machine's part of one, and of the job on it.

`launch/flink/flink.sh start` starts a job manager, task managers and a pool of Python workers.
`launch/flink/flink.sh run -- FLAGS` runs `dp-corpus generate FLAGS` on them. Everything comes from pip and
Maven; Docker is not needed. See docs/deploying/flink.md.
"""

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from launch.flink import cluster, config, distribution, job_server, ports, rest, supervisor
from launch.flink.environment import python_path
from launch.flink.network import Network, check_network

EXIT_USAGE = 2

# After `\b` lines stay as they are, up to the next empty line.
HELP = """Run dp-corpus on a Flink cluster of this machine:

\b
    python -m launch.demo.records --output demo/records.jsonl
    launch/flink/flink.sh start
    launch/flink/flink.sh run -- --config launch/demo/demo.toml
    launch/flink/flink.sh stop

The first line writes invented records, and launch/demo/demo.toml has the settings for them."""

app = typer.Typer(
    name='launch/flink/flink.sh',
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_CACHE_HOME = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache')
_STATE_HOME = pathlib.Path(os.environ.get('XDG_STATE_HOME') or pathlib.Path.home() / '.local' / 'state')
CacheFlag = Annotated[
    pathlib.Path, typer.Option('--cache', help='Folder of downloads, which later clusters use again.')
]
FolderFlag = Annotated[
    pathlib.Path, typer.Option('--folder', help="Folder of the cluster's config, logs and state.")
]
JarFlag = Annotated[
    pathlib.Path | None,
    typer.Option('--job-server-jar', help="File of Beam's job server, if Maven cannot fetch it."),
]
DEFAULT_CACHE = _CACHE_HOME / 'dp-corpus' / 'flink'
DEFAULT_FOLDER = _STATE_HOME / 'dp-corpus' / 'flink'


@app.command()
def fetch(cache: CacheFlag = DEFAULT_CACHE) -> None:
    """Download Flink and Beam's job server, 0.5 GB. Other commands download them when they need them."""
    print(f'Flink {distribution.FLINK}: {distribution.fetch_flink(cache)}')
    jar = job_server.fetch_job_server(cache)
    print(f'Job server, {job_server.describe(jar)}: {jar}')


@app.command()
def start(
    task_managers: Annotated[int, typer.Option(min=0, help='Number of task managers on this machine.')] = 2,
    slots: Annotated[
        int, typer.Option(min=1, help='Slots of each task manager. One worker serves them.')
    ] = 1,
    memory: Annotated[
        str, typer.Option(help='Memory of each task manager, besides that of Python.')
    ] = '1536m',
    port: Annotated[int, typer.Option(help="Port of Flink's REST interface and web page.")] = 8081,
    rpc_port: Annotated[
        int, typer.Option(help='Port of the job manager. Several machines: the first of three ports.')
    ] = 6123,
    pool_port: Annotated[int, typer.Option(help='Port where task managers ask for Python workers.')] = 50000,
    address: Annotated[
        str | None,
        typer.Option(help='Several machines: address of this machine for the others. Default: no others.'),
    ] = None,
    job_manager: Annotated[
        str | None,
        typer.Option(help='Several machines: address of the job manager to join. Default: start one here.'),
    ] = None,
    task_manager_port: Annotated[
        int, typer.Option(help='Several machines: first port of the task managers; each takes three.')
    ] = 6130,
    keystore: Annotated[
        pathlib.Path | None, typer.Option(help='Several machines: PKCS #12 file of the key that they share.')
    ] = None,
    keystore_password_file: Annotated[
        pathlib.Path | None, typer.Option(help='Several machines: file with the password of the keystore.')
    ] = None,
    folder: FolderFlag = DEFAULT_FOLDER,
    cache: CacheFlag = DEFAULT_CACHE,
) -> None:
    """Start a cluster, or this machine's part of one, and wait until its slots are ready."""
    folder, cache = folder.absolute(), cache.absolute()
    network = find_network(address, job_manager, task_manager_port, keystore, keystore_password_file)
    if not task_managers and (network is None or network.joins):
        raise ValueError(
            f'Expected task managers, got task_managers={task_managers} on a machine that would have nothing '
            'else to do. Give at least 1; only a machine with the job manager of several may have none.'
        )
    distribution.check_java()
    listening = config.listening_ports(
        task_managers=task_managers, port=port, rpc_port=rpc_port, pool_port=pool_port, network=network
    )
    cluster.check_stopped(folder)
    ports.check_free(listening)
    if network is not None:
        check_network(network, rpc_port)
    cluster.start_cluster(
        folder,
        distribution.fetch_flink(cache),
        task_managers=task_managers,
        slots=slots,
        memory=memory,
        port=port,
        rpc_port=rpc_port,
        pool_port=pool_port,
        cache=cache,
        network=network,
    )
    place = f'http://localhost:{port}' if network is None or not network.joins else f'joined {job_manager}'
    print(f'Flink {distribution.FLINK}: {place}, {task_managers} task managers of {slots} slots')
    print(f'Logs:        {folder / supervisor.LOGS}')
    if network is not None:
        numbers = sorted(n for place, found in listening.values() if place == network.address for n in found)
        print(f'Ports:       {network.address}:{",".join(map(str, numbers))}, for the other machines alone')
    if network is None or not network.joins:
        print('Run the job: launch/flink/flink.sh run -- --config FILE (the flags of dp-corpus generate)')


@app.command()
def run(
    flags: Annotated[
        list[str] | None,
        typer.Argument(help="Flags of dp-corpus generate. Flags of Beam follow after a second '--'."),
    ] = None,
    parallelism: Annotated[
        int | None, typer.Option(min=1, help='Number of slots to use. Default: all.')
    ] = None,
    job_server_jar: JarFlag = None,
    folder: FolderFlag = DEFAULT_FOLDER,
) -> None:
    """Run dp-corpus generate on the cluster and wait for its end. The exit code is that of generate.

    After a crash the same command resumes the run and spends no budget twice.
    """
    folder = folder.absolute()
    settings = cluster.read_job_manager(folder)
    if jobs := rest.running_jobs(settings['port']):
        raise RuntimeError(
            f'Expected an idle cluster, got running jobs={jobs}. Let them end, or end them: '
            'launch/flink/flink.sh cancel.'
        )
    # Slots of other machines are registered, too. While a cluster restarts, count at least this machine's.
    registered = rest.ask(settings['port'], '/overview')['slots-total']
    slots = max(registered, settings['task_managers'] * settings['slots'])
    if not slots:
        raise RuntimeError(
            'Expected task managers, got slots-total=0. Start them on the other machines: '
            'launch/flink/flink.sh start --job-manager.'
        )
    cache = pathlib.Path(settings['cache'])
    jar = job_server_jar or job_server.fetch_job_server(cache)
    if jar == job_server_jar and jar.is_file():
        jar = job_server.bound_copy(jar, cache)
    arguments = generate_command(
        flags or (),
        port=settings['port'],
        pool_port=settings['pool_port'],
        parallelism=parallelism or slots,
        jar=jar,
    )
    print(f'Watch it on http://localhost:{settings["port"]}', file=sys.stderr, flush=True)
    # It replaces this process, so that a signal ends the run and not only this command.
    os.execve(arguments[0], arguments, {**os.environ, **python_path(os.environ)})


@app.command()
def status(folder: FolderFlag = DEFAULT_FOLDER) -> None:
    """Show which processes run, how often each was started, and what the cluster does."""
    folder = folder.absolute()
    settings = cluster.read_cluster(folder)
    for name, process in sorted(supervisor.read_processes(folder).items()):
        state = 'runs' if process.alive else 'is down'
        print(f'{name:14} {state}, pid {process.pid}, started {process.starts} times')
    if settings['job_manager'] is not None:
        print(f'joined         {settings["job_manager"]}: ask there for slots and jobs')
        return
    overview = rest.ask(settings['port'], '/overview')
    print(f'task managers  {overview["taskmanagers"]}, of which this machine has {settings["task_managers"]}')
    print(f'slots          {overview["slots-available"]} free of {overview["slots-total"]}')
    print(f'running jobs   {" ".join(rest.running_jobs(settings["port"])) or "none"}')


@app.command()
def cancel(folder: FolderFlag = DEFAULT_FOLDER) -> None:
    """Cancel the jobs of the cluster. A launcher that was killed leaves its job running."""
    settings = cluster.read_job_manager(folder.absolute())
    for job in rest.running_jobs(settings['port']):
        rest.ask(settings['port'], f'/jobs/{job}?mode=cancel', 'PATCH')
        print(f'Cancelled {job}')


@app.command()
def stop(folder: FolderFlag = DEFAULT_FOLDER) -> None:
    """Stop the cluster. Finished batches of a run stay, and the run goes on with the next cluster."""
    folder = folder.absolute()
    cluster.stop_cluster(folder)
    print(f'Stopped. Logs stay in {folder / supervisor.LOGS}')


def find_network(
    address: str | None,
    job_manager: str | None,
    task_manager_port: int,
    keystore: pathlib.Path | None,
    keystore_password_file: pathlib.Path | None,
) -> Network | None:
    """This machine's place among several, from the flags of `start`; None if no flag names another machine.

    Args:
        address: Address of this machine for the others.
        job_manager: Address of the machine with the job manager; None: this machine.
        task_manager_port: First port of the task managers; each takes three.
        keystore: File of the key that the machines share.
        keystore_password_file: File with its password.

    Raises:
        ValueError: Some of these flags are given and others are missing.
    """
    given = {
        '--address': address,
        '--keystore': keystore,
        '--keystore-password-file': keystore_password_file,
    }
    if job_manager is None and not any(given.values()):
        return None
    if address is None or keystore is None or keystore_password_file is None:
        missing = ', '.join(flag for flag, value in given.items() if value is None)
        raise ValueError(
            f'Expected --address, --keystore and --keystore-password-file for several machines, got '
            f'missing={missing}. Without a key, any program that reaches the ports could run code beside the '
            'records: docs/deploying/flink.md says how to make one.'
        )
    return Network(
        address=address,
        job_manager=job_manager or address,
        task_manager_port=task_manager_port,
        keystore=keystore.absolute(),
        password_file=keystore_password_file.absolute(),
    )


def generate_command(
    flags: Sequence[str], *, port: int, pool_port: int, parallelism: int, jar: pathlib.Path
) -> list[str]:
    """`dp-corpus generate` with these flags, on Flink.

    Args:
        flags: Flags of generate; after a `--`, flags of Beam.
        port: Port of Flink's REST interface.
        pool_port: Port of the worker pool.
        parallelism: Number of slots to use.
        jar: File of Beam's job server.

    Raises:
        ValueError: The flags name a runner.
        FileNotFoundError: The jar is missing.
    """
    if not jar.is_file():
        raise FileNotFoundError(
            f'Expected the job server, got job_server_jar={str(jar)!r}, which is not there. Leave the flag '
            'out to fetch it.'
        )
    split = flags.index('--') if '--' in flags else len(flags)
    own, beam = list(flags[:split]), list(flags[split + 1 :])
    if any(flag == '--runner' or flag.startswith('--runner=') for flag in own):
        raise ValueError(f'Expected no runner, got flags={own}. The runner is FlinkRunner: leave it out.')
    return [
        *(sys.executable, '-m', 'pipeline.main', 'generate', *own, '--runner', 'FlinkRunner', '--'),
        f'--flink_master=localhost:{port}',
        f'--flink_version={distribution.FLINK_MINOR}',
        f'--flink_job_server_jar={jar.absolute()}',
        # Workers come from the pool, with the Python that has the model. Beam's default is DOCKER.
        '--environment_type=EXTERNAL',
        f'--environment_config=localhost:{pool_port}',
        f'--environment_cache_millis={1000 * config.WORKER_IDLE_SECONDS}',
        f'--parallelism={parallelism}',
        *beam,
    ]


def main() -> None:
    """Runs the command line; a request that cannot be carried out ends with one line and code 2."""
    try:
        app()
    except (OSError, RuntimeError, ValueError) as error:
        print(f'Error: {error}', file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from error


if __name__ == '__main__':
    main()
