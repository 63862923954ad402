"""The command line as a user meets it, with its exit codes and its screen.

What a process alone can show has one: what imports cost, the screen of a whole run, the code that the
system is told. The rest calls what the process would.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from pyarrow import parquet

from launch.demo import records as demo_records
from models.bundled import FOLDER as BUNDLED
from models.clustering import centers
from models.privacy.report import PrivacyReport
from pipeline import main, methods
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.methods.predict import plan as plan_lib
from pipeline.screen import off_screen
from tests.command_line import Done, in_a_process, in_this_process
from tests.one_model import one_model

CHEAP = ('--delta', '1e-6', '--aggregate', 'mean', '--max-private-tokens', '8')
SMALL = (
    '--label-field', 'label', '--labels', 'Billing=Bills and payments,Delivery', '--batches-per-label', '1',
    '--batch-size', '8', '--aggregate', 'mean', '--max-private-tokens', '8', '--delta', '1e-3',
    '--max-prompt-tokens', '64', '--max-example-tokens', '8', '--record-id-field', 'id', '--run-id', 'shown',
    '--shards', '2',
)  # fmt: skip
needs_model = pytest.mark.skipif(
    not (BUNDLED / 'checkpoint').exists(), reason='the bundled model has no checkpoint: train it first'
)


@pytest.fixture(scope='module', autouse=True)
def _one_model() -> Iterator[None]:
    with one_model():
        yield


def one_object(output: str) -> dict[str, Any]:
    """The one JSON object that standard output consists of."""
    value, end = json.JSONDecoder().raw_decode(output)
    assert output[end:].strip() == '' and isinstance(value, dict)
    return value


def plain(text: str) -> str:
    """A screen's text without the frames and line breaks of rich."""
    return ' '.join(re.sub(r'[╭─╮│╰╯]', ' ', text).split())


@pytest.fixture(scope='module')
def demo(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp('demo') / 'records.jsonl'
    rows = demo_records.demo_records(40)
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows), encoding='utf-8')
    return path


@pytest.fixture(scope='module')
def finished(demo: pathlib.Path) -> tuple[pathlib.Path, Done]:
    """A whole run from the command line; its output folder and what it printed."""
    output = demo.parent / 'corpus'
    done = in_a_process(
        'generate', '--input', str(demo), '--output', str(output), *SMALL, '--', '--direct_num_workers=1'
    )
    assert done.returncode == 0, done.stderr
    return output, done


# --- plan ------------------------------------------------------------------------


@pytest.mark.run
@pytest.mark.parametrize(
    'arguments, code',
    [(('plan', '--json', *CHEAP), 0), (('audit', 'canaries', '--json', *CHEAP, '--canaries', '9'), 2)],
)
def test_plans_and_early_errors_import_nothing_heavy(arguments: tuple[str, ...], code: int) -> None:
    done = in_a_process(*arguments, python=('-X', 'importtime'))
    assert done.returncode == code
    assert done.stdout == in_this_process(*arguments).stdout != ''
    imported = {line.rpartition('|')[2].strip().split('.')[0] for line in done.stderr.splitlines()}
    assert 'typer' in imported, 'the list of imports is not read'
    assert imported.isdisjoint(
        {'jax', 'tensorflow', 'tensorflow_text', 'apache_beam', 'gemma', 'pyarrow', 'sqlalchemy'}
    )


def test_plan_as_json() -> None:
    done = in_this_process('plan', '--json', '--epsilon', '3', '--delta', '1e-6', '--records', '10000')
    found = one_object(done.stdout)
    assert (done.returncode, done.stderr) == (0, '')
    assert 0 < found['epsilon'] <= 3 and found['delta'] == 1e-6 and found['method'] == 'tune-refine'


# --- Requests that cannot be carried out -----------------------------------------


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize(
    'arguments, said',
    [
        (('plan', '--delta', '1e-6'), 'Expected either epsilon or context_budget'),
        (('plan', '--delta', '1e-6', '--max-private-tokens', '8'), 'Give --accounting worst-case'),
        (('plan', *CHEAP, '--batch-szie', '3'), 'No such option: --batch-szie'),
        (('plan', *CHEAP, '--batch-size', 'many'), 'valid integer'),
        (('plan', *CHEAP, '--config', 'no-such.toml'), "config='no-such.toml'"),
        (('generate', *CHEAP), 'Give --input FILES --output FOLDER'),
        (('generate', *CHEAP, '--input', 'x.jsonl', '--output', 'o', '--no-such-flag'), 'No such option'),
        (('report', 'no-such-folder'), 'Give the folder that --output named'),
        (('no-such-command',), 'No such command'),
        (('plan', *CHEAP, '--aggregate', 'median', '--epsilon', '3'), 'Expected no epsilon'),
        (('centers', '--input', 'x.jsonl', '--output', 'o', '--dtype', 'bfloat16'), "embedder='decoder'"),
        (('audit', 'canaries', *CHEAP, '--canaries', '9'), 'Expected canaries >= 64'),
        (('audit', 'canaries', *CHEAP, '--result', 'r.txt'), 'ending in .html or .json'),
    ],
)
@pytest.mark.parametrize('as_json', [False, True])
def test_usage_errors_end_with_2(arguments: tuple[str, ...], said: str, as_json: bool) -> None:
    done = in_this_process(*arguments, *(['--json'] if as_json else []))
    assert done.returncode == 2
    assert said in plain(done.stderr)
    assert 'Traceback' not in done.stderr
    if as_json:
        found = one_object(done.stdout)
        assert found['exit_code'] == 2 and said.split(':')[0] in found['error']
    else:
        assert done.stdout == ''


