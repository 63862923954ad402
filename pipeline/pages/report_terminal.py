"""The privacy report on one terminal screen.

It shows a `PrivacyReport` and nothing else, so whatever it shows may be released.
"""

from collections.abc import Sequence

import rich.console
from rich import box, panel, table, text

from models.privacy import report
from models.privacy.report import earlier_releases, tuning
from pipeline.pages import page

_MAX_NAME = 40


def render(
    privacy_report: report.PrivacyReport, console: rich.console.Console, output: str | None = None
) -> None:
    """Prints the report, condensed to one screen.

    Args:
        privacy_report: What to show.
        console: Where; its width decides the line breaks.
        output: The folder that the report lies in, which is named below; None for no such line.
    """
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
    is_tuned = tuning.is_of_tuning(privacy_report.mechanism)
    stages = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=rho is not None or is_tuned)
    stages.add_column('Budget', footer='Whole run')
    result = '' if epsilon is None else f'ε = {up(epsilon)} at δ = {exact(privacy_report.delta)}'
    stages.add_column('Formula', footer=result)
    stages.add_column('ρ', justify='right', footer='' if rho is None else up(rho))
    unpriced = '' if is_tuned else 'ex-post'
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
    for name, value in (
        *_released_in_words(privacy_report),
        ('Delta', privacy_report.delta_relation),
        *([('Accounting', privacy_report.orders)] if privacy_report.orders else []),
        ('Covered', _covered(privacy_report)),
        *([('Went in', _went_in(privacy_report))] if privacy_report.releases else []),
        ('Curator', 'Keeps the run key and work directory secret; the HTML page says what else has to hold.'),
    ):
        facts.add_row(text.Text(name), text.Text(value))
    console.print(facts)
    if output is not None:
        what = 'Corpus' if privacy_report.has_texts else 'Adapter'
        console.print(f'{what} and report: {output}', soft_wrap=True)


def _released_in_words(privacy_report: report.PrivacyReport) -> list[tuple[str, str]]:
    """What there is of texts and batches, or of an adapter alone."""
    corpus, plan = privacy_report.corpus, privacy_report.plan
    if not privacy_report.has_texts:
        rank = privacy_report.settings['lora_rank']
        trained = 'all weights' if rank is None else f'rank {rank}'
        return [('Adapter', f'{trained}; no text is sampled yet, and all that ever are cost nothing')]
    if isinstance(corpus, report.ChosenTotals):
        chosen = f'{corpus.examples:,} texts, {corpus.voted:,} of them chosen by votes'
        return [('Corpus', f'{chosen}, {corpus.sampled_tokens:,} tokens, all free')]
    batches = sum(group.batches for group in plan)
    return [
        (
            'Corpus',
            f'{corpus.examples:,} examples ({corpus.truncated:,} truncated), {_tokens_in_words(corpus)}',
        ),
        ('Batches', f'{batches:,} planned{_plan_in_words(plan)}'),
    ]


def _tokens_in_words(corpus: report.CorpusTotals | report.TunedTotals) -> str:
    if isinstance(corpus, report.TunedTotals):
        return f'{corpus.sampled_tokens:,} tokens, all free'
    forced = f', {corpus.forced_tokens:,} forced' if isinstance(corpus, report.StructuredTotals) else ''
    return f'{corpus.private_tokens:,} private and {corpus.public_tokens:,} public tokens{forced}'


_BORDERS: dict[report.Statement, str] = {
    'differential privacy': 'green',
    'ex-post': 'yellow',
}
_COVERED: dict[report.Statement, str] = {
    'differential privacy': (
        'This run, charged to no ledger. Other runs on the same records, and tuning on them, add to the cost.'
    ),
    'ex-post': 'This run, after the fact; the curator holds the figure. Other runs add to the loss.',
}


def _covered(privacy_report: report.PrivacyReport) -> str:
    ledger = privacy_report.ledger
    if ledger is None and tuning.is_of_tuning(privacy_report.mechanism):
        said = privacy_report.data_accesses[0].removeprefix('Covered: ')
        return said[0].upper() + said[1:]
    if ledger is None:
        return _COVERED[privacy_report.statement]
    before = ledger.run_number - 1
    runs = {0: 'This run, the first', 1: 'This run and the one before it'}.get(
        before, f'This run and the {before:,} before it'
    )
    match ledger:
        case report.MixedLedgerEntry(order=alpha):
            order = f' at the order α = {alpha:.6g}'
        case report.GaussianLedgerEntry():
            order = ' of Gaussian mechanisms'
        case _:
            order = ''
    return (
        f'{runs} on {page.shorten(ledger.dataset, _MAX_NAME)} in the ledger: together ε = '
        f'{report.format_up(ledger.epsilon_after)} at δ = {report.format_exact(ledger.delta)}, ρ{order} = '
        f'{report.format_up(ledger.rho_after)} of {report.format_down(ledger.rho_budget)}.'
    )


def _went_in(privacy_report: report.PrivacyReport) -> str:
    """The releases that went in, and what all are together."""
    said = privacy_report.covered_with_releases or earlier_releases.listed(privacy_report.releases)
    return f'{said[0].upper()}{said[1:]}'


def _plan_in_words(plan: Sequence[report.GroupPlan]) -> str:
    clusters = f' in {len(plan):,} clusters' if plan[0].cluster is not None else ''
    labels = report.totals_by_label(plan)
    if len(labels) == 1 and labels[0].label is None:
        return clusters
    shown = [
        f'{page.shorten(row.name, _MAX_NAME)}: {row.batches:,} batch{"es" * (row.batches != 1)}'
        for row in labels[:6]
    ]
    rest = len(labels) - len(shown)
    return f'{clusters}; {", ".join(shown)}' + (f' and {rest:,} labels more' if rest else '')
