"""The budget of a dataset on a terminal."""

import rich.console
from rich import box, table, text

from models.privacy import report
from pipeline.ledger import released
from pipeline.ledger.account import Account

_BAR = 40


def print_spent(account: Account, console: rich.console.Console) -> None:
    """Prints in one line what is spent and left of a dataset's budget."""
    up, down = report.format_up, report.format_down
    console.print(
        f'Ledger, {account.dataset.name}: {len(account.runs):,} {_runs(len(account.runs))} for '
        f'ρ = {up(account.rho_spent)} of {down(account.dataset.rho_budget)}, together '
        f'ε = {up(account.epsilon_spent)} at δ = {report.format_exact(account.dataset.delta)}; '
        f'left: ρ = {down(account.rho_left)}.',
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


def print_account(account: Account, console: rich.console.Console, *, restricted: bool = False) -> None:
    """Prints a dataset's budget, what is spent and left, its runs; to the curator times and states."""
    up, down, exact = report.format_up, report.format_down, report.format_exact
    dataset = account.dataset
    unit = 'record' if dataset.unit == 'example' else 'user'
    console.print(text.Text(f'{dataset.name}', style='bold'), f'(unit of privacy: one {unit})')
    amounts = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ('', 'ρ', f'ε at δ = {exact(dataset.delta)}'):
        amounts.add_column(name, justify='right' if name else 'left')
    asked, granted = dataset.epsilon_budget, account.epsilon_bound
    bound = exact(granted) if granted == asked else up(granted)
    amounts.add_row(
        'Budget', down(dataset.rho_budget), down(account.epsilon_budget) if asked is None else exact(asked)
    )
    amounts.add_row('Spent', up(account.rho_spent), up(account.epsilon_spent))
    amounts.add_row('Left', down(account.rho_left), down(account.epsilon_left))
    console.print(amounts)
    console.print(_bar(account), markup=False, highlight=False)
    within = 'budget'
    if account.lowered_from is not None:
        within = (
            f'largest budget since the first charge, ρ = {up(account.lowered_from)}. Lowering it refuses '
            'later runs, and takes back nothing'
        )
    console.print(
        f'Whatever outputs decide, all runs together are (ε = {bound}, δ = {exact(dataset.delta)})-'
        f'differentially private: within the {within}.',
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
    # Two lines of the table suggest otherwise.
    console.print('ρ adds up and ε does not: the ε that is left is that of one more run.', style='dim')
    if account.is_gaussian:
        console.print(
            'Costs are kept as those of Gaussian mechanisms: ρ is 1/(2z²) at noise multiplier z. Of δ, '
            f'{exact(dataset.failure_budget or 0.0)} is kept for what they leave out; '
            f'{up(account.failure_spent)} of it is spent.',
            style='dim',
            soft_wrap=True,
        )
    elif not account.is_zcdp:
        console.print(
            f'Not all costs are in zCDP: ρ is that at the Rényi order α = {dataset.order:.6g}, at which the '
            'budget is kept.',
            style='dim',
            soft_wrap=True,
        )
    if account.omega is not None:
        console.print(
            f'All runs together are bounded at orders up to ω = {account.omega:.6g}, the smallest of theirs.',
            style='dim',
            soft_wrap=True,
        )
    if not account.runs:
        console.print('No run was charged yet.\n')
        return
    runs = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ('Run', 'ρ', 'ρ so far', 'ε so far'):
        runs.add_column(name, justify='left' if name == 'Run' else 'right')
    if account.omega is not None:
        runs.add_column('ω', justify='right')
    # A time that is cut short is no time.
    runs.add_column('Charged', no_wrap=True)
    if restricted:
        runs.add_column('State', no_wrap=True)
        runs.add_column('Settled', no_wrap=True)
    for run in account.runs:
        entry = account.entry(run)
        runs.add_row(
            text.Text(f'{run.number}  {run.run_id}'),
            up(run.rho),
            up(entry.rho_after),
            up(entry.epsilon_after),
            *([] if account.omega is None else ['–' if run.omega is None else f'{run.omega:.6g}']),
            *(
                (run.reserved_at[:19], run.state, (run.settled_at or '')[:19])
                if restricted
                else (released.day(run.reserved_at),)
            ),
        )
    console.print(runs)


def _bar(account: Account) -> str:
    """The spent share of the budget as a bar; a part of a mark counts as a whole one."""
    share = account.rho_spent / account.dataset.rho_budget
    filled = min(_BAR, -int(-share * _BAR // 1))
    over = ', over the budget' if share > 1 + 1e-9 else ''
    return f'{"█" * filled}{"░" * (_BAR - filled)} {100 * share:.3g} % spent{over}'


def _runs(count: int) -> str:
    return 'run' if count == 1 else 'runs'
