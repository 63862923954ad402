"""Clusters and runs that the tests of this folder start, and what they ask of them."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence, Set
from typing import Any

import psutil
import pytest
import yaml

from launch.demo.records import demo_records
from launch.flink import fetch
from models.bundled import FOLDER as BUNDLED

ROOT = pathlib.Path(__file__).parents[3]
SCRIPT = (str(ROOT / 'launch' / 'flink' / 'flink.sh'),)
WORKER = ROOT / 'launch' / 'flink' / 'worker.py'
needs_model = pytest.mark.skipif(
    not (BUNDLED / 'checkpoint').exists(), reason='the bundled model has no checkpoint: train it first'
)
# Small, with what moves most data between steps: users, clusters and two noisy counts.
SETTINGS = {
    'text-field': 'text',
    'label-field': 'label',
    'labels': 'Billing,Delivery',
    'unit': 'user',
    'unit-field': 'customer',
    'record-id-field': 'id',
    'records': '150',
    'delta': '0.001',
    'max-private-tokens': '64',
    'max-batch-tokens': '64',
    'batch-size': '16',
    'aggregate': 'difference',
    'accounting': 'worst-case',
    'clusters': '2',
    'temperature': '1.0',
    'public-top-k': '256',
    'max-prompt-tokens': '96',
    'max-example-tokens': '24',
    'shards': '2',
    # A query of a database: its ranges are read by workers of both task managers.
    'query': 'SELECT id, customer, label, message AS text FROM messages',
    'partition-column': 'id',
}

_OF_OTHER_METHODS = {
    name: SETTINGS[name]
    for name in (
        'text-field', 'label-field', 'labels', 'unit', 'unit-field', 'record-id-field', 'records', 'delta',
        'shards',
    )
} | {'epsilon': '8', 'micro-batch-size': '8'}  # fmt: skip
OTHER_METHODS = {
    # A few steps, and texts of both labels in two batches each.
    'fine-tune': {
        'tuning-steps': '4', 'expected-batch-size': '8', 'examples-per-label': '12',
        'max-prompt-tokens': '48', 'max-example-tokens': '24',
    },
    # Two rounds of votes on some dozen texts each, with little noise; texts that are cut are dropped.
    'evolve': {
        'epsilon': '100', 'rounds': '2', 'candidates': '48', 'children': '24', 'examples': '16',
        'embedder': 'tfidf', 'max-prompt-tokens': '128', 'max-example-tokens': '40',
    },
}  # fmt: skip


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f'{what} took longer than {seconds} seconds'
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as connection:
        connection.bind(('localhost', 0))
        return connection.getsockname()[1]


@dataclasses.dataclass(frozen=True)
class Run:
    """One run that a local runner has finished: its corpus, and what every engine has to repeat.

    It reads a SQLite file in ranges of a key, which are private as its texts are.
    """

    texts: tuple[str, ...]
    keys: tuple[str, ...]
    folder: pathlib.Path
    flags: tuple[str, ...]
    output: pathlib.Path
    work_dir: pathlib.Path
    corpus: dict[str, bytes]
    batches: int

    @property
    def relative_flags(self) -> tuple[str, ...]:
        """The same flags for who works in the run's folder."""
        return tuple(flag.replace(f'{self.folder}/', '') for flag in self.flags)

    def written(self) -> dict[str, int]:
        """When each finished batch was, in nanoseconds."""
        return {path.name: path.stat().st_mtime_ns for path in (self.work_dir / 'batches').glob('*.json')}

    def corpus_now(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.output / 'data').glob('*.parquet')}

    def finished(self) -> int:
        return len(self.written())

    def wait_for_batches(self, number: int, job: subprocess.Popen[bytes]) -> None:
        wait_for(lambda: self.finished() >= number or job.poll() is not None, 240, 'decoding')

    def forget(self) -> None:
        """Back to where the run knew its key and its plan, and had not decoded anything."""
        shutil.rmtree(self.output)
        for path in (self.work_dir / 'batches').iterdir():
            path.unlink()


def generate(flags: Sequence[str]) -> list[str]:
    return [sys.executable, '-m', 'pipeline.main', 'generate', '--quiet', *flags]


