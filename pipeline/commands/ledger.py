"""`dp-corpus ledger`: makes, shows, changes, draws and exports the budgets of datasets.

The database is imported when a command runs, so that --help answers at once.
"""

import csv
import dataclasses
import io
import json
import pathlib
import sys
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import rich.console
import typer
from rich import box, table, text

from models.privacy import report
from pipeline.ledger import released
from pipeline.ledger.account import Account
from pipeline.ledger.budget import PrivacyFilter, check_dataset
from pipeline.ledger.event import Event
from pipeline.pages import ledger_page
from pipeline.release import apart
from pipeline.screen import terminal

if typing.TYPE_CHECKING:
    # SQLAlchemy is heavy.
    from pipeline.ledger.ledger import Ledger

app = typer.Typer(
    help='Keep the privacy budget of each dataset: what all runs on it may cost, did cost, and have left.\n\n'
    'Example: dp-corpus ledger add visits --unit example --delta 1e-6 --epsilon 3 --ledger budget.db\n\n'
    'A ledger is an SQLite file on a local disk, or a PostgreSQL database. A run with --dataset and --ledger '
    'is charged before its first token. A run that costs more than is left does not start.',
    no_args_is_help=True,
    rich_markup_mode='rich',
)

COLUMNS = (
    'kind', 'dataset', 'number', 'run_id', 'rho', 'rho_before', 'rho_after', 'epsilon_after',
    'delta', 'rho_budget', 'epsilon_budget', 'rho_bound', 'epsilon_bound', 'failure', 'failure_budget',
    'rho_by_stage', 'cost', 'identity', 'key_commitment', 'at', 'details',
)  # fmt: skip
RESTRICTED_COLUMNS = ('state', 'settled_at', 'audience')
_BAR = 40

LedgerFlag = Annotated[
    str,
    typer.Option(
        '--ledger',
        help='SQLite file, or postgresql://user@host/name. A password comes from PGPASSFILE or PGPASSWORD.',
        metavar='WHERE',
    ),
]
DatasetArgument = Annotated[str, typer.Argument(help='Name of the dataset.', metavar='DATASET')]
RhoFlag = Annotated[float | None, typer.Option('--rho', help='Budget in zCDP; or give --epsilon.')]
EpsilonFlag = Annotated[
    float | None,
    typer.Option('--epsilon', help='Budget as epsilon at delta; dp-corpus computes the rho that it allows.'),
]
JsonFlag = Annotated[bool, typer.Option('--json', help='Print one JSON object and nothing else.')]
RestrictedFlag = Annotated[
    bool,
    typer.Option(
        '--restricted',
        help="The curator's view, never for release: adds times, and which runs ended or were resumed.",
    ),
]


@app.command()
def add(
    dataset: DatasetArgument,
    ledger: LedgerFlag,
    delta: Annotated[
        float, typer.Option('--delta', help='delta of all runs together. Choose it below 1/records.')
    ],
    unit: Annotated[
        Literal['example', 'user'],
        typer.Option('--unit', help='Unit of privacy of all its runs: one record (example) or one user.'),
    ],
    rho: RhoFlag = None,
    epsilon: EpsilonFlag = None,
    privacy_filter: Annotated[
        PrivacyFilter,
        typer.Option(
            '--filter',
            help='How runs are held against the budget, for good: renyi takes every kind of run; gaussian '
            'those that train an adapter or vote on whole texts, and training takes much less of it.',
        ),
    ] = 'renyi',
) -> None:
    """Give a dataset a budget. Makes the ledger if there is none.

    Example: dp-corpus ledger add visits --unit example --delta 1e-6 --epsilon 3 --ledger budget.db

    The name stands for the records, in whatever files they are. Use it for every run on these
    records, on a part of them, or on a later version of them.
    """
    from pipeline.ledger.ledger import Ledger

    # Before a new file is made for it.
    check_dataset(dataset, unit=unit, delta=delta, rho=rho, epsilon=epsilon, privacy_filter=privacy_filter)
    console = terminal.console()
    try:
        opened = Ledger.create(ledger)
    except FileExistsError:
        opened = Ledger.open(ledger)
    else:
        console.print(f'New ledger: {opened.where}', soft_wrap=True, markup=False)
    account = opened.add_dataset(
        dataset, unit=unit, delta=delta, rho=rho, epsilon=epsilon, privacy_filter=privacy_filter
    )
    _print_account(account, console)


