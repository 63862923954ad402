"""The evaluation of corpora: one self-contained HTML page, and a terminal table."""

from __future__ import annotations

import dataclasses
import pathlib
import typing
from collections.abc import Mapping, Sequence

import markupsafe
import rich.console
from rich import box, table

from pipeline.evaluation.evaluation import CorpusResult, Evaluation
from pipeline.evaluation.measure import Chart, Figure, MeasureResult
from pipeline.evaluation.settings import DOCUMENT, PAGE
from pipeline.pages import page
from pipeline.release import apart
from pipeline.screen import off_screen

if typing.TYPE_CHECKING:
    from matplotlib import figure as matplotlib_figure
    from matplotlib.axes import Axes

TEMPLATE = 'evaluation.html.jinja'
# A figure of a part, as 'accuracy_by_label/World': shown below the others.
_PART = '/'
_LIGHTS: Mapping[str, str] = {'green': 'green', 'yellow': 'yellow', 'red': 'bold red', 'unknown': 'dim'}
_ARROWS = {'higher': '↑', 'lower': '↓', 'neither': ''}
_COLOURS = (page.ACCENT, page.ACCENT_2, page.INK, page.SOFT)
_STYLES: Sequence[str | tuple[float, tuple[float, ...]]] = ('-', (0, (4, 2)), (0, (1, 1.5)))
_MARKERS = 'os^'
# Beside real texts, which have the other.
_OF_CORPORA = _COLOURS[:3]
_LONGEST_NAME = 26
_LONGEST_SAMPLE = 600
# Rows of a measure in the terminal; the page has all.
_SHOWN_ROWS = 6


