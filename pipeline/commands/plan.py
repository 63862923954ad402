"""`dp-corpus plan`: what a run would release and cost, before anything is read or paid."""

from collections.abc import Sequence
from typing import Annotated, Any

import rich.box
import rich.console
import rich.table
import rich.text
import typer

from models import extras
from pipeline import calibration, comparison, methods
from pipeline import config as config_lib
from pipeline.commands import exit_codes, flags
from pipeline.commands.flags import config_of, with_config_flags
from pipeline.methods.method import RunPlan, Suggestion
from pipeline.pages import plan_terminal
from pipeline.screen import off_screen, terminal
from pipeline.settings.job_config import JobConfig
from pipeline.settings.model import Model

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


@with_config_flags
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
        _suggest(config_of(config, settings), minutes, calibrate, as_json=as_json)
        return
    if compare:
        _compare(config, settings, calibrate, calibration_files, as_json=as_json)
        return
    run_plan = planned(
        config_of(config, settings),
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


def planned(
    job_config: JobConfig,
    *,
    calibrate: bool = False,
    calibration_files: str | None = None,
    calibration_label_field: str | None = None,
    quiet: bool = True,
) -> RunPlan:
    """The plan of a run, with an estimate of its time, and with what the ledger says where one is named.

    Args:
        job_config: The run.
        calibrate: Whether this machine's rates are measured first.
        calibration_files: Public texts of the records' genre, for an estimate of how far a budget reaches.
        calibration_label_field: Column of their label.
        quiet: Whether nothing shows what goes on.

    Raises:
        ValueError: Public texts do not go with the run, or the ledger does not know the dataset.
        ConnectionError: The ledger is not there.
        MissingExtraError: A library is not installed that decodes for an estimate.
    """
    method = methods.of(job_config)
    if calibrate:
        extras.need(extras.GEMMA, use='--calibrate')
    if calibration_files is not None:
        extras.need(extras.GEMMA, use='--calibration')
    method.check_public_texts(job_config, calibration_files, calibration_label_field)
    if calibration_files is None and calibration_label_field is not None:
        raise ValueError(
            'Expected calibration_label_field with calibration only, got '
            f'calibration_label_field={calibration_label_field!r}, calibration=None. Give --calibration FILE '
            'too, or leave it out.'
        )
    job_config = method.resolved(job_config)
    run_plan = method.plan(job_config)
    if isinstance(job_config.method, Model):
        rates_of = calibration.calibrate if calibrate else calibration.known
        found = rates_of(job_config.method.model, dtype=method.planned_dtype(job_config))
        run_plan = method.with_rates(run_plan, job_config, found)
    if job_config.budget.dataset is not None:
        from pipeline.run import charge

        run_plan = method.with_budget(run_plan, job_config, charge.ask(job_config))
    if calibration_files is not None:
        run_plan = _with_public_texts(
            run_plan, job_config, calibration_files, calibration_label_field, quiet=quiet
        )
    return run_plan


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
    """What can be chosen as a table, or one below the other where that is too narrow, and what to take."""
    titles = found.titles()
    _print_side_by_side(titles, found.table(), console, right=titles, columns=_SHORT_TABLE_COLUMNS)
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
    found = comparison.compare(config_lib.read_settings(path, flags.with_lists(settings)))
    if as_json:
        print(found.to_json())
    else:
        print_comparison(found, terminal.console())
    if found.recommended is None:
        raise typer.Exit(exit_codes.USAGE)


# A narrower terminal would break words of the table.
_TABLE_COLUMNS = 100
# A table of numbers alone.
_SHORT_TABLE_COLUMNS = 76


def print_comparison(found: comparison.Comparison, console: rich.console.Console) -> None:
    """The methods as a table, or one below the other where that is too narrow, and which one suits."""
    titles = ('Method', 'Texts', 'Time', 'ε', 'Worth', 'Why, or why not')
    _print_side_by_side(titles, comparison.rows(found), console, right=('Texts', 'ε'), last='Why')
    suits = '' if found.recommended is None else f'* {found.recommended} suits best. '
    lines = [f'{suits}{found.because}', found.worth]
    if found.estimated is not None:
        lines.append(f'Time: estimated {found.estimated}.')
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _print_side_by_side(
    titles: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    console: rich.console.Console,
    *,
    right: Sequence[str] = (),
    last: str | None = None,
    columns: int = _TABLE_COLUMNS,
) -> None:
    """A table, or one row below the other where that is too narrow.

    Args:
        titles: Of the columns.
        rows: Cells, of which the first names the row.
        console: Where; its width decides.
        right: Titles of columns that are set to the right.
        last: A shorter title of the last column, beside its value.
        columns: Width of a terminal that the table fits into.
    """
    if console.width >= columns:
        table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
        for title in titles:
            table.add_column(title, justify='right' if title in right else 'left')
        for row in rows:
            table.add_row(*(rich.text.Text(cell) for cell in row))
        console.print(table)
        return
    for name, *cells in rows:
        console.print(name, style='bold', markup=False, highlight=False)
        named = [*zip(titles[1:-1], cells), (last or titles[-1], cells[-1])]
        plan_terminal.render([(title, cell) for title, cell in named if cell], (), console)
        console.print()


def _with_public_texts(
    run_plan: RunPlan, job_config: JobConfig, files: str, label_field: str | None, *, quiet: bool
) -> RunPlan:
    """The plan with the estimate from public texts, whose progress is on the screen."""
    off_screen.silence_libraries()
    # Standard error is held back meanwhile.
    console = terminal.console(quiet=quiet)
    with console.status('Starting') as status, off_screen.without_chatter():
        return methods.of(job_config).with_public_texts(
            run_plan, job_config, files, label_field, lambda said: status.update(said)
        )
