"""The privacy report on one terminal screen.

It shows a `PrivacyReport` and nothing else, so whatever it shows may be released. Each method has a
template in a folder of its name, which extends terminal.txt.jinja.
"""

import rich.console
from rich import box, panel, table, text

from models.privacy import report
from models.privacy.report import words
from pipeline.pages import page


def render(
    privacy_report: report.PrivacyReport, console: rich.console.Console, output: str | None = None
) -> None:
    """Prints the report, condensed to one screen, and the folder that it lies in, if it is given."""
    up, exact = report.format_up, report.format_exact
    console.print(
        panel.Panel(
            # Text, not str: a bracket in a name is no markup.
            text.Text(f'{privacy_report.guarantee}\n\n{privacy_report.unit_of_privacy}'),
            title=text.Text(f'Privacy report of {privacy_report.run_id}', style='bold'),
            subtitle=text.Text(privacy_report.audience),
            title_align='left',
            subtitle_align='left',
            border_style=_BORDERS[privacy_report.statement],
        )
    )
    epsilon, rho = privacy_report.epsilon_of_run, privacy_report.rho_total
    stages = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=epsilon is not None)
    stages.add_column('Budget', footer='Whole run')
    result = '' if epsilon is None else f'ε = {up(epsilon)} at δ = {exact(privacy_report.delta)}'
    stages.add_column('Formula', footer=result)
    stages.add_column('ρ', justify='right', footer='' if rho is None else up(rho))
    unpriced = 'ex-post' if epsilon is None else ''
    for stage in privacy_report.stages:
        stages.add_row(
            stage.name, stage.numbers or stage.formula, unpriced if stage.rho is None else up(stage.rho)
        )
    for column in stages.columns:
        column.overflow = 'fold'
    console.print(stages)

    facts = table.Table.grid(padding=(0, 2))
    facts.add_column(style='bold')
    facts.add_column(overflow='fold')
    shown = page.render_plain(
        f'{privacy_report.method.kind}/terminal.txt.jinja',
        report=privacy_report,
        words=words.sections(privacy_report),
        totals=report.totals_by_label(privacy_report.plan),
    )
    for line in filter(None, map(str.strip, shown.splitlines())):
        name, _, value = line.partition(': ')
        facts.add_row(text.Text(name), text.Text(value))
    console.print(facts)
    if output is not None:
        what = 'Corpus' if privacy_report.has_texts else 'Adapter'
        console.print(f'{what} and report: {output}', soft_wrap=True)


_BORDERS: dict[report.Statement, str] = {
    'differential privacy': 'green',
    'ex-post': 'yellow',
}
