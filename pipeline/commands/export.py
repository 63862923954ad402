"""`dp-corpus export`: a finished corpus as JSON lines, as CSV, or as a table of a database."""

import json
from typing import Annotated

import typer

from pipeline.commands import flags
from pipeline.config import without_password
from pipeline.screen import off_screen


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
