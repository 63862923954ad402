"""A folder that will be published, named in some way that hides what lies in it: links, dots, a default.

Whoever publishes it would publish the run's key with it. So places are compared where their links lead.
"""

import contextlib
import json
import os
import pathlib
import sqlite3
from collections.abc import Callable, Sequence

import pytest

from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.release import apart
from pipeline.run import folders
from pipeline.settings.job_config import JobConfig
from pipeline.settings.output import Output
from tests.command_line import in_this_process
from tests.samples import write_rows
from transforms.run_files import BATCHES_FOLDER, RUN

ROWS = [{'text': f'text {number}', 'id': str(number)} for number in range(20)]


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder of all relative paths here: `pub` is published, and every `*_link` leads into it."""
    monkeypatch.chdir(tmp_path)
    for name in ('pub', 'elsewhere', 'pub/deeper'):
        pathlib.Path(name).mkdir()
    for link, to in {
        'pub_link': 'pub', 'deeper_link': 'pub/deeper', 'nothing_link': 'pub/nothing/yet',
        'elsewhere/up_link': '../pub', 'new_link': 'new', 'link_link': 'elsewhere/up_link',
    }.items():  # fmt: skip
        pathlib.Path(link).symlink_to(to)
    write_rows(tmp_path / 'in.jsonl', ROWS)
    return tmp_path


# Output, and the place that it may not hold.
INSIDE = [
    ('pub', 'pub'), ('pub/', 'pub/work'), ('pub_link', 'pub/work'), ('pub', 'pub_link/work'),
    ('pub_link', 'elsewhere/up_link/a/b'), ('link_link', 'pub_link/work'), ('pub', 'deeper_link'),
    ('pub', 'nothing_link'), ('pub', 'elsewhere/../pub/work'), ('pub/deeper/..', 'pub/work'),
    ('elsewhere/up_link/.', './pub/work'), ('new_link', 'new/work'), ('new', 'new_link/work'),
    # The other way round: a folder of the curator's is not published in parts.
    ('pub/deeper', 'pub'), ('deeper_link', 'pub_link'),
]  # fmt: skip
OUTSIDE = [
    ('pub', 'pub.curator'), ('pub', 'pub2/work'), ('pub', 'pub/../work'), ('pub_link', 'work'),
    ('pub/deeper', 'pub/other'), ('new', 'new_link.curator'), ('pub', 'elsewhere'),
]  # fmt: skip


@pytest.mark.parametrize(('output', 'place'), INSIDE)
def test_a_work_directory_in_the_output_is_refused_wherever_the_link_is(output: str, place: str) -> None:
    with pytest.raises(ValueError, match='Expected work_dir outside the output, .* holds the key'):
        Output(output=output, work_dir=place)


@pytest.mark.parametrize(('output', 'place'), OUTSIDE)
def test_a_work_directory_elsewhere_is_accepted(output: str, place: str) -> None:
    assert Output(output=output, work_dir=place).curator == place


@pytest.mark.parametrize('output', ['.', 'pub/.', 'pub/..', 'gs://bucket/pub/.'])
def test_the_default_is_compared_as_well(output: str) -> None:
    """Beside `.` would be `..curator`, which is a folder below."""
    with pytest.raises(ValueError, match='outside the output'):
        Output(output=output)


def test_an_object_store_is_compared_by_its_texts() -> None:
    with pytest.raises(ValueError, match='outside the output'):
        Output(output='gs://bucket/pub/', work_dir='gs://bucket/pub/work')
    Output(output='gs://bucket/pub', work_dir='gs://bucket/pub.curator')
    Output(output='gs://bucket/pub', work_dir='pub')


def test_texts_alone_would_let_a_link_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: what is compared without following links accepts most of these."""
    monkeypatch.setattr(os.path, 'realpath', os.path.abspath)
    monkeypatch.setattr(pathlib.Path, 'samefile', lambda *_: False)
    missed = [pair for pair in INSIDE if not apart.lies_in(*reversed(pair))]
    assert {('pub_link', 'pub/work'), ('pub', 'deeper_link'), ('new_link', 'new/work')} <= set(missed)


