"""Flags of the command line: one for each setting, and those that several commands share.

Flags are made from the fields of panels, so that a field, a key of the TOML file and a flag are one thing.
A command takes the flags of every method, and `--help` shows those of the chosen one.
"""

import copy
import inspect
import pathlib
import tomllib
from collections.abc import Callable, Collection, Iterable
from typing import Annotated, Any, Literal

import rich.table
import typer
import typer.core
import typer.rich_utils
from rich import text

from pipeline.asked.config import (
    DEFAULT_METHOD,
    METHOD,
    Setting,
    all_settings,
    implied_method,
    settings_of,
)
from pipeline.methods import METHODS
from pipeline.settings.input import INPUT_HELP
from transforms.text_files import Encoding

# Width of names in help; a longer name goes on in the next line, as do choices.
NAMES_COLUMNS = 34

ConfigFlag = Annotated[
    str | None,
    typer.Option('--config', help='TOML file whose keys are the flags below; flags win.', metavar='FILE'),
]
JsonFlag = Annotated[bool, typer.Option('--json', help='Print one JSON object and nothing else.')]
QuietFlag = Annotated[bool, typer.Option('--quiet', help='Print nothing but errors.')]
InputFlag = Annotated[
    str, typer.Option('--input', help='Files of texts: JSONL, CSV or Parquet; globs and comma lists.')
]
RecordsFlag = Annotated[str | None, typer.Option('--input', help=INPUT_HELP)]
EmbedderFlag = Annotated[
    str, typer.Option('--embedder', help='tfidf, minilm, decoder, or a folder of MiniLM weights.')
]
ModelFlag = Annotated[str, typer.Option('--model', help='Model size, for the embedder decoder.')]
CheckpointFlag = Annotated[str | None, typer.Option('--checkpoint', help='Its weights.')]
TokenizerFlag = Annotated[
    str | None, typer.Option('--tokenizer', help='Its SentencePiece file or tokenizer.json.')
]
DtypeFlag = Annotated[
    Literal['float32', 'bfloat16'], typer.Option('--dtype', help='Type of its weights and computation.')
]
SeedFlag = Annotated[int, typer.Option('--seed', help='Public seed of the clustering.')]


def with_flags(settings: Iterable[Setting]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command one flag for each setting, grouped by meaning, in place of its `**settings`.

    A flag that is not given is None. Registered with `cls=MethodCommand` the `--help` of a command shows one
    method's flags.
    """

    def flagged(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        parameters = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        parameters += map(_flag_of, settings)
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return flagged


def _flag_of(setting: Setting) -> inspect.Parameter:
    # A list is a text with commas here.
    base = str if setting.is_list else setting.type
    name = '--' + setting.name.replace('_', '-')
    option = typer.Option(
        f'{name}/--no-{name[2:]}' if base is bool else name,
        help=_help_of(setting),
        rich_help_panel=setting.panel,
        show_default=False,
        # The help names so many choices.
        metavar='NAME' if base == Encoding | None else None,
    )
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[base | None, option],
    )


def _help_of(setting: Setting) -> str:
    if setting.default in (None, (), False):
        return setting.help
    return f'{setting.help} [dim](default: {setting.default})[/dim]'


class _HelpTable(rich.table.Table):
    """A table of flags in two columns, names beside help, where Typer has up to seven and cuts words."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        names = [name for name in cells[:-1] if isinstance(name, text.Text) and name]
        for part in getattr(cells[-1], 'renderables', cells[-1:]):
            part.overflow = 'fold'
        super().add_row(text.Text(' ', overflow='fold').join(names), cells[-1], **options)
        self.columns[0].max_width = NAMES_COLUMNS


# Typer has no setting for it.
typer.rich_utils.Table = _HelpTable  # type: ignore[misc]


class MethodCommand(typer.core.TyperCommand):
    """A command whose `--help` shows the settings of the method that the rest of its line chooses."""

    _chosen: str | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[__name__] = list(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._chosen = chosen_method(ctx.meta.get(__name__, ()))
        others = ' or '.join(f'--method {name}' for name in METHODS if name != self._chosen)
        self.epilog = f'Settings of --method {self._chosen}. For others: {ctx.info_name} {others} --help.'
        try:
            super().format_help(ctx, formatter)
        finally:
            self._chosen = None

    def get_params(self, ctx: Any) -> list[Any]:
        """All of them; while help is shown those of the command and of the chosen method, with its words."""
        parameters = super().get_params(ctx)
        if self._chosen is None:
            return parameters
        of_any = all_settings()
        by_name = {str(parameter.name): parameter for parameter in parameters}
        kept: list[Any] = [parameter for name, parameter in by_name.items() if name not in of_any]
        for setting in settings_of(self._chosen).values():
            if setting.name in by_name:
                shown: Any = copy.copy(by_name[setting.name])
                shown.help, shown.rich_help_panel = _help_of(setting), setting.panel
                kept.append(shown)
        return kept


def chosen_method(arguments: Collection[str]) -> str:
    """The method that a command line chooses, as far as its words tell; the default one otherwise.

    >>> chosen_method(['--method=fine-tune', '--help']), chosen_method([])
    ('fine-tune', 'predict')
    """
    values: dict[str, str] = {}
    words = list(arguments)
    for word, after in zip(words, [*words[1:], '']):
        if word.startswith('--'):
            name, equals, value = word[2:].partition('=')
            values[name.replace('-', '_')] = value if equals else after
    if (path := values.get('config')) is not None and pathlib.Path(path).is_file():
        try:
            in_file = tomllib.loads(pathlib.Path(path).read_text(encoding='utf-8'))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            in_file = {}  # the command itself says what is wrong with it
        values = {**{name: str(value) for name, value in in_file.items()}, **values}
    name = values.get(METHOD) or implied_method(values) or DEFAULT_METHOD
    return name if name in METHODS else DEFAULT_METHOD
