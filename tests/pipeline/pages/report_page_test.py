"""The page and the terminal screen: complete, escaped, self-contained, the same each time."""

import dataclasses
import doctest
import functools
import html.parser
import re
import typing

import pytest

from models.privacy import accounting, report
from models.privacy.params import MechanismParams
from models.privacy.report import CenterCounts, CorpusTotals, GroupPlan, LedgerEntry, PrivacyReport
from pipeline.pages import page as page_lib
from pipeline.pages import report_page, report_plots, report_terminal
from tests.models.privacy.report import samples
from tests.models.privacy.report.samples import clusters, with_bound
from tests.samples import assert_import_leaves, on_terminal

pytestmark = pytest.mark.heavy

PARAMS = MechanismParams(
    batch_size=255,
    clip_bound=10.0,
    temperature=2.0,
    max_private_tokens=300,
    threshold=0.5,
    threshold_noise_scale=0.2,
    max_batch_tokens=4000,
)
# Contents of a hostile or clumsy name: markup, quotes, template syntax, mathtext, a control character.
NASTY = '<script>alert("1")</script> & {{ 7*7 }} $\\frac$ [bold]x[/bold] \'"> 内科 \x07'
VOID = {'meta', 'br', 'link', 'img', 'hr', 'input'}


def make(params: MechanismParams = PARAMS, **changes: typing.Any) -> PrivacyReport:
    arguments: dict[str, typing.Any] = {
        'run_id': 'visits-2025-06',
        'delta': 1e-6,
        'plan': [
            GroupPlan(label='cardiology', batches=2, noisy_count=493),
            GroupPlan(label='dermatology', batches=3, noisy_count=771),
        ],
        'corpus': CorpusTotals(examples=96, private_tokens=1412, public_tokens=6125, truncated=7),
        'settings': {'model': 'gemma3-1b', 'private_prompt': 'A note:\n{context}'},
        'versions': {'dp-corpus': '0.1.0'},
        'counts_rho': 0.005,
    }
    return samples.build(params, **(arguments | changes))


def make_clustered(
    params: MechanismParams = PARAMS,
    labels: int = 4,
    kept: int = 60,
    centers: int = 1000,
) -> PrivacyReport:
    """A report of `labels * kept` groups."""
    names = [f'label {index}' for index in range(labels)]
    return make(
        params,
        plan=[
            GroupPlan(label=name, cluster=2 * index, batches=1 + index, noisy_count=900 - 20 * index)
            for name in names
            for index in range(kept)
        ],
        clusters=clusters(
            corpus_texts=20_000,
            center_counts=tuple(
                CenterCounts(
                    label=name,
                    kept=tuple(range(0, 2 * kept, 2)),
                    counts=tuple(700 - index for index in range(centers)),
                )
                for name in names
            ),
        ),
    )


MEDIAN = dataclasses.replace(
    PARAMS, aggregate='median', clip_bound=6.0, threshold=None, threshold_noise_scale=None
)


def make_charged(run_number: int = 3, **changes: typing.Any) -> PrivacyReport:
    """A report of a run that a ledger charged."""
    rho = typing.cast(float, make().rho_total)
    before = 0.1 * (run_number - 1)
    entry = {
        'dataset': 'visits',
        'run_number': run_number,
        'rho_before': before,
        'rho': rho,
        'rho_after': before + rho,
        'epsilon_after': accounting.epsilon_from_rho(before + rho, 1e-5),
        'delta': 1e-5,
        'rho_budget': 2.0,
        'epsilon_budget': None,
    }
    return make(ledger=LedgerEntry(**with_bound(entry | changes)))


