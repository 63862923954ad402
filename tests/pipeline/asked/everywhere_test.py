"""The settings that `dp-corpus start` writes, in every command that takes a file of settings."""

import contextlib
import json
import pathlib
import shutil

import pytest

from pipeline.asked import config, narrowed
from pipeline.asked.chosen import chosen
from tests import command_line

METHODS = ('predict', 'tune-refine', 'evolve', 'fine-tune')


pytestmark = pytest.mark.heavy


@pytest.fixture(scope='module', params=METHODS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder of records, and of the settings that `start` wrote for a method, whose name it has."""
    made = tmp_path_factory.mktemp('started') / request.param
    made.mkdir()
    rows = [f'p{n % 12};Note {n}.;{"ab"[n % 2]}\n' for n in range(60)]
    (made / 'notes.csv').write_text('who;note;ward\n' + ''.join(rows))
    with contextlib.chdir(made):
        done = command_line.in_this_process(
            'start', 'notes.csv', '--yes', '--label-field', 'ward', '--labels', 'a,b', '--unit-field', 'who',
            '--records', '5000', '--typical-words', '30', '--epsilon', '2', '--examples', '60',
            '--corpus-description', 'Notes.', '--method', request.param,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def started(folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The method, with a copy of its folder as the working directory."""
    shutil.copytree(folder, tmp_path / 'copy')
    monkeypatch.chdir(tmp_path / 'copy')
    return folder.name


def test_a_plan_and_a_comparison_take_it(started: str) -> None:
    plan = command_line.in_this_process('plan', '--config', 'run.toml', '--json')
    assert json.loads(plan.stdout)['method'] == started
    done = command_line.in_this_process('plan', '--compare', '--config', 'run.toml', '--json')
    assert done.returncode == 0, done.stderr
    compared = {each['method']: each for each in json.loads(done.stdout)['methods']}
    assert compared.keys() == set(METHODS)
    # Everything that is of one method alone follows anew for another.
    assert [each['why_not'] for each in compared.values()] == [None] * 4
    of_plan = json.loads(plan.stdout)
    assert compared[started]['epsilon'] == pytest.approx(of_plan['epsilon'])


@pytest.mark.parametrize('method', METHODS)
def test_a_run_of_another_method_takes_what_it_has(
    started: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every method has the settings that it would have if `start` had named it, but for the embedder."""
    del started
    run, why = chosen('run.toml', {'method': method})
    answers = {'input': 'notes.csv', 'records': 5000, 'epsilon': 2.0, 'examples': 60, 'typical_words': 30}
    assert answers.items() <= run.settings().items() and why is None
    anew = config.job_config(
        **answers, method=method, unit='user', unit_field='who', text_field='note', label_field='ward',
        labels=('a', 'b'), corpus_description='Notes.', text_name='Note', label_name='Ward',
        output='notes-synthetic', model=run.settings()['model'], delimiter=';',
    )  # fmt: skip
    named = {name: value for name, value in run.settings().items() if name != 'embedder'}
    assert named == {name: value for name, value in anew.settings().items() if name != 'embedder'}
    assert all(record.message.startswith('WARNING: run.toml stays as it is; ') for record in caplog.records)


def test_a_flag_of_another_method_is_refused_beside_it(started: str) -> None:
    wrong = {
        'predict': 'vote_share',
        'tune-refine': 'clip_bound',
        'evolve': 'clip_bound',
        'fine-tune': 'rounds',
    }
    with pytest.raises(ValueError, match=f'Expected no {wrong[started]} with method={started!r}'):
        chosen('run.toml', {wrong[started]: 0.5})


def test_training_alone_and_a_split_take_it(started: str) -> None:
    assert narrowed.training('run.toml', {}).settings()['examples_per_label'] == 0
    done = command_line.in_this_process('split', '--config', 'run.toml', '--output', 'sets', '--json')
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made['records'] + made['test'] == 60 and made['without_unit'] == 0
    sides = [
        {
            json.loads(line)['who']
            for line in pathlib.Path(f'sets/{side}/notes.jsonl').read_text().splitlines()
        }
        for side in ('records', 'test')
    ]
    assert not sides[0] & sides[1] and len(sides[0] | sides[1]) == 12
    # The file now names the part for the run, and every other line stays.
    run, _ = chosen('run.toml', {})
    assert run.input.input == 'sets/records/*.jsonl' and run.method.name == started
    assert 'delimiter' not in pathlib.Path('run.toml').read_text()
    assert '# Declared, never read from the records.' in pathlib.Path('run.toml').read_text()
    again = command_line.in_this_process('split', '--config', 'run.toml')
    assert again.returncode == 2 and 'The other part is set aside already' in ' '.join(again.stderr.split())
    refused = command_line.in_this_process('split', '--output', 'more')
    assert refused.returncode == 2 and 'Give --input FILES, or a --config that has it.' in refused.stderr
