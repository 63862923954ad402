"""`dp-corpus start`: at most six answers, no look at a record, and a file that is all that a run needs."""

import contextlib
import json
import pathlib
import shlex
import sqlite3
import tomllib

import datasets
import openpyxl
import pyarrow as pa
import pytest
import typer.testing
from pyarrow import parquet

from models import cache, fetched
from pipeline import main, methods
from pipeline.asked.config import following, read_config
from pipeline.methods import METHODS
from tests.command_line import in_a_process, in_this_process
from tests.one_model import one_model
from transforms import places

pytestmark = pytest.mark.heavy

OF_RECORDS = [name for name, method in METHODS.items() if method.needs_only_records]
ROOT = pathlib.Path(__file__).parents[3]
NUMBERS = ('--records', '5000', '--typical-words', '12')


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A working directory with records, on a machine without weights."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / 'cache'))
    rows = ''.join(f'N{number},Visit {number} of a person,{"AB"[number % 2]}\n' for number in range(20))
    (tmp_path / 'visits.csv').write_text(f'patient,story,ward\n{rows}')
    return tmp_path


def answered(*answers: str, arguments: tuple[str, ...] = ('visits.csv',)) -> typer.testing.Result:
    """The command with these lines typed."""
    runner = typer.testing.CliRunner(env={'COLUMNS': '100'})
    return runner.invoke(main.app, ['start', *arguments], input=''.join(f'{line}\n' for line in answers))


def settings_in(path: str = 'run.toml') -> dict[str, object]:
    return tomllib.loads(pathlib.Path(path).read_text(encoding='utf-8'))


# --- Questions ------------------------------------------------------------------------


def test_six_answers_are_enough_where_nothing_is_obvious() -> None:
    done = answered(
        'story', 'ward: A=Surgery, B', 'patient', 'Stories of visits, one after another.', '3 60',
        '5,000 and 30',
    )  # fmt: skip
    assert done.exit_code == 0, (done.output, done.exception)
    assert [f'\n{number}. ' in done.output for number in range(1, 8)] == [True] * 6 + [False]
    found = settings_in()
    said = {
        'input': 'visits.csv', 'text_field': 'story', 'label_field': 'ward', 'labels': ['A=Surgery', 'B'],
        'unit': 'user', 'unit_field': 'patient', 'records': 5000, 'typical_words': 30, 'epsilon': 3.0,
        'corpus_description': 'Stories of visits, one after another.', 'examples': 60, 'label_name': 'Ward',
        'text_name': 'Story', 'output': 'visits-synthetic',
    }  # fmt: skip
    assert {name: found[name] for name in said} == said
    assert 'no record: a setting that follows from the records would cost' in ' '.join(done.output.split())
    assert 'dp-corpus generate --config run.toml' in done.output and 'Guarantee' in done.output


def test_several_columns_are_attributes(folder: pathlib.Path) -> None:
    (folder / 'moods.csv').write_text('patient,story,ward,mood\nN1,A visit,A,calm\n')
    done = answered(
        'story',
        'ward: A=Surgery, B; Mood: calm, upset',
        'none',
        '',
        '3 60',
        '5,000 30',
        arguments=('moods.csv',),
    )
    assert done.exit_code == 0, (done.output, done.exception)
    found = settings_in()
    labels = ['ward:A=Surgery', 'ward:B', 'mood:calm', 'mood:upset']
    assert (found['attributes'], found['labels']) == (['ward', 'mood'], labels)
    assert 'label_field' not in found and 'label_name' not in found
    assert read_config('run.toml', {}).input.label_values == ('A|calm', 'A|upset', 'B|calm', 'B|upset')
    given = ('moods.csv', '--text-field', 'story', '--attributes', 'ward,mood', '--labels', ','.join(labels),
             '--unit', 'example', '--yes', *NUMBERS, '--output', 'flags.toml')  # fmt: skip
    assert answered(arguments=given).exit_code == 0
    assert settings_in('flags.toml')['attributes'] == ['ward', 'mood']


