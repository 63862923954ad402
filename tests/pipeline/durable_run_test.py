"""A run that is killed, repeated or raced ends with what an undisturbed run writes, byte for byte.

Launchers are processes of their own that run the real command and die of SIGKILL at chosen file
operations, or within a write, where the kernel cuts the file. They are forked from a server that has
imported the libraries already, since TensorFlow alone takes a quarter of a minute.
"""

import dataclasses
import errno
import functools
import itertools
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import pytest
import sqlalchemy as sa

from models.batch_plan import BatchPlan
from models.bundled import FOLDER as BUNDLED
from pipeline import methods
from pipeline.asked.config import read_config
from pipeline.ledger.ledger import Ledger
from pipeline.run import folders, identity
from pipeline.settings.job_config import JobConfig
from tests import beam_looks, fork_server, launched
from tests.object_store import object_store
from tests.samples import without_times
from transforms import batch_files, durable, restricted, run_files, write

pytestmark = [
    pytest.mark.run,
    pytest.mark.skipif(
        not (BUNDLED / 'checkpoint').exists(), reason='the bundled model has no checkpoint: train it first'
    ),
]

LAUNCHERS = fork_server.CONTEXT
ROOT = pathlib.Path(__file__).parents[2]
LABELS = ('Billing', 'Delivery')
# Bytes that a killed launcher may have cut: longer than this, and no file of a run is shorter.
CUT_BYTES = 20

COMMON: dict[str, Any] = {
    'run_id': 'run', 'label_field': 'label', 'labels': LABELS, 'record_id_field': 'id', 'batch_size': 8,
    'max_private_tokens': 6, 'delta': 1e-3, 'max_prompt_tokens': 64, 'max_example_tokens': 8,
    'micro_batch_size': 16, 'shards': 3,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    # Noise in clustering.json and plan.json; a price for the ledger.
    'difference': {
        'aggregate': 'difference', 'accounting': 'worst-case', 'clusters': 2, 'clustering_rho': 50.0,
        'dataset': 'messages', 'ledger': 'ledger.db',
    },
    # Losses beside batches.
    'median': {'aggregate': 'median', 'batches_per_label': 2},
}  # fmt: skip
TINY: dict[str, Any] = {
    'batches_per_label': 1, 'aggregate': 'mean', 'max_private_tokens': 2, 'dataset': 'messages',
    'ledger': 'ledger.db',
}  # fmt: skip


@pytest.fixture(scope='module', autouse=True)
def warm_launchers() -> Iterator[None]:
    with fork_server.preloaded(
        'pipeline.main', 'pipeline.run.start', 'pipeline.screen.progress',
        'apache_beam.runners.portability.fn_api_runner',
        'sklearn.feature_extraction.text', 'jinja2', 'pydantic',
        # Modules that the gemma library loads when a model is built.
        'tensorflow_text', 'sentencepiece', 'flax.linen', 'orbax.checkpoint', 'kauldron.kd',
        'gemma.gm.text._tokenizer', 'gemma.gm.data._functional', 'gemma.gm.nn._transformer',
        'gemma.gm.ckpts._checkpoint',
    ):  # fmt: skip
        yield


# --- Launchers -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Stop:
    """The point at which a launcher dies.

    Attributes:
        event: 'open' (of a file that is written), 'os.mkdir', 'os.link' or 'os.remove': it is killed just
            before. 'write': it is killed within the write.
        path: Matches the path, from the folder of the run.
        nth: Number of the operation, among those that match.
        rare: True if only the case with stops everywhere has it.
    """

    event: str
    path: str
    nth: int = 1
    rare: bool = False

    def __str__(self) -> str:
        return f'{self.event} {self.path} {self.nth}'


Event = tuple[str, str]
_WATCHED = ('open', 'os.mkdir', 'os.link', 'os.rename', 'os.remove')


