"""`dp-corpus schema`: the JSON Schema of each JSON that the other commands write."""

from typing import Annotated

import typer

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
    names = documents.names()
    width = max(map(len, names))
    for each in names:
        print(f'{each:<{width}}  {documents.DOCUMENTS[each].where}')
