"""Pictures of the privacy report: budget, epsilon, batches, and the noisy counts that were released."""

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence

import numpy as np

from models.privacy import accounting, report
from models.privacy.accounting import subsampled
from models.privacy.report import earlier_releases, text_votes, tuning
from pipeline.pages import page
from pipeline.pages.page import Plot

_MAX_BARS = 24
_MAX_BAR_NAME = 40
_MAX_PANELS = 8
_RANKS = 160


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
    epsilon, rho = privacy_report.epsilon_of_run, privacy_report.rho_total
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
    epsilon, steps = privacy_report.epsilon_of_run, params.tuning_steps
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


def rounds_plot(privacy_report: report.PrivacyReport) -> Plot:
    """epsilon against the number of rounds of votes, with the run's marked."""
    params = text_votes.params_of(privacy_report.mechanism)
    epsilon = privacy_report.epsilon_of_run
    assert epsilon is not None  # every report of votes on texts has one
    numbers = list(range(1, 2 * params.rounds + 3))
    costs = [
        privacy_report.costs | {text_votes.STAGE: dataclasses.replace(params, rounds=count).event}
        for count in numbers
    ]
    return _marked_curve(
        numbers,
        [earlier_releases.epsilon_alone(of_run, privacy_report.delta) for of_run in costs],
        (params.rounds, epsilon),
        label=f'T = {params.rounds:,}',
        x_name='Rounds of votes, T',
        title='Epsilon against the rounds',
        caption=(
            'What other numbers of rounds would have cost at δ = '
            f'{report.format_exact(privacy_report.delta)} with the same noise. The mark is this run; texts '
            'cost nothing, however many are sampled.'
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
    expected = privacy_report.mechanism.get('batch_size')  # of private prediction alone
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


def _cap(privacy_report: report.PrivacyReport) -> int:
    return typing.cast(int, privacy_report.mechanism['max_private_tokens'])
