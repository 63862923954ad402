"""A plan on a terminal: a name and a value on each line."""

from collections.abc import Sequence

import rich.console
import rich.table
from rich import text


def render(rows: Sequence[tuple[str, str]], warnings: Sequence[str], console: rich.console.Console) -> None:
    """Prints a plan: (name, value) rows, and warnings below."""
    table = rich.table.Table(show_header=False, box=None, pad_edge=False)
    for _ in range(2):
        table.add_column(overflow='fold')
    for name, value in (*rows, *(('WARNING', said) for said in warnings)):
        # Text, not str: a bracket in a name is no markup.
        table.add_row(text.Text(name), text.Text(value))
    console.print(table)
