"""The types of keyword arguments are those of the settings."""

import pathlib
import re
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
def test_a_type_checker_sees_them(tmp_path: pathlib.Path) -> None:
    """mypy reads the whole package, so this takes a minute."""
    (tmp_path / 'user_code.py').write_text(CALLS)
    done = subprocess.run(
        [sys.executable, '-m', 'mypy', '--config-file', 'pyproject.toml', str(tmp_path / 'user_code.py')],
        capture_output=True, text=True, check=False, cwd=pathlib.Path(__file__).parents[2],
    )  # fmt: skip
    faults = re.findall(r'user_code\.py:(\d+): error', done.stdout)
    assert sorted({int(line) for line in faults}) == [7, 8, 9, 11], done.stdout
    revealed = re.findall(r'user_code\.py:\d+: note: Revealed type is "([\w.]+)"', done.stdout)
    assert [name.rpartition('.')[2] for name in revealed] == ['RunPlan', 'Evaluation'], done.stdout
