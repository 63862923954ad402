"""Every documented kind of input through every command that reads one, from its files to the report."""

import bz2
import csv
import gzip
import io
import json
import pathlib
import sqlite3
import unicodedata
from collections.abc import Callable, Iterator

import datasets
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.command_line import in_this_process
from tests.one_model import one_model
from tests.samples import needs_model, write_rows
from transforms import run_files

pytestmark = pytest.mark.run

WORDS = {'pos': ('good', 'fine', 'kind', 'warm', 'glad'), 'neg': ('bad', 'rude', 'cold', 'late', 'dear')}
ROWS = [
    {'text': f'{words[number]} {words[(number + 2) % 5]} stay', 'label': label, 'id': f'{label}-{number}'}
    for number in range(5)
    for label, words in WORDS.items()
]
LABELLED = ('--label-field', 'label', '--labels', 'pos,neg', '--record-id-field', 'id')


def table(rows: list[dict[str, str]] = ROWS, delimiter: str = ',', header: bool = True) -> bytes:
    out = io.StringIO(newline='')
    writer = csv.DictWriter(out, list(ROWS[0]), delimiter=delimiter)
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def lines(rows: list[dict[str, str]] = ROWS) -> bytes:
    return b''.join(json.dumps(row).encode() + b'\n' for row in rows)


def file(name: str, data: bytes) -> Callable[[pathlib.Path], tuple[str, ...]]:
    def write(folder: pathlib.Path) -> tuple[str, ...]:
        (folder / name).write_bytes(data)
        return ('--input', str(folder / name), *LABELLED)

    return write


def parquet(folder: pathlib.Path) -> tuple[str, ...]:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / 'in.parquet', row_group_size=4)
    return ('--input', str(folder / 'in.parquet'), *LABELLED)


def workbook(folder: pathlib.Path) -> tuple[str, ...]:
    book = openpyxl.Workbook()
    for row in ([*ROWS[0]], *([*row.values()] for row in ROWS)):
        book.active.append(row)
    book.save(folder / 'in.xlsx')
    return ('--input', str(folder / 'in.xlsx'), *LABELLED)


def texts(folder: pathlib.Path) -> tuple[str, ...]:
    for row in ROWS:
        path = folder / 'g' / row['label'] / f'{row["id"]}.txt'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(row['text'] + '\n')
    return ('--input', str(folder / 'g'), *LABELLED)


def database(folder: pathlib.Path) -> tuple[str, ...]:
    with sqlite3.connect(folder / 'notes.db') as connection:
        connection.execute('CREATE TABLE notes (text, label, id)')
        connection.executemany('INSERT INTO notes VALUES (:text, :label, :id)', ROWS)
    connection.close()
    query = ('--query', 'SELECT text, label, id FROM notes', '--partition-column', 'id')
    return ('--input', f'sqlite:///{folder}/notes.db', *query, *LABELLED)


def data_set(folder: pathlib.Path) -> tuple[str, ...]:
    saved = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict(train=saved, test=saved.select(range(2))).save_to_disk(str(folder / 'saved'))
    return ('--input', f'hf://{folder}/saved', '--split', 'train', *LABELLED)


def glob(folder: pathlib.Path) -> tuple[str, ...]:
    for place in range(2):
        write_rows(folder / f'part-{place}.jsonl', ROWS[place::2])
    return ('--input', f'{folder}/part-*.jsonl', *LABELLED)


def nested(folder: pathlib.Path) -> tuple[str, ...]:
    (folder / 'a, b' / 'c').mkdir(parents=True)
    for place, name in enumerate(('1.jsonl', 'c/2.jsonl')):
        write_rows(folder / 'a, b' / name, ROWS[place::2])
    return ('--input', f'{folder}/a, b/**/*.jsonl', *LABELLED)


def decomposed(folder: pathlib.Path) -> tuple[str, ...]:
    write_rows(folder / unicodedata.normalize('NFD', 'é.jsonl'), ROWS)
    return ('--input', str(folder / 'é.jsonl'), *LABELLED)


def several(folder: pathlib.Path) -> tuple[str, ...]:
    (folder / 'a.csv').write_bytes(table(ROWS[:4]))
    write_rows(folder / 'b.jsonl', ROWS[4:])
    return ('--input', f'{folder}/a.csv, file://{folder}/b.jsonl', *LABELLED)


def many_names(folder: pathlib.Path) -> tuple[str, ...]:
    write_rows(folder / 'in.jsonl', ROWS)
    (folder / 'link.jsonl').symlink_to('in.jsonl')
    (folder / 'hard.jsonl').hardlink_to(folder / 'in.jsonl')
    names = ('in.jsonl', '[hil]*.jsonl', './in.jsonl', f'../{folder.name}/link.jsonl', '/hard.jsonl')
    return ('--input', ','.join(f'{folder}/{name}' for name in names), *LABELLED)


def headless(folder: pathlib.Path) -> tuple[str, ...]:
    (folder / 'in.csv').write_bytes(table(header=False))
    by_place = ('--text-field', '0', '--label-field', '1', '--labels', 'pos,neg', '--record-id-field', '2')
    return ('--input', str(folder / 'in.csv'), *by_place)


