"""One field, one key, one flag; and the help of the method that a command line chooses."""

import dataclasses
import doctest
import pathlib
import re
import typing
from typing import Any

import pytest
import typer.main
import typer.testing

from pipeline import main
from pipeline.asked.config import all_settings, settings_of
from pipeline.commands import flags
from pipeline.methods import METHODS
from pipeline.settings.job_config import OF_EVERY_RUN

PANELS = (*OF_EVERY_RUN.values(), *(method.settings for method in METHODS.values()))
FIELDS = {'method', *(field.name for of in PANELS for field in dataclasses.fields(of))}


def flags_of(command: str) -> dict[str, Any]:
    group = typing.cast(Any, typer.main.get_command(main.app))
    return {name: option for option in group.commands[command].params for name in option.opts}


# Flags that say how a command answers, and are no setting of a run.
SWITCHES = {
    'plan': {'--json', '--compare'},
    'generate': {'--json', '--quiet'},
}


@pytest.mark.parametrize('command', ['plan', 'generate'])
def test_every_field_is_a_flag_and_every_flag_a_field(command: str) -> None:
    own = {'--config'} | SWITCHES[command]
    assert set(flags_of(command)) - own == {f'--{name.replace("_", "-")}' for name in FIELDS}


@pytest.mark.parametrize('command', ['plan', 'generate'])
def test_a_flag_that_is_not_given_leaves_the_file_alone(command: str) -> None:
    given = {name: flag.default for name, flag in flags_of(command).items() if name not in SWITCHES[command]}
    assert set(given.values()) == {None}


def test_the_help_of_a_flag_that_several_methods_have_tells_all_of_them() -> None:
    every = all_settings()
    shared = set(settings_of('predict')) & set(settings_of('fine-tune'))
    differing = {
        name for name in shared if settings_of('predict')[name].help != settings_of('fine-tune')[name].help
    }
    assert differing >= {'temperature', 'adapter', 'micro_batch_size'}
    for name in shared:
        text = every[name].help
        assert text.startswith(settings_of('predict')[name].help)
        assert ('With --method fine-tune: ' in text) == (name in differing)
        # The beginning that both share stands there once.
        assert text.count(re.split(r'(?<=\.) ', text)[0]) == 1 or name == 'adapter'
    assert every['temperature'].help.endswith(settings_of('fine-tune')['temperature'].help)


# --- Help ------------------------------------------------------------------------


def help_of(*arguments: str) -> tuple[list[str], set[str], str]:
    """The titles of the panels that help shows, the flags in them, and the whole screen on one line."""
    done = typer.testing.CliRunner().invoke(main.app, [*arguments, '--help'], env={'COLUMNS': '160'})
    assert done.exit_code == 0, done.output
    titles = re.findall(r'╭─ (.*?) ─+╮', done.stdout)
    return (
        titles,
        set(re.findall(r'^│ (--(?!no-)[a-z-]+)', done.stdout, re.MULTILINE)),
        ' '.join(done.stdout.split()),
    )


def expected_of(method: str, command: str) -> tuple[list[str], set[str]]:
    titles = ['Options', *dict.fromkeys(setting.panel for setting in settings_of(method).values())]
    flags = {f'--{name.replace("_", "-")}' for name in settings_of(method)}
    return titles, flags | SWITCHES[command] | {'--config', '--help'}


CHOICES = [
    (('--method', 'fine-tune'), 'fine-tune'),
    (('--method=fine-tune',), 'fine-tune'),
    (('--adapter', 'tuned'), 'fine-tune'),
    (('--adapter=tuned', '--output', 'out'), 'fine-tune'),
    (('--config', 'tuned.toml'), 'fine-tune'),
    (('--config', 'sampled.toml'), 'fine-tune'),
    (('--config', 'tuned.toml', '--method', 'predict'), 'predict'),
    (('--adapter', 'tuned', '--method', 'predict'), 'predict'),
    (('--config', 'predicted.toml'), 'predict'),
    (('--config', 'nowhere.toml'), 'predict'),
    (('--config', 'broken.toml'), 'predict'),
    (('--method', 'no-such-method'), 'predict'),
    ((), 'predict'),
]


@pytest.fixture
def configs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of settings in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ('tuned', 'method = "fine-tune"\n'),
        ('sampled', 'adapter = "tuned"\n'),
        ('predicted', 'batch_size = 8\n'),
        ('broken', 'method = \n'),
    ):
        (tmp_path / f'{name}.toml').write_text(text)


@pytest.mark.usefixtures('configs')
@pytest.mark.parametrize('arguments, method', CHOICES)
def test_help_shows_the_panels_of_the_chosen_method_and_no_others(
    arguments: tuple[str, ...], method: str
) -> None:
    titles, shown, screen = help_of('generate', *arguments)
    expected_titles, expected = expected_of(method, 'generate')
    assert (titles, shown) == (expected_titles, expected)
    assert set(METHODS[method].settings.panels) <= set(titles)
    others = [name for name in METHODS if name != method]
    elsewhere = ' or '.join(f'--method {other}' for other in others)
    assert f'Settings of --method {method}. For others: generate {elsewhere} --help.' in screen
    for other in others:
        assert not (set(METHODS[other].settings.panels) - set(METHODS[method].settings.panels)) & set(titles)
    # Its own words of a setting that both have.
    words = {'predict': 'private tokens', 'fine-tune': 'of sampling'}
    text = re.sub(r'[│<>]|<str>|<float>', ' ', screen)
    of_temperature = ' '.join(text.split()).partition('--temperature ')[2][:200]
    for name, said in words.items():
        assert (said in of_temperature) == (name == method), of_temperature


def test_examples_of_flags_hold() -> None:
    assert doctest.testmod(flags).failed == 0
