"""The picture of the house in docs/how-it-is-built.md is the house: its arrows are the imports between rooms.

Two boxes of one layer have an arrow where a file of one folder imports a file of the other. Two layers have
one where any of their files do. Read by grimp; an import in a function or for types counts as well.
"""

import pathlib
import re
import sys

import grimp
import pytest

from tests import pages
from tests.pages import ROOT

PAGE = ROOT / 'docs' / 'how-it-is-built.md'
LAYERS = ('dp_corpus', 'launch', 'pipeline', 'transforms', 'models', 'models/privacy')
_SUBGRAPH = re.compile(r'subgraph (\w+)\["([\w/]+): .*"\]')
_BOX = re.compile(r'(\w+)\["([\w/]+)<br/>.*"\]')
_ARROWS = re.compile(r'\w+(?: & \w+)* --> \w+(?: & \w+)*')

Arrows = set[tuple[str, str]]


def drawn(picture: str) -> tuple[dict[str, list[str]], Arrows]:
    """The folders of each layer, and the arrows between folders or layers, all by their paths.

    Raises:
        ValueError: A line is none that is known here.
    """
    rooms: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    arrows: list[str] = []
    layer = ''
    for line in map(str.strip, picture.splitlines()):
        if found := _SUBGRAPH.fullmatch(line):
            names[found[1]] = layer = found[2]
            rooms[layer] = []
        elif found := _BOX.fullmatch(line):
            # A folder may be called as a layer is.
            names[found[1]] = found[2]
            rooms[layer].append(found[2])
        elif _ARROWS.fullmatch(line):
            arrows.append(line)
        elif line not in ('', 'end', 'flowchart TB'):
            raise ValueError(
                f'Expected a subgraph, a box or arrows, got line={line!r}. Write it as the others.'
            )
    sides = [[side.split(' & ') for side in line.split(' --> ')] for line in arrows]
    return rooms, {(names[a], names[b]) for left, right in sides for a in left for b in right}


def imports(rooms: dict[str, list[str]], root: pathlib.Path) -> Arrows:
    """The arrows that the code asks for, between folders of one layer and between layers."""
    # Without a cache: it would be a folder in the tree.
    graph = grimp.build_graph(
        *(layer for layer in LAYERS if '/' not in layer), cache_dir=None, exclude_type_checking_imports=False
    )
    found: Arrows = set()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            layers = _place(importer, LAYERS), _place(imported, LAYERS)
            if layers[0] != layers[1]:
                found.add((str(layers[0]), str(layers[1])))
                continue
            places = _place(importer, rooms[str(layers[0])]), _place(imported, rooms[str(layers[0])])
            if None not in places and places[0] != places[1]:
                found.add((str(places[0]), str(places[1])))
    return found


def _place(module: str, folders: tuple[str, ...] | list[str]) -> str | None:
    """The innermost of some folders that a module is in."""
    path = module.replace('.', '/')
    inside = [folder for folder in folders if path == folder or path.startswith(f'{folder}/')]
    return max(inside, key=len, default=None)


def faults_of(picture: str, root: pathlib.Path = ROOT) -> list[str]:
    """Rooms that the picture shows and the code does not have, and the other way round."""
    rooms, shown = drawn(picture)
    folders = [name for layer, inner in rooms.items() for name in (layer, *inner)]
    missing = [f'{name}: no such folder' for name in folders if not (root / name).is_dir()]
    if missing:
        return missing
    code = imports(rooms, root)
    return [
        *(f'{a} --> {b} is drawn, and not imported' for a, b in sorted(shown - code)),
        *(f'{a} --> {b} is imported, and not drawn' for a, b in sorted(code - shown)),
    ]


@pytest.mark.skipif(
    any('.' not in name for name in pages.NOT_YET),
    reason='The picture is of rooms that are not all there yet: see NOT_YET in tests/pages.py.',
)
def test_the_picture_shows_the_imports_of_the_code() -> None:
    (picture,) = (block for block in pages.blocks(PAGE.read_text(), 'mermaid') if 'flowchart TB' in block)
    assert faults_of(picture) == []


def test_the_picture_has_every_layer_and_names_rooms_by_their_paths() -> None:
    house, way = pages.blocks(PAGE.read_text(), 'mermaid')
    rooms, arrows = drawn(house)
    assert tuple(rooms) == LAYERS
    assert all(name.startswith(f'{layer}/') for layer, inner in rooms.items() for name in inner)
    assert len(arrows) > 30
    assert way.startswith('flowchart LR')


PICTURE = """flowchart TB
  subgraph python["dp_corpus: Python"]
  end
  subgraph launch["launch: engines"]
    flink["launch/flink<br/>a cluster"]
  end
  subgraph pipeline["pipeline: a run"]
    run["pipeline/run<br/>start"]
    ledger["pipeline/ledger<br/>budget"]
    run --> ledger
  end
  subgraph transforms["transforms: steps"]
    read["transforms/read<br/>files"]
  end
  subgraph models["models: a batch"]
    audits["models/audits<br/>bounds"]
    decoders["models/decoders<br/>weights"]
    audits --> decoders
  end
  subgraph privacy["models/privacy: mathematics"]
    report["models/privacy/report<br/>statement"]
  end
  python & launch --> pipeline
  pipeline --> transforms & privacy
  transforms --> models
  models --> privacy
"""
FILES = {
    'dp_corpus/calls.py': 'from pipeline.run import start',
    'launch/flink/main.py': 'from pipeline.run import start',
    'pipeline/run/start.py': 'def f():\n    from pipeline.ledger import budget\nimport transforms.read.files',
    'pipeline/ledger/budget.py': 'from models.privacy import mechanism',
    'transforms/read/files.py': 'import models.records',
    'models/records.py': '',
    'models/audits/canaries.py': 'import models.records\nimport models.decoders.decoder',
    'models/decoders/decoder.py': 'from models.privacy.report import build',
    'models/privacy/mechanism.py': '',
    'models/privacy/report/build.py': 'from models.privacy import mechanism',
}


@pytest.fixture
def made_up(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A small tree of the five packages, which Python finds before the real one."""
    for name, source in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.relative_to(tmp_path).parents[:-1]:
            (tmp_path / folder / '__init__.py').touch()
        path.write_text(source)
    for package in ('dp_corpus', 'launch', 'pipeline', 'transforms', 'models'):
        # grimp asks Python where a package is, and Python would answer with the one it has imported.
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_right_picture_is_right(made_up: pathlib.Path) -> None:
    assert faults_of(PICTURE, made_up) == []


@pytest.mark.parametrize(
    'old, new, fault',
    [
        ('run --> ledger', '', 'pipeline/run --> pipeline/ledger is imported, and not drawn'),
        ('run --> ledger', 'run --> ledger\n ledger --> run', 'pipeline/ledger --> pipeline/run is drawn'),
        ('transforms & privacy', 'transforms & privacy & models', 'pipeline --> models is drawn'),
        ('models --> privacy', '', 'models --> models/privacy is imported, and not drawn'),
        ('models/decoders<br/>', 'models/families<br/>', 'models/families: no such folder'),
    ],
)
def test_a_wrong_picture_is_found(made_up: pathlib.Path, old: str, new: str, fault: str) -> None:
    (found,) = faults_of(PICTURE.replace(old, new), made_up)
    assert fault in found


def test_a_line_that_is_not_understood_is_no_arrow() -> None:
    with pytest.raises(ValueError, match='run -.-> ledger'):
        drawn(PICTURE.replace('run --> ledger', 'run -.-> ledger'))
