"""The evaluation of corpora: one self-contained HTML page, and a terminal table."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence

from pipeline.evaluation.evaluation import Evaluation, MeasureResult
from pipeline.evaluation.measure import Chart, Figure
from pipeline.pages import page

if typing.TYPE_CHECKING:
    import rich.console
    from matplotlib import figure as matplotlib_figure
    from matplotlib.axes import Axes

TEMPLATE = 'evaluation.html.jinja'
# A figure of a part, as 'accuracy_by_label/World': shown below the others.
_PART = '/'
_ARROWS = {'higher': '↑', 'lower': '↓', 'neither': ''}
_COLOURS = (page.ACCENT, page.ACCENT_2, page.INK, page.SOFT)
_STYLES = ('-', (0, (4, 2)), (0, (1, 1.5)))
_LONGEST_NAME = 26
_LONGEST_SAMPLE = 600
# Of a measure in the terminal; the page has all.
_SHOWN_ROWS = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: a figure of every corpus.

    Attributes:
        label: What it is.
        arrow: Which way is good.
        cells: Its value on each corpus.
        note: How to read it, or ''.
    """

    label: str
    arrow: str
    cells: tuple[str, ...]
    note: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One measure on all corpora.

    Attributes:
        results: Its result on each corpus.
        rows: Its figures.
        parts: Its figures of parts: by label, by field.
        plots: Its charts, each with the corpus in its title where there are several.
    """

    results: tuple[MeasureResult, ...]
    rows: tuple[Row, ...]
    parts: tuple[Row, ...]
    plots: tuple[page.Plot, ...]

    @property
    def result(self) -> MeasureResult:
        """The first corpus's, for what all have in common."""
        return self.results[0]


def render_html(evaluation: Evaluation) -> str:
    """One self-contained HTML page."""
    found = sections(evaluation)
    return page.render(
        TEMPLATE,
        evaluation=evaluation,
        names=[result.corpus for result in evaluation.corpora],
        sections=found,
        shorten=lambda text: page.shorten(text, _LONGEST_SAMPLE),
        marked=_marked,
    )


def _marked(svg: str) -> typing.Any:
    import markupsafe

    # matplotlib's, which escapes the labels in it.
    return markupsafe.Markup(svg)


def render_terminal(evaluation: Evaluation, console: rich.console.Console) -> None:
    """Prints the first figures of each measure, a column for each corpus."""
    from rich import box, table

    console.print(evaluation.audience, style='bold red' if evaluation.reads_records else None)
    for section in sections(evaluation):
        rows = table.Table(
            box=box.SIMPLE_HEAD, pad_edge=False, title=section.result.title, title_justify='left'
        )
        rows.add_column('')
        for result in evaluation.corpora:
            rows.add_column(page.shorten(result.corpus, _LONGEST_NAME), justify='right')
        shown = section.rows[:_SHOWN_ROWS] or section.parts
        for row in shown:
            rows.add_row(f'{row.label} {row.arrow}'.strip(), *row.cells)
        if shown:
            console.print(rows)
        else:
            console.print(f'{section.result.title}: not defined here.')
        for result, measured in zip(evaluation.corpora, section.results, strict=True):
            if measured.reason is not None:
                console.print(f'  {result.corpus}: {measured.reason}', markup=False, style='dim')


def sections(evaluation: Evaluation) -> list[Section]:
    """The measures in their order, with all corpora side by side."""
    several = len(evaluation.corpora) > 1
    found = []
    for index in range(len(evaluation.corpora[0].measures)):
        results = tuple(corpus.measures[index] for corpus in evaluation.corpora)
        rows = _rows(results)
        plots = [
            _plot(
                chart,
                f'{results[0].measure}-{number}-{place}',
                f'{corpus.corpus}: ' if several else '',
            )
            for number, (corpus, result) in enumerate(zip(evaluation.corpora, results, strict=True))
            if result.findings is not None
            for place, chart in enumerate(result.findings.charts)
        ]
        found.append(
            Section(
                results=results,
                rows=tuple(row for name, row in rows if _PART not in name),
                parts=tuple(row for name, row in rows if _PART in name),
                plots=tuple(plots),
            )
        )
    return found


def _rows(results: Sequence[MeasureResult]) -> list[tuple[str, Row]]:
    """The figures of all corpora by name, in the order in which they come first."""
    by_corpus = [
        {figure.name: figure for figure in result.findings.figures} if result.findings else {}
        for result in results
    ]
    names = list(dict.fromkeys(name for figures in by_corpus for name in figures))
    rows = []
    for name in names:
        figures = [figures.get(name) for figures in by_corpus]
        first = next(figure for figure in figures if figure is not None)
        if all(figure is None or figure.value is None for figure in figures):
            continue
        rows.append(
            (
                name,
                Row(
                    label=first.label,
                    arrow=_ARROWS[first.better],
                    cells=tuple(map(cell, figures)),
                    note=first.note,
                ),
            )
        )
    return rows


