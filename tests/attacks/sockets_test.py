"""A stranger on the network who looks for a port: no way to run opens one, at any moment of the run.

Here are the runners of this machine. Under the same watch are the endpoint, the ledger and the commands on a
release (tests/pipeline/light_run_test.py), the demo (tests/launch/demo/demo_test.py), and a cluster of Flink
with its jobs and workers (tests/launch/flink/run_test.py).
"""

import contextlib
import http.server
import io
import json
import os
import pathlib
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.listening import Listener, Place
from tests.samples import ROOT, write_rows

pytestmark = pytest.mark.run

ROWS = [{'text': f'parcel {number % 7} late', 'id': str(number)} for number in range(40)]
VOTES = {
    'method': 'evolve', 'model': 'tiny', 'prompt': 'pretrained', 'embedder': 'tfidf', 'input': 'in.jsonl',
    'records': 40, 'epsilon': 30.0, 'delta': 1e-2, 'shards': 1, 'rounds': 1, 'candidates': 8, 'examples': 4,
    'regex': 'parcel( late| lost){1,3}', 'max_prompt_tokens': 48, 'max_example_tokens': 24,
    'dtype': 'float32',
}  # fmt: skip
# Each way to run on this machine, as pages name it: the runner, and options of Beam.
WAYS: Mapping[str, tuple[str, Sequence[str]]] = {
    'one worker': ('FnApiRunner', ()),
    'threads': ('FnApiRunner', ('--direct_num_workers=2',)),
    'the name that users know': ('DirectRunner', ()),
    'bundle by bundle': ('BundleBasedDirectRunner', ('--direct_num_workers=1',)),
}

type Run = tuple[dict[str, object], Sequence[str]]


def run(name: str, runner: str, options: Sequence[str]) -> Run:
    return {**VOTES, 'output': name.replace(' ', '-'), 'runner': runner}, options


def watched(
    folder: pathlib.Path, runs: Sequence[Run], *arguments: str
) -> tuple[list[str | None], set[Place]]:
    """The error of each run, and the places where any of them listened."""
    write_rows(folder / 'in.jsonl', ROWS)
    listener = Listener()
    done = listener.run(
        [sys.executable, '-m', 'tests.attacks.local_runs', *arguments],
        cwd=folder,
        env={**os.environ, 'PYTHONPATH': str(ROOT)},
        input=json.dumps(runs),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), listener.wait()


@contextlib.contextmanager
def flink() -> Iterator[tuple[int, list[bytes]]]:
    """A server that takes an uploaded jar as Flink would, and then fails: its port, and what it was sent."""
    sent: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(self.rfile.read(int(self.headers['Content-Length'])))
            self.send_error(500)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, sent
        server.shutdown()


def upload(folder: pathlib.Path, port: int) -> Run:
    """A run that uploads itself to Flink in a jar, as Kubernetes' launcher does."""
    with zipfile.ZipFile(folder / 'job.jar', 'w') as jar:
        jar.writestr('META-INF/MANIFEST.MF', '')
    options = (
        f'--flink_master=localhost:{port}', '--flink_version=1.19', '--flink_submit_uber_jar',
        f'--flink_job_server_jar={folder}/job.jar', '--environment_type=EXTERNAL',
        '--environment_config=localhost:50000',
    )  # fmt: skip
    return run('upload', 'FlinkRunner', options)


def test_a_run_on_this_machine_listens_nowhere(tmp_path: pathlib.Path) -> None:
    """Not even for a moment. A jar is put together over a socket in a folder that its owner alone enters."""
    with flink() as (port, sent):
        runs = [run(name, *way) for name, way in WAYS.items()]
        failures, places = watched(tmp_path, [*runs, upload(tmp_path, port)])
    assert failures[:-1] == [None] * len(WAYS)
    assert [(place.host, str(place.port).rpartition('/')[2]) for place in places] == [('unix', 'staging')]
    (body,) = sent
    with zipfile.ZipFile(io.BytesIO(body[body.index(b'PK') :])) as jar:
        names = jar.namelist()
    assert 'BEAM-PIPELINE/pipeline/pipeline.json' in names
    assert any('/artifacts/' in name for name in names), 'nothing was staged'


@pytest.mark.parametrize(
    ('runner', 'options', 'ports'),
    [
        ('DirectRunner', (), 1),
        ('FnApiRunner', ('--direct_num_workers=2', '--direct_running_mode=multi_processing'), 6),
        ('FnApiRunner', ('--direct_running_mode=multi_threading',), 4),
    ],
)
def test_what_beam_would_open_is_told(
    tmp_path: pathlib.Path, runner: str, options: Sequence[str], ports: int
) -> None:
    """The twin: with nothing refused or mended the same watch finds every port, however short its moment."""
    with flink() as (port, _):
        runs = [run('twin', runner, options), upload(tmp_path, port)]
        _, places = watched(tmp_path, runs, 'open')
    # One more takes files for the jar.
    assert len([place for place in places if place.is_reached_from_outside]) == ports + 1