@pytest.mark.run
def test_a_process_ends_with_the_code_of_its_error() -> None:
    """The other usage errors are told without a process of their own."""
    arguments = ('plan', *CHEAP, '--batch-szie', '3', '--json')
    done, here = in_a_process(*arguments), in_this_process(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, here.stdout, here.stderr)
    assert one_object(done.stdout)['exit_code'] == here.returncode == 2


@pytest.mark.parametrize(
    'options, said',
    [
        (('--no_such_option=3',), 'no_such_option'),
        (('stray',), 'stray'),
        (('--direct_num_workers=many',), 'many'),
    ],
)
@needs_model
def test_unknown_options_of_beam_end_with_2(demo: pathlib.Path, options: tuple[str, ...], said: str) -> None:
    output = demo.parent / 'never'
    done = in_this_process('generate', '--input', str(demo), '--output', str(output), *SMALL, '--', *options)
    assert (done.returncode, done.stdout) == (2, '')
    assert said in done.stderr and 'Traceback' not in done.stderr
    assert not output.exists()


@needs_model
def test_errors_about_the_input_quote_no_record(tmp_path: pathlib.Path) -> None:
    # Without a header row, the first record stands where column names are expected.
    path = tmp_path / 'records.csv'
    path.write_text('Zyxquortle wrote this,Billing\nand Zyxquortle this,Delivery\n')
    done = in_this_process('generate', '--input', str(path), '--output', str(tmp_path / 'out'), *SMALL)
    assert done.returncode == 2 and "'text'" in done.stderr
    assert 'Zyxquortle' not in done.stdout + done.stderr