def launch(
    arguments: list[str],
    folder: str,
    stop: Stop | None,
    events: Connection,
    patch: Callable[[], None] | None,
    compiled: str | None,
) -> None:
    """The main function of a launcher: `dp-corpus` with its file operations reported to the test."""
    import jax

    # Not the folder of the other tests: a launcher may die while it writes there.
    jax.config.update('jax_compilation_cache_dir', compiled)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
    log = os.open(f'{folder}/log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # Python ignores the signal of a file that outgrows its limit; here it kills, as the kernel means it to.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    matched = 0

    def report(event: str, values: tuple[Any, ...]) -> None:
        nonlocal matched
        if event not in _WATCHED or not str(values[0]).startswith(f'{folder}/out'):
            return
        if event == 'open' and not values[2] & (os.O_WRONLY | os.O_RDWR):
            return
        path = str(values[0]).removeprefix(f'{folder}/')
        os.write(events.fileno(), f'{event} {path}\n'.encode())
        wanted = 'open' if stop is not None and stop.event == 'write' else stop and stop.event
        if stop is None or event != wanted or not re.search(stop.path, path):
            return
        matched += 1
        if matched == stop.nth:
            if stop.event == 'write':
                resource.setrlimit(resource.RLIMIT_FSIZE, (CUT_BYTES, CUT_BYTES))
            else:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(report)
    beam_looks.remember()
    if patch is not None:
        patch()
    from pipeline import main

    sys.argv = ['dp-corpus', *arguments]
    main.main()


class Launcher:
    """A launcher that has been started."""

    def __init__(
        self,
        folder: pathlib.Path,
        arguments: list[str],
        stop: Stop | None,
        patch: Callable[[], None] | None,
        compiled: pathlib.Path | None,
    ) -> None:
        self._log = folder / 'log'
        self._events, sender = LAUNCHERS.Pipe(duplex=False)
        place = None if compiled is None else str(compiled)
        self.process = LAUNCHERS.Process(
            target=launch, args=(arguments, str(folder), stop, sender, patch, place)
        )
        self.process.start()
        sender.close()

    def events(self) -> Iterator[Event]:
        """Its file operations, as they happen, to its end."""
        held = b''
        while data := os.read(self._events.fileno(), 65536):
            *lines, held = (held + data).split(b'\n')
            for line in lines:
                event, _, path = line.decode().partition(' ')
                yield event, path

    def end(self) -> tuple[int, list[Event]]:
        """Waits; returns the exit code, negative for a signal, and the file operations not read yet."""
        events = list(self.events())
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode, events

    def succeed(self) -> list[Event]:
        """Waits for an end without an error."""
        code, events = self.end()
        assert code == 0, self._log.read_text()[-3000:]
        return events


class Run:
    """One run in a folder of its own: `in.jsonl`, `out`, `out.curator` and, of some settings, `ledger.db`."""

    def __init__(self, folder: pathlib.Path, settings: dict[str, Any]) -> None:
        self.folder, self.output, self.work_dir = folder, folder / 'out', folder / 'out.curator'
        self.ledger = folder / 'ledger.db' if 'ledger' in settings else None
        folder.mkdir(exist_ok=True)
        rows = [
            {'id': str(index), 'text': f'Message {index} on parcel {index * 7919 % 1000}.', 'label': label}
            for index in range(40)
            for label in [LABELS[index * 5 % 3 % 2]]
        ]
        (folder / 'in.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
        values = {'input': str(folder / 'in.jsonl'), 'output': str(self.output)} | COMMON | settings
        if self.ledger is not None:
            values['ledger'] = str(self.ledger)
            self.open_ledger()
        self.config = read_config(None, values)
        values['labels'] = ','.join(LABELS)
        flags = [f'--{name.replace("_", "-")}={value}' for name, value in values.items()]
        self.arguments = ['generate', '--quiet', *flags]

    def open_ledger(self) -> None:
        """A new ledger, in which a second charge of the run finds no room."""
        assert self.ledger is not None
        self.ledger.unlink(missing_ok=True)
        Ledger.create(str(self.ledger)).add_dataset('messages', unit='example', delta=1e-3, rho=100)

    def start(
        self,
        stop: Stop | None = None,
        *,
        patch: Callable[[], None] | None = None,
        runner: str = 'FnApiRunner',
        flags: Sequence[str] = (),
        options: Sequence[str] = (),
        compiles: bool = False,
    ) -> Launcher:
        """Starts a launcher, which takes what others compiled, unless it `compiles` the model itself."""
        arguments = [*self.arguments, f'--runner={runner}', *flags, '--', *options]
        compiled = None if compiles else self.folder.parent / 'compiled'
        return Launcher(self.folder, arguments, stop, patch, compiled)

    def files(self) -> dict[str, pathlib.Path]:
        """Finished files of output and work directory by their place; temporaries are none.

        Nor are errors, nor times of workers, which are written anew.
        """
        return {
            str(path.relative_to(self.folder)): path
            for top in (self.output, self.work_dir)
            for path in top.rglob('*')
            if path.is_file() and path.suffix != '.tmp' and path.parent.name not in ('errors', 'workers')
        }

    def contents(self) -> dict[str, bytes]:
        """The files' bytes, without what the time of workers went to, which no two runs have alike."""
        return {name: without_times(name, path.read_bytes()) for name, path in self.files().items()}

    def states(self) -> dict[str, tuple[int, int]]:
        """The state that any new writing of a finished file changes: its inode and time."""
        return {
            name: (status.st_ino, status.st_mtime_ns)
            for name, path in self.files().items()
            for status in [path.stat()]
        }

    def temporaries(self) -> list[pathlib.Path]:
        return [path for top in (self.output, self.work_dir) for path in top.rglob('*.tmp')]

    def forget(self) -> None:
        """Back to the point where the noise of the plan is drawn and no token is."""
        self.forget_release()
        for path in self.files().values():
            if path.parent.name in ('batches', 'losses') or path.name.startswith('restricted'):
                path.unlink()

    def forget_release(self) -> None:
        """Back to the point where nothing is released, and to a ledger in which nothing is settled."""
        shutil.rmtree(self.output, ignore_errors=True)
        if self.ledger is not None:
            self.open_ledger()

    def finished(self) -> set[str]:
        """Batches that need no decoding."""
        return {path.stem for path in (self.work_dir / 'batches').glob('*.json')}

    def charges(self) -> list[str]:
        """The states of what the ledger holds; each is of the full price."""
        assert self.ledger is not None
        runs = Ledger.open(str(self.ledger)).account('messages').runs
        assert [run.rho for run in runs] == [methods.solve(self.config).cost.curve.rho] * len(runs)
        return [run.state for run in runs]

    def planned(self) -> int:
        plan = BatchPlan.from_json((self.work_dir / 'plan.json').read_text())
        return sum(plan.batches_per_group)


def assert_only_grows(before: dict[str, tuple[int, int]], run: Run) -> dict[str, tuple[int, int]]:
    """A finished file is never written again."""
    after = run.states()
    assert {name: after.get(name) for name in before} == before
    return after


def begun_batches(events: list[Event]) -> list[str]:
    """Batches that were decoded: those whose examples someone set out to write."""
    found = [re.search(r'batches/([\d-]+)\.json', path) for event, path in events if event == 'open']
    return [match[1] for match in found if match]


def undisturbed_run(name: str, folder: pathlib.Path) -> tuple[Run, dict[str, bytes]]:
    """Decodes with what it compiled itself: so do users, and nothing here may rest on the cache."""
    run = Run(folder, SETTINGS[name])
    run.start(compiles=True).succeed()
    return run, run.contents()


@pytest.fixture(scope='module')
def difference_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, bytes]]:
    return undisturbed_run('difference', tmp_path_factory.mktemp('difference'))


