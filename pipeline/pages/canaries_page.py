"""The audit by canaries for the curator: one self-contained HTML page, and a terminal table."""

import markupsafe
import numpy as np
import rich.console
from rich import box, table, text

from models.audits.result import CanaryAudit
from models.privacy import report
from pipeline.pages import page

TEMPLATE = 'canaries.html.jinja'
# No rate below it is drawn: a logarithmic axis has no place for 0.
_LEAST_RATE = 1e-4


def render_html(audit: CanaryAudit) -> str:
    """One self-contained HTML page: the figures, and the ROC curve of the attack."""
    return page.render(
        TEMPLATE,
        audit=audit,
        audience=report.RESTRICTED,
        rows=rows_of(audit),
        verdict=verdict(audit),
        proven=report.format_up(audit.epsilon),
        delta=report.format_exact(audit.delta),
        curve=roc_plot(audit),
    )


def render(audit: CanaryAudit, console: rich.console.Console) -> None:
    """Prints the figures as a table, for the curator's eyes."""
    console.print(report.RESTRICTED, style='bold red')
    rows = table.Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    for row in rows_of(audit):
        rows.add_row(*row)
    console.print(rows)
    console.print(text.Text(verdict(audit), 'green' if audit.ok else 'bold red'), soft_wrap=True)


def rows_of(audit: CanaryAudit) -> tuple[tuple[str, str], ...]:
    """(name, figure) as readers see them."""
    bounds = audit.bounds
    return (
        ('Attack on', f'{audit.attack}, seen by {"all" if audit.reads == "released" else "the curator"}'),
        ('Canaries', f'{bounds.canaries:,}, of which {len(bounds.scores_in):,} in the run'),
        ('Area under the ROC curve', f'{bounds.area:.3f}'),
        ('ε of any mechanism', f'at least {bounds.epsilon_of_any:.2f}, at most {bounds.most:.2f} can show'),
        ('ε of the curve', f'at least {bounds.epsilon_of_curve:.2f}'),
    )


def verdict(audit: CanaryAudit) -> str:
    """The verdict in a sentence or two."""
    shown = f'ε is at least {audit.bounds.epsilon_at_least:.2f} (confidence {audit.confidence:.0%})'
    proven = f'ε = {report.format_up(audit.epsilon)} at δ = {report.format_exact(audit.delta)}'
    if audit.ok:
        return f'{shown}; proven is {proven}. The attack does not contradict it, which proves no privacy.'
    return f'VIOLATION: the guesses contradict what is proven, {proven} and its curve. {shown}.'


def roc_plot(audit: CanaryAudit) -> markupsafe.Markup:
    """True against false alarms on logarithmic axes, beside guessing and what (ε, δ) allows: an `<svg>`."""
    from sklearn import metrics

    scores_in, scores_out = audit.bounds.scores_in, audit.bounds.scores_out
    present = np.repeat([True, False], [len(scores_in), len(scores_out)])
    scores = np.concatenate([scores_in, scores_out])
    false, true, _ = metrics.roc_curve(present, scores, drop_intermediate=False)
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
    return page.to_svg(figure, 'roc')
