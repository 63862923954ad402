"""Three tiers of tests, one place for what XLA compiles, and the weights that some tests need.

`make check` takes the tests without the marks `run` and `heavy`: they start no run, no engine and no
process, compile little, and need neither Java, Go, PostgreSQL nor Airflow. `make test` takes these, and of
the others those with the mark `first`: at least one of each kind of proof. `make test-all` takes everything.
A test without the mark `run` that starts a run fails, so that the tiers stay what they say.
"""

import functools
import gc
import hashlib
import itertools
import multiprocessing.process
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import hypothesis
import pytest

from tests import beam_looks, long_tests, passed_tests

# A busy machine makes an example slow, and says nothing of it. A check of one commit says the same each
# time; new examples are looked for wherever else the tests run.
hypothesis.settings.register_profile('of ours', deadline=None, derandomize='CI' in os.environ)
hypothesis.settings.load_profile('of ours')

# --- What XLA compiles -----------------------------------------------------------

# Two thirds of the time that tests of the decoding loop take, where nothing was compiled before.
_COMPILED_BYTES = 500_000_000


def _processor() -> str:
    """The processor features that code compiled here needs of another machine."""
    try:
        lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line for line in lines if line.startswith(('flags', 'Features'))), platform.machine())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption('--once', action='store_true', help='leave out tests that passed for the same tree')
    parser.addoption('--without-longest', action='store_true', help='leave out long_tests.LONGEST')
    parser.addoption(
        '--until', type=float, help='Unix time after which tests that have not begun are skipped'
    )


def pytest_configure(config: pytest.Config) -> None:
    if (cache := getattr(config, 'cache', None)) is not None:
        _keep_compiled(cache)
        plugin = passed_tests.PassedTests(
            pathlib.Path(cache.mkdir('passed')), config.rootpath, once=config.getoption('once')
        )
        config.pluginmanager.register(plugin)


def _keep_compiled(cache: pytest.Cache) -> None:
    """Keeps what is compiled, for all workers, for most processes that they start, and for the next time.

    A program's key there is of its operations, its options and the compiler's version. The same code
    runs whether it was kept or not: tests/pipeline/durable_run_test.py compares both, byte for byte.
    """
    if 'JAX_COMPILATION_CACHE_DIR' in os.environ:
        return
    folder = cache.mkdir(f'compiled-{hashlib.sha256(_processor().encode()).hexdigest()[:16]}')
    kept = list(folder.iterdir())
    if sum(path.stat().st_size for path in kept) > _COMPILED_BYTES:
        for path in kept:
            path.unlink()
    os.environ['JAX_COMPILATION_CACHE_DIR'] = str(folder)
    os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
    os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'


# Each compiled program holds some dozen mappings of memory, and a process has 65,530 by Linux' default:
# a worker that kept the programs of all tests would end by a segmentation fault.
_MAPPINGS = 20_000
_TESTS_BETWEEN_LOOKS = 20
_looks = itertools.count(1)


def _forget_programs() -> None:
    """Lets go of what this process has compiled, once that is much; the folder above still has it."""
    maps = pathlib.Path('/proc/self/maps')
    if 'jax' not in sys.modules or next(_looks) % _TESTS_BETWEEN_LOOKS or not maps.exists():
        return
    with maps.open('rb') as lines:
        mapped = sum(1 for _ in lines)
    if mapped > _MAPPINGS:
        sys.modules['jax'].clear_caches()
        gc.collect()


def pytest_runtest_teardown() -> None:
    _forget_programs()


# --- Garbage ---------------------------------------------------------------------


def pytest_collection_finish() -> None:
    """Freezes what the modules of all tests hold: the garbage collector need not walk through it."""
    gc.collect()
    gc.freeze()


# --- The order of files ----------------------------------------------------------