@pytest.fixture(scope='module')
def median_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, bytes]]:
    return undisturbed_run('median', tmp_path_factory.mktemp('median'))


@pytest.fixture(params=['difference', 'median'])
def undisturbed(request: pytest.FixtureRequest) -> tuple[Run, dict[str, bytes]]:
    """A run of each kind, and what it wrote."""
    return request.getfixturevalue(f'{request.param}_run')


# --- Kills at file operations ----------------------------------------------------

# In the order of a run, so that every launcher comes to its stop. Files are written in one way: each is cut
# once, and the other steps of that way are stopped for some of them. Without `rare` ones, each step is
# stopped once at least.
STOPS = {
    'difference': [
        Stop('os.mkdir', r'out\.curator$'),
        Stop('write', r'/run\.json', rare=True),
        Stop('write', r'/run\.key'),
        Stop('os.link', r'/run\.key'),
        Stop('os.remove', r'/run\.key', rare=True),
        Stop('open', r'/clustering\.json', rare=True),
        Stop('write', r'/clustering\.json'),
        Stop('write', r'/plan\.json', rare=True),
        Stop('write', r'batches/'),
        Stop('os.link', r'batches/', rare=True),
        Stop('os.remove', r'batches/'),
        Stop('open', r'/restricted_report\.html', rare=True),
        Stop('write', r'data/train-00000'),
        Stop('os.link', r'data/train-00001', rare=True),
        Stop('write', r'out/privacy_report\.json'),
        Stop('os.link', r'out/privacy_report\.json', rare=True),
        Stop('os.remove', r'out/privacy_report\.json', rare=True),
    ],
    'median': [
        Stop('write', r'losses/'),
        Stop('os.link', r'losses/', rare=True),
        Stop('os.remove', r'losses/'),
        Stop('open', r'batches/', rare=True),
        Stop('os.remove', r'batches/', rare=True),
        Stop('write', r'/restricted_report\.json'),
    ],
}  # fmt: skip


