"""The privacy report for people: one self-contained HTML page.

It shows a `PrivacyReport` and nothing else, so whatever it shows may be released. Each method has a
template in a folder of its name, which extends report.html.jinja.
"""

import math

from models.privacy import report
from models.privacy.report import words
from pipeline.pages import page, report_plots, signer

_MAX_ROWS = 24


def render_html(privacy_report: report.PrivacyReport) -> str:
    """One HTML page with all of the report, but for the noisy counts per centre, which it draws."""
    epsilon, model = privacy_report.epsilon, privacy_report.settings.get('model')
    return page.render(
        f'{privacy_report.method.kind}/report.html.jinja',
        report=privacy_report,
        words=words.sections(privacy_report),
        said=words.macro,
        plots=report_plots.plots(privacy_report),
        signer=signer.of_report(privacy_report),
        totals=report.totals_by_label(privacy_report.plan),
        names={group.label: group.name for group in privacy_report.plan},
        shown_rows=_MAX_ROWS,
        model='' if model is None else f' “{model}”',
        unit=privacy_report.unit_noun,
        delta=report.format_exact(privacy_report.delta),
        likelihood_ratio=None if epsilon is None else _likelihood_ratio(epsilon),
    )


def _likelihood_ratio(epsilon: float) -> str:
    if epsilon > math.log(1e6):
        return 'more than a million, which by itself promises little'
    return f'about {report.format_up(math.exp(epsilon))}'
