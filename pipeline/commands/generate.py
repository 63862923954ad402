"""`dp-corpus generate` and the commands of one method each: those that run the job."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import rich.console
import typer

from pipeline.asked import narrowed
from pipeline.asked.chosen import chosen
from pipeline.asked.config import Setting, all_settings
from pipeline.commands import flags
from pipeline.commands.release import show_report
from pipeline.methods.solved import Run
from pipeline.pages import ledger_terminal
from pipeline.run import watched
from pipeline.screen import interrupt, terminal
from pipeline.settings.job_config import JobConfig
from transforms.run_files import RESTRICTED_PAGE


@flags.with_flags(all_settings().values())
def generate(
    context: typer.Context,
    config: flags.ConfigFlag = None,
    as_json: flags.JsonFlag = False,
    quiet: flags.QuietFlag = False,
    **settings: Any,
) -> None:
    """Run the job: sensitive records in, a private corpus and its report out.

    Example: [bold]dp-corpus generate --input notes.csv --records 10000 --epsilon 1 --output corpus[/bold]

    Options of Beam follow after a bare [bold]--[/bold]. The same command again resumes a
    run that died, and spends nothing twice.
    """
    job_config, why = chosen(config, settings)
    _run(job_config, context.args, why, as_json=as_json, quiet=quiet)


def _narrowed(
    name: str,
    known: Mapping[str, Setting],
    read: Callable[[str | None, Mapping[str, Any]], JobConfig],
    text: str,
) -> Callable[..., None]:
    """A command that runs the job with fewer settings, and the text of its help."""

    def command(
        context: typer.Context,
        config: flags.ConfigFlag = None,
        as_json: flags.JsonFlag = False,
        quiet: flags.QuietFlag = False,
        **settings: Any,
    ) -> None:
        _run(read(config, settings), context.args, as_json=as_json, quiet=quiet)

    command.__name__, command.__doc__ = name, text
    return flags.with_flags(known.values())(command)


predict = _narrowed(
    'predict',
    narrowed.PREDICTING,
    functools.partial(narrowed.of_method, 'predict', narrowed.PREDICTING),
    """Let batches of records vote on every token that a frozen model writes: records in, a corpus out.

    Example: [bold]dp-corpus predict --input notes.csv --records 700 --epsilon 1 --output corpus[/bold]

    It is [bold]generate --method predict[/bold] with the flags of this method alone.
    """,
)
evolve = _narrowed(
    'evolve',
    narrowed.EVOLVING,
    functools.partial(narrowed.of_method, 'evolve', narrowed.EVOLVING),
    """Let records vote on whole texts that a model samples from public prompts: records in, a corpus out.

    Example: [bold]dp-corpus evolve --input notes.csv --records 10000 --epsilon 1 --output corpus[/bold]

    It is [bold]generate --method evolve[/bold] with the flags of this method alone.
    """,
)
fine_tune = _narrowed(
    'fine_tune',
    narrowed.TRAINING,
    narrowed.training,
    """Train an adapter with DP-SGD: sensitive records in, a private adapter and its report out.

    It is [bold]generate --method fine-tune[/bold] without a text: [bold]generate --adapter
    OUTPUT[/bold] samples as many as anyone likes, without a record and for free. Options of Beam
    follow after a bare [bold]--[/bold]. The same command again resumes a run that died, and spends
    nothing twice.
    """,
)
tune_refine = _narrowed(
    'tune_refine',
    narrowed.TUNING_AND_VOTING,
    functools.partial(narrowed.of_method, 'tune-refine', narrowed.TUNING_AND_VOTING),
    """Train an adapter with DP-SGD, then let records vote on its texts: records in, a corpus out.

    Example: [bold]dp-corpus tune-refine --input notes.csv --records 10000 --epsilon 1 --output corpus[/bold]

    It is [bold]generate --method tune-refine[/bold] with the flags of this method alone.
    """,
)


@flags.with_flags(narrowed.REFINING.values())
def refine(
    context: typer.Context,
    corpus: Annotated[
        str,
        typer.Argument(
            help='Texts to vote on: the folder of a finished run, or files like those of --input.'
        ),
    ],
    config: flags.ConfigFlag = None,
    as_json: flags.JsonFlag = False,
    quiet: flags.QuietFlag = False,
    **settings: Any,
) -> None:
    """Let records vote on the texts of a corpus: those that they favour stay, with labels by votes.

    Example: [bold]dp-corpus refine texts --input notes.csv --records 10000 --epsilon 1 --keep 500 --output
    refined[/bold]

    The texts may be of a finished run, of an adapter, or of anywhere else that saw none of these
    records. The votes are charged once, to --dataset of --ledger where they are given. The same command
    again resumes a run that died, and spends nothing twice.
    """
    _run(narrowed.refining(corpus, config, settings), context.args, as_json=as_json, quiet=quiet)


def _run(
    job_config: JobConfig,
    beam_arguments: Sequence[str],
    why: str | None = None,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Runs a job to its end, and shows its report; first why its method was taken, where nobody named one."""
    run = watched.ready(job_config)
    console = terminal.console(stderr=True, quiet=quiet or as_json)
    if why is not None:
        console.print(why, soft_wrap=True, markup=False)
    with interrupt.answered():
        if not watched.carry_out(run, beam_arguments, console):
            # A template's launcher only submits.
            console.print(f'Submitted. The report will be in {run.output}.', soft_wrap=True)
            return
        show_report(run.output, as_json=as_json, quiet=quiet)
        _show_what_is_the_curators(run, console)


def _show_what_is_the_curators(run: Run, console: rich.console.Console) -> None:
    """Names the curator's own report, and says what the ledger has left."""
    restricted = f'{run.work_dir}/{RESTRICTED_PAGE}'
    console.print(
        "The curator's own report, never for release, with how many rows were read and rejected: "
        f'{restricted}',
        soft_wrap=True,
    )
    if run.budget.dataset is None or console.quiet:
        return
    from pipeline.ledger.ledger import Ledger

    try:
        account = Ledger.open(str(run.budget.ledger)).account(run.budget.dataset)
    except ConnectionError as error:
        # The run is over, and was charged before it began.
        console.print(f'The run is finished and charged, but: {error}', soft_wrap=True, markup=False)
    else:
        ledger_terminal.print_spent(account, console)