@pytest.mark.parametrize('everywhere', [False, True])
@pytest.mark.parametrize('name', SETTINGS)
def test_killed_at_file_operations_a_run_ends_as_if_undisturbed(
    tmp_path: pathlib.Path, name: str, everywhere: bool
) -> None:
    stops = [stop for stop in STOPS[name] if everywhere or not stop.rare]
    run = Run(tmp_path, SETTINGS[name])
    states: dict[str, tuple[int, int]] = {}
    finished: set[str] = set()
    left_behind = 0
    for stop in stops:
        code, events = run.start(stop).end()
        signals = {-signal.SIGXFSZ} if stop.event == 'write' else {-signal.SIGKILL}
        assert code in signals, f'{stop}: {(tmp_path / "log").read_text()[-3000:]}'
        if stop.event == 'write':
            cut = [path for path in run.temporaries() if re.search(stop.path, str(path))]
            assert min(path.stat().st_size for path in cut) <= CUT_BYTES, f'{stop}: no file is cut'
        assert finished.isdisjoint(begun_batches(events)), f'{stop}: a finished batch is decoded again'
        left_behind += bool(run.temporaries())
        states = assert_only_grows(states, run)
        finished = run.finished()
        if run.ledger is not None:
            # The plan is the first thing that noise is drawn for.
            assert run.charges() == ['reserved'] or not list(run.work_dir.glob('clustering.json*'))
    assert left_behind > len(stops) / 2
    events = run.start().succeed()
    assert finished.isdisjoint(begun_batches(events))
    assert_only_grows(states, run)
    assert run.ledger is None or run.charges() == ['settled']
    killed = run.contents()
    assert len([path for path in killed if 'batches/' in path]) == run.planned()
    assert [path for path in run.temporaries() if run.output in path.parents] == []

    run.forget()
    assert len(begun_batches(run.start().succeed())) == run.planned()
    assert run.contents() == killed


# --- Kills from outside ----------------------------------------------------------


