"""`dp-corpus fine-tune`: an adapter and its report, without a text."""

import dataclasses
import functools
from typing import Any

import rich.console
import typer

from pipeline import fine_tuning, tuning_plan
from pipeline.commands import flags, generate, interrupt
from pipeline.commands.flags import config_of, with_config_flags
from pipeline.config import JobConfig

# A file of settings may say what the command says already, so that `plan` can have the same one.
_METHOD = 'method'
_LEFT_OUT = frozenset({
    *fine_tuning.PREDICTION_SETTINGS, *fine_tuning.SAMPLING_SETTINGS,
    'examples_per_label', 'adapter', _METHOD,
})  # fmt: skip
SETTINGS = tuple(field.name for field in dataclasses.fields(JobConfig) if field.name not in _LEFT_OUT)


@functools.partial(with_config_flags, names=SETTINGS)
def fine_tune(
    context: typer.Context,
    config: flags.ConfigFlag = None,
    as_json: flags.JsonFlag = False,
    quiet: flags.QuietFlag = False,
    **settings: Any,
) -> None:
    """Train an adapter with DP-SGD: sensitive records in, a private adapter and its report out.

    It is [bold]generate --method fine-tune[/bold] without a text: [bold]generate --adapter
    OUTPUT[/bold] samples as many as anyone likes, without a record and for free. Options of Beam
    follow after a bare [bold]--[/bold]. The same command again resumes a run that died, and spends
    nothing twice.
    """
    settings |= {_METHOD: fine_tuning.NAME, 'examples_per_label': 0}
    job_config = config_of(config, settings, (*SETTINGS, _METHOD))
    if job_config.input is None or job_config.output is None:
        raise ValueError(
            f'Expected an input and an output, got input={job_config.input!r}, output={job_config.output!r}. '
            'Give --input FILES --output FOLDER.'
        )
    generate.check_local_files(job_config.input)
    run_plan = tuning_plan.plan_run(job_config)
    console = rich.console.Console(stderr=True, quiet=quiet or as_json)
    with interrupt.answered():
        generate.run(job_config, run_plan, context.args, console, as_json=as_json, quiet=quiet)
