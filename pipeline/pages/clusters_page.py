"""The comparison of clusterings for the curator: one self-contained HTML page, and a terminal table.

Source: CL = the paper on clusters and the median, Table 2 and Figure 2.
"""

import pathlib

import markupsafe
import numpy as np
import rich.console
from rich import box, table

from models.privacy import report
from pipeline import curator_files
from pipeline.clusters import LARGE, ClusterComparison, ClusteringRow
from pipeline.pages import page
from pipeline.pages.page import Plot

TEMPLATE = 'clusters.html.jinja'


def render_html(comparison: ClusterComparison) -> str:
    """One self-contained HTML page: the table, and the sizes of each method's clusters."""
    return page.render(
        TEMPLATE,
        plots=[Plot(title='Sizes of the clusters', caption='', svg=sizes_plot(comparison))],
        comparison=comparison,
        audience=report.RESTRICTED,
        rows=[cells_of(row) for row in comparison.rows],
        large=LARGE,
        columns=columns_of(comparison),
    )


def write(comparison: ClusterComparison, path: pathlib.Path) -> None:
    """Writes the comparison for the curator: a page for `.html`, JSON for `.json`.

    Args:
        comparison: What to write.
        path: A file that `curator_files.check` accepts.

    Raises:
        ValueError: See `curator_files.check`.
        FileExistsError: See `curator_files.check`.
    """
    text = comparison.to_json() if path.suffix == '.json' else render_html(comparison)
    curator_files.write(path, text, curator_files.PAGE_OR_JSON)


def render_terminal(comparison: ClusterComparison, console: rich.console.Console) -> None:
    """Prints the table, for the curator's eyes."""
    console.print(report.RESTRICTED, style='bold red')
    console.print(
        f'k-means and DP k-means were asked for {comparison.count:,} clusters; {comparison.centers:,} public '
        f'centres, of which rebalancing keeps {comparison.kept:,}.',
        soft_wrap=True,
    )
    rows = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    rows.add_column('Clusters by')
    for name in columns_of(comparison):
        rows.add_column(name, justify='right')
    for row in comparison.rows:
        rows.add_row(*cells_of(row))
    console.print(rows)


def columns_of(comparison: ClusterComparison) -> tuple[str, ...]:
    """The headings of `cells_of`, the first left out."""
    # An ε holds at any larger δ, so δ is rounded upwards.
    at_delta = f'ε at δ = {report.format_up(comparison.delta)}'
    return 'Clusters', f'of {LARGE} or more', 'ρ', at_delta, 'V-measure', 'adjusted'


def cells_of(row: ClusteringRow) -> tuple[str, ...]:
    """A row as readers see it, in the order of the table's columns."""
    return (
        row.method,
        f'{row.clusters:,}',
        f'{row.large_clusters:,}',
        '∞' if row.rho is None else report.format_up(row.rho),
        '∞' if row.epsilon is None else report.format_up(row.epsilon),
        f'{row.v_measure:z.2f}',
        f'{row.adjusted:z.2f}',
    )


def sizes_plot(comparison: ClusterComparison) -> markupsafe.Markup:
    """Cluster sizes, largest first, one panel for each method on the same axes (CL Figure 2): an `<svg>`."""
    from matplotlib import ticker
    from matplotlib.figure import Figure

    ink, soft, accent = page.INK, page.SOFT, page.ACCENT
    columns = 2
    lines = -(-len(comparison.rows) // columns)
    figure = Figure(figsize=(7.2, 1.9 * lines), layout='constrained')
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    widest = max(len(row.sizes) for row in comparison.rows)
    for panel, row in zip(panels, comparison.rows):
        panel.stairs(row.sizes, np.arange(len(row.sizes) + 1) + 0.5, baseline=0.7, fill=True, color=accent)
        panel.axhline(LARGE, color=soft, linewidth=0.8, linestyle=(0, (4, 3)))
        panel.set_title(row.method, fontsize=11, color=ink, loc='left')
        panel.set_yscale('log')
        panel.set_xlim(0.5, widest + 0.5)
        panel.set_ylim(0.7, 1.5 * comparison.records)
        panel.yaxis.set_major_locator(ticker.LogLocator(base=10))
        panel.yaxis.set_minor_locator(ticker.NullLocator())
        panel.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:,.0f}'))
        panel.tick_params(colors=soft, labelcolor=ink, labelsize=10, length=3)
        for side, spine in panel.spines.items():
            spine.set_visible(side in ('left', 'bottom'))
            spine.set_color(soft)
    for panel in panels[len(comparison.rows) :]:
        panel.set_visible(False)
    figure.supxlabel('Clusters, largest first', fontsize=11, color=soft)
    figure.supylabel('Records', fontsize=11, color=soft)
    return page.to_svg(figure, 'sizes')
