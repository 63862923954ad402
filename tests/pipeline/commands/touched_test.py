"""Things that commands touch beside the screen: files they write, hosts they reach, programs they start.

Python tells of each (`sys.addaudithook`); what a library does past Python, as Arrow writes a Parquet file, it
does not tell. Each command runs with a home, a temporary folder and a cache folder of its own, so that what
it writes elsewhere, also into its user's home, is seen.
"""

import contextlib
import itertools
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from launch.demo import records as demo_records
from models.bundled import FOLDER as BUNDLED
from pipeline import main
from tests.command_line import in_this_process

pytestmark = [
    pytest.mark.run,
    pytest.mark.skipif(
        not (BUNDLED / 'checkpoint').exists(), reason='the bundled model has no checkpoint: train it first'
    ),
]
INPUT = ('--input', 'records.jsonl', '--label-field', 'label', '--labels', 'Billing,Delivery')
RUN = (
    *INPUT, '--batches-per-label', '1', '--batch-size', '8', '--aggregate', 'mean',
    '--max-private-tokens', '8', '--delta', '1e-3', '--max-prompt-tokens', '64', '--max-example-tokens', '8',
    '--run-id', 'shown',
    '--dataset', 'visits', '--ledger', 'ledger.db', '--output', 'corpus',
)  # fmt: skip
LEDGER = ('ledger.db', 'ledger.db-journal', 'ledger.db-wal', 'ledger.db-shm')
NAMED = ('--ledger', 'ledger.db')
# As short as texts of the bundled model may be.
SHORT = ('--max-prompt-tokens', '64', '--max-example-tokens', '8')
PRICE = ('--records', '40', '--epsilon', '3', '--delta', '1e-3')
# A command and where it may write, beside the folders that all may use. Each goes on from those before it.
COMMANDS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (('plan', '--epsilon', '1', '--records', '1000'), ()),
    (('check', *INPUT), ()),
    (('models',), ()),
    (('ledger', 'add', 'visits', '--unit', 'example', '--epsilon', '8', '--delta', '1e-2',
      '--ledger', 'ledger.db'), LEDGER),
    (('predict', *RUN), ('corpus', 'corpus.curator', *LEDGER)),
    (('ledger', 'show', 'visits', '--ledger', 'ledger.db'), LEDGER),
    (('report', 'corpus'), ()),
    (('export', 'corpus', '--to', 'corpus.jsonl'), ('corpus.jsonl',)),
    (('export', 'corpus', '--to', 'sqlite:///corpus.db', '--table', 'corpus'), ('corpus.db',)),
    (('start', 'records.jsonl', '--yes', '--label-field', 'label', '--labels', 'Billing,Delivery',
      '--records', '40', '--typical-words', '12', '--corpus-description', 'Messages.'), ('run.toml',)),
    (('split', '--input', 'records.jsonl', '--output', 'sets'), ('sets',)),
    (('evaluate', 'corpus', '--records', 'records.jsonl', '--output', 'evaluation'), ('evaluation',)),
    (('centers', '--input', 'public.jsonl', '--output', 'centres', '--count', '4'), ('centres',)),
    (('schema', 'privacy-report'), ()),
    (('ledger', 'budget', 'visits', '--epsilon', '9', '--reason', 'more', *NAMED), LEDGER),
    (('ledger', 'settle', 'visits', 'shown', *NAMED), LEDGER),
    (('ledger', 'plot', 'visits', '--html', 'visits.html', *NAMED), ('visits.html', *LEDGER)),
    (('ledger', 'export', '--output', 'told.csv', '--format', 'csv', *NAMED), ('told.csv', *LEDGER)),
    (('refine', 'public.jsonl', *INPUT, *PRICE, '--output', 'refined'), ('refined', 'refined.curator')),
    (('audit', 'canaries', '--method', 'refine', '--corpus', 'public.jsonl', *PRICE, '--nearest', '1',
      '--label-field', 'label', '--labels', 'a,b', '--canaries', '64', '--result', 'canaries.json'),
     ('canaries.json',)),
]  # fmt: skip
SLOW_COMMANDS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (('fine-tune', *INPUT, *PRICE, *SHORT, '--tuning-steps', '2', '--expected-batch-size', '8', '--lora-rank',
      '1', '--output', 'adapter'), ('adapter', 'adapter.curator')),
    (('tune-refine', *INPUT, *PRICE, '--tuning-steps', '2', '--expected-batch-size', '8', '--lora-rank', '1',
      '--candidates', '8', '--examples', '4', '--output', 'tuned'), ('tuned', 'tuned.curator')),
    (('generate', '--adapter', 'adapter', '--examples-per-label', '2', '--output', 'sampled'),
     ('sampled', 'sampled.curator')),
    (('evolve', *INPUT, *PRICE, '--rounds', '1', '--candidates', '4', '--examples',
      '4', '--output', 'evolved'), ('evolved', 'evolved.curator')),
]  # fmt: skip
# It downloads, which is all that it is for.
_REACHING = {('models', 'fetch')}
# Places of the paths among an event's values, and of what they are relative to.
_PATHS: dict[str, dict[int, int | None]] = {
    'os.mkdir': {0: 2}, 'os.rename': {0: 2, 1: 3}, 'os.remove': {0: 1}, 'os.rmdir': {0: 1}, 'os.link': {1: 3},
    'os.symlink': {1: 2}, 'os.truncate': {0: None}, 'os.chmod': {0: 2}, 'os.utime': {0: 3},
    'sqlite3.connect': {0: None},
}  # fmt: skip
_STARTS = ('subprocess.Popen', 'os.posix_spawn', 'os.system', 'os.exec', 'os.fork', 'os.forkpty')
# Programs by which libraries ask about the machine.
_QUESTIONS = ('fc-list', 'lscpu', 'uname')
# Folders in which matplotlib and Keras keep fonts and defaults, at their first import in a home.
_OF_LIBRARIES = ('.cache/matplotlib', '.config/matplotlib', '.keras')
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Touched:
    """The actions of this process while it was watched.

    Attributes:
        written: Files and folders that it wrote, moved or removed.
        reached: Addresses and names of hosts of other machines.
        started: Programs.
    """

    def __init__(self) -> None:
        self.written: set[pathlib.Path] = set()
        self.reached: set[str] = set()
        self.started: set[str] = set()

    def take(self, event: str, values: tuple[Any, ...]) -> None:
        if event == 'open':
            path, _, flags = values
            if isinstance(flags, int) and flags & _WRITES:
                self._write(path)
        elif event in _PATHS:
            for place, folder in _PATHS[event].items():
                self._write(values[place], -1 if folder is None else values[folder])
        elif event in ('socket.connect', 'socket.sendto'):
            if isinstance(values[1], tuple):  # else it is a file
                self._reach(values[1][0])
        elif event in ('socket.getaddrinfo', 'socket.gethostbyname'):
            self._reach(values[0])
        elif event in _STARTS:
            self.started.add(str(values[0] if values else event))

    def _write(self, path: Any, folder: int = -1) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            name = os.fsdecode(path)
            if name.startswith('file:'):  # SQLite's way to name a database
                name = urllib.parse.unquote(name.removeprefix('file:').partition('?')[0])
            base = os.readlink(f'/proc/self/fd/{folder}') if folder >= 0 else ''
            self.written.add(pathlib.Path(base, name).absolute())

    def _reach(self, host: Any) -> None:
        name = os.fsdecode(host) if host else ''
        if name not in ('', 'localhost', '::', '::1', '0.0.0.0') and not name.startswith('127.'):
            self.reached.add(name)


