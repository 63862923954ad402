"""The command line: commands are registered here, and errors become exit codes.

Each command is a file of `pipeline/commands/`. Heavy libraries are imported when a run starts, and
not before: errors of the request come at once.
"""

import importlib.metadata
import json
import sys
import typing
from collections.abc import Iterator
from typing import Annotated

import rich.markup
import typer

from models.extras import MissingExtraError
from pipeline.commands import (
    audit,
    check,
    evaluate,
    exit_codes,
    generate,
    ledger,
    models,
    plan,
    prepare,
    release,
    schema,
    start,
)
from pipeline.commands.flags import MethodCommand
from pipeline.ledger.budget import BudgetExceeded
from pipeline.screen import terminal


def _show_version(asked: bool) -> None:
    if asked:
        print(f'dp-corpus {importlib.metadata.version("dp-corpus")}')
        raise typer.Exit


app = typer.Typer(
    name='dp-corpus',
    help='Differentially private synthetic text from records that may not be shared.',
    no_args_is_help=True,
    rich_markup_mode='rich',
    pretty_exceptions_enable=False,
)


@app.callback()
def _of_all_commands(
    version: Annotated[
        bool,
        typer.Option('--version', help='Print the version, and end.', callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


# In the order of --help.
app.command()(start.start)
app.command(cls=MethodCommand)(plan.plan)
app.command(cls=MethodCommand)(check.check)
# Arguments after a bare -- are Beam's.
_TAKES_OPTIONS = {'allow_extra_args': True, 'ignore_unknown_options': False}
app.command(cls=MethodCommand, context_settings=_TAKES_OPTIONS)(generate.generate)
app.command(context_settings=_TAKES_OPTIONS)(generate.predict)
app.command(context_settings=_TAKES_OPTIONS)(generate.fine_tune)
app.command(context_settings=_TAKES_OPTIONS)(generate.tune_refine)
app.command(context_settings=_TAKES_OPTIONS)(generate.evolve)
app.command(context_settings=_TAKES_OPTIONS)(generate.refine)
app.command()(release.report)
app.command()(release.export)
app.command()(prepare.split)
app.command()(evaluate.evaluate)
app.command()(prepare.centers)
app.command()(schema.schema)
app.add_typer(models.app, name='models')
app.add_typer(ledger.app, name='ledger')
app.add_typer(audit.app, name='audit')


def main() -> None:
    """Runs the command line; errors of the request print one line and exit with 2, of the budget with 3."""
    try:
        # However Python was started, the command has one name. Its own `typer.Exit` comes back as its code.
        sys.exit(app(prog_name='dp-corpus', standalone_mode=False))
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except typer.Abort:
        sys.exit(130)
    except BudgetExceeded as error:
        _fail(error, exit_codes.BUDGET)
    except (ValueError, FileNotFoundError, FileExistsError, PermissionError, MissingExtraError) as error:
        _fail(error, exit_codes.USAGE)
    except Exception as error:  # noqa: BLE001 - a run's own failure; usage errors of typer among them
        show = getattr(error, 'show', None)
        if show is not None:
            show()
            _fail(error, getattr(error, 'exit_code', exit_codes.USAGE), shown=True)
        _fail(error, exit_codes.FAILED)


def _fail(error: BaseException, code: int, *, shown: bool = False) -> typing.NoReturn:
    """Prints an error with its causes and ends; `shown` where the screen has it already."""
    causes, cause = [str(error)], error.__cause__
    while cause is not None:
        # Stated causes only: `start.run` states none for what a step raised over its data.
        if str(cause) not in causes[-1]:
            causes.append(f'{type(cause).__name__}: {cause}')
        cause = cause.__cause__
    text = '\n  because of '.join(causes)
    if '--json' in sys.argv:
        print(json.dumps({'error': text, 'exit_code': code}))
    if not shown:
        terminal.console(stderr=True).print(f'[red]Error:[/red] {rich.markup.escape(text)}', soft_wrap=True)
    if sys.stderr.isatty():
        # The person at a terminal may look into the curator's files; a log may not.
        terminal.console(stderr=True).print(
            *_for_the_curator(error), sep='\n', soft_wrap=True, markup=False, highlight=False
        )
    sys.exit(code)


def _for_the_curator(error: BaseException | None) -> Iterator[str]:
    """Texts for the curator's eyes, which errors and their causes hold beside the released ones."""
    while error is not None:
        if (restricted := getattr(error, 'for_the_curator', None)) is not None:
            yield restricted
        error = error.__cause__


if __name__ == '__main__':
    main()
