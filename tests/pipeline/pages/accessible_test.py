"""Every page can be read aloud, as far as its HTML tells; tests/browser looks at it in a browser."""

import html.parser
import re

import pytest

from tests.pipeline.pages import every_page
from tests.pipeline.pages.report_page_test import VOID

_HEADINGS = {f'h{level}': level for level in range(1, 7)}


class _Faults(html.parser.HTMLParser):
    """Collects what a screen reader, or somebody without a mouse, would stumble over."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.levels: list[int] = []
        self.titles: list[str] = []
        self.mains = 0
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[str] = []
        self.feed(page)
        self.close()
        if self.mains != 1:
            self.found.append(f'{self.mains} <main>')
        if self.levels.count(1) != 1 or self.levels[0] != 1:
            self.found.append('not one <h1>, before all other headings')
        for before, level in zip(self.levels, self.levels[1:]):
            if level > before + 1:
                self.found.append(f'<h{level}> after <h{before}>')
        if [title for title in self.titles if title.strip()] != self.titles or len(self.titles) != 1:
            self.found.append('not one <title>')

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        inside = [each for each, _ in self._open]
        if tag == 'html' and not named.get('lang'):
            self.found.append('<html> without lang')
        if tag == 'img' and named.get('alt') is None:
            self.found.append('<img> without alt')
        if tag == 'svg' and not any(
            of.get('role') == 'img' and of.get('aria-label') for _, of in [*self._open, (tag, named)]
        ):
            self.found.append('<svg> that is not within a picture with a label')
        if tag == 'th' and named.get('scope') != ('col' if 'thead' in inside else 'row'):
            self.found.append(f'<th> with scope={named.get("scope")!r}')
        if tag == 'pre' or 'scroll' in (named.get('class') or '').split():
            if named.get('tabindex') != '0':
                self.found.append(f'<{tag}> that scrolls and has no tabindex')
            if tag == 'div' and not named.get('aria-label'):
                self.found.append('<div> that scrolls and has no label')
        if tag in ('input', 'select', 'textarea') and not (named.get('aria-label') or named.get('id')):
            self.found.append(f'<{tag}> without a label')
        self.mains += tag == 'main'
        if tag in _HEADINGS:
            self.levels.append(_HEADINGS[tag])
        if tag not in VOID:
            self._open.append((tag, named))
            self._texts.append('')

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()
        text = self._texts.pop()
        if self._texts:
            self._texts[-1] += text
        if tag == 'title' and 'svg' not in [each for each, _ in self._open]:
            self.titles.append(text)
        if tag in {*_HEADINGS, 'th', 'summary', 'dt', 'a', 'button'} and not text.strip():
            self.found.append(f'<{tag}> without text')

    def handle_data(self, data: str) -> None:
        if self._texts:
            self._texts[-1] += data


@pytest.fixture(scope='module')
def pages() -> dict[str, str]:
    return dict(every_page.pages())


def test_every_page_can_be_read_aloud(pages: dict[str, str]) -> None:
    assert {name: found for name, page in pages.items() if (found := _Faults(page).found)} == {}
    assert len(pages) > 15


@pytest.mark.parametrize(
    ('old', 'new', 'fault'),
    [
        (' lang="en"', '', 'without lang'),
        (r'<title>[^<]*</title>', '<title> </title>', 'not one <title>'),
        ('<main>', '', '0 <main>'),
        (r'<h1>.*?</h1>', '', 'not one <h1>'),
        (r'<h2>(.*?)</h2>', r'<h3>\1</h3>', '<h3> after <h1>'),
        (r'<h2>.*?</h2>', '<h2></h2>', '<h2> without text'),
        (' role="img"', '', '<svg> that is not within'),
        ('scope="col"', '', 'scope=None'),
        ('scope="row"', 'scope="col"', "scope='col'"),
        ('<pre tabindex="0">', '<pre>', '<pre> that scrolls and has no tabindex'),
        (' aria-label="Stages[^"]*"', '', 'has no label'),
        ('<main>', '<main><img src="#a">', '<img> without alt'),
    ],
)
def test_what_could_not_be_read_aloud_is_found(pages: dict[str, str], old: str, new: str, fault: str) -> None:
    page, times = re.subn(old, new, pages['report-predict'], count=1, flags=re.S)
    if old == '<main>' and not new:
        page = page.replace('</main>', '')
    assert times == 1
    assert any(fault in found for found in _Faults(page).found)


def test_colours_follow_the_reader_and_a_page_prints_on_paper(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        assert 'prefers-color-scheme: dark' in page and 'color-scheme: light dark' in page, name
        assert name == 'clusters' or '@media print' in page, name
