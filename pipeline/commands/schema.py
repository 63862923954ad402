"""`dp-corpus schema`: prints the JSON Schema of each document that others than the curator read."""

from typing import Annotated

import typer

from pipeline.schemas import documents


def schema(
    name: Annotated[
        str | None, typer.Argument(help='Name of the document. Default: list all.', metavar='[NAME]')
    ] = None,
) -> None:
    """Print the JSON Schema (draft 2020-12) of a document that others than the curator read, or list all.

    Example: dp-corpus schema privacy-report
    """
    if name is not None:
        print(documents.committed(name), end='')
        return
    names = documents.names()
    width = max(map(len, names))
    for each in names:
        print(f'{each:<{width}}  {documents.DOCUMENTS[each]}')
