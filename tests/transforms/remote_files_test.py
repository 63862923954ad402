"""Files on gs://, against a server that answers as Google Cloud Storage does, preconditions too.

The server is fake-gcs-server, found on the PATH or by FAKE_GCS_SERVER:
`go install github.com/fsouza/fake-gcs-server@v1.56.1`. Without it these tests skip.
"""

import base64
import collections
import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent import futures

import pytest
from apache_beam.io.filesystems import FileSystems

from models.privacy.randomness import RunKey
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.run import folders
from pipeline.settings.job_config import JobConfig
from tests.launched import launch
from tests.samples import needs_model
from transforms import durable

pytest.importorskip(
    'google.cloud.storage', reason="apache-beam[gcp] is not installed: pip install -e '.[gcp]'"
)
pytest.importorskip(
    'apache_beam.io.gcp.gcsio', reason="apache-beam[gcp] is not installed: pip install -e '.[gcp]'"
)

BUCKET = 'a-bucket'
CANARY = 'Zyxquortle'
BINARY = shutil.which(os.environ.get('FAKE_GCS_SERVER') or 'fake-gcs-server')

pytestmark = [
    pytest.mark.run,
    pytest.mark.skipif(
        BINARY is None,
        reason='no fake-gcs-server: go install github.com/fsouza/fake-gcs-server@v1.56.1, '
        'or set FAKE_GCS_SERVER',
    ),
]


@pytest.fixture(scope='module')
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's URL; it keeps everything in memory, and this module has it to itself."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    url = f'http://127.0.0.1:{port}'
    log = (tmp_path_factory.mktemp('server') / 'log').open('wb')
    process = subprocess.Popen(
        [
            str(BINARY), '-backend', 'memory', '-scheme', 'http', '-host', '127.0.0.1', '-port', str(port),
            '-public-host', f'127.0.0.1:{port}',
        ],
        stdout=log, stderr=log,
    )  # fmt: skip
    try:
        _wait_for(f'{url}/storage/v1/b')
        request = urllib.request.Request(
            f'{url}/storage/v1/b?project=a-project',
            data=json.dumps({'name': BUCKET}).encode(),
            headers={'Content-Type': 'application/json'},
        )
        urllib.request.urlopen(request, timeout=10).close()
        yield url
    finally:
        process.terminate()
        process.wait(timeout=10)
        log.close()


def _wait_for(url: str) -> None:
    for _ in range(100):
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        time.sleep(0.1)
    raise TimeoutError(f'Expected an answer of the server at {url}, got none in 10 seconds. See its log.')


