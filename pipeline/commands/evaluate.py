"""`dp-corpus evaluate`: what corpora are worth, and whether they repeat records."""

import pathlib
from typing import Annotated, Any

import typer

from pipeline.asked.config import of_panels, with_lists
from pipeline.commands import exit_codes, flags
from pipeline.evaluation import asked, of_run
from pipeline.evaluation.settings import PAGE, EvaluationSettings
from pipeline.pages import evaluation_page
from pipeline.screen import terminal

_SETTINGS = of_panels(EvaluationSettings)


@flags.with_flags(setting for setting in _SETTINGS.values() if setting.name != 'also')
def evaluate(
    corpus: Annotated[
        str,
        typer.Argument(help='Folder of a finished run, or a CSV, JSONL or Parquet file.', metavar='CORPUS'),
    ],
    also: Annotated[
        list[str] | None,
        typer.Option('--also', help=_SETTINGS['also'].help, metavar='NAME=PATH', show_default=False),
    ] = None,
    as_json: flags.JsonFlag = False,
    quiet: flags.QuietFlag = False,
    **settings: Any,
) -> None:
    """Measure what a corpus is worth, what it is like, and whether it repeats a record.

    Example: dp-corpus evaluate corpus --test 'sets/test/*' --output evaluation

    The corpus may come from dp-corpus or from any other tool. Of a run of this machine it finds
    the records and the test part of `dp-corpus split` by itself, and writes its page into the
    curator's folder. With --records or --test the result is for the curator alone, because no
    budget pays for what it tells about the records. An evaluation finds mistakes; it cannot prove
    privacy. The guarantee is in the privacy report.
    """
    values = {name: value for name, value in settings.items() if value is not None}
    given = EvaluationSettings(also=tuple(also or ()), **with_lists(values, _SETTINGS))
    asked_for = of_run.completed(corpus, given)
    evaluation = asked.evaluate(corpus, asked_for, terminal.console(stderr=True, quiet=quiet or as_json))
    if asked_for.output is not None:
        evaluation_page.write(evaluation, pathlib.Path(asked_for.output))
    if as_json:
        print(evaluation.to_json(), end='')
    elif not quiet:
        shown = terminal.console()
        evaluation_page.render_terminal(evaluation, shown)
        if asked_for.output is not None:
            shown.print(
                f'Pictures, texts and settings: {pathlib.Path(asked_for.output) / PAGE}', soft_wrap=True
            )
    if evaluation.failed:
        raise typer.Exit(exit_codes.FAILED)
