"""Methods side by side on a terminal, or below one another where it is narrow."""

import rich.box
import rich.console
import rich.table
from rich import text

from pipeline.pages import plan_terminal
from pipeline.plan import comparison

# A narrower terminal would break words of the table.
_TABLE_COLUMNS = 100
_TITLES = ('Method', 'Texts', 'Time', 'ε', 'Worth')


def print_comparison(compared: comparison.Comparison, console: rich.console.Console) -> None:
    """The methods as a table, or one below the other where that is too narrow, and which one suits."""
    if console.width >= _TABLE_COLUMNS:
        table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
        for title in (*_TITLES, 'Why, or why not'):
            table.add_column(title, justify='right' if title in ('Texts', 'ε') else 'left')
        for row in comparison.rows(compared):
            table.add_row(*map(text.Text, row))
        console.print(table)
    else:
        for name, *cells in comparison.rows(compared):
            console.print(name, style='bold', markup=False, highlight=False)
            named = zip((*_TITLES[1:], 'Why'), cells, strict=True)
            plan_terminal.render([(title, cell) for title, cell in named if cell], (), console)
            console.print()
    suits = '' if compared.recommended is None else f'* {compared.recommended} suits best. '
    for line in (f'{suits}{compared.because}', *compared.notes, compared.worth, comparison.TIME):
        console.print(line, markup=False, highlight=False)
