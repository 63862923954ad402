"""Files that people met, as they reported them, through `check`, `start` and a run."""

import json
import pathlib
import tomllib
from collections.abc import Iterator

import pytest

from tests.command_line import Done, in_this_process
from tests.one_model import one_model
from tests.samples import needs_model
from transforms import run_files

CASES = pathlib.Path(__file__).parents[3] / 'shared' / 'cases'
LABELLED = ('--label-field', 'label', '--labels', 'a')


def case(name: str) -> str:
    """The path of a file of a case."""
    path = CASES / name
    if not path.exists():
        pytest.skip(f'the case is not there: {path}')
    return str(path)


def checked(name: str, *flags: str) -> dict:
    done = in_this_process('check', '--json', '--input', case(name), '--records', '40', *flags)
    # 2 where no row is a record.
    assert done.returncode == 2 * (not json.loads(done.stdout)['records']), done.stderr
    return json.loads(done.stdout)


READ: dict[tuple[str, ...], int] = {
    ('07-sep-line/s.csv', *LABELLED): 40,
    ('09-cp1252/c.csv', *LABELLED, '--encoding', 'windows-1252'): 40,
    ('11-backslash/e.csv', *LABELLED, '--quoting', 'backslash'): 40,
    # A backslash at the end of a quoted text, by RFC 4180.
    ('11-backslash/e2.csv', '--label-field', 'label', '--labels', 'a,b'): 40,
    ('15-jsonl/utf16.jsonl', '--encoding', 'utf-16'): 40,
    ('15-jsonl/utf16.jsonl',): 40,
    ('16-tsv-no-quoting/one.tsv.csv', '--quoting', 'none'): 40,
    ('16-tsv-no-quoting/two.csv', '--quoting', 'none'): 40,
    ('16-tsv-no-quoting/three.csv', '--quoting', 'none'): 40,
    ('16-tsv-no-quoting/one.tsv.csv',): 39,
    ('16-tsv-no-quoting/two.csv',): 39,
    ('16-tsv-no-quoting/three.csv',): 25,
}


@pytest.mark.parametrize('line', READ)
def test_the_records_of_each_case(line: tuple[str, ...]) -> None:
    found = checked(*line)
    rejected = 1 if READ[line] == 39 else 0
    assert (found['records'], sum(found['rejected'].values())) == (READ[line], rejected)
    assert found['continued_lines'] == (15 if READ[line] == 25 else 0)


@pytest.mark.parametrize(
    ('name', 'flags', 'said'),
    [
        ('09-cp1252/c.csv', LABELLED, 'Give --encoding windows-1252'),
        ('11-backslash/e.csv', LABELLED, 'give --quoting backslash'),
        ('16-tsv-no-quoting/one.tsv.csv', (), 'Rows rejected because of a quote: 1.'),
        ('16-tsv-no-quoting/one.tsv.csv', (), 'give --quoting none'),
        ('16-tsv-no-quoting/two.csv', (), 'give --quoting none'),
        ('16-tsv-no-quoting/three.csv', (), 'part of one value: 15. Of these look like rows: 15.'),
        ('16-tsv-no-quoting/three.csv', (), 'give --quoting none'),
    ],
)
def test_what_to_give_is_said(name: str, flags: tuple[str, ...], said: str) -> None:
    findings = checked(name, *flags)['findings']
    assert any(said in finding for finding in findings), findings
    assert not any('--keep-rejected' in finding for finding in findings), 'no run that pays'


@pytest.mark.parametrize(
    ('name', 'flags', 'setting'),
    [
        ('15-jsonl/utf16.jsonl', ('--delimiter', ';'), "delimiter=';'"),
        ('15-jsonl/utf16.jsonl', ('--quoting', 'none'), "quoting='none'"),
    ],
)
def test_a_flag_of_csv_is_refused_for_json(name: str, flags: tuple[str, ...], setting: str) -> None:
    done = in_this_process('check', '--input', case(name), '--records', '40', *flags)
    assert (
        done.returncode == 2
        and f'Expected {setting.partition("=")[0]} with CSV files, got {setting}' in done.stderr
    )