def test_a_folder_under_another_name_without_a_link_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a second mount, or where a disk takes `Pub` for `pub`: the system says that they are one."""
    assert not apart.lies_in('elsewhere/work', 'pub')
    one = {'pub', 'elsewhere'}
    monkeypatch.setattr(
        pathlib.Path, 'samefile', lambda self, other: {self.name, pathlib.Path(other).name} <= one
    )
    assert apart.lies_in('elsewhere/work', 'pub')


# --- A run -----------------------------------------------------------------------


def a_run(**changed: object) -> JobConfig:
    given = {
        'input': 'in.jsonl', 'output': 'out', 'work_dir': 'work', 'records': 20, 'delta': 1e-2,
        'epsilon': 10.0, 'record_id_field': 'id', 'batches_per_label': 1,
    }  # fmt: skip
    return job_config(**(given | changed))


def a_corpus(place: pathlib.Path) -> None:
    place.mkdir()
    (place / 'privacy_report.json').write_text('{}')


def records_in_the_output() -> JobConfig:
    pathlib.Path('in.jsonl').rename('pub/in.jsonl')
    return a_run(input='pub/in.jsonl', output='pub_link')


def records_by_a_link() -> JobConfig:
    pathlib.Path('in.jsonl').rename('pub/in.jsonl')
    pathlib.Path('records').mkdir()
    pathlib.Path('records', 'of Ms Zyxquortle.jsonl').symlink_to('../pub/in.jsonl')
    return a_run(input='records/*', output='pub')


def database_in_the_output() -> JobConfig:
    with contextlib.closing(sqlite3.connect('pub/records.db')) as database, database:
        database.execute('CREATE TABLE notes (id TEXT, text TEXT)')
        database.executemany('INSERT INTO notes VALUES (:id, :text)', ROWS)
    return a_run(input='sqlite:///pub/records.db', query='SELECT id, text FROM notes', output='pub_link')


def ledger_in_the_output() -> JobConfig:
    return a_run(output='pub_link', dataset='mail', ledger='pub/ledger.db')


def compiled_programs_in_the_output() -> JobConfig:
    return a_run(output='pub_link', compilation_cache='pub/compiled')


def batches_by_a_link() -> JobConfig:
    """A work directory of this run, part of which somebody has moved."""
    run = a_run(output='pub')
    pathlib.Path('work').mkdir()
    pathlib.Path('work', BATCHES_FOLDER).symlink_to('../pub/deeper')
    return run


def work_directory_in_another_corpus() -> JobConfig:
    a_corpus(pathlib.Path('released'))
    pathlib.Path('released_link').symlink_to('released')
    return a_run(work_dir='released_link/a/work')


@pytest.mark.parametrize(
    ('made', 'said'),
    [
        (records_in_the_output, 'input outside the output, .* holds the records'),
        (records_by_a_link, 'input outside the output'),
        (database_in_the_output, 'input outside the output'),
        (ledger_in_the_output, 'ledger outside the output'),
        (compiled_programs_in_the_output, 'compilation_cache outside the output'),
        (batches_by_a_link, 'work_dir outside the output'),
        (work_directory_in_another_corpus, 'a folder without a corpus'),
    ],
)
def test_a_run_is_refused_before_it_writes(
    folder: pathlib.Path, made: Callable[[], JobConfig], said: str
) -> None:
    run = made()
    before = sorted(folder.rglob('*'))
    with pytest.raises(ValueError, match=said) as caught:
        folders.prepare(methods.solve(run, launch=True))
    assert 'Zyxquortle' not in str(caught.value)
    assert sorted(folder.rglob('*')) == before


def test_a_run_beside_them_is_prepared(folder: pathlib.Path) -> None:
    (folder / 'new').mkdir()
    folders.prepare(methods.solve(a_run(output='new_link', work_dir='elsewhere/work'), launch=True))
    assert (folder / 'elsewhere' / 'work' / RUN).exists() and (folder / 'new' / 'data').is_dir()


# --- Every command that has two folders -------------------------------------------

VOTES = ('--input', 'in.jsonl', '--records', '20', '--epsilon', '10', '--delta', '1e-2')
LINKED = ('--output', 'pub_link', '--work-dir', 'pub/work')
COMMANDS: dict[str, Sequence[str]] = {
    **{f'generate {name}': ('generate', '--method', name, *VOTES) for name in methods.METHODS},
    'fine-tune': ('fine-tune', *VOTES),
    'refine': ('refine', 'in.jsonl', *VOTES, '--keep', '5'),
    'plan': ('plan', *VOTES),
}
COMMANDS['generate refine'] = (*COMMANDS['generate refine'], '--corpus', 'in.jsonl')


@pytest.mark.parametrize('name', COMMANDS)
def test_every_command_with_a_work_directory_refuses_it(folder: pathlib.Path, name: str) -> None:
    before = sorted(folder.rglob('*'))
    done = in_this_process(*COMMANDS[name], *LINKED)
    assert (done.returncode, done.stdout) == (2, '')
    assert 'outside the output' in done.stderr
    assert sorted(folder.rglob('*')) == before


@pytest.mark.parametrize(
    'command',
    [
        ('split', '--input', 'in.jsonl', '--output', 'released_link/deeper/sets'),
        ('evaluate', 'in.jsonl', '--output', 'released_link/evaluation'),
        ('audit', 'canaries', *VOTES[2:], '--method', 'evolve', '--result', 'released_link/audit.json'),
        ('ledger', 'export', '--restricted', '--ledger', 'budget.db', '--output', 'released_link/all.json'),
    ],
    ids=lambda command: command[0],
)
def test_what_is_for_the_curator_goes_into_no_corpus(folder: pathlib.Path, command: Sequence[str]) -> None:
    a_corpus(folder / 'released')
    (folder / 'released' / 'deeper').mkdir()
    (folder / 'released_link').symlink_to('released')
    known = ('--unit', 'example', '--delta', '1e-3', '--epsilon', '1', '--ledger', 'budget.db')
    assert in_this_process('ledger', 'add', 'mail', *known).returncode == 0
    before = sorted(folder.rglob('*'))
    done = in_this_process(*command)
    assert (done.returncode, done.stdout) == (2, ''), done.stderr
    assert 'without a corpus' in done.stderr
    assert sorted(folder.rglob('*')) == before


def test_a_restricted_export_is_its_owners_alone(folder: pathlib.Path) -> None:
    known = ('--unit', 'example', '--delta', '1e-3', '--epsilon', '1', '--ledger', 'budget.db')
    assert in_this_process('ledger', 'add', 'mail', *known).returncode == 0
    export = ('ledger', 'export', '--restricted', '--ledger', 'budget.db', '--output', 'all.json')
    assert in_this_process(*export).returncode == 0
    path = folder / 'all.json'
    assert path.stat().st_mode & 0o777 == 0o600 and json.loads(path.read_text())['audience']
    assert in_this_process(*export).returncode == 2  # it is there
