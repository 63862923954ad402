"""The DAG in Airflow itself: `make airflow` installs one, or AIRFLOW_PYTHON names its Python."""

import ast
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from launch.dataflow import profiles
from launch.dataflow.template import template_metadata
from models.privacy.accounting import RunCost
from pipeline.asked.config import all_settings, path_settings, read_config
from pipeline.commands import exit_codes
from pipeline.ledger.ledger import Ledger
from pipeline.methods.predict.settings import EMBEDDERS
from pipeline.run.beam_options import beam_options
from pipeline.settings.prompt import PROMPT_PRESETS

ROOT = pathlib.Path(__file__).parents[3]
FOLDER = ROOT / 'launch' / 'airflow'
INSPECT = pathlib.Path(__file__).with_name('inspect_dag.py')
COMMAND = pathlib.Path(sys.executable).with_name('dp-corpus')
AIRFLOW = pathlib.Path(os.environ.get('AIRFLOW_PYTHON', ROOT / '.airflow' / 'bin' / 'python'))
NIGHT = '2026-11-20T02:00:00+00:00'
PASSWORD = 'a password that is nowhere but here'
VARIABLES = {
    'DP_CORPUS_COMMAND': str(COMMAND),
    'DP_CORPUS_DATAFLOW': json.dumps(
        {
            'project': 'hospital',
            'region': 'europe-west4',
            'template': 'gs://hospital/dp-corpus.json',
            'environment': {'tempLocation': 'gs://hospital/tmp', 'additionalExperiments': ['upload_graph']},
        }
    ),
    'DP_CORPUS_FLINK': json.dumps(
        {
            'flink_master': 'http://flink:8081',
            'flink_submit_uber_jar': True,
            'environment_type': 'EXTERNAL',
            'environment_config': 'localhost:50000',
            'parallelism': 2,
        }
    ),
}

needs_airflow = pytest.mark.skipif(
    not AIRFLOW.exists(), reason=f'needs Airflow at {AIRFLOW}: make airflow, or AIRFLOW_PYTHON'
)


