"""An installation without models: what it does, and what it refuses before anything is paid."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from tests import completions_server, listening, without_extras
from tests.samples import write_rows
from tests.without_extras import Done

pytestmark = pytest.mark.run

WORDS = {
    'billing': ('refund', 'payment', 'price', 'account', 'charged'),
    'delivery': ('parcel', 'courier', 'shipping', 'late', 'road'),
}
ROWS = [
    {'text': ' '.join(words[(number * step) % 5] for step in (1, 2, 3)), 'label': label}
    for number in range(30)
    for label, words in WORDS.items()
]
INPUT = ('--input', 'in.jsonl', '--label-field', 'label', '--labels', ','.join(WORDS), '--records', '60')
VOTES = (*INPUT, '--epsilon', '30', '--delta', '1e-2')
LEDGER = ('--ledger', 'ledger.db')
CHARGED = ('--dataset', 'mail', *LEDGER)


def _commands(url: str) -> dict[str, tuple[str, ...]]:
    """Command lines by name, in the order in which they run."""
    evolve = ('--method', 'evolve', *VOTES, '--endpoint', f'{url}/v1', '--endpoint-model', 'words')
    small = (
        '--rounds', '2', '--candidates', '24', '--children', '12', '--examples', '20', '--prompt', 'document',
        '--text-name', 'Mail [words]', '--max-example-tokens', '32', '--min-example-tokens', '2',
        '--shards', '1',
    )  # fmt: skip
    return {
        'models': ('models',),
        'plan': ('plan', *evolve),
        'check': ('check', *INPUT),
        'start': (
            'start', 'in.jsonl', '--yes', *INPUT[2:], '--typical-words', '4', '--corpus-description',
            'Mail, one after another.', '--output', 'run.toml',
        ),
        'budget': (
            'ledger', 'add', 'mail', *LEDGER, '--unit', 'example', '--epsilon', '90', '--delta', '1e-2',
        ),
        'a model': ('generate', '--config', 'run.toml', *CHARGED, '--delta', '1e-2'),
        'fine-tuning': (
            'generate', '--method', 'fine-tune', *VOTES, *CHARGED, '--expected-batch-size', '20', '--output',
            'tuned',
        ),
        'MiniLM': ('generate', *evolve, *small, *CHARGED, '--embedder', 'minilm', '--output', 'minilm'),
        'a bucket': ('generate', *evolve, *small, *CHARGED, '--output', 'gs://bucket/corpus'),
        'a data set': ('check', '--input', 'hf://nobody/nothing', '--records', '60'),
        'a report of a bucket': ('report', 'gs://bucket/corpus'),
        'an audit': ('audit', 'canaries', *VOTES),
        'run': ('generate', *evolve, *small, *CHARGED, '--output', 'corpus'),
        'account': ('ledger', 'show', 'mail', *LEDGER, '--json'),
        'page': ('report', 'corpus', '--html', 'report.html'),
        'report': ('report', 'corpus'),
        'evaluate': ('evaluate', 'corpus', '--test', 'in.jsonl', '--label-field', 'label', '--json'),
        'a decoder': ('evaluate', 'corpus', '--embedder', 'decoder'),
        'export': ('export', 'corpus', '--to', 'corpus.csv'),
        'refine': ('refine', 'corpus', *VOTES, '--keep', '5', '--output', 'refined', '--quiet'),
    }  # fmt: skip


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp('light')


@pytest.fixture(scope='module')
def listener() -> listening.Listener:
    return listening.Listener()


@pytest.fixture(scope='module')
def found(folder: pathlib.Path, listener: listening.Listener) -> Iterator[dict[str, Done]]:
    """The outcome of each command, all in one process of the extra for endpoints alone."""
    write_rows(folder / 'in.jsonl', ROWS)
    with completions_server.running() as url:
        commands = _commands(url)
        yield dict(
            zip(
                commands,
                without_extras.run(commands.values(), 'endpoint', folder=folder, listener=listener),
                strict=True,
            )
        )


DONE = {
    'models': 'gemma3-270m',
    'plan': 'at the pace of the endpoint',
    'check': 'No tokens are counted',
    # It compares all methods, and says what the run needs.
    'start': "pip install 'dp-corpus[gemma]'",
    'budget': '0 % spent',
    'account': '"runs"',
    'page': '',
    'report': 'Privacy report of corpus',
    'evaluate': '"figures"',
    'export': 'corpus.csv',
    'refine': '',
}


def test_no_command_listens_anywhere(found: dict[str, Done], listener: listening.Listener) -> None:
    """A run with an endpoint and a ledger, and what reads its release: tests/attacks/sockets_test.py."""
    assert found and listener.wait() == set()


@pytest.mark.parametrize('command', DONE)
def test_it_works_without_a_model(found: dict[str, Done], command: str) -> None:
    done = found[command]
    assert done.returncode == 0, done.stderr
    assert DONE[command] in done.stdout + done.stderr
    assert 'WARNING' not in done.stderr


def test_records_vote_on_texts_of_an_endpoint(found: dict[str, Done], folder: pathlib.Path) -> None:
    done = found['run']
    assert done.returncode == 0, done.stderr
    # No model is loaded, and none is spoken of.
    assert 'Loading the model' not in done.stderr and 'bundled model' not in done.stderr
    report = json.loads((folder / 'corpus' / 'privacy_report.json').read_text())
    assert report['corpus']['examples'] > 0 and report['epsilon'] <= 30
    assert {'jax', 'gemma', 'tensorflow-text', 'opendp'} & report['versions'].keys() == set()
    assert {'apache-beam', 'numpy'} <= report['versions'].keys()
    assert '<svg' in (folder / 'report.html').read_text()
    assert (folder / 'corpus.csv').read_text().count('\n') > report['corpus']['examples']
    assert json.loads((folder / 'refined' / 'privacy_report.json').read_text())['corpus']['examples'] == 5


REFUSED = {
    'a model': ('gemma', 'jax'),
    'fine-tuning': ('gemma', 'jax_privacy'),
    'MiniLM': ('minilm', 'tokenizers'),
    'a bucket': ('gcp', 'google.cloud.storage'),
    'a report of a bucket': ('gcp', 'google.cloud.storage'),
    'a data set': ('datasets', 'datasets'),
    'an audit': ('gemma', 'optax'),
    'a decoder': ('gemma', 'sentencepiece'),
}


@pytest.mark.parametrize('command', REFUSED)
def test_what_needs_another_extra_says_which(found: dict[str, Done], command: str) -> None:
    done, (extra, library) = found[command], REFUSED[command]
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith('Error: Expected an installation with what ') and f"'{library}'" in line
    assert line.endswith(f"Run pip install 'dp-corpus[{extra}]'.")


def test_nothing_was_paid_for_what_was_refused(found: dict[str, Done], folder: pathlib.Path) -> None:
    (account,) = json.loads(found['account'].stdout)['datasets']
    assert [run['run_id'] for run in account['runs']] == ['corpus']
    assert not any((folder / name).exists() for name in ('tuned', 'minilm', 'in-synthetic'))
