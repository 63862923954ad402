"""`dp-corpus audit`: look for what a proof cannot see."""

import pathlib
from typing import Annotated, Any

import typer

from models import extras
from pipeline import methods
from pipeline.asked.config import all_settings, read_config
from pipeline.commands import exit_codes, flags
from pipeline.methods import canary_audit
from pipeline.pages import canaries_page
from pipeline.release import apart
from pipeline.screen import off_screen, terminal

app = typer.Typer(
    help="Look for what a proof cannot see: a program that does something else. For the curator's eyes.",
    no_args_is_help=True,
    rich_markup_mode='rich',
)


@app.command('canaries')
@flags.with_flags(all_settings().values())
def canaries(
    config: flags.ConfigFlag = None,
    canaries: Annotated[
        int, typer.Option('--canaries', help='Made-up units; a fair coin puts each in or leaves it out.')
    ] = 512,
    seed: Annotated[int, typer.Option('--seed', help='Of the canaries and their coins.')] = 0,
    result_file: Annotated[
        str | None,
        typer.Option(
            '--result', help='New .json or .html file for the whole result, readable by its owner alone.'
        ),
    ] = None,
    as_json: flags.JsonFlag = False,
    **settings: Any,
) -> None:
    """Put made-up units into one run and let an attacker guess which: a lower bound on epsilon.

    Example: dp-corpus audit canaries --method refine --corpus public.jsonl --records 4000 --epsilon 3

    Any method; charges no budget. With an input its records are in the run too. Ends with 1
    where the guesses contradict what is proven. An audit proves no privacy.
    """
    path = None if result_file is None else pathlib.Path(result_file)
    job_config = read_config(config, settings)
    method = methods.of(job_config)
    # Both before the libraries are loaded, which takes a while.
    canary_audit.check(job_config, canaries)
    if path is not None:
        apart.check_file(path, apart.PAGE_OR_JSON)
    # The bound on epsilon is a library's that comes with the models.
    libraries = job_config.method.extras(is_local=job_config.runner.is_local)
    extras.need(*libraries, extras.GEMMA, use=f'an audit of method={method.name!r}')
    off_screen.silence_libraries()
    # Standard error is held back meanwhile.
    console = terminal.console(quiet=as_json)
    with console.status('Starting') as status, off_screen.without_chatter(), off_screen.unquoted():
        run = methods.solve(job_config, launch=True)
        result = canary_audit.audit(
            method.canaries(), run, canaries=canaries, seed=seed, progress=status.update
        )
    if path is not None:
        content = result.to_json() if path.suffix == '.json' else canaries_page.render_html(result)
        apart.write(path, content, apart.PAGE_OR_JSON)
    if as_json:
        print(result.to_json(), end='')
    else:
        canaries_page.render(result, terminal.console())
    if not result.ok:
        raise typer.Exit(exit_codes.FAILED)
