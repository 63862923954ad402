"""Pages point at what is there: relative links, their anchors, and paths of this repository in text."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
_FOLDERS = ('launch', 'pipeline', 'transforms', 'models', 'tests')
_LINK = re.compile(r'\]\(([^)\s]+)\)')
# A path from the root as text and commands name one; `...` and capitals stand for something else.
_PATH = re.compile(rf'(?<![\w./-])((?:{"|".join(_FOLDERS)})(?:/[\w.-]+)+)')


def pages() -> list[pathlib.Path]:
    """Every page of the checkout: at its top, and in the folders of the source."""
    found = (path for folder in _FOLDERS for path in (ROOT / folder).rglob('*.md'))
    return sorted([*ROOT.glob('*.md'), *found])


def anchors(page: pathlib.Path) -> set[str]:
    """The headings of a page, as links write them."""
    text = re.sub(r'^```.*?^```', '', page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r'^#+ (.*)$', text, re.MULTILINE)
    return {re.sub(r'[^\w -]', '', heading.lower()).strip().replace(' ', '-') for heading in headings}


def broken(page: pathlib.Path, text: str) -> list[str]:
    """What a page of this text points at that is not there."""
    faults = []
    for target in _LINK.findall(text):
        if re.match(r'[a-z]+:', target):
            continue
        name, _, anchor = target.partition('#')
        path = page if not name else page.parent / name
        if not path.exists():
            faults.append(f'({target}): no such file')
        elif anchor and path.suffix == '.md' and anchor not in anchors(path):
            faults.append(f'({target}): no such heading')
    for name in _PATH.findall(text):
        # A sentence may end after it, and a test's name may follow.
        if not (ROOT / name.rstrip('.')).exists():
            faults.append(f'{name}: no such file')
    return faults


@pytest.mark.parametrize('page', pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_points_at_is_there(page: pathlib.Path) -> None:
    assert broken(page, page.read_text()) == []


def test_the_pages_are_found() -> None:
    assert {ROOT / 'README.md', ROOT / 'launch' / 'README.md'} <= set(pages())


def test_what_is_broken_is_found() -> None:
    page = ROOT / 'launch' / 'README.md'
    assert len(broken(page, '[a](nowhere.md), [b](local.md#no-such-heading), [c](#nor-this)')) == 3
    assert len(broken(page, 'run `launch/nowhere.sh`, see tests/launch/nowhere_test.py.')) == 2
    right = '[a](local.md), [b](#exit-codes), [c](https://example.org/x), [d](../models), launch/scale.md.'
    assert broken(page, right) == []
