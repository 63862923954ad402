"""The privacy report for people: one self-contained HTML page, and one terminal screen.

Both show a `PrivacyReport` and nothing else, so whatever they show may be released.
"""

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence

from models.privacy import accounting, report
from models.privacy.accounting import subsampled
from models.privacy.report import groups, prediction, tuning
from pipeline.pages import page
from pipeline.pages.page import Plot

if typing.TYPE_CHECKING:
    import rich.console

TEMPLATE = 'report.html.jinja'

_MAX_ROWS = 24
_MAX_BARS = 24
_MAX_BAR_NAME = 40
_MAX_TERMINAL_NAME = 40
_MAX_PANELS = 8
_RANKS = 160


def render_html(privacy_report: report.PrivacyReport) -> str:
    """One HTML page with all of the report, but for the noisy counts per centre, which it draws."""
    epsilon, clusters = privacy_report.epsilon, privacy_report.clusters
    is_tuned = tuning.is_of_tuning(privacy_report.mechanism)
    if is_tuned:
        parts = tuning.facts(tuning.params_of(privacy_report.mechanism)).parts
    else:
        parts = prediction.facts_of(privacy_report.mechanism).parts
    cluster_parts = () if clusters is None else groups.cluster_facts(clusters)
    sizes = (
        [sizes_plot(privacy_report)]
        if _has_noisy_counts(privacy_report) and len(privacy_report.plan) > 1
        else []
    )
    names = {group.label: group.name for group in privacy_report.plan}
    centers = [] if clusters is None else [centers_plot(clusters, names)]
    # A tall picture comes second of three, where two columns have room for it.
    if is_tuned:
        plots = [tuning_plot(privacy_report), *sizes]
    elif epsilon is None:
        plots = [batches_plot(privacy_report), *centers, *sizes]
    else:
        first = [budget_plot(privacy_report), epsilon_plot(privacy_report), batches_plot(privacy_report)]
        plots = [*first, *sizes, *centers]
    return page.render(
        TEMPLATE,
        plots=plots,
        report=privacy_report,
        tuned=is_tuned,
        labels=report.totals_by_label(privacy_report.plan),
        shown_rows=_MAX_ROWS,
        cluster_facts=_cluster_facts(clusters),
        cell_rows=_cell_rows(privacy_report.cells, names),
        # The symbols of the last stages stand first: those of decoding are the ones that runs differ in.
        symbols=[symbol for part in reversed(parts) for symbol in part.symbols],
        why_no_sensitivity=[part.why_no_sensitivity for part in parts if part.why_no_sensitivity],
        # A set that keeps its order: two parts may share a paper.
        sources=dict.fromkeys(source for part in (*cluster_parts, *parts) for source in part.sources),
        noisy=_has_noisy_counts(privacy_report),
        unit=privacy_report.unit_noun,
        delta=report.format_exact(privacy_report.delta),
        ledger_delta=(
            None if privacy_report.ledger is None else report.format_exact(privacy_report.ledger.delta)
        ),
        likelihood_ratio=None if epsilon is None else _likelihood_ratio(epsilon),
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
            subtitle=text.Text(privacy_report.audience),
            title_align='left',
            subtitle_align='left',
            border_style=_BORDERS[privacy_report.statement],
        )
    )
    epsilon, rho = privacy_report.epsilon, privacy_report.rho_total
    is_tuned = tuning.is_of_tuning(privacy_report.mechanism)
    stages = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=rho is not None or is_tuned)
    stages.add_column('Budget', footer='Whole run')
    result = '' if epsilon is None else f'ε = {up(epsilon)} at δ = {exact(privacy_report.delta)}'
    stages.add_column('Formula', footer=result)
    stages.add_column('ρ', justify='right', footer='' if rho is None else up(rho))
    unpriced = '∞' if privacy_report.statement == 'none' else '' if is_tuned else 'ex-post'
    for stage in privacy_report.stages:
        stages.add_row(
            stage.name, stage.numbers or stage.formula, unpriced if stage.rho is None else up(stage.rho)
        )
    console.print(stages)

    facts = table.Table.grid(padding=(0, 2))
    facts.add_column(style='bold')
    facts.add_column(overflow='fold')
    for name, value in (
        *_released_in_words(privacy_report),
        ('Delta', privacy_report.delta_relation),
        *([('Accounting', privacy_report.orders)] if privacy_report.orders else []),
        ('Covered', _covered(privacy_report)),
        ('Curator', 'Keeps the run key and work directory secret; the HTML page says what else has to hold.'),
    ):
        facts.add_row(text.Text(name), text.Text(value))
    console.print(facts)


