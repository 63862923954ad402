"""The restricted report as an HTML page, for the curator alone.

It shows true sizes; the data-dependent losses of a median run, as CL's Figures 3 to 6 do; and, with
individual accounting, what contexts spent. No budget pays for any of it. The page belongs
into the work directory, and never beside a corpus.

Source: CL = the paper on clusters and the median, appendix D.4.
"""

import typing
from collections.abc import Sequence

import numpy as np

from models.privacy import report
from pipeline.pages import page
from pipeline.pages.page import Plot

TEMPLATE = 'restricted.html.jinja'

_BINS = 30
# Shares from which the page speaks up at its top.
ALARMING_REJECTED, ALARMING_EMPTY, ALARMING_SILENT = 0.05, 0.5, 0.5


def render_restricted_page(restricted: report.RestrictedReport) -> str:
    """One HTML page with the figures of a restricted report, marked as such."""
    plots = [batch_sizes_plot(restricted)] if restricted.contexts_per_batch else []
    if len(restricted.true_counts_by_group) > 1:
        plots.append(group_sizes_plot(restricted))
    losses = restricted.losses
    loss_plots = [] if losses is None else [batch_losses_plot(losses)]
    if losses is not None and any(place.tokens for place in losses.loss_by_place):
        loss_plots.append(place_losses_plot(losses))
    spending = restricted.spending
    spending_plots = [] if spending is None else spending_plots_of(spending)
    return page.render(
        TEMPLATE,
        plots=[*loss_plots, *spending_plots, *plots],
        loss_plots=len(loss_plots),
        spending_plots=len(spending_plots),
        restricted=restricted,
        alarms=alarms_of(restricted),
        name_of_label=report.name_of_label,
        rejected=sum(restricted.rejected_by_reason.values()),
        largest=[] if losses is None else _largest(losses),
        first_silent=None if spending is None else _first_silent(spending),
        decoding_speed=_decoding_speed(restricted.workers),
        cost=restricted.device_hours * (restricted.device_hour_price or 0.0),
        most_spent=[] if spending is None else _most_spent(spending),
    )


def _decoding_speed(workers: Sequence[report.WorkerTime]) -> str:
    """Tokens of all rows in a second of decoding, as written on the page."""
    seconds = sum(worker.decoding_seconds for worker in workers)
    tokens = sum(worker.decoding_tokens for worker in workers)
    return f'{tokens / seconds:,.0f}' if tokens and seconds else '–'


def alarms_of(restricted: report.RestrictedReport) -> list[str]:
    """Faults that the figures show. A run may not tell them by its outcome, so the page does."""
    read, alarms = restricted.records_read, []
    rejected = sum(restricted.rejected_by_reason.values())
    if not read:
        alarms.append('No row was read, so the corpus says what the public prompt says.')
    elif rejected == read:
        alarms.append('Every row was rejected, so the corpus says what the public prompt says.')
    if read and rejected / read >= ALARMING_REJECTED:
        reason, count = max(restricted.rejected_by_reason.items(), key=lambda one: one[1])
        alarms.append(
            f'{rejected / read:.0%} of the rows were rejected, {count:,} of them for: '
            f'{reason.replace("_", " ")}. dp-corpus check shows more of the input.'
        )
    sizes = restricted.contexts_per_batch.values()
    empty = sum(not size for size in sizes)
    if read and sizes and empty / len(sizes) >= ALARMING_EMPTY:
        alarms.append(f'{empty:,} of {len(sizes):,} batches held no record.')
    voting = () if restricted.spending is None else restricted.spending.share_voting
    # A batch without contexts has none that could fall silent.
    if any(voting):
        silent = 1 - voting[-1]
        if silent >= ALARMING_SILENT:
            alarms.append(
                f'{silent:.0%} of the contexts had spent their budget before the last token: what came last '
                'is near the public prompt.'
            )
    return alarms


def batch_losses_plot(losses: report.ExPostLosses) -> Plot:
    """Distribution of the batches' ε, with CL's sum as comparison (CL Figures 3 and 4)."""
    ours = np.array([batch.ex_post_epsilon for batch in losses.loss_by_batch.values()])
    paper = np.array([batch.paper_epsilon for batch in losses.loss_by_batch.values()])
    edges = _edges(np.concatenate([ours, paper]))
    figure, axes = page.new_figure(2.8)
    axes.stairs(np.histogram(ours, edges)[0], edges, fill=True, color=page.ACCENT, label='max of the sums')
    axes.stairs(
        np.histogram(paper, edges)[0],
        edges,
        color=page.ACCENT_2,
        linewidth=1.5,
        label='sum of the maxima (CL)',
    )
    _finish_histogram(axes, 'ε of a batch', 'Batches')
    axes.legend(frameon=False, fontsize=page.FONT_SIZE, labelcolor=page.INK)
    return Plot(
        title='Loss by batch',
        caption=(
            f'The run has the loss of its largest batch: {report.format_up(losses.run_ex_post_epsilon)}. The '
            "paper's looser sum over tokens would give "
            f'{report.format_up(losses.run_paper_epsilon)}.'
        ),
        svg=page.to_svg(figure, 'losses'),
    )


