"""The privacy report for people: one self-contained HTML page, and one terminal screen.

Both show a `PrivacyReport` and nothing else, so whatever they show may be released.
"""

import dataclasses
import importlib.resources
import io
import math
import re
import typing
import warnings
from collections.abc import Sequence

from models.privacy import accounting, report

if typing.TYPE_CHECKING:
    import markupsafe
    import rich.console
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEMPLATE = 'report.html.jinja'

# Stand-ins that matplotlib draws with; the page swaps them for its own colours, which follow the reader's
# light or dark setting.
_INK, _SOFT, _ACCENT, _ACCENT_2 = '#010203', '#010204', '#010205', '#010206'
_COLOURS = {_INK: 'var(--ink)', _SOFT: 'var(--soft)', _ACCENT: 'var(--accent)', _ACCENT_2: 'var(--accent-2)'}
_WIDTH = 4.6  # inches at 72 points: small enough that 10-point text stays readable on a phone
_MAX_BARS = 24
_MAX_BAR_NAME = 40
_MAX_TERMINAL_NAME = 24
_FONT_SIZE = 11  # points


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """One picture of the page.

    Attributes:
        title: What it shows.
        caption: How to read it.
        svg: An `<svg>` element without a fixed size.
    """

    title: str
    caption: str
    svg: str


def render_html(privacy_report: report.PrivacyReport) -> str:
    """One HTML page with all of the report, inline styles and inline SVG.

    Needs no network and no JavaScript. The same report gives the same page.
    """
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True, auto_reload=False
    )
    environment.filters |= {'up': report.format_up, 'setting': format_setting, 'prose': _prose}
    source = importlib.resources.files('pipeline').joinpath(TEMPLATE).read_text(encoding='utf-8')
    plots = [
        # The SVG is matplotlib's, which escapes the labels in it.
        dataclasses.replace(plot, svg=markupsafe.Markup(plot.svg))
        for plot in (budget_plot(privacy_report), epsilon_plot(privacy_report), batches_plot(privacy_report))
    ]
    return environment.from_string(source).render(
        report=privacy_report,
        audience=report.RELEASABLE,
        plots=plots,
        noisy=all(group.noisy_count is not None for group in privacy_report.plan),
        unit='user' if privacy_report.mechanism['unit'] == 'user' else 'record',
        delta=report.format_exact(privacy_report.delta),
        likelihood_ratio=_likelihood_ratio(privacy_report.epsilon),
    )


def render_terminal(privacy_report: report.PrivacyReport, console: 'rich.console.Console') -> None:
    """Prints the report, condensed to one screen.

    Args:
        privacy_report: What to show.
        console: Where; its width decides the line breaks.
    """
    from rich import box, panel, table, text

    up, exact = report.format_up, report.format_exact
    console.print(
        panel.Panel(
            # Text, not str: a bracket in a name is no markup.
            text.Text(f'{privacy_report.guarantee}\n\n{privacy_report.unit_of_privacy}'),
            title=text.Text(f'Privacy report of {privacy_report.run_id}', style='bold'),
            subtitle=text.Text(report.RELEASABLE),
            title_align='left',
            subtitle_align='left',
            border_style='green',
        )
    )
    stages = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True)
    stages.add_column('Budget', footer='Whole run')
    result = f'ε = {up(privacy_report.epsilon)} at δ = {exact(privacy_report.delta)}'
    stages.add_column('Formula', footer=result)
    stages.add_column('ρ', justify='right', footer=up(privacy_report.rho_total))
    for stage in privacy_report.stages:
        stages.add_row(stage.name, stage.numbers, up(stage.rho))
    console.print(stages)

    corpus, plan = privacy_report.corpus, privacy_report.plan
    facts = table.Table.grid(padding=(0, 2))
    facts.add_column(style='bold')
    facts.add_column(overflow='fold')
    batches = sum(group.batches for group in plan)
    for name, value in (
        (
            'Corpus',
            f'{corpus.examples:,} examples ({corpus.truncated:,} truncated), {corpus.private_tokens:,} '
            f'private and {corpus.public_tokens:,} public tokens',
        ),
        ('Batches', f'{batches:,} planned' + _plan_in_words(plan)),
        ('Delta', privacy_report.delta_relation),
        ('Covered', 'This run. Other runs on the same records, and tuning on them, add to the cost.'),
        ('Curator', 'Keeps the run key and work directory secret; the HTML page says what else has to hold.'),
    ):
        facts.add_row(text.Text(name), text.Text(value))
    console.print(facts)