def _released_in_words(privacy_report: report.PrivacyReport) -> list[tuple[str, str]]:
    """What there is of texts and batches, or of an adapter alone."""
    corpus, plan = privacy_report.corpus, privacy_report.plan
    if not privacy_report.has_texts:
        rank = privacy_report.settings['lora_rank']
        trained = 'all weights' if rank is None else f'rank {rank}'
        return [('Adapter', f'{trained}; no text is sampled yet, and all that ever are cost nothing')]
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
    'none': 'bold red',
}
_COVERED: dict[report.Statement, str] = {
    'differential privacy': (
        'This run, charged to no ledger. Other runs on the same records, and tuning on them, add to the cost.'
    ),
    'ex-post': 'This run, after the fact; the curator holds the figure. Other runs add to the loss.',
    'none': 'Nothing: publish neither the corpus nor this report.',
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
    order = f' at the order α = {ledger.order:.6g}' if isinstance(ledger, report.MixedLedgerEntry) else ''
    return (
        f'{runs} on {page.shorten(ledger.dataset, _MAX_TERMINAL_NAME)} in the ledger: together ε = '
        f'{report.format_up(ledger.epsilon_after)} at δ = {report.format_exact(ledger.delta)}, ρ{order} = '
        f'{report.format_up(ledger.rho_after)} of {report.format_down(ledger.rho_budget)}.'
    )


def budget_plot(privacy_report: report.PrivacyReport) -> Plot:
    """rho by stage, as bars."""
    rows = [
        (stage.name, stage.rho, report.format_up(stage.rho))
        for stage in privacy_report.stages
        if stage.rho is not None
    ]
    return Plot(
        title='Budget by stage',
        caption='ρ of each stage; together they are the cost of the run.',
        svg=page.bars('budget', rows),
    )


def epsilon_plot(privacy_report: report.PrivacyReport) -> Plot:
    """epsilon against the cap on private tokens per batch, with the run's cap marked.

    With individual accounting against the budget of one context, at the run's largest order.

    Raises:
        ValueError: The report states no epsilon.
    """
    epsilon, rho = privacy_report.epsilon, privacy_report.rho_total
    if epsilon is None or rho is None:
        raise ValueError(
            f'Expected a report with an epsilon, got statement={privacy_report.statement!r}. '
            'Leave this picture out.'
        )
    steps, delta = 60, report.format_exact(privacy_report.delta)
    budget, per_token = privacy_report.mechanism.get('context_budget'), privacy_report.rho_per_private_token
    if isinstance(budget, float):
        largest_order = privacy_report.omega or math.inf
        # The other stages stay what they are.
        own = math.fsum(stage.rho or 0.0 for stage in privacy_report.stages if stage.omega is not None)
        budgets = sorted({budget * 100 ** (step / steps - 0.5) for step in range(steps + 1)} | {budget})
        epsilons = [
            accounting.epsilon_from_rho(
                max(0.0, rho - own) + own * (other / budget),
                privacy_report.delta,
                largest_order=largest_order,
            )
            for other in budgets
        ]
        return _marked_curve(
            budgets,
            epsilons,
            (budget, epsilon),
            label=f'B = {report.format_up(budget)}',
            x_name='Budget of one context, B',
            title='Epsilon against the budget of a context',
            caption=(
                f'What other budgets would have cost at δ = {delta}, at orders up to ω. The mark is this '
                'run; it holds however much contexts spent.'
            ),
        )
    if per_token is None:
        raise ValueError('Expected a price per private token, or a budget of a context, got neither.')
    cap = _cap(privacy_report)
    other = max(0.0, rho - cap * per_token)
    top = max(10, 4 * cap)
    caps = sorted({round(top ** (step / steps)) for step in range(steps + 1)} | {cap})
    return _marked_curve(
        caps,
        [accounting.epsilon_from_rho(other + count * per_token, privacy_report.delta) for count in caps],
        (cap, epsilon),
        label=f'r = {cap:,}',
        x_name='Cap on private tokens per batch, r',
        title='Epsilon against the cap',
        caption=(
            f'What other caps would have cost at δ = {delta}. The mark is this run; it holds however many '
            'private tokens a batch used.'
        ),
    )


def tuning_plot(privacy_report: report.PrivacyReport) -> Plot:
    """epsilon against the number of steps, with the run's marked."""
    params = tuning.params_of(privacy_report.mechanism)
    epsilon, steps = privacy_report.epsilon, params.tuning_steps
    assert epsilon is not None  # every report of fine-tuning has one
    others = sorted({max(1, round(steps * 4.0 ** (place / 3))) for place in range(-3, 4)} | {steps})
    epsilons = [
        subsampled.epsilon_of_event(
            dataclasses.replace(params, tuning_steps=count).event, privacy_report.delta
        )
        for count in others
    ]
    return _marked_curve(
        others,
        epsilons,
        (steps, epsilon),
        label=f'T = {steps:,}',
        x_name='Steps, T',
        title='Epsilon against the steps',
        caption=(
            f'What other numbers of steps would have cost at δ = {report.format_exact(privacy_report.delta)} '
            'with the same noise. The mark is this run; texts cost nothing, however many are sampled.'
        ),
    )


def _marked_curve(
    x: Sequence[float],
    epsilons: Sequence[float],
    mark: tuple[float, float],
    *,
    label: str,
    x_name: str,
    title: str,
    caption: str,
) -> Plot:
    """epsilon over rising values on logarithmic axes, with the run's own marked."""
    from matplotlib import ticker

    figure, axes = page.new_figure(3.0)
    axes.plot(x, epsilons, color=page.ACCENT, linewidth=2)
    axes.set_xscale('log')
    # Of a short axis matplotlib names every minor tick, and the names overlap.
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    if x[-1] < 100 * x[0]:
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    # A log axis has no place for the epsilon of 0 that a tiny rho gives.
    if min(epsilons) > 0:
        axes.set_yscale('log')
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(
        ticker.FuncFormatter(lambda value, _: f'{value:,.0f}' if value >= 1 else f'{value:g}')
    )
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:g}'))
    axes.axvline(mark[0], color=page.ACCENT_2, linewidth=1, linestyle=(0, (4, 3)))
    axes.plot([mark[0]], [mark[1]], 'o', color=page.ACCENT_2, markersize=6)
    right_of_middle = math.log(mark[0] / x[0]) > 0.5 * math.log(x[-1] / x[0])
    axes.annotate(
        f'{label}\nε = {report.format_up(mark[1])}',
        mark,
        xytext=(-8 if right_of_middle else 8, 8 if right_of_middle else -8),
        textcoords='offset points',
        ha='right' if right_of_middle else 'left',
        va='bottom' if right_of_middle else 'top',
        color=page.ACCENT_2,
        fontsize=page.FONT_SIZE,
    )
    axes.margins(x=0.02, y=0.12)
    page.name_axes(axes, x_name, 'ε')
    axes.grid(True, which='major', color=page.SOFT, alpha=0.2, linewidth=0.6)
    return Plot(title=title, caption=caption, svg=page.to_svg(figure, 'epsilon'), tall=True)