@pytest.fixture(autouse=True)
def _anonymous(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends Google's client to the server, and keeps Beam from looking for a user's credentials."""
    from apache_beam.internal.gcp import auth

    monkeypatch.setenv('STORAGE_EMULATOR_HOST', server)
    monkeypatch.setattr(auth._Credentials, '_credentials_init', True)
    monkeypatch.setattr(auth._Credentials, '_credentials', None)


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    """A folder of its own for each test."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    return f'gs://{BUCKET}/{name}'


def everything(folder: str) -> dict[str, bytes]:
    """Path below the folder -> bytes."""
    (found,) = FileSystems.match([f'{folder}/**'])
    paths = [metadata.path for metadata in found.metadata_list]
    return {path.removeprefix(f'{folder}/'): durable.read_file(path) for path in sorted(paths)}


def delete(path: str) -> None:
    """Deletes one object; the server does not know the batches of requests that Beam deletes by."""
    from google.cloud import storage

    bucket, name = path.removeprefix('gs://').split('/', 1)
    storage.Client.create_anonymous_client().bucket(bucket).blob(name).delete()


# --- One file --------------------------------------------------------------------


def test_bytes_come_back_as_they_are(folder: str) -> None:
    """Whatever the name says of a codec."""
    data = bytes(range(256)) * 40
    for name in ('x.gz', 'x.bin', 'x.json.bz2', 'empty'):
        durable.write_file(f'{folder}/{name}', b'' if name == 'empty' else data)
        assert durable.read_file(f'{folder}/{name}') == (b'' if name == 'empty' else data)


@pytest.mark.first
def test_of_many_writers_one_wins_and_no_reader_sees_another(folder: str) -> None:
    """Every writer reads back right after it wrote, as a decoding step does."""
    writers, rounds = 8, 10
    for turn in range(rounds):
        path, start = f'{folder}/{turn}', threading.Barrier(writers)

        def write(writer: int, path: str = path, start: threading.Barrier = start) -> bytes:
            start.wait()
            durable.write_file(path, f'writer {writer}'.encode() * 1000)
            return durable.read_file(path)

        with futures.ThreadPoolExecutor(writers) as pool:
            seen = collections.Counter(pool.map(write, range(writers)))
        assert len(seen) == 1 and seen.popitem() == (durable.read_file(path), writers)
    assert len(everything(folder)) == rounds  # and no temporary stays


# --- A run -----------------------------------------------------------------------


def config(place: str, **settings: object) -> JobConfig:
    given = {
        'input': f'{place}/in.jsonl', 'output': f'{place}/out', 'work_dir': f'{place}/work', 'run_id': 'run',
        'label_field': 'label', 'labels': ('Billing', 'Delivery'), 'batches_per_label': 2, 'batch_size': 8,
        'aggregate': 'mean', 'max_private_tokens': 6, 'delta': 1e-3, 'max_prompt_tokens': 64,
        'max_example_tokens': 6, 'micro_batch_size': 32, 'shards': 2, 'keep_rejected': True,
    }  # fmt: skip
    return job_config(**(given | settings))


def records() -> bytes:
    rows = [
        {'text': f'{CANARY} writes message {index} on a parcel.', 'label': ('Billing', 'Delivery')[index % 2]}
        for index in range(24)
    ]
    return b''.join(json.dumps(row).encode() + b'\n' for row in rows)


@pytest.fixture(scope='module')
def local(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, bytes]]:
    """A run on local files: its key, and its corpus and finished batches."""
    place = tmp_path_factory.mktemp('local')
    (place / 'in.jsonl').write_bytes(records())
    launch(config(str(place)), [])
    key = (place / 'work' / durable.RUN_KEY).read_bytes()
    files = [*(place / 'out' / 'data').iterdir(), *(place / 'work' / 'batches').iterdir()]
    return key, {str(path.relative_to(place)): path.read_bytes() for path in files}


@needs_model
@pytest.mark.parametrize('resumed', [False, True], ids=['whole', 'resumed'])
def test_a_run_on_gs_gives_the_corpus_of_a_local_one(
    folder: str, local: tuple[bytes, dict[str, bytes]], resumed: bool
) -> None:
    key, expected = local
    run = config(folder)
    durable.write_file(f'{folder}/in.jsonl', records())
    folders.prepare(methods.solve(run, launch=True))
    # In the field no two runs share a key; here the same key shows the same corpus.
    delete(f'{folder}/work/{durable.RUN_KEY}')
    durable.write_key(f'{folder}/work', RunKey(key))
    if resumed:
        name = sorted(name for name in expected if name.startswith('work/batches'))[0]
        durable.write_file(f'{folder}/{name}', expected[name])
        shard = sorted(name for name in expected if name.startswith('out/data'))[0]
        durable.write_file(f'{folder}/{shard}', expected[shard])
    launch(run, [])
    found = everything(folder)
    assert {name: found[name] for name in found if name.startswith(('out/data', 'work/batches'))} == expected
    assert {'out/README.md', 'out/privacy_report.json', 'work/rejected.jsonl'} <= set(found)
    # Nothing private is in the released folder, in any form.
    released = b''.join(data for name, data in found.items() if name.startswith('out/'))
    for secret in (CANARY.encode(), key, key.hex().encode(), base64.b64encode(key)):
        assert secret not in released
