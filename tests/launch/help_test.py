"""The help of the launchers opens with an example, and its commands exist or run."""

import pathlib
import shlex
import subprocess
import sys

import pytest

from launch.dataflow import main as dataflow
from launch.flink import main as flink
from pipeline.config import read_config
from tests.page_commands_test import commands_of, faults_of

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / 'launch' / 'dataflow' / 'dataflow.sh'


@pytest.mark.parametrize('app, text', [(flink.app, flink.HELP), (dataflow.app, dataflow.HELP)])
def test_the_help_opens_with_an_example_whose_commands_exist(app: object, text: str) -> None:
    assert getattr(app, 'info').help == text  # noqa: B009 - Typer's type tells nothing of it
    commands = list(commands_of(text))
    assert commands and text.partition('\b\n')[2].strip().startswith(commands[0].split(' --')[0])
    assert {command: found for command in commands if (found := faults_of(command))} == {}


def test_the_example_of_flink_is_of_the_demo() -> None:
    """Its settings are a config, of the records that its first line writes."""
    records, *_, run, _ = (shlex.split(command) for command in commands_of(flink.HELP))
    config = read_config(str(ROOT / run[run.index('--config') + 1]), {})
    assert config.input.input == records[records.index('--output') + 1]


@pytest.mark.run
def test_the_example_of_dataflow_runs() -> None:
    (command,) = commands_of(dataflow.HELP)
    done = subprocess.run(
        ['bash', *shlex.split(command)],
        cwd=ROOT, env={'PATH': '/usr/bin:/bin', 'PYTHON': sys.executable}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert shlex.split(done.stdout)[:3] == ['dp-corpus', 'generate', '--runner=DataflowRunner']


@pytest.mark.run
def test_the_script_of_dataflow_shows_the_same_example() -> None:
    done = subprocess.run(['bash', str(SCRIPT), '--help'], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    example = dataflow.HELP.partition('\b\n')[2].partition('\n\n')[0].splitlines()
    shown = [line.strip() for line in done.stdout.splitlines()]
    assert [line.strip() for line in example] == shown[2 : 2 + len(example)]
