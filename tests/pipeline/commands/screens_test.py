"""Whatever the screen: a version, completion, narrow terminals, and no colour where none is wanted."""

import importlib.metadata
import os
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import typer.main

from pipeline import main, methods
from pipeline.asked.config import read_config
from pipeline.pages import plan_terminal
from tests.command_line import in_this_process
from tests.samples import on_terminal

# A run of each method that a plan can be made of.
PLANS: dict[str, dict[str, Any]] = {
    'predict': {'epsilon': 3.0, 'labels': ('a', 'b'), 'label_field': 'l'},
    'fine-tune': {'noise_multiplier': 1.25, 'tuning_steps': 20},
    'evolve': {'epsilon': 3.0},
}


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group, by the words that name it."""
    command = typer.main.get_command(main.app) if command is None else command
    yield path
    for name, inner in getattr(command, 'commands', {}).items():
        yield from commands(inner, (*path, name))


def help_at(columns: int, *words: str) -> str:
    # `in_this_process` has a screen of its own width.
    with mock.patch('typer.rich_utils.MAX_WIDTH', columns):
        return in_this_process(*words, '--help').stdout


def test_the_version() -> None:
    done = in_this_process('--version')
    assert (done.returncode, done.stdout) == (0, f'dp-corpus {importlib.metadata.version("dp-corpus")}\n')


@pytest.mark.parametrize(
    'words, offered',
    [('dp-corpus pl', ['plan']), ('dp-corpus plan --max-priv', ['--max-private-tokens'])],
)
def test_a_shell_completes_commands_and_flags(words: str, offered: list[str]) -> None:
    asked = {
        '_DP_CORPUS_COMPLETE': 'complete_bash', 'COMP_WORDS': words, 'COMP_CWORD': str(words.count(' ')),
    }  # fmt: skip
    with mock.patch.dict(os.environ, asked):
        done = in_this_process()
    assert (done.returncode, done.stdout.split()) == (0, offered)


@pytest.mark.parametrize(
    'words, columns',
    [*((words, 60) for words in commands()), *(((name,), 80) for name in ('plan', 'refine', 'evaluate'))],
    ids=lambda value: value if isinstance(value, int) else ' '.join(value),
)
def test_no_help_cuts_a_name_or_a_word(words: tuple[str, ...], columns: int) -> None:
    shown = help_at(columns, *words)
    assert '…' not in shown and max(map(len, shown.splitlines())) <= columns
    command: Any = typer.main.get_command(main.app)
    for word in words:
        command = command.commands[word]
    if 'method' not in {parameter.name for parameter in command.params}:
        flags = {name for parameter in command.params for name in parameter.opts if name.startswith('--')}
        assert flags <= set(re.findall(r'--[\w-]+', shown))


@pytest.mark.parametrize('method', PLANS)
def test_at_40_columns_a_plan_loses_none_of_its_numbers(method: str) -> None:
    config = read_config(None, {'method': method, 'records': 123_456, **PLANS[method]})
    plan = methods.of(config).plan(methods.solve(config))
    shown = on_terminal(lambda console: plan_terminal.render(plan.rows(), plan.warnings, console), 40)
    numbers = [number for _, value in plan.rows() for number in re.findall(r'\d[\w.,]*\w|\d', value)]
    assert len(numbers) > 10 and [number for number in numbers if number not in shown] == []
    assert '…' not in shown and max(map(len, shown.splitlines())) <= 40


@pytest.mark.parametrize('wanted', [True, False])
def test_without_colour_an_error_has_none(wanted: bool) -> None:
    """https://no-color.org: NO_COLOR is set and not empty. Bold is no colour."""
    asked = {'FORCE_COLOR': '1', 'TERM': 'xterm-256color'} | ({} if wanted else {'NO_COLOR': '1'})
    with mock.patch.dict(os.environ, asked):
        done = in_this_process('report', 'nowhere')
    assert done.returncode == 2 and 'Error:' in done.stderr
    assert bool(re.search(r'\x1b\[[0-9;]*3[0-7]m', done.stderr)) is wanted