def cell(figure: Figure | None) -> str:
    """A figure as readers see it.

    >>> cell(Figure(name='a', label='A', value=0.61834, standard_error=0.0123))
    '0.618 ± 0.012'
    >>> cell(Figure(name='n', label='N', value=12000.0)), cell(None)
    ('12,000', '–')
    """
    if figure is None or figure.value is None:
        return '–'
    shown = _number(figure.value)
    if figure.standard_error is not None:
        shown += f' ± {_number(figure.standard_error, digits=2)}'
    return shown


def _number(value: float, digits: int = 3) -> str:
    if float(value).is_integer() and abs(value) < 1e15:
        return f'{value:,.0f}'
    if abs(value) >= 1000:
        return f'{value:,.0f}'
    return f'{value:.{digits}g}' if abs(value) < 0.1 or abs(value) >= 1 else f'{value:.3f}'


def _plot(chart: Chart, name: str, corpus: str) -> page.Plot:
    draw = {'lines': _lines, 'points': _points, 'bars': _bars, 'cells': _cells}[chart.kind]
    return page.Plot(title=corpus + chart.title, caption='', svg=draw(chart, name))


def _legend(figure: matplotlib_figure.Figure, chart: Chart) -> None:
    if len(chart.series) > 1:
        figure.legend(
            fontsize=page.FONT_SIZE - 1, frameon=False, labelcolor=page.INK, loc='outside lower center',
            ncols=2, markerscale=2,
        )  # fmt: skip


def _name(text: str) -> str:
    # A label may hold dollar signs, which matplotlib reads as mathematics.
    return page.shorten(text, _LONGEST_NAME).replace('$', r'\$')


def _lines(chart: Chart, name: str) -> str:
    figure, axes = page.new_figure(2.9)
    for index, series in enumerate(chart.series):
        axes.plot(
            series.x, series.y, color=_COLOURS[index % len(_COLOURS)], marker='o', markersize=3,
            linestyle=_STYLES[index // len(_COLOURS) % len(_STYLES)], linewidth=1.4, label=_name(series.name),
        )  # fmt: skip
    _wide_range(axes, [float(x) for series in chart.series for x in series.x])
    page.name_axes(axes, chart.x_label)
    axes.set_ylabel(chart.y_label, color=page.SOFT, fontsize=page.FONT_SIZE)
    _legend(figure, chart)
    return page.to_svg(figure, name)


def _wide_range(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis where sizes span more than one power of ten."""
    if values and min(values) > 0 and max(values) > 20 * min(values):
        axes.set_xscale('log')


def _points(chart: Chart, name: str) -> str:
    figure, axes = page.new_figure(3.6)
    for index, series in enumerate(chart.series):
        axes.scatter(
            series.x, series.y, s=5, color=_COLOURS[index % len(_COLOURS)], alpha=0.6, linewidths=0,
            label=_name(series.name),
        )  # fmt: skip
    page.name_axes(axes, chart.x_label)
    axes.set_ylabel(chart.y_label, color=page.SOFT, fontsize=page.FONT_SIZE)
    _legend(figure, chart)
    return page.to_svg(figure, name)


def _bars(chart: Chart, name: str) -> str:
    """Horizontal bars, those of one name together."""
    names = list(dict.fromkeys(str(x) for series in chart.series for x in series.x))
    height = 0.8 / len(chart.series)
    figure, axes = page.new_figure(0.9 + 0.16 * len(names) * (1 + len(chart.series)))
    for index, series in enumerate(chart.series):
        places = [names.index(str(x)) - 0.4 + (index + 0.5) * height for x in series.x]
        axes.barh(
            places, series.y, height=height, color=_COLOURS[index % len(_COLOURS)], label=_name(series.name)
        )
    axes.set_yticks(range(len(names)), [_name(one) for one in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    page.name_axes(axes, chart.y_label)
    _legend(figure, chart)
    return page.to_svg(figure, name)


def _cells(chart: Chart, name: str) -> str:
    """A table of shades with its numbers."""
    columns = [str(x) for x in chart.series[0].x]
    rows = [series.y for series in chart.series]
    figure, axes = page.new_figure(1.0 + 0.34 * len(rows))
    largest = max((abs(value) for row in rows for value in row), default=0) or 1
    for place, row in enumerate(rows):
        for column, value in enumerate(row):
            axes.barh(
                place, 0.96, left=column - 0.48, height=0.94, color=page.ACCENT,
                alpha=0.75 * abs(value) / largest,
            )  # fmt: skip
            axes.text(
                column, place, _number(value, digits=2), ha='center', va='center', color=page.INK,
                fontsize=page.FONT_SIZE - 2,
            )  # fmt: skip
    axes.set_xticks(range(len(columns)), [_name(one) for one in columns], rotation=30, ha='right')
    axes.set_yticks(range(len(rows)), [_name(series.name) for series in chart.series])
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    page.name_axes(axes, chart.x_label)
    axes.set_ylabel(chart.y_label, color=page.SOFT, fontsize=page.FONT_SIZE)
    return page.to_svg(figure, name)
