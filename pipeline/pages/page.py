"""Parts of all HTML pages: the environment of their templates, and drawings that follow the page.

A page is one self-contained file with inline styles and inline SVG: it needs no network
and no JavaScript, and the same values give the same page.
"""

import dataclasses
import functools
import io
import re
import typing
import warnings
from collections.abc import Sequence

import markupsafe

from models.privacy import report
from pipeline.pages import signer

if typing.TYPE_CHECKING:
    import jinja2
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-ins that matplotlib draws with; the page swaps them for its own colours, which follow the reader's
# light or dark setting.
INK, SOFT, ACCENT, ACCENT_2 = '#010203', '#010204', '#010205', '#010206'
_COLOURS = {INK: 'var(--ink)', SOFT: 'var(--soft)', ACCENT: 'var(--accent)', ACCENT_2: 'var(--accent-2)'}
WIDTH = 4.6  # inches at 72 points: small enough that 10-point text stays readable on a phone
FONT_SIZE = 11  # points
_WIDE = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """One picture of a page.

    Attributes:
        svg: An `<svg>` element without a fixed size.
        tall: Whether it is as high as two others.
    """

    title: str
    caption: str
    svg: markupsafe.Markup
    tall: bool = False


def render(template: str, **values: typing.Any) -> str:
    """A page from one of the package's templates, which extends `page.html.jinja`.

    Args:
        template: Its file name.
        values: What the template reads. All text is escaped but `markupsafe.Markup`, as drawings are.
    """
    return _environment().get_template(template).render(values)


def render_plain(template: str, **values: typing.Any) -> str:
    """The same without HTML: a card or a screen. A line that holds nothing but a tag leaves no line."""
    return _environment().overlay(autoescape=False, trim_blocks=True).get_template(template).render(values)


@functools.cache
def _environment() -> 'jinja2.Environment':
    """It keeps each template that it has compiled."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader('pipeline.pages', '.'),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    made.filters |= {
        'prose': _prose,
        'setting': format_setting,
        'thousands': '{:,}'.format,
        'up': report.format_up,
        'down': report.format_down,
        'md': escape_markdown,
        'shorten': shorten,
        'exact': report.format_exact,
        'even_guess': signer.even_guess,
        'fields': dataclasses.asdict,
        'capitalize_first': lambda text: text[0].upper() + text[1:],
    }
    return made


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


def shorten(name: str, length: int) -> str:
    """A name on one line, cut to a length.

    >>> shorten('two\\nlines', 20), shorten('a long name', 6), shorten('', 20)
    ('two lines', 'a lon…', '(blank)')
    """
    name = ' '.join(name.split()) or '(blank)'
    return name if len(name) <= length else name[: length - 1] + '…'


def new_figure(height: float) -> tuple['Figure', 'Axes']:
    """An empty drawing as wide as a phone, `height` inches high, in the page's colours."""
    # Figure rather than pyplot: no global state, no window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout='constrained')
    axes = figure.subplots()
    style_axes(axes)
    return figure, axes


def style_axes(axes: 'Axes') -> None:
    """Ticks and spines of the house: no box, soft lines."""
    axes.tick_params(colors=SOFT, labelcolor=INK, labelsize=FONT_SIZE, length=3)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)
    for side in ('left', 'bottom'):
        axes.spines[side].set_color(SOFT)


def name_axes(axes: 'Axes', x_name: str, y_name: str | None = None) -> None:
    """Names the axes; a short name of y stands upright beside it."""
    axes.set_xlabel(x_name, color=SOFT, fontsize=FONT_SIZE)
    if y_name is not None:
        axes.set_ylabel(y_name, color=SOFT, fontsize=FONT_SIZE, rotation=0, ha='right', va='center')


def sorted_sizes(
    name: str, sizes: Sequence[int], *, x_name: str, expected: int | None = None
) -> markupsafe.Markup:
    """Sizes as steps, largest first, whatever their number.

    Args:
        name: Starts the drawing's ids.
        sizes: At least one, in any order.
        x_name: What has a size, as the axis names it.
        expected: Gets a dashed line. Far above it the scale is logarithmic, or the
            largest size would hide the others.
    """
    from matplotlib import ticker

    ordered = sorted(sizes, reverse=True)
    figure, axes = new_figure(2.4)
    edges = [index + 0.5 for index in range(len(ordered) + 1)]
    axes.stairs(ordered, edges, fill=True, color=ACCENT)
    if expected is not None:
        axes.axhline(expected, color=ACCENT_2, linewidth=1, linestyle=(0, (4, 3)))
        if ordered[0] > _WIDE * expected:
            axes.set_yscale('symlog', linthresh=expected)
            decades = [10**power for power in range(12) if 3 * expected < 10**power <= ordered[0]]
            axes.yaxis.set_major_locator(ticker.FixedLocator([0, expected, *(decades or [ordered[0]])]))
            axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlim(0.5, len(ordered) + 0.5)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:,.0f}'))
    name_axes(axes, f'{x_name}, largest first')
    return to_svg(figure, name)


def bars(name: str, rows: Sequence[tuple[str, float, str]]) -> markupsafe.Markup:
    """Horizontal bars, each with its name above it: long names then need no margin."""
    figure, axes = new_figure(0.35 + 0.5 * len(rows))
    largest = max(value for _, value, _ in rows) or 1
    for index, (label, value, shown) in enumerate(rows):
        axes.barh(index, value, height=0.34, color=ACCENT, align='edge')
        # parse_math=False: a label may hold dollar signs.
        axes.text(
            0, index - 0.06, label, ha='left', va='bottom', fontsize=FONT_SIZE, color=INK, parse_math=False
        )
        axes.text(value + 0.015 * largest, index + 0.17, shown, va='center', fontsize=FONT_SIZE, color=SOFT)
    axes.set_xlim(0, 1.16 * largest)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines['left'].set_visible(False)
    axes.spines['bottom'].set_visible(False)
    axes.set_xticks([])
    return to_svg(figure, name)


def to_svg(figure: 'Figure', name: str) -> markupsafe.Markup:
    """The figure as an `<svg>` element, whose ids begin with `name`: a page holds several drawings."""
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
    # matplotlib escapes the labels in it.
    return markupsafe.Markup(drawing.strip())


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    # At a line's start these would make a heading, a list or a quotation; inside, they mark up.
    text = re.sub(r'([\\`*_\[\]<>|#~$&{}])', r'\\\1', ' '.join(text.split()))
    return re.sub(r'^([-+]|\d+[.)])', r'\\\1', text)


def _prose(text: str) -> markupsafe.Markup:
    """Escapes, then sets e^3.2 and 1e-6 as powers and keeps "ε = 3.2" on one line."""
    marked = str(markupsafe.escape(text))
    marked = re.sub(r'\b([en])\^(-?\d[\d.]*\d|\d)', _power, marked)
    marked = re.sub(r'(?<![\w.])(\d[\d.]*)e(-?\d+)\b', _power_of_ten, marked)
    return markupsafe.Markup(marked.replace(' = ', '\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}'))


def _power(match: re.Match[str]) -> str:
    return f'{match[1]}<sup>{match[2].replace("-", "−")}</sup>'


def _power_of_ten(match: re.Match[str]) -> str:
    factor = '' if match[1] == '1' else f'{match[1]}·'
    return f'{factor}10<sup>{match[2].replace("-", "−")}</sup>'
