"""`dp-corpus plan`: what a run would release and cost, before anything is read or paid."""

from typing import Annotated, Any

import typer

from pipeline.asked.chosen import chosen
from pipeline.asked.config import all_settings, read_settings
from pipeline.commands import exit_codes, flags
from pipeline.pages import comparison_terminal, plan_terminal
from pipeline.plan import comparison, planned
from pipeline.screen import terminal


@flags.with_flags(all_settings().values())
def plan(
    config: flags.ConfigFlag = None,
    as_json: flags.JsonFlag = False,
    compare: Annotated[
        bool,
        typer.Option(
            '--compare',
            help='Show all methods side by side: texts, hours on this machine, epsilon, what texts of '
            'measured runs were worth, and which method suits. Settings that only some have go to these.',
        ),
    ] = False,
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
    job_config, why = chosen(config, settings)
    run_plan = planned.planned(job_config)
    if as_json:
        print(run_plan.to_json())
    else:
        rows = run_plan.table() if why is None else [('Method', why), *run_plan.table()]
        if job_config.input.input is not None:
            rows.append(
                ('Input', 'not looked at: whether it has these columns and rows, `dp-corpus check` says')
            )
        plan_terminal.render(rows, run_plan.warnings, terminal.console())
    if run_plan.budget is not None and not run_plan.budget.fits:
        raise typer.Exit(exit_codes.BUDGET)


def _compare(path: str | None, settings: dict[str, Any], *, as_json: bool) -> None:
    """All methods side by side."""
    if settings.get('dataset') is not None:
        raise ValueError(
            f'Expected no dataset with compare, got dataset={settings["dataset"]!r}. Choose a method, and '
            'ask for its plan.'
        )
    compared = comparison.compare(read_settings(path, settings))
    if as_json:
        print(compared.to_json())
    else:
        comparison_terminal.print_comparison(compared, terminal.console())
    if compared.recommended is None:
        raise typer.Exit(exit_codes.USAGE)
