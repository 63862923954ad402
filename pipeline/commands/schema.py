"""`dp-corpus schema`: the JSON Schema of each JSON that the other commands write."""

from typing import Annotated

import rich.console
import typer
from rich import table, text

from pipeline.schemas import documents


def schema(
    name: Annotated[
        str | None, typer.Argument(help='Which document. Default: list them all.', metavar='[NAME]')
    ] = None,
) -> None:
    """Print the JSON Schema (draft 2020-12) of a JSON that dp-corpus writes, or list them all."""
    if name is not None:
        print(documents.committed(name), end='')
        return
    rows = table.Table.grid(padding=(0, 2))
    for each in documents.names():
        rows.add_row(each, text.Text(documents.DOCUMENTS[each].where))
    rich.console.Console().print(rows)