def ask_airflow(home: pathlib.Path, folder: pathlib.Path, *arguments: str) -> dict[str, Any]:
    """Runs inspect_dag.py in Airflow's environment, with nothing of this one."""
    environment = {
        'PATH': os.environ['PATH'],
        'HOME': str(home),
        'AIRFLOW_HOME': str(home),
        'AIRFLOW__CORE__LOAD_EXAMPLES': 'False',
        'AIRFLOW_CONN_DP_CORPUS_LEDGER': json.dumps({'conn_type': 'generic', 'password': PASSWORD}),
        **{f'AIRFLOW_VAR_{name}': value for name, value in VARIABLES.items()},
    }
    done = subprocess.run(
        [str(AIRFLOW), str(INSPECT), str(folder), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer | {'log': done.stdout + done.stderr}


@pytest.fixture(scope='module')
def night(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The shipped DAG, rendered for a night on Dataflow."""
    return ask_airflow(tmp_path_factory.mktemp('home'), FOLDER, 'dataflow', NIGHT)


def constant_of(name: str) -> Any:
    """A constant of the DAG's module, from its syntax tree: Airflow is not of this environment."""
    tree = ast.parse((FOLDER / 'dp_corpus_dag.py').read_text())
    (value,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    ]
    return ast.literal_eval(value)


def given_to(command: str) -> tuple[dict[str, str], list[str]]:
    """A rendered command's own flags by field, and Beam's options."""
    words = shlex.split(command)
    ours, beams = (
        (words[: words.index('--')], words[words.index('--') + 1 :]) if '--' in words else (words, [])
    )
    pairs = (word.removeprefix('--').partition('=') for word in ours if word.startswith('--'))
    return {name.replace('-', '_'): value for name, _, value in pairs if name != 'quiet'}, beams


def test_the_form_changes_settings_alone() -> None:
    assert set(constant_of('FREE')) <= set(all_settings())


def free() -> set[str]:
    """The settings that the trigger form may change to any value."""
    return set(constant_of('FREE'))


def fixed() -> set[str]:
    """The settings that the TOML file alone decides."""
    return set(all_settings()) - free() - set(constant_of('CHOICES'))


def test_what_decides_the_records_and_the_budget_is_fixed() -> None:
    assert fixed() >= {'input', 'dataset', 'ledger', 'unit', 'unit_field', 'output', 'work_dir'}


@pytest.mark.parametrize('name', sorted(path_settings()))
def test_a_setting_that_may_name_a_path_is_fixed_or_one_of_known_names(name: str) -> None:
    assert name not in free()
    choices = constant_of('CHOICES').get(name, ())
    assert not any(choice and re.search(r'[/.]', choice) for choice in choices)


def test_the_known_names_are_those_of_the_job() -> None:
    choices = constant_of('CHOICES')
    assert set(choices) == {'prompt', 'embedder'}
    assert choices['prompt'] == (None, *PROMPT_PRESETS)
    assert choices['embedder'] == (None, *EMBEDDERS)


def test_the_dag_knows_the_exit_code_of_a_spent_budget() -> None:
    assert f'EXIT_BUDGET = {exit_codes.BUDGET}' in (FOLDER / 'dp_corpus_dag.py').read_text()


def test_dataflow_gets_the_options_of_the_profiles() -> None:
    place = profiles.Place(
        project='hospital',
        region='europe-west4',
        image='registry/dp-corpus:1',
        temp_location='gs://hospital/tmp',
    )
    options = profiles.beam_options(profiles.PROFILES['nvidia-l4'], place)
    assert constant_of('EXPERIMENTS') == options['experiments']
    for option in constant_of('OPTIONS'):
        name, _, value = option.partition('=')
        assert str(options[name]).lower() == value


def test_the_example_settings_are_accepted() -> None:
    config = read_config(str(FOLDER / 'dp_corpus.toml'), {})
    assert config.budget.dataset is not None


@pytest.mark.first
@pytest.mark.run
@needs_airflow
def test_airflow_imports_the_dag(night: dict[str, Any]) -> None:
    assert night['import_errors'] == {}
    assert (night['catchup'], night['max_active_runs']) == (False, 1)
    assert {name: task['upstream'] for name, task in night['tasks'].items()} == {
        'ask_budget': [],
        'choose_engine': ['ask_budget'],
        'run_on_dataflow': ['choose_engine'],
        'run_on_flink': ['choose_engine'],
        'settle': ['run_on_dataflow'],
    }
    assert all(task['retries'] > 0 for task in night['tasks'].values())
    assert night['tasks']['run_on_dataflow']['deferrable'] is True
    for name in ('ask_budget', 'run_on_flink'):
        assert night['tasks'][name]['skip_on_exit_code'] == [exit_codes.BUDGET]


@pytest.mark.run
@needs_airflow
def test_the_trigger_form_cannot_change_records_or_budget(night: dict[str, Any]) -> None:
    shown, entries = set(night['params']), tomllib.loads((FOLDER / 'dp_corpus.toml').read_text())
    assert shown == {'engine', *entries, *free(), *constant_of('CHOICES')}
    assert all(night['refused'][name] for name in shown & {'engine', *fixed()})
    assert not night['refused']['label_name']


@pytest.mark.run
@needs_airflow
def test_the_trigger_form_takes_no_path(night: dict[str, Any]) -> None:
    """Over all settings: a new one that takes any text is refused until somebody says otherwise."""
    assert path_settings() & set(night['params']) <= set(night['refused_paths'])
    assert tuple(night['choices']['prompt']) == (None, *PROMPT_PRESETS)
    forced, _ = given_to(night['forced'])
    assert {name for name, value in forced.items() if 'visits/2026.jsonl' in value} & path_settings() == set()
    assert forced['ledger'] == night['params']['ledger'] and 'prompt' not in forced


@pytest.mark.run
@needs_airflow
def test_a_prompt_file_of_the_deployer_stays(tmp_path: pathlib.Path) -> None:
    folder = dag_folder(tmp_path, epsilon=1.0)
    with open(folder / 'dp_corpus.toml', 'a') as file:
        file.write('prompt = "/prompts/visits.toml"\n')
    answer = ask_airflow(tmp_path, folder, 'flink', NIGHT)
    assert answer['choices']['prompt'] is None and 'prompt' in answer['refused_paths']
    asked, _ = given_to(answer['tasks']['ask_budget']['rendered']['bash_command'])
    assert asked['prompt'] == '/prompts/visits.toml'


@pytest.mark.run
@needs_airflow
def test_all_attempts_of_a_night_are_one_run(night: dict[str, Any]) -> None:
    asked, _ = given_to(night['tasks']['ask_budget']['rendered']['bash_command'])
    body = night['tasks']['run_on_dataflow']['rendered']['body']['launchParameter']
    assert asked['run_id'] == 'visits-20261120T020000'
    assert body['jobName'] == 'visits-20261120t020000'
    assert f' visits {asked["run_id"]} ' in night['tasks']['settle']['rendered']['bash_command']
    # The very same settings are asked for and launched.
    assert body['parameters'] == asked


@pytest.mark.run
@needs_airflow
def test_the_template_takes_what_it_is_given(night: dict[str, Any]) -> None:
    known = {entry['name']: entry for entry in template_metadata()['parameters']}
    body = night['tasks']['run_on_dataflow']['rendered']['body']['launchParameter']
    for name, value in body['parameters'].items():
        assert all(re.fullmatch(regex, value) for regex in known[name].get('regexes', ()))
    assert {name for name, entry in known.items() if not entry['isOptional']} <= set(body['parameters'])
    experiments = body['environment']['additionalExperiments']
    assert experiments == [*constant_of('EXPERIMENTS'), 'upload_graph']
    assert body['environment']['tempLocation'] == 'gs://hospital/tmp'
    assert re.fullmatch(r'[a-z]([-a-z0-9]*[a-z0-9])?', body['jobName'])


@pytest.mark.run
@needs_airflow
def test_the_password_stands_in_no_command_and_no_request(night: dict[str, Any]) -> None:
    for name, task in night['tasks'].items():
        environment = task['rendered'].pop('env', None)
        assert environment == ({'PGPASSWORD': PASSWORD} if task['type'] == 'BashOperator' else None), name
        assert PASSWORD not in json.dumps(task)
    assert PASSWORD not in json.dumps(night['params'])


@pytest.mark.run
@needs_airflow
def test_flink_gets_options_that_beam_knows(tmp_path: pathlib.Path) -> None:
    """And a run by hand, which has no logical date, is named after the moment it may start."""
    by_hand = ask_airflow(tmp_path, FOLDER, 'flink', '-')
    assert by_hand['choice'] == 'run_on_flink'
    flags, options = given_to(by_hand['tasks']['run_on_flink']['rendered']['bash_command'])
    assert flags['runner'] == 'FlinkRunner'
    assert flags['run_id'] == 'visits-20260506T070809'
    known = beam_options('FlinkRunner', options)
    assert known.get_all_options()['flink_submit_uber_jar'] is True


@pytest.mark.run
@needs_airflow
@pytest.mark.parametrize(
    'line, change, error',
    [
        ('ledger', '', "keys=['ledger']"),
        ('labels', 'labels = ["A=Eyes, ears"]', "labels=['A=Eyes, ears']"),
    ],
)
def test_settings_that_no_night_may_run_with_are_refused(
    tmp_path: pathlib.Path, line: str, change: str, error: str
) -> None:
    folder = dag_folder(tmp_path, epsilon=1.0)
    lines = (folder / 'dp_corpus.toml').read_text().splitlines()
    changed = [change if old.startswith(line) else old for old in lines]
    assert changed != lines
    (folder / 'dp_corpus.toml').write_text('\n'.join(changed))
    (shown,) = ask_airflow(tmp_path, folder, 'flink', NIGHT, 'import')['import_errors'].values()
    assert error in shown


def dag_folder(place: pathlib.Path, *, epsilon: float) -> pathlib.Path:
    """A folder of the DAG and of settings whose ledger is an SQLite file in `place`."""
    folder = place / 'dags'
    folder.mkdir()
    (folder / 'dp_corpus_dag.py').write_text((FOLDER / 'dp_corpus_dag.py').read_text())
    (folder / 'dp_corpus.toml').write_text(
        f'input = "{place}/it\'s records.jsonl"\nrecords = 2000\ndelta = 1e-6\naggregate = "difference"\n'
        'label_field = "ward"\nlabels = ["A=Surgery", "B=Eye clinic"]\nkeep_rejected = true\n'
        f'epsilon = {epsilon}\noutput = "{place}/corpora"\ndataset = "visits"\n'
        f'ledger = "{place}/ledger.db"\n'
    )
    return folder


@pytest.mark.run
@needs_airflow
@pytest.mark.parametrize('epsilon, state', [(1.0, 'success'), (3.0, 'skipped')])
def test_the_budget_decides_whether_a_night_runs(tmp_path: pathlib.Path, epsilon: float, state: str) -> None:
    folder = dag_folder(tmp_path, epsilon=epsilon)
    Ledger.create(str(tmp_path / 'ledger.db')).add_dataset('visits', unit='example', delta=1e-6, epsilon=2.0)
    answer = ask_airflow(tmp_path, folder, 'flink', NIGHT, 'ask_budget')
    assert answer['state'] == state
    assert ('DOES NOT FIT' in answer['log']) == (state == 'skipped')


@pytest.mark.run
@needs_airflow
def test_a_lost_ledger_fails_the_night(tmp_path: pathlib.Path) -> None:
    answer = ask_airflow(tmp_path, dag_folder(tmp_path, epsilon=1.0), 'flink', NIGHT, 'ask_budget')
    assert answer['state'] == 'failed'
    assert 'Expected' in answer['log']


@pytest.mark.run
@needs_airflow
def test_the_last_task_settles_the_charge(tmp_path: pathlib.Path) -> None:
    folder = dag_folder(tmp_path, epsilon=1.0)
    ledger = Ledger.create(str(tmp_path / 'ledger.db'))
    ledger.add_dataset('visits', unit='example', delta=1e-6, epsilon=2.0)
    charge = {'cost': RunCost.of_rho({'generation': 0.01}), 'identity': 'i' * 64, 'key_commitment': 'k' * 64}
    ledger.reserve('visits', run_id='dp_corpus-20261120T020000', unit='example', **charge)
    assert ask_airflow(tmp_path, folder, 'dataflow', NIGHT, 'settle')['state'] == 'success'
    (run,) = ledger.account('visits').runs
    assert run.state == 'settled'
