"""The image's Dockerfile, read: what it is made of, who runs it, and what hadolint says."""

import pathlib
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import setup_file

IMAGE = setup_file.ROOT / 'launch' / 'image'

DOCKERFILE = IMAGE / 'Dockerfile'
HADOLINT = pathlib.Path(sys.executable).parent / 'hadolint'


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, its rest) of a Dockerfile, continued lines joined."""
    lines = re.sub(r'\\\n\s*', '', re.sub(r'^#.*\n', '', text, flags=re.MULTILINE)).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]  # type: ignore[misc]


OURS = instructions(DOCKERFILE.read_text())


def stages() -> dict[str, list[tuple[str, str]]]:
    """Name of a stage -> its instructions; '' has what stands before the first."""
    found: dict[str, list[tuple[str, str]]] = {'': []}
    for instruction, rest in OURS:
        if instruction == 'FROM':
            found[rest.split(' AS ')[1]] = []
        found[list(found)[-1]].append((instruction, rest))
    return found


def of(instruction: str, lines: list[tuple[str, str]] = OURS) -> list[str]:
    return [rest for name, rest in lines if name == instruction]


def variables(lines: list[tuple[str, str]], instruction: str = 'ENV') -> dict[str, str]:
    pairs = re.findall(r'(\S+?)=("[^"]*"|\S*)', ' '.join(of(instruction, lines)))
    return {name: value.strip('"') for name, value in pairs}


def faults_of_a_run(command: str) -> list[str]:
    """The parts of a RUN that would bring packages that nobody pinned, or leave lists behind."""
    found = []
    for part in re.split(r'&&|;|\|\|', command):
        words = part.split()
        if 'install' in words and words[0].endswith(('/uv', 'pip')):
            local = words[-1] == '.' and '--no-build-isolation' in words
            if '--no-deps' not in words or not (local or '--require-hashes' in words):
                found.append(part.strip())
            if not {'--no-cache-dir', '--no-cache'} & set(words):
                found.append(f'{part.strip()}: a cache')
        elif words and words[0] in ('apt-get', 'apt', 'curl', 'wget'):
            found.append(part.strip())
    return found


@pytest.mark.run
def test_hadolint_finds_nothing() -> None:
    done = subprocess.run([HADOLINT, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, '')


# --- What it is made of ----------------------------------------------------------


def test_versions_are_those_of_setup() -> None:
    told = setup_file.values()
    asked = [
        Requirement(text) for text in (*told['install_requires'], *sum(told['extras_require'].values(), []))
    ]
    (beam,) = {
        str(next(iter(r.specifier)).version) for r in asked if canonicalize_name(r.name) == 'apache-beam'
    }
    images = [rest.split()[0] for rest in of('FROM')]
    assert f'apache/beam_python3.12_sdk:{beam}' in images
    python = (setup_file.ROOT / '.python-version').read_text().strip()
    assert any(image.startswith(f'python:{".".join(python.split(".")[:2])}-slim') for image in images)
    assert any(image.startswith('gcr.io/dataflow-templates-base/python312-') for image in images)


def test_bases_are_known_and_have_a_version() -> None:
    names = list(stages())[1:]
    assert names == [
        'weights', 'beam', 'launcher', 'common', 'cpu', 'cuda12', 'tpu', 'worker', 'bill',
        'dataflow', 'kubernetes',
    ]  # fmt: skip
    defaults = variables(stages()[''], 'ARG')
    for rest in of('FROM'):
        image = re.sub(r'\$\{(\w+)\}', lambda name: defaults[name[1]], rest.split(' AS ')[0])
        # No image of others with unknown contents, and none by its latest state.
        if image not in {'scratch', *names}:
            assert re.match(r'(apache/beam_|python:3\.12-|gcr\.io/)', image)
            assert re.search(r':(?!latest$)\S+$', image), image


def test_every_source_exists_and_is_sent_to_the_builder() -> None:
    ignored = (IMAGE / 'Dockerfile.dockerignore').read_text().splitlines()
    assert [line for line in ignored if line and not line.startswith('#')][0] == '*'
    sent = {line[1:] for line in ignored if line[:1] == '!'}
    assert of('ADD') == []
    for rest in of('COPY'):
        if '--from' not in rest:
            for source in rest.split()[:-1]:
                assert (setup_file.ROOT / source).exists(), source
                assert source.split('/')[0] in sent, source


def test_every_package_of_setup_is_in_the_image() -> None:
    copied = {source for rest in of('COPY', stages()['worker']) for source in rest.split()[:-1]}
    packages = {name.split('.')[0] for name in setup_file.values()['packages']}
    assert packages >= {'dp_corpus', 'launch', 'models', 'pipeline', 'transforms'}
    assert packages | {'setup.py', 'pyproject.toml', 'LICENSE'} <= copied


def test_its_packages_are_the_locked_ones() -> None:
    assert [fault for run in of('RUN') for fault in faults_of_a_run(run)] == []
    assert 'pip check' in of('RUN', stages()['worker'])[-1]
    locks = set(re.findall(r'--requirement (\S+)', ' '.join(of('RUN'))))
    assert locks == {str(path.relative_to(setup_file.ROOT)) for path in IMAGE.glob('requirements*.txt')}


@pytest.mark.parametrize(
    'command',
    [
        'pip install --no-cache-dir --no-deps six',
        'pip install --no-cache-dir --require-hashes --requirement x.txt',
        '/tools/bin/pip install --no-cache-dir --no-deps .',
        '/tools/bin/uv pip install --no-cache six',
        '/tools/bin/uv pip install --no-deps --require-hashes --requirement x.txt',
        'pip check && pip install --no-deps --require-hashes --requirement x.txt',
        'apt-get update && rm -rf build',
    ],
)
def test_a_run_that_pins_nothing_is_a_fault(command: str) -> None:
    assert faults_of_a_run(command)


def test_it_holds_no_secret() -> None:
    settings = ' '.join((*of('ENV'), *of('ARG'), *of('LABEL')))
    assert not re.search('password|token|secret|credential|api_?key', settings, re.IGNORECASE)
    assert not re.search('--mount=type=secret|--secret', DOCKERFILE.read_text())


# --- Who runs it -----------------------------------------------------------------


def test_the_last_stage_is_of_a_numbered_user_that_writes_to_tmp_alone() -> None:
    (*_, last) = stages().values()
    assert last is not stages()['dataflow'] and last[-1] == ('USER', '1000:1000')
    assert {name: variables(last)[name].split('/')[1] for name in ('HOME', 'XDG_CACHE_HOME')} == {
        'HOME': 'tmp',
        'XDG_CACHE_HOME': 'tmp',
    }


def test_dataflow_runs_as_root_and_launches_templates() -> None:
    assert len(of('USER')) == 1  # that of the last stage
    found = stages()['dataflow']
    assert variables(found)['FLEX_TEMPLATE_PYTHON_PY_FILE'] == '/template/launch/engine_main.py'
    assert any('python_template_launcher' in rest for rest in of('COPY', found))
    assert '--target dataflow' in (setup_file.ROOT / 'launch' / 'dataflow' / 'dataflow.sh').read_text()


def test_what_installs_the_packages_is_not_in_it() -> None:
    """It is gone by the end of the step that it is there for, so that no layer has it."""
    (step,) = [run for run in of('RUN') if '/tools' in run]
    assert step in of('RUN', stages()['common']) and step.endswith('&& rm -rf /tools')