class _Look(typing.NamedTuple):
    """Looks of a line."""

    colour: str
    style: str | tuple[float, tuple[float, ...]]
    marker: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: a figure of every corpus."""

    label: str
    arrow: str
    cells: tuple[str, ...]
    note: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One measure on all corpora.

    Attributes:
        parts: Its figures of parts: by label, by field.
        plots: Its charts, each with the corpus in its title where there are several; first those that show
            all of them together.
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
    by_measure = sections(evaluation)
    return page.render(
        TEMPLATE,
        evaluation=evaluation,
        names=[result.corpus for result in evaluation.corpora],
        sections=by_measure,
        shorten=lambda text: page.shorten(text, _LONGEST_SAMPLE),
    )


def write(evaluation: Evaluation, folder: pathlib.Path) -> None:
    """Writes the page and the document into a new folder; for their owner alone where records were read.

    Raises:
        ValueError: See `apart.check_file`.
        FileExistsError: The folder is there.
    """
    with off_screen.unquoted():
        files = {DOCUMENT: evaluation.to_json(), PAGE: render_html(evaluation)}
    folder.mkdir(mode=0o700 if evaluation.reads_records else 0o755)
    for name, text in files.items():
        if evaluation.reads_records:
            apart.write(folder / name, text, apart.PAGE_OR_JSON)
        else:
            (folder / name).write_text(text, encoding='utf-8')


def render_terminal(evaluation: Evaluation, console: rich.console.Console) -> None:
    """Prints the first figures of each measure, a column for each corpus."""
    for result in evaluation.corpora:
        _print_verdict(result, len(evaluation.corpora) > 1, console)
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


def _print_verdict(result: CorpusResult, is_named: bool, console: rich.console.Console) -> None:
    """The verdict in words, and a line for each light with its rule."""
    verdict, name = result.verdict, f'{result.corpus}: ' if is_named else ''
    if verdict is None:
        said = 'No verdict: it takes real texts that no run has read (--test), and the measures use, labels, '
        console.print(f'{name}{said}mauve and holdout.', soft_wrap=True, markup=False)
        return
    console.print(
        f'{name}{verdict.words}', style=_LIGHTS[verdict.colour], soft_wrap=True, markup=False, highlight=False
    )
    for light in verdict.lights:
        said = f'  {light.name}: {light.colour}. {light.rule}'
        console.print(said, style='dim', soft_wrap=True, markup=False, highlight=False)


def sections(evaluation: Evaluation) -> list[Section]:
    """The measures in their order, with all corpora side by side."""
    several = len(evaluation.corpora) > 1
    by_measure = []
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
        by_measure.append(
            Section(
                results=results,
                rows=tuple(row for name, row in rows if _PART not in name),
                parts=tuple(row for name, row in rows if _PART in name),
                plots=(*_together(evaluation, results), *plots),
            )
        )
    return by_measure


def _together(evaluation: Evaluation, results: Sequence[MeasureResult]) -> list[page.Plot]:
    """Charts that have all corpora in one picture: a colour for each, and once the real texts."""
    charts: dict[str, dict[str, Chart]] = {}
    for corpus, result in zip(evaluation.corpora, results, strict=True):
        for chart in result.findings.charts if result.findings is not None else ():
            if chart.together:
                charts.setdefault(chart.title, {})[corpus.corpus] = chart
    plots = []
    for place, (title, of_corpora) in enumerate(charts.items()):
        if len(of_corpora) > 1:
            joined, looks = _joined(of_corpora)
            svg = _lines(joined, f'{results[0].measure}-together-{place}', looks)
            plots.append(page.Plot(title=title, caption='', svg=svg))
    return plots


def _joined(of_corpora: Mapping[str, Chart]) -> tuple[Chart, list[_Look]]:
    """One chart of several corpora's, and how each line looks.

    The real texts are those beside the corpus whose lines go furthest: there were as many of them.
    """
    charts = list(of_corpora.values())
    furthest = max(
        charts, key=lambda chart: max((float(x) for series in chart.series for x in series.x), default=0.0)
    )
    lines, looks = [], []
    for number, (corpus, chart) in enumerate(of_corpora.items()):
        for place, series in enumerate(each for each in chart.series if not each.real):
            lines.append(dataclasses.replace(series, name=f'{corpus}: {series.name}'))
            turn = number // len(_OF_CORPORA) % len(_MARKERS)
            looks.append(
                _Look(_OF_CORPORA[number % len(_OF_CORPORA)], _STYLES[place % len(_STYLES)], _MARKERS[turn])
            )
    for place, series in enumerate(each for each in furthest.series if each.real):
        lines.append(series)
        looks.append(_Look(page.SOFT, _STYLES[place % len(_STYLES)], ''))
    return dataclasses.replace(charts[0], series=tuple(lines)), looks


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
    draw = _lines if chart.kind == 'lines' else _bars
    return page.Plot(title=corpus + chart.title, caption='', svg=draw(chart, name))


def _legend(figure: matplotlib_figure.Figure, chart: Chart, columns: int = 2) -> None:
    if len(chart.series) > 1:
        figure.legend(
            fontsize=page.FONT_SIZE - 1, frameon=False, labelcolor=page.INK, loc='outside lower center',
            ncols=columns, markerscale=2,
        )  # fmt: skip


def _name(text: str, longest: int = _LONGEST_NAME) -> str:
    # A label may hold dollar signs, which matplotlib reads as mathematics.
    return page.shorten(text, longest).replace('$', r'\$')


def _lines(chart: Chart, name: str, looks: Sequence[_Look] | None = None) -> markupsafe.Markup:
    """Lines as they come, or each with its look, whose names are longer."""
    figure, axes = page.new_figure(2.9 if looks is None else 2.9 + 0.18 * len(looks))
    for index, series in enumerate(chart.series):
        look = _look(index) if looks is None else looks[index]
        axes.plot(
            series.x, series.y, color=look.colour, marker=look.marker, markersize=3, linestyle=look.style,
            linewidth=1.4, label=_name(series.name, _LONGEST_NAME if looks is None else 2 * _LONGEST_NAME),
        )  # fmt: skip
    _wide_range(axes, [float(x) for series in chart.series for x in series.x])
    page.name_axes(axes, chart.x_label)
    axes.set_ylabel(chart.y_label, color=page.SOFT, fontsize=page.FONT_SIZE)
    _legend(figure, chart, columns=2 if looks is None else 1)
    return page.to_svg(figure, name)


def _look(index: int) -> _Look:
    """A colour after the other, then in another style."""
    style = _STYLES[index // len(_COLOURS) % len(_STYLES)]
    return _Look(_COLOURS[index % len(_COLOURS)], style, _MARKERS[0])


def _wide_range(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis where sizes span more than one power of ten."""
    if values and min(values) > 0 and max(values) > 20 * min(values):
        axes.set_xscale('log')


def _bars(chart: Chart, name: str) -> markupsafe.Markup:
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
