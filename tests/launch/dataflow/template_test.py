"""The Flex Template, read without a cloud: one set of parameters."""

import json
import pathlib
import re
from typing import Any

import pytest
import typer

from launch.dataflow.template import template_metadata
from pipeline import main
from pipeline.asked.config import all_settings

ROOT = pathlib.Path(__file__).parents[3]
LAUNCH = ROOT / 'launch'
FIELDS = list(all_settings())
METADATA = json.loads((LAUNCH / 'dataflow' / 'template_metadata.json').read_text())
BY_NAME: dict[str, dict[str, Any]] = {parameter['name']: parameter for parameter in METADATA['parameters']}


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


def test_only_input_and_output_are_required() -> None:
    assert {name for name, parameter in BY_NAME.items() if not parameter['isOptional']} == {'input', 'output'}


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