@pytest.mark.parametrize('kills', [pytest.param(2, marks=pytest.mark.first), 8])
def test_killed_from_outside_at_any_moment_a_run_ends_as_if_undisturbed(
    tmp_path: pathlib.Path, kills: int
) -> None:
    """The signal comes from another process, and so at no particular point of the code."""
    run = Run(tmp_path, SETTINGS['difference'])
    rng = random.Random(5)
    states: dict[str, tuple[int, int]] = {}
    killed = 0
    for _ in range(kills):
        launcher = run.start()
        remaining = rng.randint(1, 12)
        for _, path in launcher.events():
            remaining -= path.endswith('.tmp')
            if remaining <= 0 and launcher.process.is_alive():
                time.sleep(rng.choice([0, 0, 1e-4, 1e-3, 1e-2]))
                launcher.process.kill()
        code, _ = launcher.end()
        killed += code == -signal.SIGKILL
        states = assert_only_grows(states, run)
    assert killed >= kills / 2
    run.start().succeed()
    assert_only_grows(states, run)
    assert run.charges() == ['settled']
    found = run.contents()
    run.forget()
    run.start().succeed()
    assert run.contents() == found


# --- Kills around the ledger -----------------------------------------------------


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_ledger(method: str, moment: str) -> None:
    """Has the launcher die before one of the ledger's methods, before it commits, or once it returned."""
    real = getattr(Ledger, method)

    def fatal(self: Ledger, *arguments: Any, **options: Any) -> None:
        if moment == 'before':
            die()
        if moment == 'within':
            sa.event.listen(self._database.engine, 'commit', die)
        real(self, *arguments, **options)
        die()

    setattr(Ledger, method, fatal)


def test_killed_around_the_ledger_a_run_is_charged_once(
    difference_run: tuple[Run, dict[str, bytes]], tmp_path: pathlib.Path
) -> None:
    """Every launcher repeats the command of the one before, so each kill is followed by a resumption."""
    run, expected = difference_run
    run.forget()
    run.open_ledger()
    assert run.ledger is not None

    def killed(
        stop: Stop | None = None, patch: Callable[[], None] | None = None
    ) -> tuple[list[str], list[Event], bool]:
        code, events = run.start(stop, patch=patch, flags=[f'--ledger={run.ledger}']).end()
        assert code == -signal.SIGKILL, (run.folder / 'log').read_text()[-3000:]
        return run.charges(), events, (run.output / 'privacy_report.json').exists()

    for moment, states in (('before', []), ('within', []), ('after', ['reserved'])):
        charges, events, _ = killed(patch=functools.partial(die_in_ledger, 'reserve', moment))
        assert charges == states and begun_batches(events) == [], f'reserve {moment}'
    # The run goes on with the ledger elsewhere.
    run.ledger = run.ledger.rename(tmp_path / 'moved.db')
    try:
        charges, _, _ = killed(Stop('os.link', r'batches/', nth=3))
        assert charges == ['reserved'] and 0 < len(run.finished()) < run.planned()
        for moment, state in (('before', 'reserved'), ('within', 'reserved'), ('after', 'settled')):
            charges, _, reported = killed(patch=functools.partial(die_in_ledger, 'settle', moment))
            assert (charges, reported) == ([state], True), f'settle {moment}'
        run.start(flags=[f'--ledger={run.ledger}']).succeed()
        assert run.charges() == ['settled']
        assert run.contents() == expected
        kinds = [event.kind for event in Ledger.open(str(run.ledger)).events('messages')]
        assert kinds.count('reserved') == kinds.count('settled') == 1
    finally:
        run.ledger = run.ledger.rename(run.folder / 'ledger.db')


# --- Two launchers ---------------------------------------------------------------