def place_losses_plot(losses: report.ExPostLosses) -> Plot:
    """Mean loss of private tokens by their place in the example, with deciles (CL Figures 5 and 6)."""
    places = [(place, loss) for place, loss in enumerate(losses.loss_by_place) if loss.tokens]
    x = np.array([place + 1 for place, _ in places])
    figure, axes = page.new_figure(2.8)
    axes.fill_between(
        x,
        [loss.lower_decile for _, loss in places],
        [loss.upper_decile for _, loss in places],
        color=page.ACCENT,
        alpha=0.2,
        linewidth=0,
    )
    axes.plot(x, [loss.mean for _, loss in places], color=page.ACCENT, linewidth=2, marker='.')
    axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    page.name_axes(axes, 'Place of the token in its example', 'ε')
    return Plot(
        title='Loss by place in the example',
        caption=(
            'Mean loss of a private token; eight of ten lie in the shaded band. Where it falls, the text so '
            'far says more about the next token than the records do.'
        ),
        svg=page.to_svg(figure, 'places'),
    )


def spending_plots_of(spending: report.ContextSpending) -> list[Plot]:
    """Who voted along the stream, and what contexts spent, where there are any."""
    plots = [voting_plot(spending)] if spending.share_voting else []
    return [*plots, *([spent_plot(spending)] if spending.share_spent_deciles else [])]


def voting_plot(spending: report.ContextSpending) -> Plot:
    """Share of contexts that voted, by the token's place in the stream."""
    from matplotlib import ticker

    shares, silent = spending.share_voting, _first_silent(spending)
    figure, axes = page.new_figure(2.8)
    axes.stairs(
        shares,
        [place + 0.5 for place in range(len(shares) + 1)],
        color=page.ACCENT,
        linewidth=2,
        baseline=None,
    )
    if silent is not None:
        axes.axvline(silent + 1, color=page.ACCENT_2, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_ylim(0, 1.05)
    axes.set_xlim(0.5, len(shares) + 0.5)
    axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=0))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:,.0f}'))
    page.name_axes(axes, "Place of the token in its batch's stream")
    marked = (
        'No context ever sat out.' if silent is None else 'The dashed line is where the first one sat out.'
    )
    return Plot(
        title='Contexts that vote',
        caption=f'Share of the contexts of a batch that voted on a token, averaged over batches. {marked}',
        svg=page.to_svg(figure, 'voting'),
    )


def spent_plot(spending: report.ContextSpending) -> Plot:
    """Share of contexts that spent at most so much of their budget, from the deciles."""
    from matplotlib import ticker

    deciles = spending.share_spent_deciles
    figure, axes = page.new_figure(2.8)
    axes.plot(deciles, [index / 10 for index in range(11)], color=page.ACCENT, linewidth=2, marker='.')
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.05)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=0))
    page.name_axes(axes, 'Spent of the budget B')
    return Plot(
        title='What contexts spent',
        caption=(
            'Share of contexts that spent at most so much, with a dot at each decile; half of them spent '
            f'{100 * deciles[5]:.0f} % or less. Who has spent it all votes no more.'
        ),
        svg=page.to_svg(figure, 'spent'),
    )


def batch_sizes_plot(restricted: report.RestrictedReport) -> Plot:
    """Distribution of the batches' true sizes."""
    sizes = list(restricted.contexts_per_batch.values())
    figure, axes = page.new_figure(2.8)
    axes.stairs(*size_histogram(sizes), fill=True, color=page.ACCENT)
    _finish_histogram(axes, 'Contexts of a batch', 'Batches')
    return Plot(
        title='True sizes of batches',
        caption=(
            f'{len(sizes):,} batches, {min(sizes):,} to {max(sizes):,} contexts, '
            f'{np.median(sizes):,.0f} in the middle; {sizes.count(0):,} are empty.'
        ),
        svg=page.to_svg(figure, 'batch-sizes'),
    )


def group_sizes_plot(restricted: report.RestrictedReport) -> Plot:
    """True sizes of the groups, largest first."""
    groups = restricted.true_counts_by_group
    clustered = any(group.restricted_cluster is not None for group in groups)
    return Plot(
        title='True sizes of clusters' if clustered else 'True sizes of labels',
        caption=f'Contexts of the {len(groups):,} groups, largest first.',
        svg=page.sorted_sizes(
            'group-sizes',
            [group.true_count for group in groups],
            x_name='Clusters' if clustered else 'Labels',
        ),
    )


def size_histogram(sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Counts `[bins]` and edges `[bins + 1]`, with the same whole number of sizes in each bin."""
    width = max(1, -(-(max(sizes) - min(sizes) + 1) // _BINS))
    edges = np.arange(min(sizes), max(sizes) + width + 1, width) - 0.5
    return np.histogram(sizes, edges)[0], edges


def _largest(losses: report.ExPostLosses, count: int = 10) -> list[tuple[str, report.BatchEpsilon]]:
    """The batches that lose most, by our figure."""
    return sorted(losses.loss_by_batch.items(), key=lambda item: -item[1].ex_post_epsilon)[:count]


def _first_silent(spending: report.ContextSpending) -> int | None:
    """Place of the earliest token at which a context of any batch sat out."""
    places = [batch.first_silent for batch in spending.spending_by_batch.values()]
    return min((place for place in places if place is not None), default=None)


def _most_spent(
    spending: report.ContextSpending, count: int = 10
) -> list[tuple[str, report.SpendingOfBatch]]:
    """The batches whose contexts spent most."""
    return sorted(spending.spending_by_batch.items(), key=lambda item: -item[1].mean_share_spent)[:count]


def _edges(values: np.ndarray) -> np.ndarray:
    low, high = float(values.min()), float(values.max())
    return np.linspace(low, high, _BINS + 1) if high > low else np.array([low - 0.5, low + 0.5])


def _finish_histogram(axes: typing.Any, x_name: str, y_name: str) -> None:
    from matplotlib import ticker

    axes.yaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
    axes.margins(x=0.02)
    page.name_axes(axes, x_name)
    axes.set_ylabel(y_name, color=page.SOFT, fontsize=page.FONT_SIZE)