def batches_plot(privacy_report: report.PrivacyReport) -> Plot:
    """Planned batches by label, as bars; the largest ones where there are many labels."""
    labels = sorted(report.totals_by_label(privacy_report.plan), key=lambda row: -row.batches)
    rows = [
        (page.shorten(row.name, _MAX_BAR_NAME), row.batches, f'{row.batches:,}') for row in labels[:_MAX_BARS]
    ]
    caption = 'Each batch votes on one stream of tokens. Every planned batch is released.'
    if len(labels) > _MAX_BARS:
        caption += f' The {_MAX_BARS} largest of {len(labels):,} labels; the table below has all.'
    return Plot(title='Batches by label', caption=caption, svg=page.bars('batches', rows))


def sizes_plot(privacy_report: report.PrivacyReport) -> Plot:
    """Noisy counts of the groups, largest first: as named bars of few labels, as steps of many groups."""
    plan, clustered = privacy_report.plan, privacy_report.clusters is not None
    title, caption = (
        'Released sizes',
        f'Noisy counts of the {len(plan):,} {"groups" if clustered else "labels"}',
    )
    if not clustered and len(plan) <= _MAX_BARS:
        sizes = sorted(((group.noisy_count or 0, group.name) for group in plan), reverse=True)
        rows = [(page.shorten(label, _MAX_BAR_NAME), max(0, size), f'{size:,}') for size, label in sizes]
        return Plot(title=title, caption=f'{caption}.', svg=page.bars('sizes', rows))
    expected = privacy_report.mechanism.get('batch_size')  # of votes alone
    line = '' if expected is None else ' The dashed line is the expected size of a batch.'
    return Plot(
        title=title,
        caption=f'{caption}, largest first.{line}',
        svg=page.sorted_sizes(
            'sizes',
            [group.noisy_count or 0 for group in plan],
            expected=typing.cast(int | None, expected),
            x_name='Clusters' if clustered else 'Labels',
        ),
    )