def prepare_beside_another(config: JobConfig) -> None:
    """Prepares runs; between two file operations of each a second launcher prepares the same run.

    Of the first run that is before its first operation, of the next one before its second, and so on.
    """
    seen, turn, other = 0, 0, ''

    def interrupt(event: str, values: tuple[Any, ...]) -> None:
        nonlocal seen, other
        if other or not str(values and values[0]).startswith(f'{config.output.output}{turn}'):
            return
        seen += 1
        if seen == turn:
            other = 'begun'
            folders.prepare(methods.solve(of_turn, launch=True))
            other = durable.read_key(of_turn.output.curator).commitment('run')

    sys.addaudithook(interrupt)
    for turn in itertools.count(1):
        seen, other = 0, ''
        of_turn = config.replace(output=f'{config.output.output}{turn}')
        folders.prepare(methods.solve(of_turn, launch=True))
        if not other:
            return
        assert other == durable.read_key(of_turn.output.curator).commitment('run'), turn


def test_two_launchers_prepare_a_run_whichever_is_interrupted_where(tmp_path: pathlib.Path) -> None:
    """A folder that the other launcher has begun between two looks is this run's, not a foreign one."""
    run = Run(tmp_path, TINY)
    process = LAUNCHERS.Process(target=prepare_beside_another, args=(run.config,))
    process.start()
    process.join()
    assert process.exitcode == 0
    prepared = list(tmp_path.glob('out*.curator'))
    assert len(prepared) > 20
    for work_dir in prepared:
        assert list(work_dir.rglob('*.tmp')) == []
        assert {'run.json', 'run.key', 'config.toml', 'plan.json'} < {
            path.name for path in work_dir.iterdir()
        }


def no_locks(*_: Any) -> None:
    raise OSError(errno.ENOLCK, 'No locks available')


def start_together(starts: Any, delay: float, fatal: bool) -> None:
    """Launchers look at their folders, and later reserve, at the same time but for a delay.

    The filesystem knows no locks, as some of networks: nothing keeps the second from starting.
    """
    real = identity.fingerprint
    folders.fcntl.flock = no_locks  # type: ignore[attr-defined]

    def fingerprint(config: JobConfig, *files: Any) -> dict[str, str]:
        found = real(config, *files)
        starts.wait(timeout=120)
        time.sleep(delay)
        return found

    identity.fingerprint = fingerprint
    if fatal:
        die_in_ledger('reserve', 'after')


