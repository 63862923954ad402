"""`dp-corpus generate`: the job."""

import pathlib
from collections.abc import Sequence
from typing import Any

import rich.console
import typer

from models import bundled, extras
from pipeline import methods, prompt_fit, terminal
from pipeline.commands import flags, interrupt, screen
from pipeline.commands import ledger as ledger_commands
from pipeline.commands.flags import config_of, with_config_flags
from pipeline.commands.report import show_report
from pipeline.methods.solved import Run
from pipeline.settings.job_config import JobConfig
from pipeline.settings.model import Model
from pipeline.settings.prompt import Prompt
from pipeline.settings.runner import DATAFLOW
from transforms.places import check_filesystem, none_found, split_patterns
from transforms.run_files import RESTRICTED_PAGE

BUNDLED_TEXT = (
    'The bundled model has 3.4 million parameters: its text shows the plumbing and does not read like '
    'English. Name another with --model.'
)


@with_config_flags
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
    run = ready(config_of(config, settings))
    console = terminal.console(stderr=True, quiet=quiet or as_json)
    with interrupt.answered():
        show(run, context.args, console, as_json=as_json, quiet=quiet)


def ready(job_config: JobConfig) -> Run:
    """The run of a config that this machine launches; refuses it before libraries load.

    Raises:
        ValueError: It has no input or no output, or settings that do not fit.
        FileNotFoundError: The input is a path of this machine that is not there.
        MissingExtraError: A library that the run needs is not installed.
    """
    if (
        job_config.input.input is None and job_config.method.reads_records
    ) or job_config.output.output is None:
        raise ValueError(
            f'Expected an input and an output, got input={job_config.input.input!r}, '
            f'output={job_config.output.output!r}. Give --input FILES --output FOLDER.'
        )
    if job_config.input.input is not None:
        check_local_files(job_config.input.input)
    own = job_config.method
    extras.need(*own.extras(is_local=job_config.runner.is_local), use=f'a run with method={own.name!r}')
    if job_config.runner.runner == DATAFLOW:
        extras.need(extras.GCP, use=f'runner={DATAFLOW!r}')
    check_filesystem(job_config.input.input, job_config.output.output, job_config.output.curator)
    # An earlier release is read by way of Beam, which misses libraries that no run uses.
    screen.silence_libraries()
    found: Run = methods.solve(job_config, launch=True)
    return found


def show(
    run: Run,
    beam_arguments: list[str],
    console: rich.console.Console,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Runs a job to its end, and shows its report.

    Args:
        run: The run.
        beam_arguments: Options of Beam.
        console: Where what goes on is said.
        as_json: Whether the report is printed as JSON.
        quiet: Whether it is not printed.
    """
    if not carry_out(run, beam_arguments, console):
        # A template's launcher only submits.
        console.print(f'Submitted. The report will be in {run.output}.', soft_wrap=True)
        return
    show_report(run.output, as_json=as_json, quiet=quiet)
    restricted = f'{run.work_dir}/{RESTRICTED_PAGE}'
    console.print(
        "The curator's own report, never for release, with how many rows were read and rejected: "
        f'{restricted}',
        soft_wrap=True,
    )
    if run.budget.dataset is not None and not console.quiet:
        from pipeline.ledger.ledger import Ledger

        try:
            account = Ledger.open(str(run.budget.ledger)).account(run.budget.dataset)
        except ConnectionError as error:
            # The run is over, and was charged before it began.
            console.print(f'The run is finished and charged, but: {error}', soft_wrap=True, markup=False)
        else:
            ledger_commands.print_spent(account, console)


def carry_out(run: Run, beam_arguments: Sequence[str], console: rich.console.Console) -> bool:
    """Runs a job, and says on the way what goes on.

    Args:
        run: The run, as `ready` gives it.
        beam_arguments: Options of Beam.
        console: Where what goes on is said.

    Returns:
        Whether it is finished; a launcher that only submits has not finished it.

    Raises:
        Exception: As `pipeline.run.start.carry_out`.
    """
    method, own = methods.of(run), run.method
    run_plan = method.plan(run)
    said = f'{run_plan.guarantee()}, {run_plan.size()}'
    console.print(f'[bold]{run.run_id}[/bold]: {said}.', soft_wrap=True)
    loads_model = extras.GEMMA in own.extras(is_local=run.runner.is_local)
    if loads_model and isinstance(own, Model) and own.model == bundled.MODEL:
        console.print(BUNDLED_TEXT, soft_wrap=True)
    for text in run_plan.warnings:
        console.print(f'WARNING: {text}', soft_wrap=True, markup=False)
    screen.silence_libraries()
    with screen.without_chatter():
        from pipeline import progress
        from pipeline.run import folders, start

        folders.check_resumption(run)
    if loads_model:
        console.print('Loading the model takes half a minute.')
    with screen.without_chatter():
        # Loads the tokenizer, and TensorFlow with it, and so before the display begins.
        prepared = method.prepare(run)
        unfit = prompt_fit.turns_warning(own) if loads_model and isinstance(own, Prompt) else None
    if unfit is not None:
        console.print(f'WARNING: {unfit}', soft_wrap=True, markup=False)
    # Nobody else needs what earlier runs left, which may be damaged.
    estimate = method.estimate(run) if screen.shows_progress(console) else None
    share = 0.0 if estimate is None else estimate.decoding_share
    with progress.watch(run.work_dir, console, share):
        start.carry_out(run, prepared, beam_arguments)
    return folders.is_finished(run)


def check_local_files(pattern: str) -> None:
    """Refuses a plain path of this machine that is not there, before libraries load.

    Whatever else the input may be, `transforms.read` says.
    """
    for path in split_patterns(pattern):
        is_plain = '://' not in path and not path.endswith('/')
        if is_plain and not set(path) & set('*?[') and not pathlib.Path(path).exists():
            raise none_found(path, pattern)
