"""`dp-corpus plan`: what a run would release and cost, before anything is read or paid."""

from collections.abc import Sequence
from typing import Annotated, Any

import rich.box
import rich.console
import rich.table
import rich.text
import typer

from models import extras
from pipeline import calibration, comparison, methods, terminal
from pipeline import config as config_lib
from pipeline.commands import exit_codes, flags
from pipeline.commands.flags import config_of, with_config_flags
from pipeline.methods.method import RunPlan
from pipeline.pages import plan_terminal
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
CompareFlag = Annotated[
    bool,
    typer.Option(
        '--compare',
        help='Show all methods side by side: texts, hours on this machine, epsilon, what texts of measured '
        'runs were worth, and which method suits. Settings that only some have go to these.',
    ),
]


@with_config_flags
def plan(
    config: flags.ConfigFlag = None,
    as_json: flags.JsonFlag = False,
    compare: CompareFlag = False,
    calibrate: CalibrateFlag = False,
    **settings: Any,
) -> None:
    """Say what a run would release and cost, before anything is read or paid.

    Example: [bold]dp-corpus plan --epsilon 1 --records 10000[/bold]

    The plan solves for what --epsilon pays for; or give what the run may use, such as
    --max-private-tokens, and it answers with epsilon. With --dataset and --ledger it asks
    whether the run would fit into what is left, and ends with 3 where it would not.

    It estimates how long the run takes from this machine's rates, which --calibrate measures; without
    them from those of a reference machine, and the plan says so.

    With --compare it shows all methods side by side; give --typical-words and --examples too, from which
    caps and sizes follow.
    """
    if compare:
        _compare(config, settings, calibrate, as_json=as_json)
        return
    run_plan = planned(config_of(config, settings), calibrate=calibrate)
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
) -> RunPlan:
    """The plan of a run, with an estimate of its time, and with what the ledger says where one is named.

    Args:
        job_config: The run.
        calibrate: Whether this machine's rates are measured first.

    Raises:
        ValueError: The settings do not fit, or the ledger does not know the dataset.
        ConnectionError: The ledger is not there.
        MissingExtraError: A library is not installed that decodes for an estimate.
    """
    if calibrate:
        extras.need(extras.GEMMA, use='--calibrate')
    run, rates = methods.solve(job_config), None
    if isinstance(run.method, Model):
        rates_of = calibration.calibrate if calibrate else calibration.known
        rates = rates_of(run.method.model, dtype=run.method.planned_dtype)
    answer = None
    if run.budget.dataset is not None:
        from pipeline.run import charge

        answer = charge.ask(run)
    return methods.of(run).plan(run, rates, answer)


def _compare(path: str | None, settings: dict[str, Any], calibrate: bool, *, as_json: bool) -> None:
    """All methods side by side."""
    if calibrate or settings.get('dataset') is not None:
        raise ValueError(
            f'Expected no calibrate and dataset with compare, got calibrate={calibrate}, '
            f'dataset={settings.get("dataset")!r}. Choose a method, and ask for its plan.'
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
) -> None:
    """A table, or one row below the other where that is too narrow.

    Args:
        titles: Of the columns.
        rows: Cells, of which the first names the row.
        console: Where; its width decides.
        right: Titles of columns that are set to the right.
        last: A shorter title of the last column, beside its value.
    """
    if console.width >= _TABLE_COLUMNS:
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
