"""The budget of a dataset as one self-contained HTML page: cost, run by run, against the budget.

It shows what others may read of the ledger (`pipeline.ledger.released`): days, and no times.
"""

import typing
from collections.abc import Sequence

import markupsafe

from models.privacy import report
from pipeline.ledger import released
from pipeline.ledger.account import Account
from pipeline.ledger.event import Event
from pipeline.pages import page
from pipeline.pages.page import Plot

if typing.TYPE_CHECKING:
    from matplotlib.axes import Axes

TEMPLATE = 'ledger.html.jinja'
_MAX_ROWS = 40


def render_html(account: Account, events: Sequence[Event]) -> str:
    """The page of one dataset, whose whole log is given; it keeps what others may read."""
    dataset = account.dataset
    rows = [(run, account.entry(run), released.day(run.reserved_at)) for run in account.runs]
    shown_events = released.released_events(events)
    return page.render(
        TEMPLATE,
        plots=[rho_plot(account), epsilon_plot(account)] if account.runs else [],
        account=account,
        dataset=dataset,
        unit='user' if dataset.unit == 'user' else 'record',
        delta=report.format_exact(dataset.delta),
        budget=report.format_down(dataset.rho_budget),
        epsilon_budget=(
            report.format_down(account.epsilon_budget)
            if dataset.epsilon_budget is None
            else report.format_exact(dataset.epsilon_budget)
        ),
        epsilon_bound=(
            report.format_exact(account.epsilon_bound)
            if account.epsilon_bound == dataset.epsilon_budget
            else report.format_up(account.epsilon_bound)
        ),
        left=report.format_down(account.rho_left),
        epsilon_left=report.format_down(account.epsilon_left),
        # Latest first: that is what a reader looks for.
        rows=rows[::-1],
        shown_rows=_MAX_ROWS,
        events=[(event, _details(event)) for event in reversed(shown_events)],
    )


def rho_plot(account: Account) -> Plot:
    """rho so far by run, as steps, against the budget as it stood at each run and stands now."""
    values = [account.entry(run).rho_after for run in account.runs]
    budgets = [run.rho_budget for run in account.runs]
    return Plot(
        title='Cost so far, ρ',
        caption='Each step is one run; the dashed line is the budget. Costs add up in ρ.',
        svg=_steps('rho', 'ρ', values, budgets, account.dataset.rho_budget),
    )


def epsilon_plot(account: Account) -> Plot:
    """epsilon of all runs so far, at the dataset's delta, against the budget."""
    # At the δ that stands now: an entry has that of its time.
    values = [account.epsilon_up_to(run) for run in account.runs]
    budgets = [account.epsilon_of(run.rho_budget) for run in account.runs]
    return Plot(
        title='All runs together, ε',
        caption=(
            f'What the runs so far are together, at δ = {report.format_exact(account.dataset.delta)}. It '
            'grows by less with each run than the ε of that run by itself.'
        ),
        svg=_steps('epsilon', 'ε', values, budgets, account.epsilon_budget),
    )


def _steps(
    name: str, y_name: str, values: Sequence[float], budgets: Sequence[float], budget_now: float
) -> markupsafe.Markup:
    from matplotlib import ticker

    figure, axes = page.new_figure(2.6)
    edges = [index + 0.5 for index in range(len(values) + 1)]
    axes.stairs(values, edges, fill=True, color=page.ACCENT, alpha=0.85)
    _budget_line(axes, edges, budgets, budget_now)
    axes.set_xlim(0.5, len(values) + 1.5)
    axes.set_ylim(0, 1.12 * max(*values, *budgets, budget_now))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(8, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:g}'))
    page.name_axes(axes, 'Run', y_name)
    return page.to_svg(figure, name)


def _budget_line(axes: 'Axes', edges: Sequence[float], budgets: Sequence[float], budget_now: float) -> None:
    # The last step, beyond the runs, is the budget that the next run meets.
    line = [*budgets, budget_now]
    axes.stairs(
        line,
        [*edges, edges[-1] + 1],
        baseline=None,
        color=page.ACCENT_2,
        linewidth=1.2,
        linestyle=(0, (4, 3)),
    )
    axes.annotate(
        'budget',
        (edges[-1] + 1, budget_now),
        xytext=(0, 4),
        textcoords='offset points',
        ha='right',
        va='bottom',
        color=page.ACCENT_2,
        fontsize=page.FONT_SIZE,
    )


def _details(event: Event) -> str:
    """Details of an event beside its kind and run, in words."""
    details = dict(event.details)
    if event.kind == 'budget changed':
        before, after = details['before'], details['after']
        return f'{details["reason"]} (now {_budget(after)}; before {_budget(before)})'
    if event.kind == 'dataset added':
        return _budget(details)
    parts = [f'ρ = {report.format_up(details["rho"])}'] if details.get('rho') is not None else []
    return '; '.join([*parts, *([details['reason']] if 'reason' in details else [])])


def _budget(facts: typing.Mapping[str, float | None]) -> str:
    rho, epsilon, delta = facts['rho_budget'], facts['epsilon_budget'], facts['delta']
    assert rho is not None and delta is not None  # pipeline.ledger.ledger
    for_epsilon = '' if epsilon is None else f', for ε = {report.format_exact(epsilon)}'
    return f'ρ = {report.format_down(rho)}{for_epsilon} at δ = {report.format_exact(delta)}'
