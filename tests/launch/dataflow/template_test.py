"""The image and the Flex Template, read without a cloud: pins, sources, and one set of parameters."""

import ast
import dataclasses
import json
import pathlib
import re
from typing import Any

import pytest
import typer
from packaging.requirements import Requirement
from packaging.version import Version

from launch.dataflow.template import template_metadata
from pipeline import main
from pipeline.config import all_settings
from pipeline.methods import METHODS
from pipeline.settings.job_config import OF_EVERY_RUN
from tests import setup_file

ROOT = pathlib.Path(__file__).parents[3]
LAUNCH = ROOT / 'launch'
FIELDS = list(all_settings())
METADATA = json.loads((LAUNCH / 'dataflow' / 'template_metadata.json').read_text())
BY_NAME: dict[str, dict[str, Any]] = {parameter['name']: parameter for parameter in METADATA['parameters']}


def instructions() -> list[tuple[str, str]]:
    """(instruction, its rest) of the Dockerfile, continued lines joined."""
    text = re.sub(r'^#.*\n', '', (LAUNCH / 'image' / 'Dockerfile').read_text(), flags=re.MULTILINE)
    lines = re.sub(r'\\\n\s*', '', text).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]  # type: ignore[misc]


def pins(name: str) -> dict[str, Version]:
    """Package -> its one version, of a file of requirements."""
    found = {}
    for line in (LAUNCH / 'image' / name).read_text().splitlines():
        if line and not line.startswith('#'):
            requirement = Requirement(line)
            (only,) = requirement.specifier
            assert only.operator == '==' and '*' not in only.version, line
            found[_plain(requirement.name)] = Version(only.version)
    return found


def _plain(name: str) -> str:
    return re.sub(r'[-_.]+', '-', name).lower()


# --- Requirements ----------------------------------------------------------------


def test_every_pin_fits_what_setup_asks_for() -> None:
    pinned, asked = pins('requirements.txt'), setup_file.requirements()
    for text in (*asked[setup_file.INSTALL], *asked['gcp'], *asked['gemma']):
        requirement = Requirement(text)
        assert pinned[_plain(requirement.name)] in requirement.specifier, text


def test_the_cloud_client_is_in_the_image() -> None:
    assert {'google-cloud-dataflow-client', 'google-cloud-storage', 'psycopg'} <= set(
        pins('requirements.txt')
    )


@pytest.mark.parametrize('variant', ['cuda12', 'tpu'])
def test_a_variant_changes_no_version_and_fits_jax(variant: str) -> None:
    common, more = pins('requirements.txt'), pins(f'requirements-{variant}.txt')
    assert {
        name: version for name, version in more.items() if name in common and version != common[name]
    } == {}
    if variant == 'cuda12':
        assert more['jax-cuda12-plugin'] == more['jax-cuda12-pjrt'] == common['jax']
    else:
        assert 'libtpu' in more


# --- Dockerfile ------------------------------------------------------------------


def test_versions_are_those_of_setup() -> None:
    asked = [Requirement(text) for text in setup_file.requirements()[setup_file.INSTALL]]
    (beam,) = (str(next(iter(r.specifier)).version) for r in asked if _plain(r.name) == 'apache-beam')
    images = [rest.split()[0] for instruction, rest in instructions() if instruction == 'FROM']
    assert f'apache/beam_python3.12_sdk:{beam}' in images
    python = (ROOT / '.python-version').read_text().strip()
    assert any(image.startswith(f'python:{".".join(python.split(".")[:2])}-slim') for image in images)
    assert any(image.startswith('gcr.io/dataflow-templates-base/python312-') for image in images)


def test_bases_are_known() -> None:
    stages = {
        rest.split(' AS ')[1]
        for instruction, rest in instructions()
        if ' AS ' in rest and instruction == 'FROM'
    }
    assert stages == {'weights', 'beam', 'launcher', 'common', 'cpu', 'cuda12', 'tpu'}
    for instruction, rest in instructions():
        if instruction == 'FROM':
            image = rest.split(' AS ')[0]
            # No image of others with unknown contents, and none by its latest state but the launcher's.
            assert image in stages | {'scratch', '${JAX}'} or re.match(
                r'(apache/beam_|python:3\.12-|gcr\.io/)', image
            )
            assert not image.endswith(':latest')


def test_every_source_exists_and_is_sent_to_the_builder() -> None:
    sent = {
        line[1:]
        for line in (LAUNCH / 'image' / 'Dockerfile.dockerignore').read_text().splitlines()
        if line[:1] == '!'
    }
    copied = set()
    for instruction, rest in instructions():
        assert instruction != 'ADD'
        if instruction == 'COPY' and '--from' not in rest:
            *sources, _ = rest.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                assert source.split('/')[0] in sent, source
                copied.add(source)
    assert {'models', 'transforms', 'pipeline', 'launch', 'setup.py', 'pyproject.toml'} <= copied


def test_it_checks_its_packages_and_starts_beam() -> None:
    runs = [rest for instruction, rest in instructions() if instruction == 'RUN']
    assert all('--no-deps' in run for run in runs if 'pip install' in run)
    assert runs[-1].endswith('pip check')
    assert instructions()[-1] == ('ENTRYPOINT', '["/opt/apache/beam/boot"]')
    text = (LAUNCH / 'image' / 'Dockerfile').read_text()
    assert 'FLEX_TEMPLATE_PYTHON_PY_FILE=/template/launch/engine_main.py' in text
    assert 'python_template_launcher' in text