def test_a_screen_alone_shows_the_columns_that_were_found(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / 'records.csv'
    path.write_text('id;Notiz;Station\n1;Zyxquortle;A\n')
    arguments = ('split', '--input', str(path), '--output', str(tmp_path / 'out'), '--text-field', 'note')
    done = in_this_process(*arguments)
    assert done.returncode == 2 and "missing=['note']" in done.stderr
    assert 'Notiz' not in done.stdout + done.stderr
    monkeypatch.setattr(sys, 'argv', ['dp-corpus', *arguments])
    reading, writing = os.openpty()
    with (
        open(writing, 'w') as terminal,
        contextlib.redirect_stderr(terminal),
        pytest.raises(SystemExit) as stop,
    ):
        main.main()
    with open(reading, encoding='utf-8') as terminal:
        shown = terminal.readline() + terminal.readline()
    assert stop.value.code == 2 and 'Zyxquortle' not in shown
    assert 'For the curator alone, because what looks like a header row may be a record' in shown
    assert "['id;Notiz;Station']" in shown


# --- generate and report ---------------------------------------------------------


@pytest.mark.first
@pytest.mark.run
@needs_model
def test_the_screen_of_a_run_is_clean(
    finished: tuple[pathlib.Path, Done],
) -> None:
    output, done = finished
    assert re.fullmatch(
        r'shown: ε = [\d.]+ at δ = 0\.001, 8 private tokens per batch\.\n'
        r'The bundled model has 3\.4 million parameters: its text shows the plumbing and does not read like '
        r'English\. Name another with --model\.\n'
        r'(?:NOTE: [^\n]+\n)*'
        r'Loading the model takes half a minute\.\n'
        r'(?:[^\n]+; elapsed 0:0\d:\d\d[^\n]*\n)*'  # a line a minute
        r"The curator's own report, never for release, with how many rows were read and rejected: "
        r'[^\n]+corpus\.curator/restricted_report\.html\n',
        done.stderr,
    )
    assert plain(done.stdout).endswith(f'Corpus and report: {output}')
    assert 'Billing Bills and payments: 1 batch, Delivery: 1 batch' in plain(done.stdout)
    assert (output / 'privacy_report.json').is_file()


@pytest.mark.run
@needs_model
def test_the_corpus_carries_the_declared_words(finished: tuple[pathlib.Path, Done]) -> None:
    output, _ = finished
    rows = parquet.read_table(output / 'data').to_pylist()
    assert {(row['label'], row['label_words']) for row in rows} == {
        ('Billing', 'Bills and payments'), ('Delivery', None)
    }  # fmt: skip
    assert '| `label_words` | string |' in (output / 'README.md').read_text()
    restricted = json.loads((output.parent / 'corpus.curator' / 'restricted_report.json').read_text())
    assert [one['restricted_words'] for one in restricted['true_counts_by_group']] == [
        'Bills and payments', None
    ]  # fmt: skip


@pytest.mark.first
@pytest.mark.run
@needs_model
def test_the_screen_of_a_run_quotes_no_record(
    demo: pathlib.Path, finished: tuple[pathlib.Path, Done]
) -> None:
    output, done = finished
    released = [(output / name).read_text() for name in ('privacy_report.json', 'privacy_report.html')]
    shown = done.stdout + done.stderr + ''.join(released) + (output / 'README.md').read_text()
    rows = [json.loads(line) for line in demo.read_text().splitlines()]
    for row in rows:
        words = row['text'].split()
        assert row['id'] not in shown
        assert all(' '.join(words[start : start + 4]) not in shown for start in range(len(words) - 3))


@pytest.mark.run
@needs_model
def test_report_in_its_forms(tmp_path: pathlib.Path, finished: tuple[pathlib.Path, Done]) -> None:
    output, done = finished
    as_json = in_this_process('report', str(output), '--json')
    assert as_json.stdout == (output / 'privacy_report.json').read_text() and as_json.stderr == ''
    found = PrivacyReport.from_json(as_json.stdout)
    assert found.run_id == 'shown' and found.corpus.private_tokens == 16

    assert in_this_process('report', str(output)).stdout == done.stdout

    page = in_this_process('report', str(output), '--html', '-')
    assert page.stdout.rstrip() == (output / 'privacy_report.html').read_text().rstrip()
    assert in_this_process('report', str(output), '--html', str(tmp_path / 'page.html')).stdout == ''
    assert (tmp_path / 'page.html').read_text() == (output / 'privacy_report.html').read_text()


@pytest.mark.run
@needs_model
def test_the_same_command_again_prints_one_object(
    demo: pathlib.Path, finished: tuple[pathlib.Path, Done]
) -> None:
    output, _ = finished
    before = (output / 'privacy_report.json').read_text()
    done = in_this_process('generate', '--json', '--input', str(demo), '--output', str(output), *SMALL)
    assert (done.returncode, done.stderr) == (0, '')
    assert one_object(done.stdout) == json.loads(before)


@pytest.mark.run
@needs_model
def test_quiet_prints_nothing(demo: pathlib.Path, finished: tuple[pathlib.Path, Done]) -> None:
    output, _ = finished
    done = in_this_process('generate', '--quiet', '--input', str(demo), '--output', str(output), *SMALL)
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')


@pytest.mark.first
@pytest.mark.run
@needs_model
def test_a_run_that_fails_ends_with_1(tmp_path: pathlib.Path, demo: pathlib.Path) -> None:
    checkpoint, output = tmp_path / 'broken', tmp_path / 'out'
    # Its metadata are right: that a weight is damaged shows when it is read.
    shutil.copytree(BUNDLED / 'checkpoint', checkpoint)
    weights = max((checkpoint / 'ocdbt.process_0' / 'd').iterdir(), key=lambda path: path.stat().st_size)
    weights.write_bytes(bytes(weights.stat().st_size))
    command = (
        'generate', '--input', str(demo), '--output', str(output), '--checkpoint', str(checkpoint), '--json'
    )  # fmt: skip
    done = in_this_process(*command, *SMALL)
    assert done.returncode == 1
    found = one_object(done.stdout)
    assert found['exit_code'] == 1 and "step='Generate/Decode'" in found['error']
    assert str(checkpoint) in found['error'], 'what is wrong with a model is said'
    assert 'Traceback' not in done.stderr and done.stderr.splitlines()[-1].startswith('Error: Expected')
    details = (
        output.parent / 'out.curator' / 'errors' / re.findall(r'run\.\w+\.txt', found['error'])[0]
    ).read_text()
    assert 'Traceback' in details and str(checkpoint) in details


@pytest.mark.run
@needs_model
def test_a_run_is_charged_and_one_past_the_budget_ends_with_3(
    tmp_path: pathlib.Path, demo: pathlib.Path
) -> None:
    where = str(tmp_path / 'ledger.db')
    price = plan_lib.plan_run(
        methods.solve(
            job_config(batches_per_label=1, batch_size=8, aggregate='mean', max_private_tokens=8, delta=1e-3)
        )
    ).rho_total
    assert price is not None
    # Room for one run and a half.
    Ledger.create(where).add_dataset('demo', unit='example', delta=1e-3, rho=1.5 * price)
    charged = ('generate', '--input', str(demo), *SMALL, '--dataset', 'demo', '--ledger', where)
    done = in_this_process(*charged, '--output', str(tmp_path / 'first'))
    assert done.returncode == 0, done.stderr
    account = Ledger.open(where).account('demo')
    assert [(run.run_id, run.rho, run.state) for run in account.runs] == [('shown', price, 'settled')]
    assert re.search(r'Ledger, demo: 1 run for ρ = [\d.]+ of [\d.]+, together ε = [\d.]+', done.stderr)
    released = PrivacyReport.from_json((tmp_path / 'first' / 'privacy_report.json').read_text())
    assert released.ledger == account.entry(account.runs[0])
    assert where not in (tmp_path / 'first' / 'privacy_report.html').read_text()

    again = in_this_process(*charged, '--output', str(tmp_path / 'first'), '--quiet')
    assert (again.returncode, again.stdout, again.stderr) == (0, '', '')

    second = tmp_path / 'second'
    refused = in_this_process(*charged, '--output', str(second), '--run-id', 'second', '--json')
    assert refused.returncode == 3
    found = one_object(refused.stdout)
    assert found['exit_code'] == 3 and 'no token is sampled' in found['error']
    assert not second.exists() and not second.with_name('second.curator').exists()
    assert Ledger.open(where).account('demo').runs == account.runs

    lost = in_this_process(*charged[:-1], f'{where}.lost', '--output', str(second), '--run-id', 'second')
    assert lost.returncode == 1 and 'which is not there' in lost.stderr
    assert not second.exists() and not pathlib.Path(f'{where}.lost').exists()


# --- centers ---------------------------------------------------------------------


@pytest.fixture(scope='module')
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, dict[str, Any]]:
    """A public corpus of its own, the folder of its centres, and what the command said."""
    folder = tmp_path_factory.mktemp('centers')
    rows = demo_records.demo_records(1_500)
    public = folder / 'public.jsonl'
    public.write_text(''.join(json.dumps({'text': row['text']}) + '\n' for row in rows), encoding='utf-8')
    command = ('centers', '--input', str(public), '--output', str(folder / 'fitted'), '--count', '12')
    done = in_this_process(*command, '--json')
    assert (done.returncode, done.stderr) == (0, ''), done.stderr
    assert in_this_process(*command).returncode == 2, 'a folder with centres is not replaced'
    return folder, one_object(done.stdout)