KINDS: dict[str, Callable[[pathlib.Path], tuple[str, ...]]] = {
    'csv': file('in.csv', table()),
    'tsv': file('in.csv', table(delimiter='\t')),
    'csv of positions': headless,
    'csv.gz': file('in.csv.gz', gzip.compress(table())),
    'csv.bz2': file('in.csv.bz2', bz2.compress(table())),
    'jsonl': file('in.jsonl', lines()),
    'jsonl.zst': file('in.jsonl.zst', zstandard.ZstdCompressor().compress(lines())),
    'json array': file('in.json', json.dumps(ROWS).encode()),
    'parquet': parquet,
    'xlsx': workbook,
    'folder of texts': texts,
    'database': database,
    'data set': data_set,
    'a name of what lists and globs are made of': file('notes {1},2 [3]*?.csv', table()),
    'accents of two characters': decomposed,
    'glob': glob,
    'glob of all folders': nested,
    'several files': several,
    'one file by many names': many_names,
}
BUDGET = ('--records', '20', '--delta', '1e-2')
GENERATE = (
    *BUDGET, '--batches-per-label', '1', '--batch-size', '8', '--aggregate', 'mean',
    '--max-private-tokens', '4', '--max-prompt-tokens', '64', '--max-example-tokens', '4', '--shards', '1',
)  # fmt: skip
REFINE = (*BUDGET, '--epsilon', '20', '--keep', '4', '--embedder', 'tfidf', '--nearest', '1', '--shards', '1')


@pytest.fixture(scope='module', autouse=True)
def _one_model() -> Iterator[None]:
    with one_model():
        yield


def arguments(command: str, folder: pathlib.Path, given: tuple[str, ...]) -> tuple[str, ...]:
    """A whole command line."""
    output = ('--output', str(folder / 'out'))
    if command == 'refine':
        write_rows(
            folder / 'corpus.jsonl', ({'text': f'{a} {b}'} for a, b in zip(*WORDS.values(), strict=True))
        )
        # The texts to vote on have a column of the same name as the records.
        headless = [part for place, part in enumerate(given) if '--text-field' in (part, given[place - 1])]
        if headless:
            (folder / 'corpus.csv').write_text('good bad,x,1\nfine rude,x,2\n')
        return ('refine', str(folder / f'corpus.{"csv" if headless else "jsonl"}'), *given, *REFINE, *output)
    return {
        'check': ('check', '--json', *given, *BUDGET),
        'plan': ('plan', *given, *GENERATE),
        'generate': ('generate', *given, *GENERATE, *output),
    }[command]


@needs_model
@pytest.mark.parametrize('command', ['check', 'generate', 'refine'])
@pytest.mark.parametrize('kind', KINDS)
def test_every_kind_of_input_goes_through_every_command(
    kind: str, command: str, tmp_path: pathlib.Path
) -> None:
    done = in_this_process(*arguments(command, tmp_path, KINDS[kind](tmp_path)))
    assert done.returncode == 0, done.stdout + done.stderr
    if command == 'check':
        found = json.loads(done.stdout)
        assert (found['records'], found['rejected'], found['undeclared']) == (len(ROWS), {}, 0)
        assert {each['label']: each['records'] for each in found['labels']} == {'pos': 5, 'neg': 5}
    else:
        kept = json.loads((tmp_path / 'out.curator' / run_files.RESTRICTED_REPORT).read_text())
        assert (kept['records_read'], kept['rejected_by_reason']) == (len(ROWS), {})
        assert json.loads((tmp_path / 'out' / run_files.REPORT).read_text())['corpus']['examples'] > 0


@pytest.mark.first
@needs_model
def test_a_run_knows_its_folder_of_texts(tmp_path: pathlib.Path) -> None:
    """By names and contents: the same one again changes nothing, and another one is refused."""
    line = arguments('refine', tmp_path, texts(tmp_path))
    first, again = in_this_process(*line), in_this_process(*line)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    text = tmp_path / 'g' / 'pos' / 'pos-1.txt'
    text.rename(text.with_name('pos-9.txt'))
    done = in_this_process(*line)
    assert done.returncode == 2 and "changed=['input']" in done.stderr and 'pos-9' not in done.stderr


CASES = pathlib.Path(__file__).parents[3] / 'shared' / 'cases'


@needs_model
@pytest.mark.skipif(not CASES.is_dir(), reason='files of shared/cases are not here')
@pytest.mark.parametrize(
    'name',
    [
        '14-glob-names/notes 1,2.csv', '14-glob-names/notes{a,b}.csv', '14-glob-names/notes [2024].csv',
        '14-glob-names/n{ab}*?.csv', '15-jsonl/array.json', '15-jsonl/crlf.jsonl', '15-jsonl/u2028.jsonl',
        '15-jsonl/mixed.jsonl',
    ],
)  # fmt: skip
def test_check_and_generate_count_the_same_records_of_a_case(name: str, tmp_path: pathlib.Path) -> None:
    given = ('--input', str(CASES / name))
    checked = in_this_process('check', '--json', *given, '--records', '40')
    assert checked.returncode == 0 and json.loads(checked.stdout)['records'] == 40, checked.stderr
    done = in_this_process(*arguments('generate', tmp_path, given))
    assert done.returncode == 0, done.stdout + done.stderr
    kept = json.loads((tmp_path / 'out.curator' / run_files.RESTRICTED_REPORT).read_text())
    assert (kept['records_read'], kept['rejected_by_reason']) == (40, {})


@pytest.mark.skipif(not CASES.is_dir(), reason='files of shared/cases are not here')
@pytest.mark.parametrize('command', ['check', 'generate'])
def test_an_object_over_several_lines_stops_every_command(command: str, tmp_path: pathlib.Path) -> None:
    given = ('--input', str(CASES / '15-jsonl' / 'pretty.json'))
    done = in_this_process(*arguments(command, tmp_path, given))
    assert done.returncode == 2 and 'objects over several lines' in ' '.join(done.stderr.split())
    assert not (tmp_path / 'out').exists()
