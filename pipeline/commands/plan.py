"""`dp-corpus plan`: what a run would release and cost, before anything is read or paid."""

from typing import Annotated, Any

import rich.console
import typer

from models import extras
from pipeline import calibration, comparison, methods
from pipeline.commands import exit_codes, flags
from pipeline.config import all_settings, read_config, read_settings
from pipeline.methods.method import Suggestion
from pipeline.pages import comparison_terminal, plan_terminal
from pipeline.run import planned
from pipeline.screen import terminal
from pipeline.settings.job_config import JobConfig
from pipeline.settings.model import Model

# Width of a table of numbers alone.
_SHORT_TABLE_COLUMNS = 76

CalibrateFlag = Annotated[
    bool,
    typer.Option(
        '--calibrate',
        help="Measure for some ten seconds how fast this machine decodes with the model's dimensions, and "
        'keep it for later plans.',
    ),
]
CalibrationFlag = Annotated[
    str | None,
    typer.Option(
        '--calibration',
        help="Public texts of the records' own genre, files like those of --input: decode a batch of them "
        'and say how far the budget of a context would reach with individual accounting. It costs nothing '
        'and tells nothing of the records.',
    ),
]
CalibrationLabelFieldFlag = Annotated[
    str | None,
    typer.Option(
        '--calibration-label-field',
        help='Column of the label in the files of --calibration: only texts of the first declared label then '
        'serve. Without it all do.',
    ),
]
CompareFlag = Annotated[
    bool,
    typer.Option(
        '--compare',
        help='Show all methods side by side: texts, hours on this machine, epsilon, what texts of measured '
        'runs were worth, and which method suits. Settings that only some have go to these.',
    ),
]
SuggestFlag = Annotated[
    bool,
    typer.Option(
        '--suggest',
        help='Show ways to spend the same time at the same epsilon, and which of them to take: of '
        'fine-tuning steps of more or fewer units.',
    ),
]
MinutesFlag = Annotated[
    float | None,
    typer.Option(
        '--minutes',
        help='With --suggest: how long private steps may take together. Default: as long as those of the '
        'settings.',
    ),
]


@flags.with_flags(all_settings().values())
def plan(
    config: flags.ConfigFlag = None,
    as_json: flags.JsonFlag = False,
    compare: CompareFlag = False,
    suggest: SuggestFlag = False,
    minutes: MinutesFlag = None,
    calibrate: CalibrateFlag = False,
    calibration_files: CalibrationFlag = None,
    calibration_label_field: CalibrationLabelFieldFlag = None,
    **settings: Any,
) -> None:
    """Say what a run would release and cost, before anything is read or paid.

    Example: [bold]dp-corpus plan --epsilon 1 --records 10000[/bold]

    The plan solves for what --epsilon pays for; or give what the run may use, such as
    --max-private-tokens, and it answers with epsilon. With --dataset and --ledger it asks
    whether the run would fit into what is left, and ends with 3 where it would not.

    It estimates how long the run takes from this machine's rates, which --calibrate measures; without
    them from those of a reference machine, and the plan says so.

    With --calibration it loads the model and estimates from public texts how far the budget of a
    context reaches with individual accounting, with --reference and without, and so whether a
    reference is of the right genre.

    With --compare it shows all methods side by side; give --typical-words and --examples too, from which
    caps and sizes follow.

    With --suggest it shows how else fine-tuning could spend the same time at the same epsilon, in more steps
    or in larger ones, and which split to take.
    """
    if minutes is not None and not suggest:
        raise ValueError(
            f'Expected suggest with minutes={minutes:g}, got suggest=False. Give --suggest, or leave '
            '--minutes out.'
        )
    if suggest:
        _check_alone('suggest', compare=compare, calibration=calibration_files)
        _suggest(read_config(config, settings), minutes, calibrate, as_json=as_json)
        return
    if compare:
        _compare(config, settings, calibrate, calibration_files, as_json=as_json)
        return
    run_plan = planned.planned(
        read_config(config, settings),
        calibrate=calibrate,
        calibration_files=calibration_files,
        calibration_label_field=calibration_label_field,
        quiet=as_json,
    )
    if as_json:
        print(run_plan.to_json())
    else:
        plan_terminal.render(run_plan.rows(), run_plan.warnings, terminal.console())
    if run_plan.budget is not None and not run_plan.budget.fits:
        raise typer.Exit(exit_codes.BUDGET)


def _check_alone(name: str, **others: Any) -> None:
    """Refuses what does not go with a flag.

    Raises:
        ValueError: See above.
    """
    given = {other: value for other, value in others.items() if value}
    if given:
        shown = ', '.join(f'{other}={value!r}' for other, value in given.items())
        raise ValueError(f'Expected {name} alone, got {shown}. Ask for one after the other.')


def _suggest(job_config: JobConfig, minutes: float | None, calibrate: bool, *, as_json: bool) -> None:
    """Other ways to spend a run's time."""
    method = methods.of(job_config)
    if calibrate:
        extras.need(extras.GEMMA, use='--calibrate')
    rates = None
    if isinstance(job_config.method, Model):
        rates_of = calibration.calibrate if calibrate else calibration.known
        rates = rates_of(job_config.method.model, dtype=method.planned_dtype(job_config))
    found = method.suggest(job_config, rates, minutes)
    if as_json:
        print(found.to_json())
        return
    print_suggestion(found, terminal.console())


def print_suggestion(found: Suggestion, console: rich.console.Console) -> None:
    """Prints the choices as a table, or below one another where that is too narrow, and which to take."""
    titles = found.titles()
    comparison_terminal.print_side_by_side(
        titles, found.table(), console, right=titles, columns=_SHORT_TABLE_COLUMNS
    )
    for line in found.lines():
        console.print(line, markup=False, highlight=False)


def _compare(
    path: str | None, settings: dict[str, Any], calibrate: bool, texts: str | None, *, as_json: bool
) -> None:
    """All methods side by side."""
    if calibrate or texts is not None or settings.get('dataset') is not None:
        raise ValueError(
            f'Expected no calibrate, calibration and dataset with compare, got calibrate={calibrate}, '
            f'calibration={texts!r}, dataset={settings.get("dataset")!r}. Choose a '
            'method, and ask for its plan.'
        )
    found = comparison.compare(read_settings(path, settings))
    if as_json:
        print(found.to_json())
    else:
        comparison_terminal.print_comparison(found, terminal.console())
    if found.recommended is None:
        raise typer.Exit(exit_codes.USAGE)