NASTY_REPORT = dataclasses.replace(
    make(
        run_id=NASTY,
        plan=[
            GroupPlan(label=NASTY, batches=2, noisy_count=-4),
            GroupPlan(label='', batches=1, noisy_count=1),
            GroupPlan(label='$\\frac$ of $5', batches=1, noisy_count=1),
        ],
        settings={NASTY: NASTY},
        versions={NASTY: NASTY},
    ),
    # The sentences hold no names today; the page does not rely on it.
    guarantee=NASTY[:-1].strip(),
    delta_relation=NASTY[:-1].strip(),
)
REPORTS = [
    pytest.param(make(), id='example'),
    pytest.param(make(dataclasses.replace(PARAMS, unit='user', examples_per_context=8)), id='user'),
    pytest.param(make(dataclasses.replace(PARAMS, examples_per_context=4)), id='slots'),
    pytest.param(
        make(
            dataclasses.replace(PARAMS, threshold=None, threshold_noise_scale=None),
            plan=[GroupPlan(label=None, batches=7)],
            counts_rho=0.0,
            settings={},
        ),
        id='no-labels',
    ),
    pytest.param(
        make(
            plan=[GroupPlan(label=f'label {i}', batches=i + 1) for i in range(200)],
            counts_rho=0.0,
        ),
        id='many-labels',
    ),
    pytest.param(make(dataclasses.replace(PARAMS, max_private_tokens=1, clip_bound=1e-4)), id='tiny-rho'),
    pytest.param(
        make(dataclasses.replace(PARAMS, max_private_tokens=1, threshold_noise_scale=1e3), delta=0.5),
        id='epsilon-of-zero',
    ),
    pytest.param(make(dataclasses.replace(PARAMS, max_private_tokens=9_000_000)), id='huge-rho'),
    pytest.param(NASTY_REPORT, id='nasty'),
    pytest.param(make_charged(1), id='first-of-a-ledger'),
    pytest.param(make_charged(3, dataset=NASTY[:-1].strip()), id='third-of-a-ledger'),
    pytest.param(
        make_clustered(dataclasses.replace(PARAMS, aggregate='difference', clip_bound=1.0)), id='difference'
    ),
    pytest.param(make(MEDIAN, plan=[GroupPlan(label=None, batches=7)], counts_rho=0.0), id='median'),
    pytest.param(make_clustered(MEDIAN), id='median-clusters'),
    pytest.param(make_clustered(dataclasses.replace(PARAMS, aggregate='median')), id='median-sparse-vector'),
    pytest.param(make_clustered(labels=12, kept=1, centers=2), id='clusters'),
]


