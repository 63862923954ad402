"""`dp-corpus generate`: the job."""

import pathlib
from collections.abc import Sequence
from typing import Any

import rich.console
import typer

from models import bundled, extras
from pipeline import calibration, methods, prompt_fit
from pipeline.commands import flags
from pipeline.commands import ledger as ledger_commands
from pipeline.commands.flags import config_of, with_config_flags
from pipeline.commands.report import show_report
from pipeline.methods.method import RunPlan
from pipeline.screen import interrupt, off_screen, terminal
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
    job_config, run_plan = ready(config_of(config, settings))
    console = terminal.console(stderr=True, quiet=quiet or as_json)
    with interrupt.answered():
        run(job_config, run_plan, context.args, console, as_json=as_json, quiet=quiet)


def ready(job_config: JobConfig) -> tuple[JobConfig, RunPlan]:
    """A run with what earlier releases say of it, and its plan; refuses it before libraries load.

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
    method = methods.of(job_config)
    extras.need(*method.extras(job_config), use=f'a run with method={method.name!r}')
    if job_config.runner.runner == DATAFLOW:
        extras.need(extras.GCP, use=f'runner={DATAFLOW!r}')
    check_filesystem(job_config.input.input, job_config.output.output, job_config.output.resolved_work_dir)
    # An earlier release is read by way of Beam, which misses libraries that no run uses.
    off_screen.silence_libraries()
    job_config = method.resolved(job_config)
    return job_config, method.plan(job_config)


def run(
    job_config: JobConfig,
    run_plan: RunPlan,
    beam_arguments: list[str],
    console: rich.console.Console,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Runs a job to its end, and shows its report.

    Args:
        job_config: The run.
        run_plan: Its plan.
        beam_arguments: Options of Beam.
        console: Where what goes on is said.
        as_json: Whether the report is printed as JSON.
        quiet: Whether it is not printed.
    """
    if not carry_out(job_config, run_plan, beam_arguments, console):
        # A template's launcher only submits.
        console.print(f'Submitted. The report will be in {job_config.output.output}.', soft_wrap=True)
        return
    show_report(str(job_config.output.output), as_json=as_json, quiet=quiet)
    restricted = f'{job_config.output.resolved_work_dir}/{RESTRICTED_PAGE}'
    console.print(
        "The curator's own report, never for release, with how many rows were read and rejected: "
        f'{restricted}',
        soft_wrap=True,
    )
    if job_config.budget.dataset is not None and not console.quiet:
        from pipeline.ledger.ledger import Ledger

        try:
            account = Ledger.open(str(job_config.budget.ledger)).account(job_config.budget.dataset)
        except ConnectionError as error:
            # The run is over, and was charged before it began.
            console.print(f'The run is finished and charged, but: {error}', soft_wrap=True, markup=False)
        else:
            ledger_commands.print_spent(account, console)


def carry_out(
    job_config: JobConfig, run_plan: RunPlan, beam_arguments: Sequence[str], console: rich.console.Console
) -> bool:
    """Runs a job, and says on the way what goes on.

    Args:
        job_config: The run, as `ready` gives it.
        run_plan: Its plan.
        beam_arguments: Options of Beam.
        console: Where what goes on is said.

    Returns:
        Whether it is finished; a launcher that only submits has not finished it.

    Raises:
        Exception: As `pipeline.run.start.run`.
    """
    said = f'{run_plan.guarantee()}, {run_plan.size()}'
    console.print(f'[bold]{job_config.output.resolved_run_id}[/bold]: {said}.', soft_wrap=True)
    own = job_config.method
    loads_model = extras.GEMMA in methods.of(job_config).extras(job_config)
    if loads_model and isinstance(own, Model) and own.model == bundled.MODEL:
        console.print(BUNDLED_TEXT, soft_wrap=True)
    for text in run_plan.warnings:
        console.print(f'WARNING: {text}', soft_wrap=True, markup=False)
    off_screen.silence_libraries()
    with off_screen.without_chatter():
        from pipeline.run import folders, start
        from pipeline.screen import progress

        folders.check_resumption(job_config)
    if loads_model:
        console.print('Loading the model takes half a minute.')
    with off_screen.without_chatter():
        # Loads the tokenizer, and TensorFlow with it, and so before the display begins.
        methods.of(job_config).prepare(job_config)
        unfit = prompt_fit.turns_warning(own) if loads_model and isinstance(own, Prompt) else None
    if unfit is not None:
        console.print(f'WARNING: {unfit}', soft_wrap=True, markup=False)
    # Nobody else needs rates, which may be damaged.
    share = _sampling_share(job_config, run_plan) if off_screen.shows_progress(console) else 0.0
    with progress.watch(job_config.output.resolved_work_dir, console, share):
        start.run(job_config, beam_arguments)
    return folders.is_finished(job_config)


def _sampling_share(job_config: JobConfig, run_plan: RunPlan) -> float:
    """As of the plan with the rates that are known of this machine, for the time that is left."""
    if not isinstance(job_config.method, Model):
        return 0.0
    method = methods.of(job_config)
    rates = calibration.known(job_config.method.model, dtype=method.planned_dtype(job_config))
    return method.with_rates(run_plan, job_config, rates).sampling_share


def check_local_files(pattern: str) -> None:
    """Refuses a plain path of this machine that is not there, before libraries load.

    Whatever else the input may be, `transforms.read` says.
    """
    for path in split_patterns(pattern):
        is_plain = '://' not in path and not path.endswith('/')
        if is_plain and not set(path) & set('*?[') and not pathlib.Path(path).exists():
            raise none_found(path, pattern)