def format_setting(value: report.Setting) -> str:
    """A setting as readers of the page see it.

    >>> format_setting(None), format_setting(True), format_setting(2.0), format_setting('')
    ('not set', 'yes', '2', 'empty')
    """
    if value is None:
        return 'not set'
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    if isinstance(value, float):
        return report.format_exact(value)
    return str(value) if value != '' else 'empty'


def budget_plot(privacy_report: report.PrivacyReport) -> Plot:
    """rho by stage, as bars."""
    stages = privacy_report.stages
    rows = [(stage.name, stage.rho, report.format_up(stage.rho)) for stage in stages]
    return Plot(
        title='Budget by stage',
        caption='ρ of each stage; together they are the cost of the run.',
        svg=_bars('budget', rows),
    )


def epsilon_plot(privacy_report: report.PrivacyReport) -> Plot:
    """epsilon against the cap on private tokens per batch, with the run's cap marked."""
    from matplotlib import ticker

    cap = _cap(privacy_report)
    other = privacy_report.rho_total - cap * privacy_report.rho_per_private_token
    top = max(10, 4 * cap)
    steps = 60
    caps = sorted({round(top ** (step / steps)) for step in range(steps + 1)} | {cap})
    epsilons = [
        accounting.epsilon_from_rho(
            max(0.0, other) + count * privacy_report.rho_per_private_token, privacy_report.delta
        )
        for count in caps
    ]
    at_cap = privacy_report.epsilon
    figure, axes = _figure(3.0)
    axes.plot(caps, epsilons, color=_ACCENT, linewidth=2)
    axes.set_xscale('log')
    # A log axis has no place for the epsilon of 0 that a tiny rho gives.
    if min(epsilons) > 0:
        axes.set_yscale('log')
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:,.0f}'))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:g}'))
    axes.axvline(cap, color=_ACCENT_2, linewidth=1, linestyle=(0, (4, 3)))
    axes.plot([cap], [at_cap], 'o', color=_ACCENT_2, markersize=6)
    right_of_middle = math.log(cap) > 0.5 * math.log(top)
    axes.annotate(
        f'r = {cap:,}\nε = {report.format_up(at_cap)}',
        (cap, at_cap),
        xytext=(-8 if right_of_middle else 8, 8 if right_of_middle else -8),
        textcoords='offset points',
        ha='right' if right_of_middle else 'left',
        va='bottom' if right_of_middle else 'top',
        color=_ACCENT_2,
        fontsize=_FONT_SIZE,
    )
    axes.margins(x=0.02, y=0.12)
    axes.set_xlabel('Cap on private tokens per batch, r', color=_SOFT, fontsize=_FONT_SIZE)
    axes.set_ylabel('ε', color=_SOFT, fontsize=_FONT_SIZE, rotation=0, ha='right', va='center')
    axes.grid(True, which='major', color=_SOFT, alpha=0.2, linewidth=0.6)
    return Plot(
        title='Epsilon against the cap',
        caption=(
            f'What other caps would have cost at δ = {report.format_exact(privacy_report.delta)}. The mark '
            'is this run; it holds however many private tokens a batch used.'
        ),
        svg=_svg(figure, 'epsilon'),
    )


def batches_plot(privacy_report: report.PrivacyReport) -> Plot:
    """Planned batches by label, as bars; the largest ones where there are many labels."""
    groups = sorted(privacy_report.plan, key=lambda group: -group.batches)
    rows = [
        (
            'all records' if group.label is None else _shorten(group.label, _MAX_BAR_NAME),
            group.batches,
            f'{group.batches:,}',
        )
        for group in groups[:_MAX_BARS]
    ]
    caption = 'Each batch votes on one stream of tokens. Every planned batch is released.'
    if len(groups) > _MAX_BARS:
        caption += f' The {_MAX_BARS} largest of {len(groups):,} labels; the table below has all.'
    return Plot(title='Batches by label', caption=caption, svg=_bars('batches', rows))


