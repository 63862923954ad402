"""`dp-corpus fine-tune`: an adapter and its report, without a text."""

import functools
from typing import Any

import rich.console
import typer

from pipeline import methods
from pipeline.commands import flags, generate, interrupt
from pipeline.commands.flags import config_of, with_config_flags
from pipeline.config import METHOD, settings_of
from pipeline.methods.fine_tune.settings import NAME, NO_TEXTS, OF_TEXTS

# A file of settings may name the method too, so that `plan` can have the same one.
_LEFT_OUT = frozenset({*OF_TEXTS, METHOD})
SETTINGS = tuple(name for name in settings_of(NAME) if name not in _LEFT_OUT)


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
    settings |= {METHOD: NAME, **NO_TEXTS}
    job_config = config_of(config, settings, (*SETTINGS, METHOD))
    if job_config.input.input is None or job_config.output.output is None:
        raise ValueError(
            f'Expected an input and an output, got input={job_config.input.input!r}, '
            f'output={job_config.output.output!r}. Give --input FILES --output FOLDER.'
        )
    generate.check_local_files(job_config.input.input)
    run_plan = methods.of(job_config).plan(job_config)
    console = rich.console.Console(stderr=True, quiet=quiet or as_json)
    with interrupt.answered():
        generate.run(job_config, run_plan, context.args, console, as_json=as_json, quiet=quiet)
