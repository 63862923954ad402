"""`dp-corpus refine`: the texts of a corpus that records favour."""

import functools
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pipeline.commands import flags, generate
from pipeline.commands.flags import config_of, with_config_flags
from pipeline.config import METHOD, settings_of
from pipeline.methods.refine.settings import NAME
from pipeline.screen import interrupt, terminal
from pipeline.settings.job_config import JobConfig

_LEFT_OUT = frozenset({METHOD, 'corpus'})
SETTINGS = tuple(name for name in settings_of(NAME) if name not in _LEFT_OUT)


@functools.partial(with_config_flags, names=SETTINGS)
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
    job_config, run_plan = generate.ready(config_for(corpus, config, settings))
    console = terminal.console(stderr=True, quiet=quiet or as_json)
    with interrupt.answered():
        generate.run(job_config, run_plan, context.args, console, as_json=as_json, quiet=quiet)


def config_for(corpus: str, path: str | None, settings: Mapping[str, Any]) -> JobConfig:
    """The config of a run that refines a corpus: of a TOML file or None, and of settings, which win."""
    return config_of(path, {**settings, METHOD: NAME, 'corpus': corpus}, (*SETTINGS, METHOD))
