"""The commands that pages show are right: each is parsed, and a run's config is built; nothing is run."""

import functools
import importlib.util
import pathlib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
import typer.main

from launch.dataflow import main as dataflow
from launch.dataflow.profiles import PROFILES
from launch.demo import records
from models import bundled
from pipeline import main
from pipeline.asked import narrowed
from pipeline.commands import audit, check, generate, plan
from tests import pages
from tests.pages import ROOT

# As a shell's prompt or a comment would: what is shown around a command.
_END = re.compile(r'\s(?:&|\||>|2>|#|;)(?:\s|$).*')
# Commands that build the config of a run from their flags, with the modules and the functions that do.
_OF_A_RUN: dict[str, tuple[Any, str]] = {
    **{
        name: (module, 'chosen')
        for name, module in (('plan', plan), ('check', check), ('generate', generate))
    },
    **dict.fromkeys(('predict', 'evolve', 'fine-tune', 'refine'), (narrowed, 'read_config')),
    'canaries': (audit, 'read_config'),
}
# Settings that pages leave out with `...` or in the file of --config: one of each is enough.
_ENOUGH = {
    '--epsilon': ('--epsilon', '--context-budget', '--max-private-tokens', '--noise-multiplier', '--adapter'),
    '--records': ('--records', '--delta', '--adapter'),
    '--input': ('--input', '--adapter'),
    '--output': ('--output',),
}
_VALUES = {'--epsilon': '1.0', '--records': '10000', '--input': 'records.jsonl', '--output': 'corpus'}
# In place of a word in capitals, where not every word will do.
_SAMPLES = {**_VALUES, '--batch-size': '64', '--rho': '0.5', '--dtype': 'float32', '--model': bundled.MODEL}
# Files that a config reads when it is built, and a page does not have: one of the checkout in its place.
_IN_PLACE = {'--centers': str(bundled.FOLDER / 'centers'), '--json-schema': 'launch/demo/clinic_visit.json'}

# Its own command beside `run`, and the scripts of Flink that pages use.
_OF_FLINK_SH = {'fetch', 'start-cluster.sh', 'stop-cluster.sh', 'jobmanager.sh', 'taskmanager.sh', 'flink'}


@functools.cache
def command_line(program: str = 'dp-corpus') -> Any:
    """The whole command line of a program, which takes a while to make."""
    if program == 'records':
        app = typer.Typer(add_completion=False)
        app.command()(records.main)
    else:
        app = {'dp-corpus': main.app, 'dataflow': dataflow.app}[program]
    return typer.main.get_command(app)


def commands_of(text: str) -> Iterator[str]:
    """Every command of a page: its blocks' lines, continued ones joined, and what stands in backticks."""
    for line in [*pages.block_lines(text), *pages.inline_code(text)]:
        command = re.sub(r'^(?:\$ |[A-Z_]+=\S+ )+', '', line).removeprefix('.venv/bin/')
        if re.match(r'(?:dp-corpus|launch/\S+\.sh|python -m) ', command):
            yield _END.sub('', command)


def faults_of(command: str, folder: pathlib.Path | None = None) -> list[str]:
    """The parts of a command that do not exist or fit; words in capitals and `...` stand for something else.

    Args:
        command: The command.
        folder: Folder for a file in place of one that a page does not have. Without it no command
            of ours is parsed to its end, and no config built.
    """
    words = shlex.split(command)
    if words[0] == 'dp-corpus':
        unknown = _unknown(command_line(), words[1:])
        return unknown if unknown or folder is None or not _is_whole(words) else _misfits(words[1:], folder)
    if words[0] == 'python':
        module, rest = words[2], words[3:]
        if module == 'launch.demo.records':
            return _unknown(command_line('records'), rest)
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
        if words[1] == 'run':
            return _unknown(command_line(), ['generate', *words[2:]])
        return [] if words[1] in {*_OF_FLINK_SH, '...'} else [f'no command {words[1]}']
    if words[0] == 'launch/dataflow/dataflow.sh':
        if words[1] in PROFILES:
            return _unknown(command_line('dataflow'), ['run', *words[1:]])
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
    cut = words.index('--') if '--' in words else len(words)
    named = [word.partition('=')[0] for word in words[:cut] if word.startswith('--')]
    faults = [f'no flag {flag}' for flag in named if flag not in {*_options(command), '--help'}]
    if command.name == 'run':  # of Dataflow: the rest are flags of generate
        faults += _unknown(command_line().commands['generate'], words[cut + 1 :])
    return faults


