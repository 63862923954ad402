"""The commands that pages show exist, with every flag that they are shown with; nothing is run."""

import importlib.util
import pathlib
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import typer.main

from launch.dataflow import main as dataflow
from launch.dataflow.profiles import PROFILES
from launch.demo import records
from launch.flink import main as flink
from pipeline import main

ROOT = pathlib.Path(__file__).parents[1]
PAGES = sorted(
    path for folder in ('launch', 'models', 'pipeline') for path in (ROOT / folder).rglob('*.md')
)  # fmt: skip
# As a shell's prompt or a comment would: what is shown around a command.
_END = re.compile(r'\s(?:&|\||>|2>|#|;)(?:\s|$).*')


def demo_app() -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(records.main)
    return app


def commands_of(text: str) -> Iterator[str]:
    """Every command of a page: its blocks' lines, continued ones joined, and what stands in backticks."""
    joined = re.sub(r'\\\n\s*', '', text)
    blocks = re.findall(r'^```\w*\n(.*?)^```', joined, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r'^ {4}(\S.*)$', joined, re.MULTILINE)
    lines += re.findall(r'`([^`\n]+)`', re.sub(r'^```.*?^```', '', joined, flags=re.MULTILINE | re.DOTALL))
    for line in lines:
        command = re.sub(r'^(?:\$ |[A-Z_]+=\S+ )+', '', line)
        if re.match(r'(?:dp-corpus|launch/\S+\.sh|(?:\.venv/bin/)?python -m) ', command):
            yield _END.sub('', command)


def faults_of(command: str) -> list[str]:
    """What of a command does not exist; words in capitals and `...` stand for something else."""
    words = shlex.split(command)
    if words[0] == 'dp-corpus':
        return _unknown(typer.main.get_command(main.app), words[1:])
    if words[0].endswith('python'):
        module, rest = words[2], words[3:]
        if module == 'launch.demo.records':
            return _unknown(typer.main.get_command(demo_app()), rest)
        if module.split('.')[0] in ('launch', 'pipeline', 'tests'):
            return [] if importlib.util.find_spec(module) else [f'no module {module}']
        if module == 'pytest':
            return [
                f'no file {word}' for word in rest if word.startswith('tests/') and not (ROOT / word).exists()
            ]
        return []
    if not (ROOT / words[0]).is_file():
        return [f'no file {words[0]}']
    if words[0] == 'launch/flink/flink.sh':
        return _unknown(typer.main.get_command(flink.app), words[1:])
    if words[0] == 'launch/dataflow/dataflow.sh':
        if words[1] in PROFILES:
            words.insert(1, 'run')
        if words[1] in ('run', 'run-template'):
            return _unknown(typer.main.get_command(dataflow.app), words[1:])
        text = (ROOT / words[0]).read_text()
        return [] if f'\n{words[1]}() {{' in text else [f'no command {words[1]}']
    return []


def _unknown(command: Any, words: Sequence[str]) -> list[str]:
    """Subcommands and flags that the command line does not have; what follows a `--` is another's."""
    while hasattr(command, 'commands'):  # a group
        if not words or words[0].isupper() or words[0].startswith(('-', '.')):
            return []
        if words[0] not in command.commands:
            return [f'no command {words[0]}']
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    cut = words.index('--') if '--' in words else len(words)
    flags = [word.partition('=')[0] for word in words[:cut] if word.startswith('--')]
    faults = [f'no flag {flag}' for flag in flags if flag not in known | {'--help'}]
    if command.name in ('run', 'run-template'):  # whose rest are flags of generate
        generate = typer.main.get_command(main.app).commands['generate']  # type: ignore[attr-defined]
        faults += _unknown(generate, words[cut + 1 :])
    return faults


@pytest.mark.parametrize('page', [ROOT / 'README.md', *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist(page: pathlib.Path) -> None:
    faults = {command: faults_of(command) for command in commands_of(page.read_text())}
    assert {command: found for command, found in faults.items() if found} == {}


def test_commands_are_found() -> None:
    found = list(commands_of((ROOT / 'launch' / 'local.md').read_text()))
    assert len(found) >= 10 and any('ledger add' in command for command in found)
    assert sum(command.startswith('launch/') for command in commands_of(
        (ROOT / 'launch' / 'flink' / 'README.md').read_text())) > 5  # fmt: skip


@pytest.mark.parametrize(
    'command, fault',
    [
        ('dp-corpus generat --input x', 'no command generat'),
        ('dp-corpus ledger add x --epsilom 3', 'no flag --epsilom'),
        ('launch/flink/flink.sh run -- --no-such-flag', 'no flag --no-such-flag'),
        ('launch/dataflow/dataflow.sh nvidia-l4 --zones x', 'no flag --zones'),
        ('launch/nowhere.sh start', 'no file launch/nowhere.sh'),
        ('python -m tests.benchmarks.no_such_benchmark', 'no module tests.benchmarks.no_such_benchmark'),
    ],
)
def test_what_does_not_exist_is_found(command: str, fault: str) -> None:
    assert faults_of(command) == [fault]