@pytest.mark.parametrize('races', [3, 10])
def test_two_launchers_at_once_write_one_corpus(tmp_path: pathlib.Path, races: int) -> None:
    """All races but one or two end once both have the ledger's answer; none ends with an error."""
    rng = random.Random(7)
    raced = 0
    for number in range(races):
        run, starts = Run(tmp_path / str(number), TINY), LAUNCHERS.Barrier(2)
        fatal = number < races - max(1, races // 4)
        delays = [0, rng.choice([0, 0, 3e-4, 1e-3, 3e-3])]
        launchers = [
            run.start(patch=functools.partial(start_together, starts, delay, fatal)) for delay in delays
        ]
        ends = [launcher.end() for launcher in launchers]
        assert {code for code, _ in ends} == {-signal.SIGKILL if fatal else 0}, (
            run.folder / 'log'
        ).read_text()
        # Neither saw the other's run.json.
        raced += (
            sum(event == 'os.link' and '/run.json' in path for _, found in ends for event, path in found) > 1
        )
        assert run.temporaries() == [] and run.charges() == ['reserved' if fatal else 'settled']
    assert raced, 'the two never made the folder at the same time'
    found = run.contents()
    run.forget()
    run.start().succeed()
    assert run.contents() == found


# --- Repeated bundles, failures, damage ------------------------------------------


def but_for_the_runner(contents: dict[str, bytes]) -> dict[str, bytes]:
    """The files with the runner's name taken out: the report may name it."""
    return {name: data.replace(b'BundleBasedDirectRunner', b'FnApiRunner') for name, data in contents.items()}


@pytest.mark.parametrize(
    'name, runner',
    [
        pytest.param('difference', 'FnApiRunner', marks=pytest.mark.first),
        ('difference', 'BundleBasedDirectRunner'),
        ('median', 'FnApiRunner'),
        ('median', 'BundleBasedDirectRunner'),
    ],
)
def test_every_bundle_twice_writes_the_same(request: pytest.FixtureRequest, name: str, runner: str) -> None:
    run, expected = request.getfixturevalue(f'{name}_run')
    run.forget()
    begun = begun_batches(run.start(options=['--direct_runner_bundle_repeat=1'], runner=runner).succeed())
    assert sorted(begun) == sorted(set(begun)), 'a finished batch is decoded again'
    assert but_for_the_runner(run.contents()) == but_for_the_runner(expected)


def fail_first_writes() -> None:
    """In each folder the first file's writing fails at first, and the second's fails after it was done."""
    real, attempts = durable.write_file, dict[str, list[str]]()

    def write_file(path: str, data: bytes) -> None:
        paths = attempts.setdefault(os.path.basename(os.path.dirname(path)), [])
        new = path not in paths
        paths.append(path)
        if new and len(set(paths)) == 1:
            print('FAILED BEFORE', path, flush=True)
            raise OSError('disk full')
        real(path, data)
        # Runners repeat a bundle three times: those of a median write two kinds of files.
        if new and len(set(paths)) == 2 and run_files.LOSSES_FOLDER not in path:
            print('FAILED AFTER', path, flush=True)
            raise OSError('connection lost')

    for module in (durable, batch_files, write, restricted):
        module.write_file = write_file  # type: ignore[attr-defined]


def test_failed_bundles_that_a_runner_repeats_write_the_same(
    undisturbed: tuple[Run, dict[str, bytes]],
) -> None:
    run, expected = undisturbed
    run.forget()
    earlier = len((run.folder / 'log').read_text())
    run.start(patch=fail_first_writes, runner='BundleBasedDirectRunner').succeed()
    failed = re.findall(r'^FAILED (\w+) (.*)$', (run.folder / 'log').read_text()[earlier:], re.MULTILINE)
    folders = [(when, pathlib.Path(path).parent.name) for when, path in failed]
    for folder in ('batches', 'data', 'out'):
        assert folders.count(('BEFORE', folder)) == folders.count(('AFTER', folder)) == 1
    assert but_for_the_runner(run.contents()) == but_for_the_runner(expected)


def test_what_killed_writers_left_is_neither_read_nor_published(
    undisturbed: tuple[Run, dict[str, bytes]],
) -> None:
    run, expected = undisturbed
    run.forget()
    (run.output / 'data').mkdir(parents=True)
    batch = next(name for name in expected if 'batches/' in name)
    shard = next(name for name in expected if 'data/' in name)
    for name in (batch, shard, 'out/privacy_report.json', 'out.curator/plan.json'):
        (run.folder / f'{name}.{"0" * 32}.tmp').write_bytes(expected[name][:CUT_BYTES])
        (run.folder / f'{name}.{"1" * 32}.tmp').write_bytes(b'')
    run.start().succeed()
    assert run.contents() == expected
    assert [path for path in run.temporaries() if run.output in path.parents] == []


def test_a_damaged_batch_is_named_and_is_decoded_again_once_removed(
    undisturbed: tuple[Run, dict[str, bytes]],
) -> None:
    run, expected = undisturbed
    batch = next(name for name in expected if 'batches/' in name)
    run.forget_release()
    (run.folder / batch).write_bytes(expected[batch][:CUT_BYTES])
    code, _ = run.start().end()
    said = (run.folder / 'log').read_text()
    assert code == 1 and f'batches/{pathlib.Path(batch).name}' in said and 'Remove' in said
    (run.folder / batch).unlink()
    run.start().succeed()
    assert run.contents() == expected


# --- Object stores ---------------------------------------------------------------


def test_a_run_in_an_object_store_writes_what_it_writes_on_a_disk(
    median_run: tuple[Run, dict[str, bytes]],
) -> None:
    local, expected = median_run
    remote = local.config.replace(output='gs://bucket/out')
    with object_store() as objects:
        folders.prepare(methods.solve(remote, launch=True))
        generation, _ = objects['bucket/out.curator/run.key']
        objects['bucket/out.curator/run.key'] = generation, (local.work_dir / 'run.key').read_bytes()
        launched.launch(remote, [])

        def same_as_local() -> bool:
            places = ('out/data/', 'out.curator/batches/', 'out.curator/losses/', 'out.curator/restricted')
            found = {name.removeprefix('bucket/'): content for name, (_, content) in objects.items()}
            return {
                name: without_times(name, data) for name, data in found.items() if name.startswith(places)
            } == {name: data for name, data in expected.items() if name.startswith(places)}

        assert same_as_local()
        lost = [name for name in objects if '/0001-000001' in name or '/out/' in name]
        for name in lost:
            del objects[name]
        kept = dict(objects)
        launched.launch(remote, [])
        assert same_as_local() and set(lost) < set(objects)
        assert {name: objects[name] for name in kept} == kept, 'a finished object is written again'


# --- What a resumption refuses ---------------------------------------------------


def refusal_of(launcher: Launcher, run: Run) -> str:
    """The message of a launcher that refused to start."""
    code, events = launcher.end()
    said = (run.folder / 'log').read_text()
    # Before a model is loaded, and before anything is written.
    assert (code, events) == (2, []), said[-3000:]
    return said[said.rindex('Error:') :]


def test_a_run_resumes_with_what_it_began_with_alone(tmp_path: pathlib.Path) -> None:
    checkpoint = shutil.copytree(BUNDLED / 'checkpoint', tmp_path / 'checkpoint')
    run = Run(tmp_path, SETTINGS['median'] | {'checkpoint': str(checkpoint)})
    code, _ = run.start(Stop('open', r'batches/')).end()
    assert code == -signal.SIGKILL
    states = run.states()

    assert "changed=['config']" in refusal_of(run.start(flags=['--max-private-tokens=7']), run)
    records = tmp_path / 'in.jsonl'
    original = records.read_bytes()
    records.write_bytes(original.replace(b'Message 7 ', b'Message 8 '))
    assert "changed=['input']" in refusal_of(run.start(), run)
    records.write_bytes(original)
    smallest = min(
        (path for path in checkpoint.rglob('*') if path.is_file()), key=lambda path: path.stat().st_size
    )
    weights = smallest.read_bytes()
    smallest.write_bytes(weights + b'\n')
    assert "changed=['config', 'model']" in refusal_of(run.start(flags=['--temperature=3']), run)
    assert "changed=['model']" in refusal_of(run.start(), run)
    smallest.write_bytes(weights)

    assert_only_grows(states, run)
    # The engine may change, and so may what is asked of it.
    run.start(flags=['--accelerator=type:nvidia-l4;count:1'], runner='BundleBasedDirectRunner').succeed()
    assert_only_grows(states, run)


def test_a_run_of_other_code_is_refused(tmp_path: pathlib.Path) -> None:
    run, code = Run(tmp_path, SETTINGS['median']), tmp_path / 'code'
    for package in ('models', 'transforms', 'pipeline'):
        shutil.copytree(ROOT / package, code / package, ignore=shutil.ignore_patterns('__pycache__'))
    code_of_launcher, _ = run.start(Stop('open', r'/plan\.json')).end()
    assert code_of_launcher == -signal.SIGKILL
    program = (
        'import sys; from pipeline import methods; from pipeline.asked import config; '
        'from pipeline.run import folders; '
        'folders.prepare(methods.solve(config.read_config(sys.argv[1], {}), launch=True))'
    )
    command = [sys.executable, '-c', program, str(run.work_dir / 'config.toml')]
    copied = subprocess.run(command, cwd=code, capture_output=True, text=True, check=False)
    assert copied.returncode == 0, copied.stderr
    source = code / 'transforms' / 'predict' / 'text.py'
    source.write_text(source.read_text() + '\n# As good as before.\n')
    changed = subprocess.run(command, cwd=code, capture_output=True, text=True, check=False)
    assert changed.returncode == 1 and "changed=['code']" in changed.stderr