def test_it_holds_no_secret() -> None:
    text = (LAUNCH / 'image' / 'Dockerfile').read_text()
    settings = re.findall(r'^(?:ENV|ARG) (.*)', re.sub(r'\\\n\s*', '', text), re.MULTILINE)
    assert not re.search('password|token|secret|credential|api_?key', ' '.join(settings), re.IGNORECASE)
    ignored = (LAUNCH / 'image' / 'Dockerfile.dockerignore').read_text().splitlines()
    assert [line for line in ignored if line and not line.startswith('#')][0] == '*'


def test_the_variables_of_a_tpu() -> None:
    text = (LAUNCH / 'image' / 'Dockerfile').read_text()
    for variable in (
        'TPU_SKIP_MDS_QUERY=1', 'TPU_HOST_BOUNDS=1,1,1', 'TPU_CHIPS_PER_HOST_BOUNDS=1,1,1', 'TPU_WORKER_ID=0',
        'TPU_WORKER_HOSTNAMES=localhost', 'TPU_ACCELERATOR_TYPE=v5litepod-1',
    ):  # fmt: skip
        assert variable in text


# --- One set of parameters -------------------------------------------------------


def cli_flags() -> set[str]:
    """The flags of `dp-corpus generate` that are settings of a run, with underscores."""
    command = typer.main.get_command(main.app).commands['generate']  # type: ignore[attr-defined]
    names = {parameter.opts[0].removeprefix('--').replace('-', '_') for parameter in command.params}
    return names - {'config', 'json', 'quiet'}


def test_the_metadata_is_what_the_module_makes() -> None:
    assert template_metadata() == METADATA, 'run: launch/dataflow/dataflow.sh metadata'


def test_the_template_takes_the_flags_of_the_command_line() -> None:
    assert set(BY_NAME) == cli_flags() == set(FIELDS)
    assert [parameter['name'] for parameter in METADATA['parameters']] == FIELDS


def test_the_schedule_forwards_the_flags_of_the_command_line() -> None:
    path = LAUNCH / 'airflow' / 'dp_corpus_dag.py'
    if not path.exists():
        pytest.skip('launch/airflow/dp_corpus_dag.py is not there')
    found = []
    for node in ast.parse(path.read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, 'target', None)]
        if any(isinstance(target, ast.Name) and target.id == 'PARAMETERS' for target in targets):
            found.append(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    assert len(found) == 1, 'expected one module-level tuple PARAMETERS'
    assert set(found[0]) == set(FIELDS) and len(found[0]) == len(FIELDS)


def test_only_input_and_output_are_required() -> None:
    assert {name for name, parameter in BY_NAME.items() if not parameter['isOptional']} == {'input', 'output'}


@pytest.mark.parametrize('name', FIELDS)
def test_a_parameter_says_what_the_flag_says(name: str) -> None:
    assert BY_NAME[name]['helpText'].startswith(all_settings()[name].help)
    panels = (*OF_EVERY_RUN.values(), *(method.settings for method in METHODS.values()))
    fields = [field for panel in panels for field in dataclasses.fields(panel) if field.name == name]
    assert fields or name == 'method'
    # Of one that several methods have it says what each of them says.
    assert all(field.metadata['help'] in BY_NAME[name]['helpText'] for field in fields)
    assert BY_NAME[name]['label'] and set(BY_NAME[name]) <= {
        'name',
        'label',
        'helpText',
        'isOptional',
        'regexes',
    }


@pytest.mark.parametrize(
    'name, right, wrong',
    [
        ('input', ['gs://b/x.jsonl', 'gs://b/*.csv,gs://b/y.csv'], ['/data/x.jsonl', '']),
        ('output', ['gs://b/corpus'], ['gs://b', 'corpus']),
        ('work_dir', ['gs://b/corpus.curator'], ['/tmp/x']),
        ('run_id', ['2026-11-20', 'a.b_c'], ['-a', 'a b', 'x' * 101]),
        ('epsilon', ['3', '0.5', '1e1', '.5'], ['three', '', '1e']),
        ('delta', ['1e-6'], ['1e-']),
        ('max_private_tokens', ['100'], ['1.5', '1_000']),
        ('unit', ['example', 'user'], ['users', '']),
        ('aggregate', ['mean', 'median', 'difference'], ['Mean']),
        ('keep_rejected', ['true', 'false'], ['yes']),
        ('runner', ['DataflowRunner'], ['FnApiRunner']),
    ],
)
def test_regexes(name: str, right: list[str], wrong: list[str]) -> None:
    (regex,) = BY_NAME[name]['regexes']
    assert [value for value in right if not re.search(regex, value)] == []
    assert [value for value in wrong if re.search(regex, value)] == []


def test_free_text_has_no_regex() -> None:
    assert {'labels', 'text_field', 'ledger', 'dataset', 'checkpoint'} & {
        name for name, parameter in BY_NAME.items() if 'regexes' in parameter
    } == set()
