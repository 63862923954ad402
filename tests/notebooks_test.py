"""The notebooks of the pages run, and their outputs are shown without a path of somebody's machine."""

import itertools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import dp_corpus
from tests import notebooks
from tests.pages import ROOT


@pytest.mark.parametrize('path', notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_has_run_in_its_order_and_shows_no_machine(path: pathlib.Path) -> None:
    cells = json.loads(path.read_text())['cells']
    code = [cell for cell in cells if cell['cell_type'] == 'code']
    assert [cell['execution_count'] for cell in code] == list(range(1, len(code) + 1))
    shown = json.dumps([cell['outputs'] for cell in code])
    assert shown.count('"output_type"') >= len(code) and '"error"' not in shown
    assert re.findall(r'(?:/home|/root|/tmp|/Users|/work)/', shown) == []


@pytest.mark.parametrize('path', notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_its_links_lead_to_pages(path: pathlib.Path) -> None:
    cells = json.loads(path.read_text())['cells']
    text = '\n'.join(''.join(cell['source']) for cell in cells if cell['cell_type'] == 'markdown')
    links = re.findall(r'\]\(([^)#]+)\)', text)
    assert links and [link for link in links if not (path.parent / link).is_file()] == []


@pytest.mark.run
def test_the_quickstart_runs_to_its_end(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of its own and an empty folder; what it wrote is a release."""
    monkeypatch.setenv('JUPYTER_RUNTIME_DIR', str(tmp_path / 'runtime'))
    monkeypatch.setenv('IPYTHONDIR', str(tmp_path / 'ipython'))
    folder = tmp_path / 'empty'
    folder.mkdir()
    found = notebooks.executed(ROOT / 'docs' / 'quickstart.ipynb', folder)
    kept = json.loads((ROOT / 'docs' / 'quickstart.ipynb').read_text())['cells']
    assert _kinds(found.cells) == _kinds(kept)
    assert not [one for cell in kept for one in cell.get('outputs', []) if one.get('name') == 'stderr']
    run = dp_corpus.load(folder / 'corpus')
    assert run.report.epsilon is not None and 0 < run.report.epsilon <= 4
    assert len(run.frame) == run.report.corpus.examples > 0


def _kinds(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The kinds of outputs of each cell; a kernel may cut a stream anywhere, and a library may warn."""
    of_cells = [
        [one['output_type'] for one in cell['outputs'] if one.get('name') != 'stderr']
        for cell in cells
        if cell['cell_type'] == 'code'
    ]
    return [[kind for kind, _ in itertools.groupby(kinds)] for kinds in of_cells]
