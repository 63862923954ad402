"""`dp-corpus audit`: look for what a proof cannot see."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import typer

from models import extras
from pipeline import curator_files, methods, terminal
from pipeline.canaries import Sabotage
from pipeline.commands import exit_codes, flags, screen
from pipeline.commands.flags import config_of, with_config_flags
from pipeline.methods import canary_audit
from pipeline.pages import canaries_page
from pipeline.settings.job_config import JobConfig

app = typer.Typer(
    help="Look for what a proof cannot see: a program that does something else. For the curator's eyes.",
    no_args_is_help=True,
    rich_markup_mode='rich',
)
AuditFileFlag = Annotated[
    str | None,
    typer.Option('--result', help='New .json file for the whole result, readable by its owner alone.'),
]


@app.command('leave-one-out')
@with_config_flags
def leave_one_out(
    config: flags.ConfigFlag = None,
    outsiders: Annotated[
        int, typer.Option('--outsiders', help='Contexts of other batches to put in, one by one.')
    ] = 8,
    sabotage: Annotated[
        Literal['none', 'no-clipping', 'paste', 'no-filter', 'no-growth', 'half-price'],
        typer.Option('--sabotage', help='Break the mechanism on purpose: the audit must notice.'),
    ] = 'none',
    result_file: AuditFileFlag = None,
    as_json: flags.JsonFlag = False,
    **settings: Any,
) -> None:
    """Compare each context's true influence on a batch with the bound that is reported for it.

    Example: dp-corpus audit leave-one-out --input visits.csv --records 120000 --aggregate mean
    --max-private-tokens 60

    Decodes a batch of each label, and in two rounds of each round, as a run would and replays
    its tokens without each of its contexts, and with some of other batches. Ends with 1 where a
    bound is broken. The result holds true losses: it is restricted to the curator.
    """

    def audit(job_config: JobConfig, progress: Callable[[str], None]) -> Any:
        auditor = methods.of(job_config).auditor()
        return auditor.leave_one_out(job_config, outsiders=outsiders, sabotage=sabotage, progress=progress)

    job_config = config_of(config, settings)
    if job_config.input.input is None:
        # Before the libraries are loaded, which takes a while.
        raise ValueError('Expected records to audit, got input=None. Give --input FILES.')
    _audit(audit, job_config, result_file, as_json=as_json, pages=_own_pages)


@app.command('reconstruction')
@with_config_flags
def reconstruction(
    config: flags.ConfigFlag = None,
    keys: Annotated[
        int, typer.Option('--keys', help='Made-up 5-digit keys; half of them are shown.')
    ] = 10_000,
    seed: Annotated[int, typer.Option('--seed', help='Of the keys and of the run.')] = 0,
    sabotage: Annotated[
        Literal['none', 'paste'],
        typer.Option('--sabotage', help='Break the mechanism on purpose: the audit must notice.'),
    ] = 'none',
    result_file: AuditFileFlag = None,
    as_json: flags.JsonFlag = False,
    **settings: Any,
) -> None:
    """Hide made-up keys among records and count those that come out, beside keys never shown.

    Example: dp-corpus audit reconstruction --records 25000 --aggregate mean --max-private-tokens 60

    Reads no input. Ends with 1 where shown keys come out so much more often than others
    that chance explains it less than once in a thousand.
    """

    def audit(job_config: JobConfig, progress: Callable[[str], None]) -> Any:
        auditor = methods.of(job_config).auditor()
        return auditor.reconstruction(job_config, keys=keys, seed=seed, sabotage=sabotage, progress=progress)

    _audit(audit, config_of(config, settings), result_file, as_json=as_json, pages=_own_pages)


@app.command('canaries')
@with_config_flags
def canaries(
    config: flags.ConfigFlag = None,
    canaries: Annotated[
        int, typer.Option('--canaries', help='Made-up units; a fair coin puts each in or leaves it out.')
    ] = 512,
    seed: Annotated[int, typer.Option('--seed', help='Of the canaries and their coins.')] = 0,
    sabotage: Annotated[
        Sabotage,
        typer.Option('--sabotage', help='Break the mechanism on purpose: the audit must notice.'),
    ] = 'none',
    result_file: Annotated[
        str | None,
        typer.Option(
            '--result', help='New .json or .html file for the whole result, readable by its owner alone.'
        ),
    ] = None,
    as_json: flags.JsonFlag = False,
    **settings: Any,
) -> None:
    """Put made-up units into one run and let attackers guess which: a lower bound on epsilon.

    Example: dp-corpus audit canaries --method refine --corpus public.jsonl --records 4000 --epsilon 3

    Any method; charges no budget. With an input its records are in the run too. Ends with 1
    where the bound of any attack passes the epsilon that is proven. An audit proves no privacy.
    """

    def audit(job_config: JobConfig, progress: Callable[[str], None]) -> Any:
        auditor = methods.of(job_config).canary_auditor()
        return auditor.audit(job_config, canaries=canaries, seed=seed, sabotage=sabotage, progress=progress)

    job_config = config_of(config, settings)
    # Before the libraries are loaded, which takes a while.
    canary_audit.check(job_config, canaries, sabotage, methods.of(job_config).canary_sabotages)
    _audit(
        audit,
        job_config,
        result_file,
        as_json=as_json,
        pages=lambda _: canaries_page,
        endings=curator_files.PAGE_OR_JSON,
        # The bound on epsilon is a library's that comes with the models.
        needs=(extras.GEMMA,),
    )


def _own_pages(method: methods.Method[Any]) -> Any:
    return method.auditor()


def _audit(
    audit: Callable[[JobConfig, Callable[[str], None]], Any],
    job_config: JobConfig,
    result_file: str | None,
    *,
    as_json: bool,
    pages: Callable[[methods.Method[Any]], Any],
    endings: Sequence[str] = curator_files.JSON,
    needs: Sequence[str] = (),
) -> None:
    """Runs an audit, shows and keeps its result, and ends with 1 where it found a violation.

    Args:
        audit: Runs it.
        job_config: The run.
        result_file: Where the result goes.
        as_json: Whether it is printed as JSON.
        pages: Gives what has `render` and `write_audit`, once the extras are known to be here.
        endings: What the name of the result's file may end in.
        needs: Extras beside the method's own.
    """
    path = None if result_file is None else pathlib.Path(result_file)
    if path is not None:
        # Before the libraries are loaded, which takes a while.
        curator_files.check(path, endings)
    method = methods.of(job_config)
    extras.need(*method.extras(job_config), *needs, use=f'an audit of method={method.name!r}')
    shown = pages(method)
    screen.silence_libraries()
    # Standard error is held back meanwhile.
    console = terminal.console(quiet=as_json)
    with console.status('Starting') as status, screen.without_chatter(), screen.unquoted():
        result = audit(job_config, lambda said: status.update(said))
    if path is not None:
        shown.write_audit(result, path)
    if as_json:
        print(result.to_json(), end='')
    else:
        shown.render(result, terminal.console())
    if not result.ok:
        raise typer.Exit(exit_codes.FAILED)