class Page(html.parser.HTMLParser):
    """Reads a page strictly: every element closed in order, every id once; collects what it finds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ''
        self.feed(text)
        self.close()
        assert not self.open, f'never closed: {self.open}'

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(tag, attrs)

    def _add(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert len(found) == len(attrs), f'attribute twice in <{tag}>'
        self.elements.append((tag, found))
        if name := found.get('id'):
            self.ids.append(name)
        for value in found.values():
            self.references += re.findall(r'url\(#([^)]*)\)', value or '')
        for name in ('href', 'xlink:href', 'src'):
            if name in found:
                assert (found[name] or '').startswith('#'), f'<{tag} {name}> loads something'
                self.references.append((found[name] or '')[1:])

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f'</{tag}> closes {self.open[-3:]}'
        if tag in ('td', 'th', 'dt', 'dd'):
            self.text += ' '
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != 'style':
            self.text += data


@pytest.fixture(scope='module', params=REPORTS)
def shown(request: pytest.FixtureRequest) -> tuple[PrivacyReport, str]:
    return request.param, report_page.render_html(request.param)


def plain(text: str) -> str:
    """Text with every run of blanks as one, powers as the page sets them."""
    text = re.sub(r'\b([en])\^', r'\1', text)
    text = re.sub(r'(?<![\w.])1e-(\d+)', r'10-\1', text)
    text = re.sub(r'(?<![\w.])([\d.]+)e(-?\d+)', r'\1·10\2', text)
    return ' '.join(text.replace('−', '-').split())


def test_page_is_well_formed_and_loads_nothing(shown: tuple[PrivacyReport, str]) -> None:
    _, text = shown
    page = Page(text)
    assert text.startswith('<!DOCTYPE html>')
    assert len(page.ids) == len(set(page.ids))
    assert set(page.references) <= set(page.ids)
    assert page.references, 'the drawings refer to their own parts, or the check above sees nothing'
    tags = {tag for tag, _ in page.elements}
    assert not tags & {'script', 'link', 'img', 'iframe', 'object', 'embed', 'base', 'form', 'video', 'audio'}
    assert not any(name.startswith('on') for _, attributes in page.elements for name in attributes)
    assert '@import' not in text
    assert all(target.startswith('#') for target in re.findall(r'url\(\s*["\']?([^)]*)', text))
    # The only addresses are the names of the SVG name spaces, which nobody loads.
    assert set(re.findall(r'https?://[^"\'\s<>]*', text)) <= {
        'http://www.w3.org/2000/svg',
        'http://www.w3.org/1999/xlink',
    }


@pytest.mark.first
def test_page_holds_the_whole_report(shown: tuple[PrivacyReport, str]) -> None:
    made, text = shown
    # A parser may not see a control character; the page shows the rest of the name.
    seen = plain(Page(text).text)
    settings = {**dataclasses.asdict(made.method.mechanism), **made.settings, **made.versions}
    sentences = [
        made.audience, made.run_id, made.guarantee, made.unit_of_privacy, made.dp_setting, made.adjacency,
        made.accounting, made.delta_relation, made.mechanism_output, made.reproduction,
        *made.data_accesses, *made.limits, *made.assumptions_enforced, *made.assumptions_of_curator,
        *settings, *(page_lib.format_setting(value) for value in settings.values()),
        *(group.label or '' for group in made.plan),
    ]  # fmt: skip
    for stage in made.stages:
        sentences += [stage.name, stage.explanation, stage.formula, stage.numbers]
    for row in made.sensitivities:
        sentences += [row.quantity, row.formula]
    for sentence in sentences:
        assert plain(sentence) in seen, sentence
    for number in (made.epsilon, made.rho_total, made.epsilon_closed_form):
        assert number is None or plain(report.format_up(number)) in seen
    assert isinstance(made.method, report.Predicted)
    if made.method.clusters is not None:
        assert made.method.clusters.centers_fingerprint in seen


def test_the_first_part_says_who_and_whose_and_the_guarantee_comes_next(
    shown: tuple[PrivacyReport, str],
) -> None:
    made, text = shown
    first, following = plain(Page(text).text).split(' The guarantee ', 1)
    assert plain(made.audience) in first
    assert plain(made.unit_of_privacy) in first
    assert plain(made.guarantee) in following.partition('Unit of privacy.')[0]


def test_page_is_the_same_each_time() -> None:
    assert report_page.render_html(make()) == report_page.render_html(make())


def test_page_follows_the_reader_and_fits_a_phone() -> None:
    text = report_page.render_html(make())
    assert 'prefers-color-scheme: dark' in text and '@media print' in text
    assert 'name="viewport" content="width=device-width' in text
    drawings = re.findall(r'<svg.*?</svg>', text, flags=re.S)
    assert len(drawings) == 4
    for drawing in drawings:
        assert 'viewBox' in drawing[:300] and ' width=' not in drawing[: drawing.index('>')]
        assert 'var(--ink)' in drawing and '#01020' not in drawing
        assert '<text' in drawing, 'text stays text, so it can be read aloud and searched'


def test_drawings_show_the_numbers() -> None:
    made = make()
    budget, epsilon, batches, _ = (Page(plot.svg).text for plot in report_plots.plots(made))
    assert [float(number) for number in re.findall(r'0\.\d+', budget)] == [
        float(report.format_up(stage.rho)) for stage in made.stages
    ]
    assert 'r = 300' in epsilon and f'ε = {report.format_up(made.epsilon)}' in epsilon
    assert batches.split() == ['dermatology', '3', 'cardiology', '2']


def shown_on_terminal(made: PrivacyReport, width: int) -> str:
    return on_terminal(functools.partial(report_terminal.render, made), width)


@pytest.mark.parametrize('made', REPORTS)
@pytest.mark.parametrize('width', [60, 80, 140])
def test_terminal_shows_the_essentials_on_one_screen(made: PrivacyReport, width: int) -> None:
    text = shown_on_terminal(made, width)
    lines = text.splitlines()
    assert len(lines) <= (40 if width >= 80 else 50)
    seen = ' '.join(text.replace('│', ' ').split())
    for needed in (made.guarantee, made.unit_of_privacy, made.delta_relation):
        assert ' '.join(needed.split()) in seen
    assert made.rho_total is None or report.format_up(made.rho_total) in seen
    assert made.audience in seen


def test_terminal_takes_no_markup_from_names() -> None:
    assert '[bold]' in shown_on_terminal(make(run_id='[bold]x[/bold]'), 100)
    assert '[link=' in shown_on_terminal(
        make(plan=[GroupPlan(label='[link=x]y', batches=1)], counts_rho=0.0), 100
    )


def test_docstring_examples() -> None:
    assert doctest.testmod(report_page).failed == doctest.testmod(page_lib).failed == 0


@pytest.mark.run
def test_importing_the_page_loads_no_plotting() -> None:
    assert_import_leaves(
        'pipeline.pages.report_page', 'matplotlib', 'jinja2', 'rich', 'apache_beam', 'jax', 'tensorflow'
    )


@pytest.mark.parametrize('made', [make(MEDIAN), make_clustered(MEDIAN)])
def test_a_page_without_epsilon_draws_and_promises_none(made: PrivacyReport) -> None:
    text = report_page.render_html(made)
    assert 'Epsilon against the cap' not in text and 'Budget by stage' not in text
    assert 'weaker closed form' not in text and 'is bounded:' not in text


def folded(text: str) -> tuple[int, int]:
    """Table rows outside of and inside `<details>`."""
    inside = sum(block.count('<tr>') for block in re.findall(r'<details>.*?</details>', text, flags=re.S))
    return text.count('<tr>') - inside, inside


@pytest.mark.parametrize(('labels', 'kept'), [(1, 60), (4, 60), (40, 6)])
def test_table_of_groups_is_summed_by_label_and_folded(labels: int, kept: int) -> None:
    made = make_clustered(labels=labels, kept=kept)
    open_rows, folded_rows = folded(report_page.render_html(made))
    assert open_rows < 80
    assert folded_rows >= labels * kept
    seen = plain(Page(report_page.render_html(made)).text)
    total = sum(group.noisy_count or 0 for group in made.plan[:kept])
    assert f'label 0 {kept} {kept * (kept + 1) // 2:,} {total:,}' in seen


def test_released_sizes_are_drawn_largest_first_with_the_batch_size() -> None:
    plot = report_plots.sizes_plot(make_clustered())
    assert '240 groups' in plot.caption
    wide = page_lib.sorted_sizes('sizes', [-3, 90_000, 20], expected=64, x_name='Clusters')
    ticks = Page(wide).text.split()
    assert '64' in ticks and '10,000' in ticks
    narrow = page_lib.sorted_sizes('sizes', [-3, 90, 20], expected=64, x_name='Clusters')
    assert '64' not in Page(narrow).text.split()
    # In any order of the groups the drawing is the same.
    assert page_lib.sorted_sizes('sizes', [20, -3, 90_000], expected=64, x_name='Clusters') == wide


def test_drawing_of_the_centers_has_a_panel_for_each_label_up_to_a_limit() -> None:
    few, many = (
        typing.cast(report.Predicted, made.method).clusters
        for made in (make_clustered(labels=3), make_clustered(labels=12, kept=2))
    )
    assert few is not None and many is not None
    names = {f'label {index}': f'label {index} its words' for index in range(12)}
    svg = report_plots.centers_plot(few, names).svg
    assert [f'label {index} its words' in svg for index in range(4)] == [True] * 3 + [False]
    plot = report_plots.centers_plot(many, names)
    assert 'label 7' in plot.svg and 'label 8' not in plot.svg
    assert 'The first 8 of 12 labels' in plot.caption


def test_a_label_goes_by_its_value_and_its_words() -> None:
    made = make(
        plan=[
            GroupPlan(label='2', words='digestive system diseases', batches=2),
            GroupPlan(label='3', words='nervous system diseases', batches=1),
        ],
        counts_rho=0.0,
    )
    shown = ' '.join(shown_on_terminal(made, 200).split())
    assert '2 digestive system diseases: 2 batches, 3 nervous system diseases: 1 batch' in shown
    page = report_page.render_html(made)
    assert '<th scope="row" class="break">2 digestive system diseases</th>' in page
    assert '>2 digestive system diseases</text>' in page, 'the bars of batches'
