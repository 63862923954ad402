"""`dp-corpus report` and `dp-corpus export`: what a finished run has released, shown or in another form."""

import json
import pathlib
from typing import Annotated

import typer

from pipeline.asked.config import without_password
from pipeline.commands import flags
from pipeline.pages import report_page, report_terminal
from pipeline.release.report import read_report
from pipeline.screen import off_screen, terminal


def report(
    output: Annotated[str, typer.Argument(help="A finished run's corpus folder.", metavar='OUTPUT')],
    as_json: flags.JsonFlag = False,
    html: Annotated[
        str | None,
        typer.Option('--html', help='Write the page to this file (- for standard output).', metavar='FILE'),
    ] = None,
) -> None:
    """Show the privacy report of a finished run: in the terminal, as JSON or as a page.

    Example: dp-corpus report corpus --html report.html
    """
    if html is not None:
        page = report_page.render_html(read_report(output))
        if html == '-':
            print(page)
        else:
            pathlib.Path(html).write_text(page, encoding='utf-8')
        return
    show_report(output, as_json=as_json, quiet=False)


def show_report(output: str, *, as_json: bool, quiet: bool) -> None:
    """Shows the report of a run's output in the terminal, or prints its JSON.

    Raises:
        FileNotFoundError: No finished run has written there.
        ValueError: The report is not one, or was edited.
    """
    privacy_report = read_report(output)
    if as_json:
        print(privacy_report.to_json(), end='')
    elif not quiet:
        report_terminal.render(privacy_report, terminal.console(), output)


def export(
    corpus: Annotated[str, typer.Argument(help='Output of a finished run.', metavar='OUTPUT')],
    to: Annotated[
        str,
        typer.Option(
            '--to',
            help='New file, ending in .jsonl or .csv, or a database: postgresql://USER@HOST/NAME or '
            'sqlite:///FILE.',
        ),
    ],
    table: Annotated[str | None, typer.Option('--table', help='New table of the database.')] = None,
    as_json: flags.JsonFlag = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Write a finished corpus as JSON lines, as CSV, or into a table of a database.

    Example: dp-corpus export corpus --to corpus.jsonl

    In CSV, a text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    to = without_password(to)
    off_screen.silence_libraries()
    with off_screen.without_chatter():
        from pipeline.release import export as export_lib

        count = export_lib.export(corpus, to, table)
    if as_json:
        print(json.dumps({'examples': count, 'to': to}))
    elif not quiet:
        print(f'{to}: {count:,} examples')
