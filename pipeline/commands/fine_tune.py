"""`dp-corpus fine-tune`: an adapter and its report, without a text."""

import functools
from collections.abc import Mapping
from typing import Any

import typer

from pipeline.commands import flags, generate
from pipeline.commands.flags import config_of, with_config_flags
from pipeline.config import METHOD, settings_of
from pipeline.methods.fine_tune.settings import NAME, NO_TEXTS, OF_TEXTS
from pipeline.screen import interrupt, terminal
from pipeline.settings.job_config import JobConfig

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
    job_config, run_plan = generate.ready(config_for(config, settings))
    console = terminal.console(stderr=True, quiet=quiet or as_json)
    with interrupt.answered():
        generate.run(job_config, run_plan, context.args, console, as_json=as_json, quiet=quiet)


def config_for(path: str | None, settings: Mapping[str, Any]) -> JobConfig:
    """The config of a run that trains an adapter: of a TOML file or None, and of settings, which win."""
    return config_of(path, {**settings, METHOD: NAME, **NO_TEXTS}, (*SETTINGS, METHOD))