def test_what_follows_is_not_asked() -> None:
    """A single column is the text, and has neither labels nor people beside it."""
    pathlib.Path('one.csv').write_text('anything\nx\n')
    done = answered('', '', '5000 12', arguments=('one.csv',))
    assert done.exit_code == 0, (done.output, done.exception)
    assert '\n3. ' in done.output and '\n4. ' not in done.output
    assert settings_in()['text_field'] == 'anything'


def test_a_wrong_answer_is_told_and_asked_again() -> None:
    flags = ('visits.csv', '--text-field', 'story', '--corpus-description', 'Stories.', '--epsilon', '3')
    done = answered('nowhere: A', 'ward:', 'ward: A, B', 'none', '50', 'many', '5000 20', arguments=flags)
    assert done.exit_code == 0, (done.output, done.exception)
    assert 'Expected a column of the file' in done.output and 'Expected declared labels' in done.output
    assert 'Expected records and words as positive numbers' in done.output


def test_flags_answer_in_advance_and_nothing_is_asked() -> None:
    done = answered(
        arguments=(
            'visits.csv', '--text-field', 'story', '--no-label', '--unit', 'example', '--corpus-description',
            'Stories.', '--epsilon', '3', '--examples', '40', *NUMBERS, '--output', 'own.toml',
        )
    )  # fmt: skip
    assert done.exit_code == 0, (done.output, done.exception)
    assert '\n1. ' not in done.output
    assert settings_in('own.toml')['examples'] == 40 and 'unit_field' not in settings_in('own.toml')


def test_an_input_that_ends_is_told_with_the_flags() -> None:
    done = answered()
    assert isinstance(done.exception, ValueError) and '--text-field, or --yes' in str(done.exception)
    assert not pathlib.Path('run.toml').exists()


# --- No look at a record --------------------------------------------------------------


def test_other_records_under_the_same_header_give_the_same_file(folder: pathlib.Path) -> None:
    arguments = ('visits.csv', '--yes', '--text-field', 'story', '--label-field', 'ward', '--labels', 'A,B')
    texts = []
    for rows in ('N1,a,A\n', 'N1,' + 'word ' * 5000 + ',A\n' + 'N2,x,C\n' * 3000):
        (folder / 'visits.csv').write_text(f'patient,story,ward\n{rows}')
        done = answered(arguments=(*arguments, '--force', *NUMBERS))
        assert done.exit_code == 0, (done.output, done.exception)
        texts.append((folder / 'run.toml').read_text() + done.output)
    assert texts[0] == texts[1]


def test_no_error_quotes_a_file_without_a_header_line(folder: pathlib.Path) -> None:
    (folder / 'bare.csv').write_text('Zyxquortle came,A\nand went,B\n')
    for more in ((), ('--text-field', 'text'), ('--text-field', '7')):
        done = in_this_process('start', 'bare.csv', '--yes', *NUMBERS, *more)
        assert done.returncode == 2 and 'Zyxquortle' not in done.stdout + done.stderr
    done = in_this_process('start', 'bare.csv', '--yes', *NUMBERS, '--text-field', '0')
    assert done.returncode == 0 and settings_in()['text_field'] == '0'


# --- The file -------------------------------------------------------------------------


@pytest.mark.parametrize('method', OF_RECORDS)
@pytest.mark.parametrize('model', ['bundled', 'gemma3-270m'])
def test_the_file_is_the_config_of_a_run_of_every_method(method: str, model: str) -> None:
    arguments = ('visits.csv', '--yes', '--text-field', 'story', '--label-field', 'ward', '--labels', 'A,B')
    more = ('--method', method, '--model', model, '--examples', '30')
    done = answered(arguments=(*arguments, *NUMBERS, *more))
    assert done.exit_code == 0, (done.output, done.exception)
    config = read_config('run.toml', {})
    assert (config.method.name, config.method.model) == (method, model)
    plan = methods.of(config).plan(methods.solve(config))
    assert plan.epsilon <= 3 and plan.written_texts() >= 24
    # Everything that follows stands there, so nothing more does; a line that is taken out follows anew.
    given = settings_in()
    given['labels'] = tuple(given['labels'])  # type: ignore[arg-type]
    assert following(**given) == {}
    del given['max_example_tokens']
    assert following(**given)['max_example_tokens'].value == config.method.max_example_tokens