def method_flags(folder: pathlib.Path, method: str) -> list[str]:
    """Flags of a run of a method other than votes on tokens, on records in a folder, to its `out`."""
    records = folder / 'records.jsonl'
    records.write_text(''.join(json.dumps(row) + '\n' for row in demo_records(600)))
    places = {'method': method, 'run-id': 'other', 'input': str(records), 'output': str(folder / 'out')}
    pairs = _OF_OTHER_METHODS | OTHER_METHODS[method] | places
    return [part for name, value in pairs.items() for part in (f'--{name}', value)]


def run_locally(folder: pathlib.Path) -> Run:
    rows = list(demo_records(600))
    with contextlib.closing(sqlite3.connect(folder / 'records.db')) as database, database:
        database.execute('CREATE TABLE messages (id TEXT, customer TEXT, label TEXT, message TEXT)')
        database.executemany('INSERT INTO messages VALUES (:id, :customer, :label, :text)', rows)
    output = folder / 'corpus'
    pairs = {**SETTINGS, 'input': f'sqlite:///{folder}/records.db', 'output': str(output)}
    flags = tuple(part for name, value in pairs.items() for part in (f'--{name}', value))
    subprocess.run(generate(flags), cwd=ROOT, check=True, timeout=300)
    run = Run(
        texts=tuple(row['text'] for row in rows),
        keys=tuple(row['id'] for row in rows),
        folder=folder,
        flags=flags,
        output=output,
        work_dir=folder / 'corpus.curator',
        corpus={path.name: path.read_bytes() for path in (output / 'data').glob('*.parquet')},
        batches=len(list((folder / 'corpus.curator' / 'batches').glob('*.json'))),
    )
    assert len(run.corpus) == 2 and run.batches >= 6
    return run


def cache() -> None:
    """Fetches Flink and the job server, or skips the test."""
    if shutil.which('java') is None:
        pytest.skip('Flink is NOT tested here: no command java')
    try:
        fetch.fetch_flink(fetch.CACHE)
        fetch.fetch_job_server(fetch.CACHE)
    except (OSError, RuntimeError) as error:
        pytest.skip(f'Flink is NOT tested here: {error}')


def script_environment(folder: pathlib.Path, **settings: Any) -> dict[str, str]:
    """The environment of flink.sh for a cluster in a folder, with changed settings of Flink."""
    environment = {**os.environ, 'PYTHON': sys.executable, 'XDG_STATE_HOME': str(folder)}
    subprocess.run([*SCRIPT, 'fetch'], env=environment, check=True, stdout=subprocess.DEVNULL)
    conf = folder / 'conf'
    shutil.copytree(folder / 'dp-corpus' / 'flink' / 'conf', conf)
    changed = yaml.safe_load((conf / 'config.yaml').read_text()) | settings
    (conf / 'config.yaml').write_text(yaml.safe_dump(changed, width=10_000))
    return environment | {'FLINK_CONF_DIR': str(conf)}


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster of this machine."""

    folder: pathlib.Path
    port: int
    environment: dict[str, str]

    @property
    def state(self) -> pathlib.Path:
        return self.folder / 'dp-corpus' / 'flink'

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f'http://localhost:{self.port}{path}', timeout=10) as answer:
            return json.load(answer)

    def task_managers(self) -> set[str]:
        """Ids of those that are registered."""
        try:
            return {entry['id'] for entry in self.ask('/taskmanagers')['taskmanagers']}
        except OSError:  # the job manager still starts
            return set()

    def wait_for_task_managers(self, other_than: Set[str] = frozenset()) -> None:
        wait_for(
            lambda: len(now := self.task_managers()) == 3 and now != other_than,
            120,
            'registering three task managers',
        )

    def stop(self) -> None:
        """Stops it as the page says. Flink's scripts wait for processes, which this one adopted and reaps."""
        for script, name in (('taskmanager.sh', 'taskexecutor'), ('jobmanager.sh', 'standalonesession')):
            stopping = self.processes(name)
            with subprocess.Popen([*SCRIPT, script, 'stop-all'], env=self.environment):
                psutil.wait_procs(stopping, timeout=60)

    def processes(self, name: str) -> list[psutil.Process]:
        """The living processes that Flink's scripts started under a name."""
        pids = [int(pid) for path in self.state.glob(f'*{name}.pid') for pid in path.read_text().split()]
        return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]

    def busy(self) -> list[tuple[psutil.Process, psutil.Process]]:
        """Each task manager that has a Python worker, and the worker."""
        return [
            (manager, child)
            for manager in self.processes('taskexecutor')
            for child in manager.children()
            if child.status() != psutil.STATUS_ZOMBIE and str(WORKER) in child.cmdline()
        ]
