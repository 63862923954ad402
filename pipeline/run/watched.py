"""A run that somebody waits for: refused early, announced, and watched to its end."""

from collections.abc import Sequence

import rich.console

from models import bundled, extras
from pipeline import calibration, methods, prompt_fit
from pipeline.methods.method import RunPlan
from pipeline.screen import off_screen
from pipeline.settings.job_config import JobConfig
from pipeline.settings.model import Model
from pipeline.settings.prompt import Prompt
from pipeline.settings.runner import DATAFLOW
from transforms import places

BUNDLED_TEXT = (
    'The bundled model has 3.4 million parameters: its text shows the plumbing and does not read like '
    'English. Name another with --model.'
)


def ready(job_config: JobConfig) -> tuple[JobConfig, RunPlan]:
    """The config with what earlier releases say of it, and its plan; a run that cannot start is refused here.

    No library of models is loaded yet.

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
        places.check_local_files(job_config.input.input)
    method = methods.of(job_config)
    extras.need(*method.extras(job_config), use=f'a run with method={method.name!r}')
    if job_config.runner.runner == DATAFLOW:
        extras.need(extras.GCP, use=f'runner={DATAFLOW!r}')
    places.check_filesystem(
        job_config.input.input, job_config.output.output, job_config.output.resolved_work_dir
    )
    # An earlier release is read by way of Beam, which misses libraries that no run uses.
    off_screen.silence_libraries()
    job_config = method.resolved(job_config)
    return job_config, method.plan(job_config)


def carry_out(
    job_config: JobConfig, run_plan: RunPlan, beam_arguments: Sequence[str], console: rich.console.Console
) -> bool:
    """Runs a job, and shows on the way how far it is.

    Args:
        job_config: The run, as `ready` gives it.
        run_plan: Its plan.
        beam_arguments: Options of Beam.
        console: The screen of whoever waits.

    Returns:
        Whether it is finished; a launcher that only submits has not finished it.

    Raises:
        Exception: See `pipeline.run.start.run`.
    """
    price = f'{run_plan.guarantee()}, {run_plan.size()}'
    console.print(f'[bold]{job_config.output.resolved_run_id}[/bold]: {price}.', soft_wrap=True)
    settings = job_config.method
    loads_model = extras.GEMMA in methods.of(job_config).extras(job_config)
    if loads_model and isinstance(settings, Model) and settings.model == bundled.MODEL:
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
        unfit = prompt_fit.turns_warning(settings) if loads_model and isinstance(settings, Prompt) else None
    if unfit is not None:
        console.print(f'WARNING: {unfit}', soft_wrap=True, markup=False)
    # Nobody else needs rates, which may be damaged.
    share = _sampling_share(job_config, run_plan) if off_screen.shows_progress(console) else 0.0
    with progress.watch(job_config.output.resolved_work_dir, console, share):
        start.run(job_config, beam_arguments)
    return folders.is_finished(job_config)


def _sampling_share(job_config: JobConfig, run_plan: RunPlan) -> float:
    """Seconds of sampling for each second of training, with the rates that are known of this machine."""
    if not isinstance(job_config.method, Model):
        return 0.0
    method = methods.of(job_config)
    rates = calibration.known(job_config.method.model, dtype=method.planned_dtype(job_config))
    return method.with_rates(run_plan, job_config, rates).sampling_share