def centers_plot(clusters: report.Clusters, names: Mapping[str | None, str]) -> Plot:
    """Noisy counts per centre, largest first, one panel for each label; kept centres stand out."""
    import numpy as np
    from matplotlib import ticker
    from matplotlib.figure import Figure

    shown = clusters.center_counts[:_MAX_PANELS]
    figure = Figure(figsize=(page.WIDTH, 0.5 + 0.85 * len(shown)), layout='constrained')
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    ranks = np.unique(np.geomspace(1, clusters.centers, _RANKS).round().astype(int))
    for axes, cells in zip(panels, shown, strict=True):
        page.style_axes(axes)
        kept = set(cells.kept)
        order = sorted(range(clusters.centers), key=lambda index: (index not in kept, -cells.counts[index]))
        counts = np.asarray(cells.counts)[order][ranks - 1]
        edges = np.append(ranks, clusters.centers + 1)
        is_kept = ranks <= len(kept)
        for part, colour, alpha in ((is_kept, page.ACCENT, 1.0), (~is_kept, page.SOFT, 0.5)):
            if part.any():
                chosen = np.flatnonzero(part)
                axes.stairs(
                    counts[chosen], edges[chosen[0] : chosen[-1] + 2], fill=True, color=colour, alpha=alpha
                )
        axes.set_xscale('log')
        axes.set_xlim(1, max(2, clusters.centers + 1))
        axes.yaxis.set_major_locator(ticker.MaxNLocator(2, integer=True))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:,.0f}'))
        axes.text(
            0.99,
            0.95,
            page.shorten(names[cells.label], _MAX_BAR_NAME),
            transform=axes.transAxes,
            ha='right',
            va='top',
            fontsize=page.FONT_SIZE,
            color=page.INK,
            parse_math=False,
        )
    panels[-1].xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:,.0f}'))
    page.name_axes(panels[-1], 'Centres, largest noisy count first')
    caption = f'Of {clusters.centers:,} centres, the coloured ones are kept; their clusters make the groups.'
    if len(shown) < len(clusters.center_counts):
        caption += f' The first {len(shown)} of {len(clusters.center_counts):,} labels.'
    return Plot(
        title='Noisy counts per centre', caption=caption, svg=page.to_svg(figure, 'centers'), tall=True
    )


def _has_noisy_counts(privacy_report: report.PrivacyReport) -> bool:
    return all(group.noisy_count is not None for group in privacy_report.plan)


_SOURCES: dict[report.CentersSource, str] = {
    'public': 'k-means on a public corpus: free',
    'dp-k-means': 'private k-means on the records, paid for',
    'k-means': 'k-means on the private records, without noise: research only',
}


def _cell_rows(
    cells: report.Cells | None, names: Mapping[str | None, str]
) -> list[tuple[str, tuple[str, ...], int]]:
    """The name of a label, the values of a cell and its noisy count, for every one."""
    if cells is None:
        return []
    return [
        (names[of_label.label], values, count)
        for of_label in cells.cell_counts
        for values, count in zip(cells.values, of_label.counts, strict=True)
    ]


def _cluster_facts(clusters: report.Clusters | None) -> dict[str, report.Setting]:
    if clusters is None:
        return {}
    facts: dict[str, report.Setting] = {
        'Centres': _SOURCES[clusters.source],
        'Embedder': clusters.embedder,
        'Fingerprint of the embedder': clusters.embedder_fingerprint,
        'Fingerprint of the centres': clusters.centers_fingerprint,
    }
    if clusters.corpus_fingerprint is not None:
        facts |= {
            'Fingerprint of the public corpus': clusters.corpus_fingerprint,
            'Texts of the public corpus': clusters.corpus_texts,
        }
    return facts


def _cap(privacy_report: report.PrivacyReport) -> int:
    return typing.cast(int, privacy_report.mechanism['max_private_tokens'])


def _likelihood_ratio(epsilon: float) -> str:
    if epsilon > math.log(1e6):
        return 'more than a million, which by itself promises little'
    return f'about {report.format_up(math.exp(epsilon))}'


def _plan_in_words(plan: Sequence[report.GroupPlan]) -> str:
    clusters = f' in {len(plan):,} clusters' if plan[0].cluster is not None else ''
    labels = report.totals_by_label(plan)
    if len(labels) == 1 and labels[0].label is None:
        return clusters
    shown = [
        f'{page.shorten(row.name, _MAX_TERMINAL_NAME)}: {row.batches:,} batch{"es" * (row.batches != 1)}'
        for row in labels[:6]
    ]
    rest = len(labels) - len(shown)
    return f'{clusters}; {", ".join(shown)}' + (f' and {rest:,} labels more' if rest else '')