def _options(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def _is_whole(words: Sequence[str]) -> bool:
    """True if a command is meant to be given as it stands, and is not one that a sentence names."""
    given = {word.partition('=')[0] for word in words}
    said = {flag for flags_of_one in _ENOUGH.values() for flag in flags_of_one}
    return len(words) > 2 and bool(said & given) and not words[-1].startswith('--')


class _Built(Exception):
    """The config is built, and the command need do no more."""


def _misfits(words: Sequence[str], folder: pathlib.Path) -> list[str]:
    """The errors of a command line of ours, whose run's config is built too."""
    command = command_line()
    while hasattr(command, 'commands'):
        name, words = words[0], words[1:]
        command = command.commands[name]
    cut = words.index('--') if '--' in words else len(words)
    arguments = _completed(command, list(words[:cut]), folder, name)
    try:
        if name not in _OF_A_RUN:
            command.make_context(name, arguments)
            return []
        module, function = _OF_A_RUN[name]
        with mock.patch.object(module, function, _built_by(getattr(module, function))):
            command.main(args=[*arguments, *words[cut:]], standalone_mode=False)
    except _Built:
        return []
    except Exception as error:  # noqa: BLE001 - whatever it says is the fault
        return [getattr(error, 'message', None) or str(error)]
    # A comparison builds a config of each method, which says itself whether one fits.
    return [] if '--compare' in words else ['builds no config']


def _built_by(build_config: Callable[..., Any]) -> Callable[..., Any]:
    def build(*args: Any, **kwargs: Any) -> Any:
        build_config(*args, **kwargs)
        raise _Built

    return build


def _completed(command: Any, words: list[str], folder: pathlib.Path, name: str) -> list[str]:
    """The words with a value for each placeholder, and with what `...` and a file of settings leave out."""
    options, cut_short = _options(command), '...' in words
    words = [word for word in words if word != '...']
    # An adapter is sampled from for free, and records that vote with it pay as ever.
    given = {*words} - ({'--adapter'} if 'predict' in (name, *words) else set())
    completed: list[str] = []
    for flag, word in zip(['', *words], words):
        if word.isupper():
            word = _SAMPLES.get(flag, word)
        if flag in _IN_PLACE and not (ROOT / word).exists():
            word = _IN_PLACE[flag]
        elif flag == '--config' and not (ROOT / word).exists():
            file = folder / 'run.toml'
            left_out = [of for of, enough in _ENOUGH.items() if not {*enough} & given]
            file.write_text(''.join(f'{of[2:]} = {_toml(_VALUES[of])}\n' for of in left_out))
            word = str(file)
        completed.append(word)
    if name in _OF_A_RUN and cut_short:
        for flag, enough in _ENOUGH.items():
            if flag in options and not {*enough} & given:
                completed += [flag, _VALUES[flag]]
    return completed


def _toml(value: str) -> str:
    return value if re.fullmatch(r'[\d.]+', value) else f'"{value}"'


def targets_of(text: str) -> set[str]:
    """The targets of `make` that the code of a page names."""
    found: set[str] = set()
    for line in [*pages.block_lines(text), *pages.inline_code(text)]:
        if line.startswith('make '):
            words = re.sub(r'\s#.*', '', line).split()[1:]
            found |= {word for word in words if '=' not in word}
    return found


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('page', pages.all_pages(), ids=pages.name_of)
def test_the_commands_of_a_page_are_right(
    page: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    faults = {command: faults_of(command, tmp_path) for command in commands_of(page.read_text())}
    assert {command: found for command, found in faults.items() if found} == {}


@pytest.mark.parametrize('page', pages.all_pages(), ids=pages.name_of)
def test_make_has_the_targets_of_a_page(page: pathlib.Path) -> None:
    rules = re.findall(r'^([\w%-]+(?: [\w%-]+)*):(?!=)', (ROOT / 'Makefile').read_text(), re.MULTILINE)
    patterns = [name.replace('%', r'[\w-]+') for rule in rules for name in rule.split()]
    named = targets_of(page.read_text())
    assert {name for name in named if not any(re.fullmatch(of, name) for of in patterns)} == set()


def test_commands_are_found() -> None:
    found = list(commands_of((ROOT / 'docs' / 'deploying' / 'local.md').read_text()))
    assert len(found) >= 10 and any('--run-id killed' in command for command in found)
    flink_page = (ROOT / 'docs' / 'deploying' / 'flink.md').read_text()
    assert sum(command.startswith('launch/') for command in commands_of(flink_page)) > 5
    whole = [
        command
        for page in pages.guide()
        for command in commands_of(page.read_text())
        if command.startswith('dp-corpus') and _is_whole(shlex.split(command))
    ]
    assert len(whole) > 30
    assert targets_of((ROOT / 'README.md').read_text()) == {'demo', 'test', 'gemma'}


@pytest.mark.parametrize(
    'command, fault',
    [
        ('dp-corpus generat --input x', 'no command generat'),
        ('dp-corpus ledger add x --epsilom 3', 'no flag --epsilom'),
        ('launch/flink/flink.sh run --no-such-flag -- --of-beam', 'no flag --no-such-flag'),
        ('launch/flink/flink.sh start', 'no command start'),
        ('launch/dataflow/dataflow.sh nvidia-l4 --zones x', 'no flag --zones'),
        ('launch/nowhere.sh start', 'no file launch/nowhere.sh'),
        ('python -m tests.benchmarks.no_such_benchmark', 'no module tests.benchmarks.no_such_benchmark'),
        ('dp-corpus plan --epsilon much --records 9', 'valid'),
        ('dp-corpus ledger add x --ledger y --epsilon 3 --delta 1e-6', ''),  # no --unit
        ('dp-corpus plan --epsilon 1 --labels a,b --records 9', 'Expected labels and label_field together'),
        ('dp-corpus generate ... --epsilon 1 --max-private-tokens 5', 'Expected no max_private_tokens'),
        ('dp-corpus generate --config F --epsilon 1 --batch-size few', 'valid'),
    ],
)
def test_what_is_wrong_is_found(command: str, fault: str, tmp_path: pathlib.Path) -> None:
    (found,) = faults_of(command, tmp_path)
    assert fault in found
