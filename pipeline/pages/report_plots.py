"""Pictures of the privacy report: budget, epsilon, batches, and the noisy counts that were released."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from models.privacy import report
from models.privacy.gradients import TuningParams
from models.privacy.params import MechanismParams
from models.privacy.report import composition
from models.privacy.text_votes import TextVoteParams
from models.privacy.tuned_votes import TunedVotesParams
from pipeline.pages import page
from pipeline.pages.page import Plot

_MAX_BARS = 24
_MAX_BAR_NAME = 40
_MAX_PANELS = 8
_RANKS = 160


def plots(privacy_report: report.PrivacyReport) -> list[Plot]:
    """The pictures of a report. A tall one comes second of three, where two columns have room for it."""
    sizes = []
    if privacy_report.has_noisy_counts and len(privacy_report.plan) > 1:
        sizes.append(sizes_plot(privacy_report))
    match privacy_report.method:
        case report.Tuned(mechanism=params):
            return [tuning_plot(privacy_report, params), *sizes]
        case report.TunedVoted(mechanism=params):
            return [tuning_plot(privacy_report, params), *sizes]
        case report.Voted(mechanism=params):
            return [budget_plot(privacy_report), rounds_plot(privacy_report, params), *sizes]
        case report.Predicted(mechanism=params, clusters=clusters):
            names = {group.label: group.name for group in privacy_report.plan}
            centers = [] if clusters is None else [centers_plot(clusters, names)]
            batches = batches_plot(privacy_report)
            if params.is_ex_post:
                return [batches, *centers, *sizes]
            epsilons = epsilon_plot(privacy_report, params)
            return [budget_plot(privacy_report), epsilons, batches, *sizes, *centers]


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


def epsilon_plot(privacy_report: report.PrivacyReport, params: MechanismParams) -> Plot:
    """epsilon against the cap on private tokens per batch, with the run's cap marked.

    With individual accounting against the budget of one context, at the run's largest order.
    """
    epsilon, steps, delta = _epsilon(privacy_report), 60, report.format_exact(privacy_report.delta)
    budget = params.context_budget
    if budget is not None:
        others = {budget * 100 ** (step / steps - 0.5) for step in range(steps + 1)}
        return _marked_curve(
            privacy_report,
            {other: dataclasses.replace(params, context_budget=other) for other in others | {budget}},
            (budget, epsilon),
            label=f'B = {report.format_up(budget)}',
            x_name='Budget of one context, B',
            title='Epsilon against the budget of a context',
            caption=(
                f'What other budgets would have cost at δ = {delta}, at orders up to ω. The mark is this '
                'run; it holds however much contexts spent.'
            ),
        )
    cap = params.private_token_cap
    top = max(10, 4 * cap)
    caps = {round(top ** (step / steps)) for step in range(steps + 1)} | {cap}
    return _marked_curve(
        privacy_report,
        {other: dataclasses.replace(params, max_private_tokens=other) for other in caps},
        (cap, epsilon),
        label=f'r = {cap:,}',
        x_name='Cap on private tokens per batch, r',
        title='Epsilon against the cap',
        caption=(
            f'What other caps would have cost at δ = {delta}. The mark is this run; it holds however many '
            'private tokens a batch used.'
        ),
    )


def tuning_plot(privacy_report: report.PrivacyReport, params: TuningParams | TunedVotesParams) -> Plot:
    """epsilon against the number of steps, with the run's marked."""
    steps = params.tuning_steps
    others = {max(1, round(steps * 4.0 ** (place / 3))) for place in range(-3, 4)} | {steps}
    return _marked_curve(
        privacy_report,
        {other: dataclasses.replace(params, tuning_steps=other) for other in others},
        (steps, _epsilon(privacy_report)),
        label=f'T = {steps:,}',
        x_name='Steps, T',
        title='Epsilon against the steps',
        caption=(
            f'What other numbers of steps would have cost at δ = {report.format_exact(privacy_report.delta)} '
            'with the same noise. The mark is this run; texts cost nothing, however many are sampled.'
        ),
    )


def rounds_plot(privacy_report: report.PrivacyReport, params: TextVoteParams) -> Plot:
    """epsilon against the number of rounds of votes, with the run's marked."""
    return _marked_curve(
        privacy_report,
        {other: dataclasses.replace(params, rounds=other) for other in range(1, 2 * params.rounds + 3)},
        (params.rounds, _epsilon(privacy_report)),
        label=f'T = {params.rounds:,}',
        x_name='Rounds of votes, T',
        title='Epsilon against the rounds',
        caption=(
            'What other numbers of rounds would have cost at δ = '
            f'{report.format_exact(privacy_report.delta)} with the same noise. The mark is this run; texts '
            'cost nothing, however many are sampled.'
        ),
    )


def _epsilon(privacy_report: report.PrivacyReport) -> float:
    """epsilon of the run alone, which has one."""
    epsilon = privacy_report.epsilon_of_run
    assert epsilon is not None  # all but the report of a median
    return epsilon


def _marked_curve(
    privacy_report: report.PrivacyReport,
    mechanisms: Mapping[float, Any],
    mark: tuple[float, float],
    *,
    label: str,
    x_name: str,
    title: str,
    caption: str,
) -> Plot:
    """epsilon of mechanisms over the number that tells them apart, with the run's own marked."""
    from matplotlib import ticker

    x = sorted(mechanisms)
    others = [dataclasses.replace(privacy_report.method, mechanism=mechanisms[place]) for place in x]
    epsilons = [composition.epsilon_alone(other.costs, privacy_report.delta) for other in others]

    figure, axes = page.new_figure(3.0)
    axes.plot(x, epsilons, color=page.ACCENT, linewidth=2)
    axes.set_xscale('log')
    # Names of minor ticks overlap on a short axis.
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
    plan, clustered = privacy_report.plan, privacy_report.plan[0].cluster is not None
    title, caption = (
        'Released sizes',
        f'Noisy counts of the {len(plan):,} {"groups" if clustered else "labels"}',
    )
    if not clustered and len(plan) <= _MAX_BARS:
        sizes = sorted(((group.noisy_count or 0, group.name) for group in plan), reverse=True)
        rows = [(page.shorten(label, _MAX_BAR_NAME), max(0, size), f'{size:,}') for size, label in sizes]
        return Plot(title=title, caption=f'{caption}.', svg=page.bars('sizes', rows))
    method = privacy_report.method
    expected = method.mechanism.batch_size if isinstance(method, report.Predicted) else None
    line = '' if expected is None else ' The dashed line is the expected size of a batch.'
    return Plot(
        title=title,
        caption=f'{caption}, largest first.{line}',
        svg=page.sorted_sizes(
            'sizes',
            [group.noisy_count or 0 for group in plan],
            expected=expected,
            x_name='Clusters' if clustered else 'Labels',
        ),
    )


def centers_plot(clusters: report.Clusters, names: Mapping[str | None, str]) -> Plot:
    """Noisy counts per centre, largest first, one panel for each label; kept centres stand out."""
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
