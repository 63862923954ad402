"""The comparison as a page and in the terminal: marked as restricted, every figure, rounded upwards."""

import dataclasses
import functools
import html.parser
import re
import typing

import pytest

from models.privacy import accounting, report
from pipeline import clusters
from pipeline.pages import clusters_page
from tests.samples import on_terminal

DELTA = 1e-6


@pytest.fixture(scope='module')
def comparison() -> clusters.ClusterComparison:
    epsilon = accounting.epsilon_from_rho(20.0, DELTA)
    costs = {
        'k-means': (None, None),
        'DP k-means': (20.0, epsilon),
        'public centres': (0.0, 0.0),
        'public centres, rebalanced': (20.0, epsilon),
        'random, 6': (0.0, 0.0),
        'random, 4': (0.0, 0.0),
    }
    rows = tuple(
        clusters.ClusteringRow(
            method=method, rho=rho, epsilon=at_delta, clusters=6, large_clusters=4, v_measure=0.125 * index,
            adjusted=0.1 * index, sizes=(1000, 900, 600, 450, 40, 10 - index, index),
        )
        for index, (method, (rho, at_delta)) in enumerate(costs.items())
    )  # fmt: skip
    return clusters.ClusterComparison(
        count=6, centers=12, kept=4, delta=DELTA, seed=3, records=3000, rows=rows
    )


class Page(html.parser.HTMLParser):
    """Open tags, links and texts of a page, in their order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.cells: list[str] = []
        self.body: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if name in ('href', 'src') and value]
        if tag not in ('meta', 'br', 'use', 'path'):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if 'body' in self.open and data.strip():
            self.body.append(data.strip())
        if self.open[-1:] in (['td'], ['th']):
            self.cells.append(data.strip())


def test_the_page_says_first_that_it_is_restricted_and_shows_every_row(
    comparison: clusters.ClusterComparison,
) -> None:
    page = clusters_page.render_html(comparison)
    read = Page(page)
    assert read.body[0] == report.RESTRICTED
    shown = [cell for row in comparison.rows for cell in clusters_page.cells_of(row)]
    assert read.cells == ['Clusters by', *clusters_page.columns_of(comparison), *shown]
    assert page == clusters_page.render_html(comparison)
    assert [link for link in read.links if not link.startswith('#')] == []
    assert 'http' not in re.sub(r'xmlns(:\w+)?="[^"]*"', '', page)
    for row in comparison.rows:
        assert f'>{row.method}</text>' in page
    assert '#0102' not in page, 'a stand-in colour was left'


def test_the_picture_has_a_step_for_each_cluster(comparison: clusters.ClusterComparison) -> None:
    one = dataclasses.replace(comparison, rows=comparison.rows[:1])
    fewer = dataclasses.replace(one, rows=(dataclasses.replace(one.rows[0], sizes=(2999, 1)),))
    assert clusters_page.sizes_plot(one) != clusters_page.sizes_plot(fewer)
    assert clusters_page.sizes_plot(one).startswith('<svg')


def test_the_terminal_says_first_that_it_is_restricted(comparison: clusters.ClusterComparison) -> None:
    text = on_terminal(functools.partial(clusters_page.render_terminal, comparison), 100)
    assert f'k-means and DP k-means were asked for {comparison.count:,} clusters;' in text
    assert text.startswith(report.RESTRICTED)
    for row in comparison.rows:
        line = next(line for line in text.splitlines() if line.strip().startswith(row.method + '  '))
        assert line.strip().removeprefix(row.method).split() == list(clusters_page.cells_of(row)[1:])


def test_a_price_is_rounded_upwards_and_no_guarantee_is_infinite(
    comparison: clusters.ClusterComparison,
) -> None:
    assert clusters_page.cells_of(comparison.rows[0])[3:5] == ('∞', '∞')
    assert (
        clusters_page.columns_of(dataclasses.replace(comparison, delta=1.72989e-5))[3] == 'ε at δ = 1.73e-5'
    )
    shown = clusters_page.cells_of(comparison.rows[1])[4]
    assert float(shown) >= typing.cast(float, comparison.rows[1].epsilon)


def test_an_adjusted_figure_below_0_by_chance_has_no_sign(comparison: clusters.ClusterComparison) -> None:
    assert clusters_page.cells_of(dataclasses.replace(comparison.rows[0], adjusted=-0.001))[-1] == '0.00'
