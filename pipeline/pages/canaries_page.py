"""The audit by canaries for the curator: one self-contained HTML page, and a terminal table."""

import pathlib

import markupsafe
import numpy as np
import rich.console
from rich import box, table, text

from models.audits import one_run
from models.audits.one_run import AttackResult
from models.privacy import report
from pipeline.canaries import SABOTAGES, CanaryAudit
from pipeline.pages import page
from pipeline.release import apart

TEMPLATE = 'canaries.html.jinja'
_BINS = 40
# No rate below it is drawn: a logarithmic axis has no place for 0.
_LEAST_RATE = 1e-4


def render_html(audit: CanaryAudit) -> str:
    """One self-contained HTML page: the table, and of each attack its scores and its ROC curve."""
    return page.render(
        TEMPLATE,
        audit=audit,
        audience=report.RESTRICTED,
        headings=HEADINGS,
        rows=[cells_of(result) for result in audit.attacks],
        verdict=verdict(audit),
        broken=broken(audit),
        proven=report.format_up(audit.epsilon),
        delta=report.format_exact(audit.delta),
        pictures=[
            (result.name, scores_plot(number, result), roc_plot(number, result, audit))
            for number, result in enumerate(audit.attacks)
        ],
    )


def write_audit(audit: CanaryAudit, path: pathlib.Path) -> None:
    """Writes the audit for the curator: a page for `.html`, JSON for `.json`.

    Raises:
        ValueError: See `apart.check_file`.
        FileExistsError: See `apart.check_file`.
    """
    content = audit.to_json() if path.suffix == '.json' else render_html(audit)
    apart.write(path, content, apart.PAGE_OR_JSON)


def render(audit: CanaryAudit, console: rich.console.Console) -> None:
    """Prints the attacks as a table, for the curator's eyes."""
    console.print(report.RESTRICTED, style='bold red')
    rows = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(HEADINGS):
        rows.add_column(name, justify='left' if place < 2 else 'right')
    for result in audit.attacks:
        rows.add_row(*cells_of(result))
    console.print(rows)
    console.print(text.Text(verdict(audit), 'green' if audit.ok else 'bold red'), soft_wrap=True)
    if audit.sabotage != 'none':
        console.print(broken(audit), style='yellow', soft_wrap=True)


HEADINGS = ('Attack on', 'Seen by', 'Canaries', 'In', 'Area', 'ε of any', 'ε of curve', 'At most')


def cells_of(result: AttackResult) -> tuple[str, ...]:
    """A row as readers see it, in the order of `HEADINGS`."""
    return (
        result.name,
        'all' if result.reads == 'released' else 'curator',
        f'{result.canaries:,}',
        f'{len(result.scores_in):,}',
        f'{result.area:.3f}',
        f'{result.epsilon_of_any:.2f}',
        f'{result.epsilon_of_curve:.2f}',
        f'{result.most:.2f}',
    )


def verdict(audit: CanaryAudit) -> str:
    """What the audit found, in a sentence or two."""
    found = f'ε is at least {audit.epsilon_at_least:.2f} (confidence {audit.confidence:.0%})'
    proven = f'ε = {report.format_up(audit.epsilon)} at δ = {report.format_exact(audit.delta)}'
    if audit.ok:
        return f'{found}; proven is {proven}. No attack contradicts it, which proves no privacy.'
    return f'VIOLATION: the guesses contradict what is proven, {proven} and its curve. {found}.'


def broken(audit: CanaryAudit) -> str:
    """What was broken on purpose; empty for nothing."""
    if audit.sabotage == 'none':
        return ''
    what = SABOTAGES[audit.sabotage]
    return f'Broken on purpose by --sabotage {audit.sabotage}: {what}. This audit should fail.'


def scores_plot(number: int, result: AttackResult) -> markupsafe.Markup:
    """The scores of canaries in the run and of the others, as steps on the same bins: an `<svg>`."""
    both = np.concatenate([result.scores_in, result.scores_out])
    edges = np.histogram_bin_edges(both, _BINS)
    figure, axes = page.new_figure(2.4)
    for scores, colour in ((result.scores_out, page.SOFT), (result.scores_in, page.ACCENT)):
        counts, _ = np.histogram(scores, edges)
        axes.stairs(counts / max(1, len(scores)), edges, color=colour, linewidth=1.8)
    page.name_axes(axes, 'Score of a canary: in the run (coloured), and left out')
    return page.to_svg(figure, f'scores-{number}')


def roc_plot(number: int, result: AttackResult, audit: CanaryAudit) -> markupsafe.Markup:
    """True against false alarms on logarithmic axes, beside guessing and what (ε, δ) allows: an `<svg>`."""
    false, true = one_run.roc(result.scores_in, result.scores_out)
    rates = np.geomspace(_LEAST_RATE, 1, 200)
    figure, axes = page.new_figure(3.4)
    axes.plot(rates, rates, color=page.SOFT, linewidth=0.9, linestyle=(0, (4, 3)))
    allowed = np.minimum(1, np.exp(min(audit.epsilon, 50.0)) * rates + audit.delta)
    axes.plot(rates, allowed, color=page.ACCENT_2, linewidth=1.2)
    axes.plot(
        np.maximum(false, _LEAST_RATE),
        np.maximum(true, _LEAST_RATE),
        color=page.ACCENT,
        linewidth=2,
        drawstyle='steps-post',
    )
    axes.set_xscale('log')
    axes.set_yscale('log')
    axes.set_xlim(_LEAST_RATE, 1)
    axes.set_ylim(_LEAST_RATE, 1.2)
    page.name_axes(axes, 'False alarms; upwards true alarms')
    return page.to_svg(figure, f'roc-{number}')
