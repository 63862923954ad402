"""A run that somebody waits for: refused early, announced, and watched to its end."""

from collections.abc import Sequence

import rich.console

from models import bundled, extras
from pipeline import methods
from pipeline.methods import notes
from pipeline.methods.solved import Run
from pipeline.run import prompt_fit
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


def ready(job_config: JobConfig) -> Run:
    """The run of a config that this machine launches; one that cannot start is refused here.

    No library of models is loaded yet.

    Raises:
        ValueError: It has no input or no output, or settings that do not fit.
        FileNotFoundError: The input is a path of this machine that is not there.
        MissingExtraError: A library that the run needs is not installed.
    """
    settings, output = job_config.method, job_config.output
    if (job_config.input.input is None and settings.reads_records) or output.output is None:
        raise ValueError(
            f'Expected an input and an output, got input={job_config.input.input!r}, '
            f'output={output.output!r}. Give --input FILES --output FOLDER.'
        )
    if job_config.input.input is not None:
        places.check_local_files(job_config.input.input)
    libraries = settings.extras(is_local=job_config.runner.is_local)
    extras.need(*libraries, use=f'a run with method={settings.name!r}')
    if job_config.runner.runner == DATAFLOW:
        extras.need(extras.GCP, use=f'runner={DATAFLOW!r}')
    places.check_filesystem(job_config.input.input, output.output, output.curator)
    # An earlier release is read by way of Beam, which misses libraries that no run uses.
    off_screen.silence_libraries()
    run: Run = methods.solve(job_config, launch=True)
    return run


def carry_out(run: Run, beam_arguments: Sequence[str], console: rich.console.Console) -> bool:
    """Runs a job, and shows on the way how far it is; errors as of `pipeline.run.start.carry_out`.

    Returns:
        True if it is finished; a launcher that only submits has not finished it.
    """
    method, settings = methods.of(run), run.method
    run_plan = notes.noted(run, method.plan(run))
    price = f'{run_plan.price()}, {run_plan.size()}'
    console.print(f'[bold]{run.run_id}[/bold]: {price}.', soft_wrap=True)
    loads_model = extras.GEMMA in settings.extras(is_local=run.runner.is_local)
    if loads_model and isinstance(settings, Model) and settings.model == bundled.MODEL:
        console.print(BUNDLED_TEXT, soft_wrap=True)
    for text in run_plan.warnings:
        console.print(f'WARNING: {text}', soft_wrap=True, markup=False)
    for text in run_plan.notes:
        console.print(f'NOTE: {text}', soft_wrap=True, markup=False)
    off_screen.silence_libraries()
    with off_screen.without_chatter():
        from pipeline.run import folders, start
        from pipeline.screen import progress

        start.check(run)
    if loads_model:
        console.print('Loading the model takes half a minute.')
    with off_screen.without_chatter():
        # Loads the tokenizer, and TensorFlow with it, and so before the display begins.
        prepared = method.prepare(run)
        unfit = prompt_fit.turns_warning(settings) if loads_model and isinstance(settings, Prompt) else None
    if unfit is not None:
        console.print(f'WARNING: {unfit}', soft_wrap=True, markup=False)
    # Nobody else needs what earlier runs left, which may be damaged.
    estimate = None if console.quiet else method.estimate(run)
    share = 0.0 if estimate is None else estimate.decoding_share
    with folders.alone(run), progress.watch(run.work_dir, console, share):
        start.carry_out(run, prepared, beam_arguments)
    return folders.is_finished(run)
