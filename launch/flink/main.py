"""The commands of a Flink cluster on this machine, and of the job on it.

`launch/flink/flink.sh start` runs a job manager, task managers and a pool that starts Python
workers; `launch/flink/flink.sh run -- FLAGS` is `dp-corpus generate FLAGS` on them. Everything
comes from pip and Maven, and Docker is not needed. See README.md.
"""

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from launch.flink import cluster, distribution, job_server, supervisor

EXIT_USAGE = 2

app = typer.Typer(
    name='launch/flink/flink.sh',
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
    print(f'Flink {distribution.FLINK}: {distribution.fetch_flink(cache)}')
    jar = job_server.fetch_job_server(cache)
    print(f'Job server, {job_server.describe(jar)}: {jar}')


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
    distribution.check_java()
    cluster.check_free(folder, {'port': port, 'rpc_port': rpc_port, 'pool_port': pool_port})
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
    )
    print(
        f'Flink {distribution.FLINK}: http://localhost:{port}, {task_managers} task managers of {slots} slots'
    )
    print(f'Logs:        {folder / supervisor.LOGS}')
    print('Run the job: launch/flink/flink.sh run -- --config FILE (the flags of dp-corpus generate)')


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
    settings = cluster.read_cluster(folder)
    if jobs := cluster.running_jobs(settings['port']):
        raise RuntimeError(
            f'Expected an idle cluster, got running jobs={jobs}. Let them end, or end them: '
            'launch/flink/flink.sh cancel.'
        )
    jar = job_server_jar or job_server.fetch_job_server(pathlib.Path(settings['cache']))
    arguments = generate_command(
        flags or (),
        port=settings['port'],
        pool_port=settings['pool_port'],
        parallelism=parallelism or settings['task_managers'] * settings['slots'],
        jar=jar,
    )
    print(f'Watch it on http://localhost:{settings["port"]}', file=sys.stderr, flush=True)
    # In place of this process, so that a signal ends the run and not only who waits for it.
    os.execve(arguments[0], arguments, {**os.environ, **cluster.python_path()})


@app.command()
def status(folder: FolderFlag = DEFAULT_FOLDER) -> None:
    """Say which processes run, how often each was started, and what the cluster does."""
    folder = folder.absolute()
    settings = cluster.read_cluster(folder)
    for name, process in sorted(supervisor.read_processes(folder).items()):
        state = 'runs' if process.alive else 'is down'
        print(f'{name:14} {state}, pid {process.pid}, started {process.starts} times')
    overview = cluster.rest(settings['port'], '/overview')
    print(f'task managers  {overview["taskmanagers"]} of {settings["task_managers"]}')
    print(f'slots          {overview["slots-available"]} free of {overview["slots-total"]}')
    print(f'running jobs   {" ".join(cluster.running_jobs(settings["port"])) or "none"}')


@app.command()
def cancel(folder: FolderFlag = DEFAULT_FOLDER) -> None:
    """Cancel the cluster's jobs: a launcher that was killed leaves its own running."""
    settings = cluster.read_cluster(folder.absolute())
    for job in cluster.running_jobs(settings['port']):
        cluster.rest(settings['port'], f'/jobs/{job}?mode=cancel', 'PATCH')
        print(f'Cancelled {job}')


@app.command()
def stop(folder: FolderFlag = DEFAULT_FOLDER) -> None:
    """Stop the cluster. Finished batches of a run stay: the run goes on with the next one."""
    folder = folder.absolute()
    cluster.stop_cluster(folder)
    print(f'Stopped. Logs stay in {folder / supervisor.LOGS}')


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
        f'--flink_version={distribution.FLINK_MINOR}',
        f'--flink_job_server_jar={jar.absolute()}',
        # Workers come from the pool, on the Python that has the model; DOCKER is Beam's default.
        '--environment_type=EXTERNAL',
        f'--environment_config=localhost:{pool_port}',
        f'--environment_cache_millis={1000 * cluster.WORKER_IDLE_SECONDS}',
        f'--parallelism={parallelism}',
        *beam,
    ]


def main() -> None:
    """Runs the command line; what cannot be carried out as asked ends with code 2 and one line."""
    try:
        app()
    except (OSError, RuntimeError, ValueError) as error:
        print(f'Error: {error}', file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from error


if __name__ == '__main__':
    main()
