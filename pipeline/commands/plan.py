"""`dp-corpus plan`: what a run would release and cost, before anything is read or paid."""

from typing import Annotated, Any

import rich.box
import rich.console
import rich.table
import rich.text
import typer

from pipeline import comparison, terminal
from pipeline import config as config_lib
from pipeline.commands import exit_codes, flags
from pipeline.commands.flags import config_of, with_config_flags
from pipeline.pages import plan_terminal

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
    **settings: Any,
) -> None:
    """Say what a run would release and cost, before anything is read or paid.

    Example: [bold]dp-corpus plan --epsilon 1 --records 10000[/bold]

    The plan solves for what --epsilon pays for; or give what the run may use, such as
    --max-private-tokens, and it answers with epsilon. With --dataset and --ledger it asks
    whether the run would fit into what is left, and ends with 3 where it would not.

    It estimates how long the run takes from how fast earlier runs with the model were on this machine, and
    says so where there was none.

    With --compare it shows all methods side by side; give --typical-words and --examples too, from which
    caps and sizes follow.
    """
    if compare:
        _compare(config, settings, as_json=as_json)
        return
    run_plan = comparison.planned(config_of(config, settings))
    if as_json:
        print(run_plan.to_json())
    else:
        plan_terminal.render(run_plan.rows(), run_plan.warnings, terminal.console())
    if run_plan.budget is not None and not run_plan.budget.fits:
        raise typer.Exit(exit_codes.BUDGET)


def _compare(path: str | None, settings: dict[str, Any], *, as_json: bool) -> None:
    """All methods side by side."""
    if settings.get('dataset') is not None:
        raise ValueError(
            f'Expected no dataset with compare, got dataset={settings["dataset"]!r}. Choose a method, and '
            'ask for its plan.'
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
    if console.width >= _TABLE_COLUMNS:
        table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
        for title in titles:
            table.add_column(title, justify='right' if title in ('Texts', 'ε') else 'left')
        for row in comparison.rows(found):
            table.add_row(*(rich.text.Text(cell) for cell in row))
        console.print(table)
    else:
        for name, *cells in comparison.rows(found):
            console.print(name, style='bold', markup=False, highlight=False)
            named = zip((*titles[1:-1], 'Why'), cells, strict=True)
            plan_terminal.render([(title, cell) for title, cell in named if cell], (), console)
            console.print()
    suits = '' if found.recommended is None else f'* {found.recommended} suits best. '
    for line in (f'{suits}{found.because}', found.worth, comparison.TIME):
        console.print(line, markup=False, highlight=False)
