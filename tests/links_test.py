"""Pages point at what is there: relative links, their anchors, and paths of this repository in text."""

import pathlib
import re

import pytest

from tests import pages
from tests.pages import ROOT

_FOLDERS = ('docs', 'launch', 'pipeline', 'transforms', 'models', 'tests')
_LINK = re.compile(r'\]\(([^)\s]+)\)')
# A path from the root as text and commands name one; `...` and capitals stand for something else.
_PATH = re.compile(rf'(?<![\w./-])((?:{"|".join(_FOLDERS)})(?:/[\w.-]+)+)')


def anchors(page: pathlib.Path) -> set[str]:
    """The headings of a page, as links write them."""
    headings = re.findall(r'^#+ (.*)$', pages.without_fenced(page.read_text()), re.MULTILINE)
    return {re.sub(r'[^\w -]', '', heading.lower()).strip().replace(' ', '-') for heading in headings}


def broken(page: pathlib.Path, text: str) -> list[str]:
    """The targets of a page's links that are not there."""
    faults = []
    for target in _LINK.findall(text):
        if re.match(r'[a-z]+:', target):
            continue
        name, _, anchor = target.partition('#')
        path = page if not name else (page.parent / name).resolve()
        if not pages.is_there(path):
            faults.append(f'({target}): no such file')
        elif anchor and path.suffix == '.md' and anchor not in anchors(path):
            faults.append(f'({target}): no such heading')
    for name in _PATH.findall(text):
        # A sentence may end after it, and a test's name may follow.
        if not pages.is_there(ROOT / name.rstrip('.')):
            faults.append(f'{name}: no such file')
    return faults


@pytest.mark.parametrize('page', pages.all_pages(), ids=pages.name_of)
def test_what_a_page_points_at_is_there(page: pathlib.Path) -> None:
    assert broken(page, page.read_text()) == []


def test_the_pages_are_found() -> None:
    assert {ROOT / 'README.md', ROOT / 'launch' / 'README.md', ROOT / 'docs' / 'settings.md'} <= set(
        pages.all_pages()
    )


def test_what_is_not_there_yet_is_not_there() -> None:
    there = sorted(name for name in pages.NOT_YET if (ROOT / name).exists())
    assert there == [], 'Take these out of NOT_YET in tests/pages.py.'


def test_every_page_of_the_docs_is_reached_from_the_readme() -> None:
    reached, waiting = set[pathlib.Path](), [ROOT / 'README.md']
    while waiting:
        page = waiting.pop()
        reached.add(page)
        found = {
            (page.parent / target.partition('#')[0]).resolve() for target in _LINK.findall(page.read_text())
        }
        waiting += sorted(path for path in found - reached if path.suffix == '.md' and path.is_file())
    assert set(pages.guide()) <= reached


def test_what_is_broken_is_found() -> None:
    page = ROOT / 'docs' / 'deploying' / 'README.md'
    assert len(broken(page, '[a](nowhere.md), [b](local.md#no-such-heading), [c](#nor-this)')) == 3
    assert len(broken(page, 'run `launch/nowhere.sh`, see tests/launch/nowhere_test.py.')) == 2
    right = (
        '[a](local.md), [b](#exit-codes), [c](https://example.org/x), [d](../../models), docs/settings.md.'
    )
    assert broken(page, right) == []