@app.command()
def show(
    ledger: LedgerFlag,
    dataset: Annotated[
        str | None, typer.Argument(help='Name of the dataset. Default: all.', metavar='[DATASET]')
    ] = None,
    restricted: RestrictedFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the budget, what is spent and left, and the charged runs.

    Example: dp-corpus ledger show visits --ledger budget.db
    """
    opened = _open(ledger)
    accounts = opened.accounts() if dataset is None else (opened.account(dataset),)
    if as_json:
        banner = {'audience': released.RESTRICTED} if restricted else {}
        facts = [released.facts_of(account, restricted=restricted) for account in accounts]
        print(json.dumps({**banner, 'datasets': facts}, indent=2))
        return
    console = terminal.console()
    if restricted:
        console.print(f'{released.RESTRICTED}\n', style='red', soft_wrap=True, markup=False)
    if not accounts:
        console.print('No dataset yet: `dp-corpus ledger add` gives one a budget.', markup=False)
    for account in accounts:
        _print_account(account, console, restricted=restricted)


@app.command()
def budget(
    dataset: DatasetArgument,
    ledger: LedgerFlag,
    reason: Annotated[str, typer.Option('--reason', help='Why, for the log.')],
    rho: RhoFlag = None,
    epsilon: EpsilonFlag = None,
    delta: Annotated[float | None, typer.Option('--delta', help='New delta. Default: unchanged.')] = None,
) -> None:
    """Change a dataset's budget. Charges of runs stay as they are.

    Example: dp-corpus ledger budget visits --epsilon 5 --reason 'new data' --ledger budget.db

    A larger budget weakens the guarantee for these records. The person who answers for the
    records decides that, not the person who wants to run.
    """
    account = _open(ledger).change_budget(dataset, rho=rho, epsilon=epsilon, delta=delta, reason=reason)
    _print_account(account, terminal.console())


@app.command()
def settle(
    dataset: DatasetArgument,
    run_id: Annotated[str, typer.Argument(help='Public name of the run.', metavar='RUN_ID')],
    ledger: LedgerFlag,
) -> None:
    """Mark a run as finished, if its launcher did not wait for its end. Its charge stays.

    Example: dp-corpus ledger settle visits june --ledger budget.db

    A run that is marked is not resumed unless its report is there.
    """
    run = _open(ledger).settle(dataset, run_id)
    terminal.console().print(
        f'{run.run_id}: settled {run.settled_at}; its charge stays.', soft_wrap=True, markup=False
    )


@app.command()
def plot(
    dataset: DatasetArgument,
    ledger: LedgerFlag,
    html: Annotated[
        str, typer.Option('--html', help='Write the page here (- for standard output).', metavar='FILE')
    ],
) -> None:
    """Draw a dataset's cost, run by run, against its budget: one self-contained page.

    Example: dp-corpus ledger plot visits --html visits.html --ledger budget.db
    """
    opened = _open(ledger)
    page = ledger_page.render_html(opened.account(dataset), opened.events(dataset))
    if html == '-':
        print(page)
    else:
        pathlib.Path(html).write_text(page, encoding='utf-8')


@app.command()
def export(
    ledger: LedgerFlag,
    file_format: Annotated[
        Literal['json', 'csv'], typer.Option('--format', help='One object, or one table.')
    ] = 'json',
    output: Annotated[
        str | None, typer.Option('--output', help='File to write. Default: standard output.', metavar='FILE')
    ] = None,
    restricted: RestrictedFlag = False,
) -> None:
    """Write all datasets, runs and events, for an audit or another program.

    Example: dp-corpus ledger export --format csv --output ledger.csv --ledger budget.db

    All values are public: names, settings, costs and days. With --restricted they are for the
    curator alone, in a new .json or .csv file.
    """
    opened = _open(ledger)
    write = to_json if file_format == 'json' else to_csv
    text = write(opened.accounts(), opened.events(), restricted=restricted)
    if output is None:
        sys.stdout.write(text)
    elif restricted:
        apart.write(pathlib.Path(output), text, ('.json', '.csv'))
    else:
        pathlib.Path(output).write_text(text, encoding='utf-8', newline='')


def to_json(accounts: Sequence[Account], events: Sequence[Event], *, restricted: bool = False) -> str:
    """The whole ledger as one JSON object; `restricted` for the curator alone."""
    from pipeline.ledger.tables import SCHEMA_VERSION

    found = {
        'schema': 'dp-corpus/ledger',
        'schema_version': SCHEMA_VERSION,
        **({'audience': released.RESTRICTED} if restricted else {}),
        'datasets': [released.facts_of(account, restricted=restricted) for account in accounts],
        'events': [
            dataclasses.asdict(event)
            for event in (events if restricted else released.released_events(events))
        ],
    }
    return json.dumps(found, indent=2, ensure_ascii=False) + '\n'


def to_csv(accounts: Sequence[Account], events: Sequence[Event], *, restricted: bool = False) -> str:
    """The whole ledger as one table: a line for each dataset, run and event, by `kind`.

    Columns are always the same and in the same order; a value that a line does not have is empty.
    Those that are restricted to the curator come last, with a column that says so on every line.
    """
    rows: list[Mapping[str, Any]] = []
    for account in accounts:
        dataset = account.dataset
        rows.append(
            {
                'kind': 'dataset',
                'dataset': dataset.name,
                'rho': account.rho_spent,
                'delta': dataset.delta,
                'rho_budget': dataset.rho_budget,
                'epsilon_budget': dataset.epsilon_budget,
                'rho_bound': account.rho_bound,
                'epsilon_bound': account.epsilon_bound,
                'failure_budget': dataset.failure_budget,
                'at': dataset.created if restricted else released.day(dataset.created),
                'details': {'unit': dataset.unit},
            }
        )
        for run in account.runs:
            entry = dataclasses.asdict(account.entry(run))
            facts = released.facts_of_run(account, run, restricted=restricted)
            rows.append({'kind': 'run', **entry, **facts, 'at': facts.get('reserved_at', facts['charged'])})
    shown = events if restricted else released.released_events(events)
    rows += [{**dataclasses.asdict(event), 'kind': f'event: {event.kind}'} for event in shown]
    columns = (*COLUMNS, *RESTRICTED_COLUMNS) if restricted else COLUMNS
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction='ignore', restval='', lineterminator='\n')
    writer.writeheader()
    for row in rows:
        marked = {**row, 'audience': released.RESTRICTED}
        writer.writerow({name: _cell(marked.get(name)) for name in columns})
    return text.getvalue()


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else value


def _open(where: str) -> 'Ledger':
    from pipeline.ledger.ledger import Ledger

    return Ledger.open(where)


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


def _print_account(account: Account, console: rich.console.Console, *, restricted: bool = False) -> None:
    up, down, exact = report.format_up, report.format_down, report.format_exact
    dataset = account.dataset
    unit = 'record' if dataset.unit == 'example' else 'user'
    console.print(text.Text(f'{dataset.name}', style='bold'), f'(unit of privacy: one {unit})')
    amounts = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ('', 'ρ', f'ε at δ = {exact(dataset.delta)}'):
        amounts.add_column(name, justify='right' if name else 'left')
    given, found = dataset.epsilon_budget, account.epsilon_bound
    bound = exact(found) if found == given else up(found)
    amounts.add_row(
        'Budget', down(dataset.rho_budget), down(account.epsilon_budget) if given is None else exact(given)
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
    """What is spent of the budget, as a bar; a part of a mark counts as a whole one."""
    share = account.rho_spent / account.dataset.rho_budget
    filled = min(_BAR, -int(-share * _BAR // 1))
    over = ', over the budget' if share > 1 + 1e-9 else ''
    return f'{"█" * filled}{"░" * (_BAR - filled)} {100 * share:.3g} % spent{over}'


def _runs(count: int) -> str:
    return 'run' if count == 1 else 'runs'
