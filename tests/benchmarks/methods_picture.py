"""Draws what the methods were worth: docs/methods_compared.svg, from the table of docs/measured.md.

Run `python -m tests.benchmarks.methods_picture` once a row of that table changes; a test holds the picture
to the table. Worth is the accuracy of a head that learns from the texts, as a share of what it learns from
as many real records.
"""

import dataclasses
import io
import pathlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

DOCS = pathlib.Path(__file__).parents[2] / 'docs'
PICTURE = DOCS / 'methods_compared.svg'
_TITLE = '## The methods at the same ε'
# Colours that people of every kind of sight tell apart (Okabe and Ito 2008), and a mark each.
_LOOKS = {
    'votes on tokens': ('#D55E00', 's'),
    'fine-tuning': ('#0072B2', 'o'),
    'votes on whole texts': ('#009E73', '^'),
    'training and votes': ('#CC79A7', 'D'),
}
_SIZE = 9  # points
# Places of a name beside its point, in points, and the end of it that is there.
_PLACES = tuple(
    (x, y, end)
    for far in (0, 11, 22)
    for x, end in ((6, 'left'), (-6, 'right'))
    for y in (5 + far, -12 - far)
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table.

    Attributes:
        data: Name of the data set.
        texts: Number of texts of the corpus, and of the real records that they are held against.
        method: Key of `_LOOKS`.
        of_label: Records of a label, on average.
        minutes: Minutes of the whole run.
        worth: Accuracy of the head over that of one that learnt from as many real records.
        error: Standard error of it, that of real records left out.
    """

    data: str
    texts: int
    method: str
    of_label: float
    minutes: float
    worth: float
    error: float

    @property
    def name(self) -> str:
        """The words beside its point: its data, and the number of texts."""
        return f'{self.data} ({self.texts})'


def rows() -> list[Row]:
    """The rows of the table, in its order.

    Raises:
        ValueError: A cell is of another form.
    """
    text = (DOCS / 'measured.md').read_text(encoding='utf-8')
    section = text[text.index(_TITLE) :].split('\n## ')[0]
    lines = [line.strip('|').split('|') for line in section.splitlines() if line.startswith('|')]
    found, data, labels = [], '', 1
    for cells in lines[2:]:
        named, method, takes, texts, minutes, head = (cell.strip() for cell in cells[:6])
        if named:
            data, _, of_labels = named.partition(', ')
            labels = int(of_labels.split()[0])
        records = re.match(r'([\d,]+) records', takes)
        figures = re.match(r'([\d.]+) ± ([\d.]+) \(([\d.]+)\)', head)
        if records is None or figures is None:
            raise ValueError(
                f'Expected records and an accuracy with its error, got takes={takes!r}, head={head!r}. '
                f'Write the row of {data} as the others of its table.'
            )
        worth, error, real = map(float, figures.groups())
        found.append(
            Row(
                data=data,
                texts=int(texts),
                method=method.partition(', ')[0],
                of_label=int(records[1].replace(',', '')) / labels,
                minutes=float(minutes),
                worth=worth / real,
                error=error / real,
            )
        )
    return found


def figure() -> 'Figure':
    """The two panels; no name lies on another or on a point."""
    from matplotlib.figure import Figure

    whole = Figure(figsize=(10.4, 5.4), layout='constrained', facecolor='white')
    panels = whole.subplots(1, 2, sharey=True)
    found = rows()
    names_of = [
        _panel(panels[0], found, 'minutes', 'Minutes on two cores', (1, 2, 5)),
        _panel(panels[1], found, 'of_label', 'Records of a label', (1, 3)),
    ]
    panels[0].set_ylabel('Worth, as a share of real records', fontsize=_SIZE)
    panels[0].set_ylim(0.4, 1.12)
    handles, names = panels[0].get_legend_handles_labels()
    whole.legend(handles, names, loc='outside upper center', ncols=4, frameon=False, fontsize=_SIZE)
    whole.draw_without_rendering()  # where things are is known from here on
    for names_of_panel in names_of:
        _set_apart(names_of_panel)
    return whole


def draw() -> str:
    """The picture as SVG, the same for the same table."""
    import matplotlib

    buffer = io.StringIO()
    style = {'svg.fonttype': 'none', 'svg.hashsalt': PICTURE.stem, 'font.family': ['DejaVu Sans']}
    with matplotlib.rc_context(style):
        figure().savefig(buffer, format='svg', metadata=dict.fromkeys(('Creator', 'Date', 'Format', 'Type')))
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index('<svg') :]
    # Words on lines stay readable, also with other letters where a reader has none of these.
    halo = '<style>text { paint-order: stroke; stroke: white; stroke-width: 2px }</style>'
    drawing = drawing.replace('</defs>', f'{halo}</defs>', 1)
    return drawing.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")


def _set_apart(names: 'list[Annotation]') -> None:
    """Moves each name to the first place beside its point where no point and no earlier name is."""
    from matplotlib.transforms import Bbox

    assert names[0].axes is not None
    points = names[0].axes.transData.transform([name.xy for name in names])
    taken = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in points]
    for name in names:
        for x, y, end in _PLACES:
            name.set(position=(x, y), horizontalalignment=end)
            if not any(name.get_window_extent().overlaps(other) for other in taken):
                break
        taken.append(name.get_window_extent())


def _panel(
    axes: 'Axes', found: list[Row], name: str, x_name: str, digits: tuple[float, ...]
) -> 'list[Annotation]':
    """Worth against one number of the rows, which is on a scale of ratios with ticks at these digits."""
    from matplotlib import ticker

    axes.set_xscale('log')
    axes.axhline(1, color='#777777', linewidth=0.8, linestyle=(0, (4, 3)))
    for method, (colour, mark) in _LOOKS.items():
        of_method = [row for row in found if row.method == method]
        across = [getattr(row, name) for row in of_method]
        up = [row.worth for row in of_method]
        axes.errorbar(
            across, up, yerr=[row.error for row in of_method], fmt=mark, color=colour, label=method,
            markersize=6, linewidth=1,
        )  # fmt: skip
    names = [
        axes.annotate(
            row.name, (getattr(row, name), row.worth), xytext=_PLACES[0][:2], textcoords='offset points',
            fontsize=_SIZE - 1, color=_LOOKS[row.method][0], zorder=4,
        )
        for row in found
    ]  # fmt: skip
    axes.set_xlabel(x_name, fontsize=_SIZE)
    axes.tick_params(labelsize=_SIZE)
    axes.xaxis.set_major_locator(ticker.LogLocator(10, subs=digits))
    axes.xaxis.set_major_formatter('{x:,.0f}')
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.margins(x=0.15)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)
    return names


if __name__ == '__main__':
    PICTURE.write_text(draw(), encoding='utf-8')