@pytest.mark.first
@pytest.mark.heavy
def test_centers_of_a_public_corpus(fitted: tuple[pathlib.Path, dict[str, Any]]) -> None:
    folder, said = fitted
    found = centers.Centers.read(folder / 'fitted')
    assert (found.count, found.corpus_texts) == (12, 1_500)
    assert (said['count'], said['corpus_fingerprint']) == (12, found.corpus_fingerprint)
    assert said['fingerprint'] == found.fingerprint
    # They come with an embedder of their own, which a run takes.
    clusterer = centers.ClusterSettings(centers=str(folder / 'fitted')).build()
    assert clusterer.embedder.fingerprint != centers.ClusterSettings().load_embedder().fingerprint


def test_centers_read_any_csv(tmp_path: pathlib.Path, fitted: tuple[pathlib.Path, dict[str, Any]]) -> None:
    folder, found = fitted
    rows = [json.loads(line)['text'] for line in (folder / 'public.jsonl').read_text().splitlines()]
    file = tmp_path / 'public.csv'
    # A windows-1252 dash is no UTF-8, and no header line shows a tilde.
    file.write_bytes('\n'.join(['id~text', *(f'1~{text} –' for text in rows)]).encode('windows-1252'))
    arguments = ('centers', '--input', str(file), '--count', '5', '--output', str(tmp_path / 'made'))
    assert "missing=['text']" in in_this_process(*arguments).stderr
    bad = in_this_process(*arguments, '--delimiter', 'ab')
    assert bad.returncode == 2 and "got delimiter='ab'" in bad.stderr
    done = in_this_process(*arguments, '--delimiter', '~', '--encoding', 'windows-1252', '--json')
    assert done.returncode == 0, done.stderr
    assert one_object(done.stdout)['corpus_texts'] == found['corpus_texts']


def test_an_unforeseen_error_over_private_texts_is_not_quoted() -> None:
    with pytest.raises(RuntimeError, match='error=KeyError') as caught, off_screen.unquoted():
        raise KeyError('Zyxquortle')
    assert 'Zyxquortle' not in ''.join(traceback.format_exception(caught.value))
    with pytest.raises(ValueError, match='what to do'), off_screen.unquoted():
        raise ValueError('what to do')