def test_the_model_is_the_one_that_is_here_and_the_file_says_how_to_get_another(
    folder: pathlib.Path,
) -> None:
    arguments = ('visits.csv', '--yes', '--force', '--text-field', 'story', *NUMBERS)
    assert answered(arguments=arguments).exit_code == 0
    assert settings_in()['model'] == 'bundled'
    text = ' '.join((folder / 'run.toml').read_text().replace('\n# ', ' ').split())
    assert 'dp-corpus models fetch gemma3-270m' in text
    weights = fetched.fetched_file()
    weights.parent.mkdir(parents=True)
    weights.touch()
    assert answered(arguments=arguments).exit_code == 0
    assert settings_in()['model'] == 'gemma3-270m'


def test_a_file_that_is_there_stays() -> None:
    pathlib.Path('run.toml').write_text('mine = 1\n')
    done = in_this_process('start', 'visits.csv', '--yes', '--text-field', 'story', *NUMBERS)
    assert done.returncode == 2 and 'Give --force' in done.stderr
    assert pathlib.Path('run.toml').read_text() == 'mine = 1\n'


# --- Bad input ------------------------------------------------------------------------

WHOLE = ('visits.csv', '--text-field', 'story', *NUMBERS)
BAD = {
    'no such file': (('nowhere.csv', *WHOLE[1:]), "got none for pattern='nowhere.csv'"),
    'no such column': (('visits.csv', '--text-field', 'nope', *NUMBERS), "without missing=['nope']"),
    'a file of 0 bytes': (('empty.csv', *NUMBERS), 'Expected a file with records, got 1 without any'),
    'a header without names': (('unnamed.csv', *NUMBERS), 'Expected a header that names each column'),
    'no obvious text': (('visits.csv', *NUMBERS), 'Expected --text-field with yes=True'),
    'no numbers': (WHOLE[:3], 'Expected --records and --typical-words with yes=True'),
    'too many texts': ((*WHOLE, '--method', 'predict', '--examples', '90000'), 'Expected examples <= '),
    'a label without labels': ((*WHOLE, '--label-field', 'ward'), 'Expected --labels with yes=True'),
    'empty labels': ((*WHOLE, '--label-field', 'ward', '--labels', ' '), 'Expected declared labels'),
    'a label and none': ((*WHOLE, '--label-field', 'ward', '--no-label'), 'Expected no label with no_label'),
    'a unit and none': ((*WHOLE, '--unit', 'example', '--unit-field', 'patient'), 'Expected no unit_field'),
    'a unit without its column': ((*WHOLE, '--unit', 'user'), 'Expected --unit-field with yes=True'),
    'no such label column': ((*WHOLE, '--label-field', 'x', '--labels', 'a'), "without missing=['x']"),
    'an epsilon that buys nothing': ((*WHOLE, '--epsilon', '0'), 'Expected a method that fits, got none'),
    'no such method': ((*WHOLE, '--method', 'guess'), "'guess' is not one of 'predict'"),
    'no such folder': ((*WHOLE, '--output', 'nowhere/run.toml'), 'Expected a file in a folder that is there'),
    'no such model': ((*WHOLE, '--model', 'huge'), "got model='huge'"),
    'a text of numbers': (
        ('stars.parquet', '--text-field', 'stars', *NUMBERS), 'Expected text in the text column',
    ),
}  # fmt: skip


@pytest.mark.parametrize('case', BAD)
def test_a_bad_request_is_one_line_of_what_and_what_to_do(folder: pathlib.Path, case: str) -> None:
    (folder / 'empty.csv').touch()
    (folder / 'unnamed.csv').write_text('a,,b\n1,2,3\n')
    parquet.write_table(pa.table({'text': ['x'], 'stars': [4.5]}), folder / 'stars.parquet')
    arguments, said = BAD[case]
    done = in_this_process('start', *arguments, '--yes')
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in ' '.join(done.stderr.split()) and 'Traceback' not in done.stderr
    assert not (folder / 'run.toml').exists()


