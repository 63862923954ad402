"""The help of the launchers opens with an example, and its commands exist or run."""

import pathlib
import shlex
import subprocess
import sys

import pytest

from launch.dataflow import main as dataflow
from pipeline.asked.config import read_config
from tests.page_commands_test import commands_of, faults_of

ROOT = pathlib.Path(__file__).parents[2]


def usage(script: str) -> str:
    """The output of a script that is asked for help."""
    return subprocess.run(
        ['bash', str(ROOT / script), '--help'], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.run
def test_the_example_of_flink_is_of_the_demo() -> None:
    """Its settings are a config, of the records that its first line writes."""
    lines = usage('launch/flink/flink.sh').partition('All commands')[0].splitlines()
    example = [line.strip() for line in lines if line.startswith('  ')]
    assert {command: found for command in example if (found := faults_of(command))} == {}
    records, _, run, _ = (shlex.split(command) for command in example)
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
    example = dataflow.HELP.partition('\b\n')[2].partition('\n\n')[0].splitlines()
    shown = [line.strip() for line in usage('launch/dataflow/dataflow.sh').splitlines()]
    assert [line.strip() for line in example] == shown[2 : 2 + len(example)]