_watching: list[Touched] = []


def _hook(event: str, values: tuple[Any, ...]) -> None:
    for touched in _watching:
        touched.take(event, values)


@contextlib.contextmanager
def watched() -> Iterator[Touched]:
    """Watches this process, whose hooks cannot be taken away again."""
    if _hook not in _installed:
        sys.addaudithook(_hook)
        _installed.append(_hook)
    touched = Touched()
    _watching.append(touched)
    try:
        yield touched
    finally:
        _watching.remove(touched)


_installed: list[Any] = []


def faults(touched: Touched, allowed: list[pathlib.Path]) -> list[str]:
    """Things that were touched and may not be: of writes, all that lies in no allowed folder."""
    found = [
        f'wrote {path}'
        for path in sorted(touched.written)
        if not any(path == place or place in path.parents for place in allowed)
        and not str(path).startswith('/dev/')
        and path.parent.name != '__pycache__'  # Python's, of a module that it imports
        and path.name != '__pycache__'
    ]
    found += [f'reached {name}' for name in sorted(touched.reached)]
    asked = {program for program in touched.started if pathlib.Path(program).name in _QUESTIONS}
    return [*found, *(f'started {program}' for program in sorted(touched.started - asked))]


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder of the commands, with forty records; home, temporary folder and cache lie beside it."""
    for name in ('here', 'home', 'temporary', 'cache'):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / 'here')
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    monkeypatch.setenv('TMPDIR', str(tmp_path / 'temporary'))
    monkeypatch.setenv('DP_CORPUS_CACHE', str(tmp_path / 'cache'))
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'temporary'))
    rows = demo_records.demo_records(40)
    pathlib.Path('records.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    # As many words as centres need, each often enough.
    words = [''.join(letters) for letters in itertools.product('abcdef', repeat=3)]
    texts = ({'text': ' '.join(words[number % 200 :][:8])} for number in range(600))
    pathlib.Path('public.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in texts))
    return tmp_path


def test_every_command_is_watched() -> None:
    """But for the one that downloads; a new command is to be listed here."""

    def names(group: Any, *before: str) -> Iterator[tuple[str, ...]]:
        if getattr(group, 'commands', None) is None or getattr(group, 'invoke_without_command', False):
            yield before
        for name, command in getattr(group, 'commands', {}).items():
            yield from names(command, *before, name)

    listed = [command for command, _ in (*COMMANDS, *SLOW_COMMANDS)]
    asked = {name for name in names(typer.main.get_command(main.app)) if name}
    assert len(asked) > 20
    watched_ones = {name for name in asked if any(command[: len(name)] == name for command in listed)}
    assert watched_ones | _REACHING == asked


@pytest.mark.parametrize(
    'commands',
    [pytest.param(COMMANDS, id='quick'), pytest.param(SLOW_COMMANDS, id='slow')],
)
def test_commands_write_where_they_say_and_reach_nothing(
    folder: pathlib.Path, commands: list[tuple[tuple[str, ...], tuple[str, ...]]]
) -> None:
    home = folder / 'home'
    everyones = [
        folder / 'temporary',
        folder / 'cache',
        pathlib.Path(os.environ['JAX_COMPILATION_CACHE_DIR']),
        *(home / name for name in _OF_LIBRARIES),
    ]
    for name in ('.cache', '.config'):
        (home / name).mkdir()
    found = {}
    for command, places in commands:
        with watched() as touched:
            done = in_this_process(*command)
        assert done.returncode == 0, f'{command}: {done.stdout}{done.stderr}'
        found[command] = faults(touched, [*everyones, *(folder / 'here' / name for name in places)])
        assert touched.written or command[0] in ('plan', 'check', 'models', 'report', 'schema', 'audit')
    assert {command: listed for command, listed in found.items() if listed} == {}
    assert {str(path.relative_to(home)) for path in home.glob('*/*')} <= {*_OF_LIBRARIES, '.keras/keras.json'}
    asked = {name for _, places in commands for name in places}
    assert {path.name for path in (folder / 'here').iterdir()} <= {'records.jsonl', 'public.jsonl', *asked}


def test_what_no_command_may_do_is_seen(folder: pathlib.Path) -> None:
    """On a program that does each of it, also where errors are swallowed."""
    with watched() as touched:
        pathlib.Path('corpus').mkdir()
        pathlib.Path('corpus/a').write_text('may')
        pathlib.Path('records.jsonl').read_text()
        (pathlib.Path.home() / '.told').write_text('may not')
        os.rename(folder / 'home' / '.told', folder / 'home' / '.moved')
        with contextlib.suppress(OSError), socket.socket() as connection:
            connection.settimeout(0.01)
            connection.connect(('192.0.2.1', 443))  # of no machine: RFC 5737
        with contextlib.suppress(OSError), socket.socket() as connection:
            connection.settimeout(0.01)
            connection.connect(('127.0.0.1', 9))
        opened = os.open(folder / 'home', os.O_RDONLY)
        os.mkdir('below', dir_fd=opened)
        os.rmdir('below', dir_fd=opened)
        os.close(opened)
        subprocess.run([sys.executable, '--version'], check=True, capture_output=True)
    assert faults(touched, [folder / 'here' / 'corpus']) == [
        f'wrote {folder}/home/.moved',
        f'wrote {folder}/home/.told',
        f'wrote {folder}/home/below',
        'reached 192.0.2.1',
        f'started {sys.executable}',
    ]