def example_of(message: str) -> list[str]:
    """The words of the command that an error gives, without the program's name."""
    return shlex.split(message.partition(', as in ')[2])[1:]


@pytest.mark.parametrize(
    ('given', 'missing'),
    [
        ((), '--text-field, --records and --typical-words'),
        (('--records', '50', '--label-field', 'ward'), '--text-field, --labels, --typical-words'),
        (('--unit', 'user', '--attributes', 'ward,patient'), '--text-field, --labels, --unit-field'),
        (('--text-field', 'story', '--labels', 'A,B'), '--label-field, --records and --typical-words'),
    ],
)  # fmt: skip
def test_all_that_is_missing_is_said_at_once_with_a_command_that_works(
    given: tuple[str, ...], missing: str
) -> None:
    done = in_this_process('start', 'visits.csv', '--yes', *given)
    said = ' '.join(done.stderr.split())
    assert done.returncode == 2 and f'Expected {missing}' in said and 'Traceback' not in said
    # Names of columns may be a record's: the curator puts them in.
    unsaid = {'patient', 'story', 'ward'} - set(','.join(given).split(','))
    assert not any(name in said for name in unsaid)
    words = example_of(done.stderr)
    assert words[:2] == ['start', 'visits.csv'] and {'--yes', *given} < set(words)
    columns = {'--text-field': 'story', '--unit-field': 'patient', '--label-field': 'ward'}
    words = [columns[before] if word == 'COLUMN' else word for before, word in zip(['', *words], words)]
    done = in_this_process(*words)
    assert done.returncode == 0, done.stderr
    assert pathlib.Path('run.toml').exists()


@pytest.mark.usefixtures('other_places')
@pytest.mark.parametrize('given', [('notes.xlsx',), ('hf://saved',), ('sqlite:///notes.db',)])
def test_what_a_place_lacks_is_said_with_the_rest(given: tuple[str, ...]) -> None:
    done = in_this_process('start', *given, '--yes')
    said = ' '.join(done.stderr.split())
    assert done.returncode == 2 and 'Give --records and --typical-words too.' in said
    assert '--sheet' in said or '--split' in said or '--query' in said
    done = in_this_process('start', *given, '--yes', *NUMBERS)
    assert done.returncode == 2 and 'too.' not in done.stderr


CASE = pathlib.Path(__file__).parents[4] / 'shared' / 'cases' / '15-jsonl'


@pytest.mark.skipif(not CASE.is_dir(), reason='files of shared/cases are not here')
def test_a_file_of_one_object_over_several_lines_is_refused() -> None:
    place = str(CASE / 'pretty.json')
    done = in_this_process('start', place, '--yes', '--text-field', 'text', '--no-label', *NUMBERS)
    assert done.returncode == 2 and 'objects over several lines' in ' '.join(done.stderr.split())
    assert not pathlib.Path('run.toml').exists()


# --- Other places than files ----------------------------------------------------------


@pytest.fixture
def other_places(folder: pathlib.Path) -> None:
    """The same notes in a database, a data set of two splits, a workbook of two sheets, and a folder."""
    with contextlib.closing(sqlite3.connect('notes.db')) as database:
        database.execute('CREATE TABLE notes (id, note, ward)')
        database.execute("INSERT INTO notes VALUES (1, 'Fine.', 'A')")
        database.commit()
    rows = datasets.Dataset.from_dict({'note': ['Fine.'], 'ward': ['A']})
    datasets.DatasetDict(train=rows, test=rows).save_to_disk('saved')
    workbook = openpyxl.Workbook()
    for row in (('note', 'ward'), ('Fine.', 'A')):
        workbook.worksheets[0].append(row)
    workbook.create_sheet('Other').append(['x'])
    workbook.save('notes.xlsx')
    (folder / 'texts' / 'A').mkdir(parents=True)
    (folder / 'texts' / 'A' / '1.txt').write_text('Fine.')


