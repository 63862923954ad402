"""Help at any width: no name of a flag, and no word, is cut.

Typer's tables end what does not fit with an ellipsis. Here they go on in the next line; where a terminal is
too narrow for tables of five columns, flags stand below one another.
"""

from typing import Any

import rich.columns
import rich.console
import rich.padding
import rich.table
import typer.rich_utils
from rich import text

# Below it tables of help have columns of a few letters.
LEAST_COLUMNS = 72
_INDENT = 4

_of_typer = typer.rich_utils.rich_format_help


class _WholeTable(rich.table.Table):
    """A table whose cells go on in the next line."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        for cell in cells:
            parts = cell.renderables if isinstance(cell, rich.columns.Columns) else (cell,)
            for part in parts:
                if isinstance(part, text.Text):
                    part.overflow = 'fold'
        super().add_row(*cells, **options)
        for column in self.columns:
            column.overflow = 'fold'


def install() -> None:
    """Has Typer show help so, in this process."""
    typer.rich_utils.Table = _WholeTable  # type: ignore[misc]
    typer.rich_utils.rich_format_help = _help


def _help(*, obj: Any, ctx: Any, markup_mode: Any) -> None:
    console = typer.rich_utils._get_rich_console()
    if console.width >= LEAST_COLUMNS:
        _of_typer(obj=obj, ctx=ctx, markup_mode=markup_mode)
    else:
        _print_narrow(obj, ctx, console)


def _print_narrow(command: Any, context: Any, console: rich.console.Console) -> None:
    """Usage, the command's own words, then each flag or command with its help below it."""

    def say(words: str, indent: int = 0) -> None:
        found = text.Text.from_markup(words, overflow='fold')
        console.print(rich.padding.Padding(found, (0, 0, 0, indent)))

    console.print(text.Text(command.get_usage(context), overflow='fold'))
    for paragraph in (command.help or '').replace('\b\n', '').split('\n\n'):
        console.print()
        say(' '.join(paragraph.split()))
    panel = None
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        of = getattr(parameter, 'rich_help_panel', None) or 'Options'
        if of != panel:
            panel = of
            console.print(f'\n[bold]{panel}[/bold]')
        name, said = record
        console.print(text.Text(name, style='cyan', overflow='fold'))
        say(said, _INDENT)
    if hasattr(command, 'list_commands'):
        console.print('\n[bold]Commands[/bold]')
        for name in command.list_commands(context):
            console.print(text.Text(name, style='cyan'))
            say(command.get_command(context, name).get_short_help_str(10_000), _INDENT)
    if command.epilog:
        console.print()
        say(command.epilog)
