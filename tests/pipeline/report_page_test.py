"""The page and the terminal screen: complete, escaped, self-contained, the same each time."""

import dataclasses
import doctest
import html.parser
import io
import re
import subprocess
import sys
import typing

import pytest
import rich.console

from models.privacy import report
from models.privacy.params import MechanismParams
from models.privacy.report import CorpusTotals, GroupPlan, PrivacyReport
from pipeline import report_page

PARAMS = MechanismParams(
    batch_size=255,
    clip_bound=10.0,
    temperature=2.0,
    max_private_tokens=300,
    threshold=0.5,
    threshold_noise_scale=0.2,
    max_batch_tokens=4000,
)
# What a hostile or clumsy name might hold: markup, quotes, template syntax, mathtext, a control character.
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
        'noisy_counts_rho': 0.005,
    }
    return report.build_privacy_report(params, **(arguments | changes))


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
            noisy_counts_rho=0.0,
            settings={},
        ),
        id='no-labels',
    ),
    pytest.param(
        make(
            plan=[GroupPlan(label=f'label {i}', batches=i + 1) for i in range(200)],
            noisy_counts_rho=0.0,
        ),
        id='many-labels',
    ),
    pytest.param(make(dataclasses.replace(PARAMS, max_private_tokens=1, clip_bound=1e-4)), id='tiny-rho'),
    pytest.param(
        make(dataclasses.replace(PARAMS, max_private_tokens=1, threshold_noise_scale=1e6), delta=0.5),
        id='epsilon-of-zero',
    ),
    pytest.param(make(dataclasses.replace(PARAMS, max_private_tokens=9_000_000)), id='huge-rho'),
    pytest.param(NASTY_REPORT, id='nasty'),
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


def test_page_holds_the_whole_report(shown: tuple[PrivacyReport, str]) -> None:
    made, text = shown
    # A parser may not see a control character; the page shows the rest of the name.
    seen = plain(Page(text).text)
    settings = {**made.mechanism, **made.settings, **made.versions}
    sentences = [
        report.RELEASABLE, made.run_id, made.guarantee, made.unit_of_privacy, made.dp_setting, made.adjacency,
        made.accounting, made.delta_relation, made.mechanism_output, made.reproduction,
        *made.data_accesses, *made.limits, *made.assumptions_enforced, *made.assumptions_of_curator,
        *settings, *(report_page.format_setting(value) for value in settings.values()),
        *(group.label or '' for group in made.plan),
    ]  # fmt: skip
    for stage in made.stages:
        sentences += [stage.name, stage.explanation, stage.formula, stage.numbers]
    for row in made.sensitivities:
        sentences += [row.quantity, row.formula]
    for sentence in sentences:
        assert plain(sentence) in seen, sentence
    for number in (made.epsilon, made.rho_total, made.epsilon_closed_form):
        assert plain(report.format_up(number)) in seen


def test_first_screen_says_who_what_and_whose(shown: tuple[PrivacyReport, str]) -> None:
    made, text = shown
    first = plain(Page(text[: text.index('</header>') + 9] + '</main></body></html>').text)
    for needed in (report.RELEASABLE, made.guarantee, made.unit_of_privacy):
        assert plain(needed) in first


def test_page_is_the_same_each_time() -> None:
    assert report_page.render_html(make()) == report_page.render_html(make())


def test_page_follows_the_reader_and_fits_a_phone() -> None:
    text = report_page.render_html(make())
    assert 'prefers-color-scheme: dark' in text and '@media print' in text
    assert 'name="viewport" content="width=device-width' in text
    drawings = re.findall(r'<svg.*?</svg>', text, flags=re.S)
    assert len(drawings) == 3
    for drawing in drawings:
        assert 'viewBox' in drawing[:300] and ' width=' not in drawing[: drawing.index('>')]
        assert 'var(--ink)' in drawing and '#01020' not in drawing
        assert '<text' in drawing, 'text stays text, so it can be read aloud and searched'


def test_drawings_show_the_numbers() -> None:
    made = make()
    budget, epsilon, batches = (
        Page(plot(made).svg).text
        for plot in (report_page.budget_plot, report_page.epsilon_plot, report_page.batches_plot)
    )
    assert [float(number) for number in re.findall(r'0\.\d+', budget)] == [
        float(report.format_up(stage.rho)) for stage in made.stages
    ]
    assert 'r = 300' in epsilon and f'ε = {report.format_up(made.epsilon)}' in epsilon
    assert batches.split() == ['dermatology', '3', 'cardiology', '2']


def test_drawing_of_many_labels_says_that_it_leaves_some_out() -> None:
    made = make(plan=[GroupPlan(label=f'label {i}', batches=i + 1) for i in range(200)], noisy_counts_rho=0.0)
    plot = report_page.batches_plot(made)
    assert 'label 199' in plot.svg and 'label 0' not in plot.svg
    assert '200 labels' in plot.caption


def on_terminal(made: PrivacyReport, width: int) -> str:
    file = io.StringIO()
    report_page.render_terminal(made, rich.console.Console(file=file, width=width, force_terminal=False))
    return file.getvalue()


@pytest.mark.parametrize('made', REPORTS)
@pytest.mark.parametrize('width', [60, 80, 140])
def test_terminal_shows_the_essentials_on_one_screen(made: PrivacyReport, width: int) -> None:
    text = on_terminal(made, width)
    lines = text.splitlines()
    assert len(lines) <= (40 if width >= 80 else 50)
    seen = ' '.join(text.replace('│', ' ').split())
    for needed in (made.guarantee, made.unit_of_privacy, made.delta_relation):
        assert ' '.join(needed.split()) in seen
    assert report.format_up(made.rho_total) in seen
    assert report.RELEASABLE in seen


def test_terminal_takes_no_markup_from_names() -> None:
    assert '[bold]' in on_terminal(make(run_id='[bold]x[/bold]'), 100)
    assert '[link=' in on_terminal(
        make(plan=[GroupPlan(label='[link=x]y', batches=1)], noisy_counts_rho=0.0), 100
    )


def test_docstring_examples() -> None:
    assert doctest.testmod(report_page).failed == 0


def test_importing_the_page_loads_no_plotting() -> None:
    code = (
        'import sys, pipeline.report_page\n'
        'heavy = {"matplotlib", "jinja2", "rich", "apache_beam", "jax", "tensorflow"} & sys.modules.keys()\n'
        'assert not heavy, heavy'
    )
    subprocess.run([sys.executable, '-c', code], check=True, timeout=120)