def started(name: str, folder: pathlib.Path, *flags: str) -> Done:
    given = ('--yes', '--no-label', '--records', '40', '--typical-words', '12', '--epsilon', '3')
    return in_this_process('start', case(name), *given, *flags, '--output', str(folder / 'run.toml'))


@pytest.mark.first
@pytest.mark.heavy
@needs_model
@pytest.mark.parametrize('name', ['08-header-newline/h.csv', '08-header-newline/h2.csv'])
def test_a_header_with_a_line_feed_in_a_name(name: str, tmp_path: pathlib.Path) -> None:
    done = started(name, tmp_path)
    assert done.returncode == 2 and 'Expected --text-field with yes=True' in done.stderr
    done = started(name, tmp_path, '--text-field', 'note\ntext')
    assert done.returncode == 0, done.stderr
    settings = tomllib.loads((tmp_path / 'run.toml').read_text())
    assert settings['text_field'] == 'note\ntext'
    done = in_this_process('check', '--json', '--config', str(tmp_path / 'run.toml'))
    found = json.loads(done.stdout)
    assert (found['records'], found['rejected']) == (40, {})


# --- Check and a run count alike ----------------------------------------------------

TWINS: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    'declared': ('a.csv', 'sep=\t\r\ntext\tlabel\r\n"x"\ta\r\ny\ta\r\n'.encode('utf-16'), ()),
    'line feed in a name': ('a.csv', b'"label";"the\r\nname";text\r\na;1;x\r\na;2;"y\nz"\r\n', ()),
    'carriage returns': ('a.csv', b'text;label\rx;a\r"y\nz";a\r"open;a\r', ()),
    'latin': ('a.csv', 'text,label\ncafé,a\n'.encode('latin-1'), ()),
    'latin, given': ('a.csv', 'text,label\ncafé,a\n'.encode('latin-1'), ('--encoding', 'iso-8859-1')),
    'stray quotes': ('a.tsv', b'text\tlabel\n"x\ta\ny\ta\nz"\ta\n"w\ta\n', ()),
    'no quotes': ('a.tsv', b'text\tlabel\n"x\ta\ny\ta\nz"\ta\n"w\ta\n', ('--quoting', 'none')),
    'backslashes': ('a.csv', b'text,label\n"a \\"b\\", c",a\n"\\\\",a\n', ('--quoting', 'backslash')),
    'lines of JSON': (
        'a.ndjson',
        '{"text": "x", "label": "a"}\n'.encode('utf-16-le'),
        ('--encoding', 'utf-16'),
    ),
    'empty fields': ('a.csv', b'text,label,\nx,a,,,\ny,a\n', ()),
}
COUNTS = {
    'declared': (2, 0), 'line feed in a name': (2, 0), 'carriage returns': (2, 1), 'latin': (0, 1),
    'latin, given': (1, 0), 'stray quotes': (1, 1), 'no quotes': (4, 0), 'backslashes': (2, 0),
    'lines of JSON': (1, 0), 'empty fields': (2, 0),
}  # fmt: skip
GENERATE = (
    '--records', '40', '--delta', '1e-2', '--batches-per-label', '1', '--batch-size', '8',
    '--aggregate', 'mean', '--max-private-tokens', '2', '--max-prompt-tokens', '64',
    '--max-example-tokens', '2', '--shards', '1',
)  # fmt: skip


@pytest.fixture(scope='module')
def _one_model() -> Iterator[None]:
    with one_model():
        yield


@needs_model
@pytest.mark.run
@pytest.mark.usefixtures('_one_model')
@pytest.mark.parametrize('kind', TWINS)
def test_a_check_and_a_run_count_alike(kind: str, tmp_path: pathlib.Path) -> None:
    name, data, flags = TWINS[kind]
    (tmp_path / name).write_bytes(data)
    given = ('--input', str(tmp_path / name), *LABELLED, *flags)
    found = json.loads(in_this_process('check', '--json', *given, '--records', '40').stdout)
    done = in_this_process('generate', *given, *GENERATE, '--output', str(tmp_path / 'out'))
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / 'out.curator' / run_files.RESTRICTED_REPORT).read_text())
    assert (found['records'], sum(found['rejected'].values())) == COUNTS[kind]
    rejected = sum(kept['rejected_by_reason'].values())
    assert (kept['records_read'] - rejected, rejected) == COUNTS[kind]
