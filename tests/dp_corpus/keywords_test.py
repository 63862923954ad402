"""The types of keyword arguments are those of the settings."""

import pathlib
import subprocess
import sys

import pytest

from dp_corpus import generated

CALLS = """
import pathlib
import dp_corpus

plan = dp_corpus.plan(epsilon=1, labels=['a'], input=pathlib.Path('x.csv'), method='evolve')
reveal_type(plan)
dp_corpus.plan(epsilon='much')
dp_corpus.plan(method='magic')
dp_corpus.plan(epsilom=1)
dp_corpus.refine(dp_corpus.load('corpus'), keep=3)
dp_corpus.refine('corpus', rounds=3)
reveal_type(dp_corpus.evaluate('corpus', only='use').report)
"""


def test_the_file_is_what_the_settings_make_it() -> None:
    found = generated.FILE.read_text(encoding='utf-8')
    assert found == generated.generate(), 'Run python -m dp_corpus.generated.'


@pytest.mark.run
@pytest.mark.long
def test_a_type_checker_sees_them(tmp_path: pathlib.Path) -> None:
    """mypy reads the whole package, so this takes a minute."""
    (tmp_path / 'calls.py').write_text(CALLS)
    done = subprocess.run(
        [sys.executable, '-m', 'mypy', '--config-file', 'pyproject.toml', str(tmp_path / 'calls.py')],
        capture_output=True, text=True, check=False, cwd=pathlib.Path(__file__).parents[2],
    )  # fmt: skip
    said = [
        (int(line.split(':')[1]), line.split(':')[2].strip())
        for line in done.stdout.splitlines()
        if 'calls.py:' in line
    ]
    assert said == [(6, 'note'), (7, 'error'), (8, 'error'), (9, 'error'), (11, 'error'), (12, 'note')]
    assert 'RunPlan' in done.stdout and 'Evaluation' in done.stdout
