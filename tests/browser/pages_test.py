"""Every page in a browser, light and dark, wide and on a phone: axe-core finds nothing, and print fits.

It needs Chromium, Node and the packages of `make browser-packages`, and is skipped, loudly, without one.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest

from tests.pipeline.pages import every_page
from tests.samples import ROOT

PACKAGES = ROOT / '.browser'
LOOK = pathlib.Path(__file__).with_name('look.mjs')
# Most sheets of A4 that a signer is asked to read.
MOST_SHEETS = 2
# They differ from others in numbers and sentences alone.
LIKE_OTHERS = {'report-refine', 'report-individual', 'report-large-epsilon'}

pytestmark = pytest.mark.run


def _chromium() -> str | None:
    named = os.environ.get('CHROMIUM')
    return named or next(
        filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None
    )


def look(folder: pathlib.Path, pages: dict[str, str]) -> dict[str, Any]:
    """The answer of look.mjs on pages, by their names."""
    chromium, node = _chromium(), shutil.which('node')
    if chromium is None:
        pytest.skip('NO PAGE IS LOOKED AT IN A BROWSER: no Chromium here (apt-get install chromium).')
    if node is None or not (PACKAGES / 'node_modules' / 'axe-core').is_dir():
        pytest.skip(
            'NO PAGE IS LOOKED AT IN A BROWSER: no axe-core here (`make browser-packages`, with npm).'
        )
    paths = []
    for name, page in pages.items():
        paths.append(folder / f'{name}.html')
        paths[-1].write_text(page, encoding='utf-8')
    done = subprocess.run(
        [node, str(LOOK), str(PACKAGES), chromium, *map(str, paths)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {path.stem: found[str(path)] for path in paths}


@pytest.fixture(scope='module')
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pages = {name: page for name, page in every_page.pages().items() if name not in LIKE_OTHERS}
    return look(tmp_path_factory.mktemp('pages'), pages)


@pytest.mark.first
def test_axe_finds_nothing_in_any_light(looked_at: dict[str, Any]) -> None:
    broken = {
        f'{name}, {view}': rules
        for name, found in looked_at.items()
        for view, rules in found['broken'].items()
        if rules
    }
    assert broken == {}
    assert all(set(found['broken']) == {'light', 'dark', 'phone'} for found in looked_at.values())


def test_no_page_is_wider_than_a_phone(looked_at: dict[str, Any]) -> None:
    assert {name: found['wider'] for name, found in looked_at.items() if found['wider'] > 0} == {}


def test_the_part_for_whoever_signs_prints_on_two_sheets(looked_at: dict[str, Any]) -> None:
    sheets = {name: found['sheets'] for name, found in looked_at.items() if name.startswith('report-')}
    assert {name: count for name, count in sheets.items() if not 1 <= count <= MOST_SHEETS} == {}
    assert MOST_SHEETS in sheets.values(), 'or nothing tells a sheet from another'
    assert all(found['sheets'] is None for name, found in looked_at.items() if not name.startswith('report-'))


@pytest.mark.first
def test_what_is_broken_is_found(tmp_path: pathlib.Path) -> None:
    page = every_page.pages()['report-predict']
    pale = re.sub(r'--soft: #\w+', '--soft: #cccccc', page, count=1)
    dim = re.sub(r'(scheme: dark\).*?)--ink: #\w+', r'\1--ink: #333333', page, count=1, flags=re.S)
    long = page.replace('<ul class="confirm">', '<ul class="confirm">' + '<li>One more.</li>' * 200)
    wide = page.replace('<h1>', '<p style="width: 900px">Wide.</p><h1>')
    found = look(tmp_path, {'pale': pale, 'dim': dim, 'long': long, 'wide': wide})
    rules = {
        (name, view): {each['rule'] for each in each_broken}
        for name, of_page in found.items()
        for view, each_broken in of_page['broken'].items()
    }
    assert 'color-contrast' in rules['pale', 'light'] and not rules['pale', 'dark']
    assert 'color-contrast' in rules['dim', 'dark'] and not rules['dim', 'light']
    assert found['long']['sheets'] > MOST_SHEETS
    assert found['wide']['wider'] > 0
