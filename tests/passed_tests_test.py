import pathlib
import re
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.run, pytest.mark.first]

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFTEST = """
import pathlib
from tests.passed_tests import PassedTests

def pytest_addoption(parser):
    parser.addoption('--once', action='store_true')

def pytest_configure(config):
    folder = pathlib.Path(config.cache.mkdir('passed'))
    config.pluginmanager.register(PassedTests(folder, config.rootpath, config.getoption('once')))
"""
ONE = 'def test_a():\n    pass\n\ndef test_b():\n    pass\n'
SKIPPING = 'import pytest\n\ndef test_e():\n    pytest.skip()\n'
FAILING = 'def test_c():\n    pass\n\ndef test_d():\n    raise ValueError\n'


@pytest.fixture
def tree(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    for name, text in {
        'conftest.py': CONFTEST, 'one_test.py': ONE, 'failing_test.py': FAILING, 'part.py': '',
        'skipping_test.py': SKIPPING,
        'pyproject.toml': '[tool.pytest.ini_options]\npython_files = ["*_test.py"]\n',
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    subprocess.run(['git', 'init', '--quiet'], cwd=tmp_path, check=True)
    subprocess.run(['git', 'add', '--all'], cwd=tmp_path, check=True)
    monkeypatch.setenv('PYTHONPATH', str(ROOT))
    return tmp_path


def ran(tree: pathlib.Path, *arguments: str) -> set[str]:
    """Names of the tests that one process of pytest ran."""
    command = [sys.executable, '-B', '-m', 'pytest', '-vv', '-p', 'no:xdist', *arguments]
    said = subprocess.run(command, cwd=tree, capture_output=True, text=True).stdout
    return set(re.findall(r'::test_(\w) (?:PASSED|FAILED|SKIPPED)', said))


def test_a_test_that_passed_runs_once_for_a_tree(tree: pathlib.Path) -> None:
    assert ran(tree, '--once') == set('abcde')
    assert ran(tree, '--once') == set('de')
    assert ran(tree) == set('abcde')
    (tree / 'part.py').write_text('changed = True\n')
    assert ran(tree, '--once') == set('abcde')


@pytest.mark.parametrize(
    ('part', 'rest'),
    [
        (['one_test.py::test_a'], 'bcde'),
        (['-k', 'test_a'], 'bcde'),
        (['--exitfirst', 'failing_test.py'], 'abde'),
    ],
)
def test_the_rest_of_a_file_runs_later(tree: pathlib.Path, part: list[str], rest: str) -> None:
    ran(tree, *part)
    assert ran(tree, '--once') == set(rest)


def test_what_would_begin_too_late_is_skipped_and_has_not_passed(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, '-m', 'pytest', '-rs', '-p', 'no:xdist', '-o', f'cache_dir={tmp_path}',
               'tests/models/stop_rule_test.py']  # fmt: skip

    def summary(until: float) -> str:
        done = subprocess.run([*command, f'--until={until}'], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0
        return done.stdout

    late = summary(time.time() - 1)
    assert 'NOT RUN: no time is left for it' in late and ' passed' not in late
    assert not [path for path in tmp_path.glob('d/passed/*') if path.read_text()]
    assert ' passed' in summary(time.time() + 600)
    assert [path for path in tmp_path.glob('d/passed/*') if path.read_text()]
