"""`dp-corpus ledger`: makes, shows, changes, draws and exports the budgets of datasets.

The database is imported when a command runs, so that --help answers at once.
"""

import json
import pathlib
import sys
import typing
from typing import Annotated, Literal

import typer

from pipeline.commands import flags
from pipeline.ledger import released
from pipeline.ledger.budget import PrivacyFilter, check_dataset
from pipeline.pages import ledger_page, ledger_terminal
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
    ledger_terminal.print_account(account, console)


@app.command()
def show(
    ledger: LedgerFlag,
    dataset: Annotated[
        str | None, typer.Argument(help='Name of the dataset. Default: all.', metavar='[DATASET]')
    ] = None,
    restricted: RestrictedFlag = False,
    as_json: flags.JsonFlag = False,
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
        ledger_terminal.print_account(account, console, restricted=restricted)


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
    ledger_terminal.print_account(account, terminal.console())


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
        terminal.console().print(f'The page of {dataset}: {html}', soft_wrap=True, markup=False)


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
    write = released.to_json if file_format == 'json' else released.to_csv
    text = write(opened.accounts(), opened.events(), restricted=restricted)
    if output is None:
        sys.stdout.write(text)
    elif restricted:
        apart.write(pathlib.Path(output), text, ('.json', '.csv'))
    else:
        pathlib.Path(output).write_text(text, encoding='utf-8', newline='')


def _open(where: str) -> 'Ledger':
    from pipeline.ledger.ledger import Ledger

    return Ledger.open(where)