# A worker takes a file at a time; a long one that came last would leave the other without work.
_LONGEST = (
    'pipeline/durable_run_test.py', 'pipeline/job_test.py', 'launch/flink/run_test.py',
    'launch/flink/machines_test.py',
    'models/generate/loop_test.py', 'models/decoders/gemma/decoder_test.py', 'contracts/decoder_test.py',
    'models/privacy/enumeration_test.py',
    'pipeline/main_test.py',
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the longest tests where an option says so; longest files first."""
    _refuse_unknown_names(config, items)
    if config.getoption('without_longest'):
        longest = [item for item in items if _names(item) & long_tests.LONGEST.keys()]
        items[:] = [item for item in items if not _names(item) & long_tests.LONGEST.keys()]
        config.hook.pytest_deselected(items=longest)
    ranks = {pathlib.Path(__file__).parent / name: rank for rank, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def _names(item: pytest.Item) -> set[str]:
    """A test's names in tests/long_tests.py: of its file, of all its cases, and of this case."""
    return {item.nodeid.partition('::')[0], item.nodeid.partition('[')[0], item.nodeid}


def _refuse_unknown_names(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuses a name in tests/long_tests.py that is of no test, in files that were collected as a whole."""
    if any('::' in argument for argument in config.args):
        return
    known: set[str] = set().union(*map(_names, items))
    unknown = [
        name
        for name in long_tests.LONGEST
        if name not in known
        and (name.partition('::')[0] in known or not (config.rootpath / name.partition('::')[0]).is_file())
    ]
    if unknown:
        raise pytest.UsageError(
            f'Expected tests that exist in tests/long_tests.py, got {unknown}. Correct them.'
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what would begin too late, which counts as not passed; the summary says how many."""
    until = item.config.getoption('until')
    if until is not None and time.time() > until:
        pytest.skip('NOT RUN: no time is left for it. Run make test-all.')


# --- The tier of a test ----------------------------------------------------------

_STARTS = {'subprocess.Popen', 'os.exec', 'os.fork', 'os.forkpty', 'os.posix_spawn', 'os.spawn', 'os.system'}
# Programs by which libraries ask about the processor, once.
_QUESTIONS = {'lscpu', 'uname'}


class _Guard:
    """Fails a test that starts what its mark does not say.

    Attributes:
        guarded: True if the running test has no mark.
        started: Programs that it started all the same: libraries swallow errors, and threads lose them.
    """

    def __init__(self) -> None:
        self.guarded = False
        self.started: list[str] = []
        self._beam_is_guarded = False

    def refuse(self, what: str) -> None:
        if self.guarded:
            self.started.append(what)
            pytest.fail(f'Expected a test without the mark `run` to start nothing, got {what}. Mark it.')

    def instead_of(self, call: Callable[..., Any], what: str) -> Callable[..., Any]:
        @functools.wraps(call)
        def refusing(*arguments: Any, **options: Any) -> Any:
            self.refuse(what)
            return call(*arguments, **options)

        return refusing

    def watch(self, event: str, values: tuple[Any, ...]) -> None:
        """A hook of `sys.audit`."""
        if event in _STARTS and values[0] not in _QUESTIONS:
            self.refuse(f'{event} {values[0]!r}')
        elif event == 'import' and values[0] == 'apache_beam.pipeline' and not self._beam_is_guarded:
            # Told before the import, which then finds the module there.
            self._beam_is_guarded = True
            from apache_beam.pipeline import Pipeline

            Pipeline.run = self.instead_of(Pipeline.run, 'a run of a Beam pipeline')
            beam_looks.remember()


_HAD_TENSORFLOW = pytest.StashKey[bool]()
_guard = _Guard()
sys.addaudithook(_guard.watch)
# A child of a fork server is started by the server.
multiprocessing.process.BaseProcess.start = _guard.instead_of(
    multiprocessing.process.BaseProcess.start, 'a process of multiprocessing'
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Guards a test and its fixtures."""
    _guard.guarded = item.get_closest_marker('run') is None
    _guard.started.clear()
    item.stash[_HAD_TENSORFLOW] = 'tensorflow' in sys.modules
    item.stash[_BEGAN] = _processor_seconds()
    try:
        return (yield)
    finally:
        _guard.guarded = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    yield
    if _guard.started:
        pytest.fail(f'Expected a test without the mark `run` to start nothing, got {_guard.started}.')


# --- How long a test takes -------------------------------------------------------

# Seconds by the clock or by the processors, whichever is less: a test beside a busy one takes longer by the
# clock, and one that computes on several cores takes more of the processors.
_MOST_SECONDS = 20
# By the clock alone, whatever else the machine does: of a test that waits more than it computes.
_MOST_WAITING_SECONDS = 60
# On a busy machine, where nothing was compiled before, a test was seen to take so many times as long.
_BUSY = 2
# TensorFlow, which the gemma library loads: the first test of a process that touches it pays.
_IMPORT_SECONDS = 25
_TAKEN = pytest.StashKey[float]()
_BEGAN = pytest.StashKey[float]()


def _processor_seconds() -> float:
    """Seconds of all processors so far, of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails a test, and a fixture that is its own, that took longer than a test may.

    Tests with the mark `run` or `heavy` may: `make check` leaves them out.
    """
    report = yield
    by_clock = item.stash[_TAKEN] = item.stash.get(_TAKEN, 0.0) + report.duration
    of_processors = _processor_seconds() - item.stash[_BEGAN]
    imports = _IMPORT_SECONDS if not item.stash[_HAD_TENSORFLOW] and 'tensorflow' in sys.modules else 0
    if (
        report.when == 'call'
        and report.passed
        and (
            min(by_clock, of_processors) > _BUSY * _MOST_SECONDS + imports
            or by_clock > _BUSY * _MOST_WAITING_SECONDS + imports
        )
        and not {'run', 'heavy'} & {mark.name for mark in item.iter_markers()}
    ):
        report.outcome = 'failed'
        report.longrepr = (
            f'Expected a test of {_MOST_SECONDS} seconds at most on quiet cores, got {by_clock:.1f} by the '
            f'clock and {of_processors:.1f} of the processors. Give it less to prove, or the mark `heavy`.'
        )
    return report


# --- Real weights ----------------------------------------------------------------


@pytest.fixture(scope='session')
def gemma_file() -> pathlib.Path:
    """The GGUF file of Gemma 3 270M, for tests that are skipped without it."""
    from models import fetched

    path = fetched.fetched_file()
    if not path.is_file():
        pytest.skip(f'No weights of {fetched.MODEL} at {path}. {fetched.REMEDY}.')
    return path