def _prose(text: str) -> 'markupsafe.Markup':
    """Escapes, then sets e^3.2 and 1e-6 as powers and keeps "ε = 3.2" on one line."""
    import markupsafe

    marked = str(markupsafe.escape(text))
    marked = re.sub(r'\b([en])\^(-?\d[\d.]*\d|\d)', _power, marked)
    marked = re.sub(r'(?<![\w.])(\d[\d.]*)e(-?\d+)\b', _power_of_ten, marked)
    return markupsafe.Markup(marked.replace(' = ', '\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}'))


def _power(match: re.Match[str]) -> str:
    return f'{match[1]}<sup>{match[2].replace("-", "−")}</sup>'


def _power_of_ten(match: re.Match[str]) -> str:
    factor = '' if match[1] == '1' else f'{match[1]}·'
    return f'{factor}10<sup>{match[2].replace("-", "−")}</sup>'


def _cap(privacy_report: report.PrivacyReport) -> int:
    return typing.cast(int, privacy_report.mechanism['max_private_tokens'])


def _likelihood_ratio(epsilon: float) -> str:
    if epsilon > math.log(1e6):
        return 'more than a million, which by itself promises little'
    return f'about {report.format_up(math.exp(epsilon))}'


def _plan_in_words(plan: Sequence[report.GroupPlan]) -> str:
    if len(plan) == 1 and plan[0].label is None:
        return ''
    shown = [f'{_shorten(str(group.label), _MAX_TERMINAL_NAME)} {group.batches:,}' for group in plan[:6]]
    rest = len(plan) - len(shown)
    return ': ' + ', '.join(shown) + (f' and {rest:,} labels more' if rest else '')


def _shorten(name: str, length: int) -> str:
    name = ' '.join(name.split()) or '(blank)'
    return name if len(name) <= length else name[: length - 1] + '…'


def _figure(height: float) -> tuple['Figure', 'Axes']:
    # Figure rather than pyplot: no global state, no window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout='constrained')
    axes = figure.subplots()
    axes.tick_params(colors=_SOFT, labelcolor=_INK, labelsize=_FONT_SIZE, length=3)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)
    for side in ('left', 'bottom'):
        axes.spines[side].set_color(_SOFT)
    return figure, axes


def _bars(name: str, rows: Sequence[tuple[str, float, str]]) -> str:
    """Horizontal bars, each with its name above it: long names then need no margin."""
    figure, axes = _figure(0.35 + 0.5 * len(rows))
    largest = max(value for _, value, _ in rows)
    for index, (label, value, shown) in enumerate(rows):
        axes.barh(index, value, height=0.34, color=_ACCENT, align='edge')
        # parse_math=False: a label may hold dollar signs.
        axes.text(
            0, index - 0.06, label, ha='left', va='bottom', fontsize=_FONT_SIZE, color=_INK, parse_math=False
        )
        axes.text(value + 0.015 * largest, index + 0.17, shown, va='center', fontsize=_FONT_SIZE, color=_SOFT)
    axes.set_xlim(0, 1.16 * largest)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines['left'].set_visible(False)
    axes.spines['bottom'].set_visible(False)
    axes.set_xticks([])
    return _svg(figure, name)


def _svg(figure: 'Figure', name: str) -> str:
    """The figure as an `<svg>` element for an HTML page.

    Args:
        figure: What was drawn.
        name: Starts every id, since the page holds several drawings.
    """
    import matplotlib

    buffer = io.StringIO()
    with (
        matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': name, 'font.family': ['DejaVu Sans']}),
        warnings.catch_warnings(),
    ):
        # The browser draws the text in a font of its own; matplotlib's need not have every letter.
        warnings.filterwarnings('ignore', message='Glyph .* missing from font')
        no_metadata = dict.fromkeys(('Creator', 'Date', 'Format', 'Type'))
        figure.savefig(buffer, format='svg', transparent=True, metadata=no_metadata)
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index('<svg') :]
    drawing = re.sub(r'(<svg[^>]*?) width="[^"]*"', r'\1', drawing, count=1)
    drawing = re.sub(r'(<svg[^>]*?) height="[^"]*"', r'\1', drawing, count=1)
    drawing = re.sub(r'\bid="', f'id="{name}-', drawing)
    drawing = re.sub(r'((?:xlink:)?href=")#', rf'\1#{name}-', drawing)
    drawing = drawing.replace('url(#', f'url(#{name}-')
    for stand_in, colour in _COLOURS.items():
        drawing = drawing.replace(stand_in, colour)
    return drawing.strip()
