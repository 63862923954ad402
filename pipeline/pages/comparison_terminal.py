"""Methods side by side on a terminal, or below one another where it is narrow."""

from collections.abc import Sequence

import rich.box
import rich.console
import rich.table
from rich import text

from pipeline.pages import plan_terminal
from pipeline.plan import comparison

# A narrower terminal would break words of the table.
_TABLE_COLUMNS = 100


def print_comparison(compared: comparison.Comparison, console: rich.console.Console) -> None:
    """The methods as a table, or one below the other where that is too narrow, and which one suits."""
    titles = ('Method', 'Texts', 'Time', 'ε', 'Worth', 'Why, or why not')
    _print_side_by_side(titles, comparison.rows(compared), console, right=('Texts', 'ε'), last='Why')
    suits = '' if compared.recommended is None else f'* {compared.recommended} suits best. '
    for line in (f'{suits}{compared.because}', compared.worth, comparison.TIME):
        console.print(line, markup=False, highlight=False)


def _print_side_by_side(
    titles: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    console: rich.console.Console,
    *,
    right: Sequence[str] = (),
    last: str | None = None,
) -> None:
    """A table, or one row below the other where that is too narrow.

    Args:
        titles: Titles of the columns.
        rows: Cells, of which the first names the row.
        console: Where; its width decides.
        right: Titles of columns that are set to the right.
        last: A shorter title of the last column, beside its value.
    """
    if console.width >= _TABLE_COLUMNS:
        table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
        for title in titles:
            table.add_column(title, justify='right' if title in right else 'left')
        for row in rows:
            table.add_row(*(text.Text(cell) for cell in row))
        console.print(table)
        return
    for name, *cells in rows:
        console.print(name, style='bold', markup=False, highlight=False)
        named = [*zip(titles[1:-1], cells), (last or titles[-1], cells[-1])]
        plan_terminal.render([(title, cell) for title, cell in named if cell], (), console)
        console.print()
