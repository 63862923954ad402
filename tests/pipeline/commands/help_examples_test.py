"""The help of each command begins with an example, and the command takes its arguments."""

import re
import shlex
from typing import Any

import pytest
import typer

from pipeline import main

COMMANDS = [
    ('start',), ('report',), ('export',), ('split',), ('evaluate',), ('centers',), ('schema',),
    ('ledger',), ('audit', 'canaries'),
    *(('ledger', name) for name in ('add', 'show', 'budget', 'settle', 'plot', 'export')),
]  # fmt: skip


def command_of(path: tuple[str, ...]) -> Any:
    found: Any = typer.main.get_command(main.app)
    for name in path:
        found = found.commands[name]
    return found


@pytest.mark.parametrize('path', COMMANDS, ids=' '.join)
def test_the_example_of_the_help_is_one_that_the_command_takes(path: tuple[str, ...]) -> None:
    text = command_of(path).help or ''
    first, second = re.split(r'\n\s*\n', text.strip())[:2]
    assert '\n' not in first and second.startswith('Example: dp-corpus ')
    program, *arguments = shlex.split(second.removeprefix('Example: '))
    assert (program, *arguments[: len(path)]) == ('dp-corpus', *path)
    # The example of a group is one of its commands'.
    own = path if not hasattr(command_of(path), 'commands') else (*path, arguments[len(path)])
    # Fails on an option that is unknown, lacks its value, or has to be there and is not.
    with command_of(own).make_context(' '.join(own), arguments[len(own) :]) as context:
        assert context.params