QUERY = 'SELECT id, note, ward\nFROM notes'
# The place, the settings that say which table of it is read, and the columns of text and label.
PLACES = {
    'database': ('sqlite:///notes.db', {'query': QUERY, 'partition_column': 'id'}, ('note', 'ward')),
    'data set': ('hf://saved', {'split': 'train'}, ('note', 'ward')),
    'workbook': ('notes.xlsx', {'sheet': 'Sheet'}, ('note', 'ward')),
    'folder': ('texts', {}, ('text', 'label')),
}


@pytest.mark.usefixtures('other_places')
@pytest.mark.parametrize('kind', PLACES)
def test_the_file_names_a_place_and_which_table_of_it(kind: str) -> None:
    place, table, (text, label) = PLACES[kind]
    flags = [word for name, value in table.items() for word in (f'--{name.replace("_", "-")}', value)]
    given = ('--unit', 'example', '--corpus-description', 'Notes.', '--epsilon', '3', '--examples', '40')
    done = answered(f'{label}: A, B', arguments=(place, *flags, *given, *NUMBERS))
    assert done.exit_code == 0, (done.output, done.exception)
    found = settings_in()
    of_place = {name: found.get(name) for name in ('query', 'partition_column', 'sheet', 'split')}
    assert {name: value for name, value in of_place.items() if value is not None} == table
    assert (found['input'], found['text_field'], found['label_field']) == (place, text, label)
    stem = pathlib.PurePath(place).stem
    assert found['output'] == f'{stem}-synthetic'
    assert read_config('run.toml', {}).input.input == place


@pytest.mark.usefixtures('other_places')
def test_a_password_reaches_neither_file_nor_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.PASSWORD_VARIABLE, 'another')  # so that the test's own is taken back
    # Nobody listens on port 1: the address is shown, without the password.
    place = 'postgresql://ward:s3cret@127.0.0.1:1/notes'
    done = in_this_process('start', place, '--query', QUERY, '--yes', *NUMBERS)
    assert done.returncode != 0 and 'Expected a database that answers' in done.stderr
    assert 's3cret' not in done.stdout + done.stderr


# --- A whole run ----------------------------------------------------------------------


@pytest.mark.first
@pytest.mark.run
def test_three_commands_lead_to_a_corpus(folder: pathlib.Path) -> None:
    """Start, generate, report: with the bundled model, and nothing but the file."""
    arguments = ('--yes', '--text-field', 'story', '--label-field', 'ward', '--labels', 'A=Surgery,B')
    few = ('--records', '40', '--typical-words', '12', '--epsilon', '20', '--examples', '8')
    done = in_this_process('start', 'visits.csv', *arguments, *few, '--method', 'evolve')
    assert done.returncode == 0, done.stderr
    # Settings that take the least time: one round, and an embedder that need not be loaded.
    text = pathlib.Path('run.toml').read_text()
    pathlib.Path('run.toml').write_text(text.replace('"minilm"', '"tfidf"') + 'rounds = 1\n')
    with one_model():
        ran = in_this_process('generate', '--config', 'run.toml', '--', '--direct_num_workers=1')
    assert ran.returncode == 0, ran.stderr
    report = json.loads(in_this_process('report', 'visits-synthetic', '--json').stdout)
    assert report['settings']['examples'] == 8
    table = parquet.read_table(folder / 'visits-synthetic' / 'data')
    assert 1 <= table.num_rows <= 8 and set(table['label'].to_pylist()) <= {'A', 'B'}


@pytest.mark.run
def test_the_command_is_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where this package is
    done = in_a_process('start', '--help', python=('-X', 'importtime'))
    assert done.returncode == 0
    imported = {line.rpartition('|')[2].strip().split('.')[0] for line in done.stderr.splitlines()}
    assert imported.isdisjoint({'jax', 'tensorflow', 'apache_beam', 'gemma', 'pyarrow', 'sklearn'})
