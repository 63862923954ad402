"""Each contract on imports holds for the tree, and fails on a made-up tree that breaks it."""

import importlib
import pathlib
import sys
import types
from collections.abc import Callable

import pytest

from tests import import_graph
from tests.import_graph import CONTRACTS, Imports

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope='module')
def tree() -> Imports:
    return Imports(ROOT)


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('contract', CONTRACTS, ids=lambda contract: contract.__name__)
def test_the_tree_keeps(contract: Callable[[Imports], list[str]], tree: Imports) -> None:
    faults = contract(tree)
    # Not an assertion on the list: pytest would cut it short, and it is a list of work.
    if faults:
        pytest.fail(f'{contract.__doc__}\n{len(faults)} faults:\n' + '\n'.join(faults), pytrace=False)


def test_the_contracts_name_what_is_there(tree: Imports) -> None:
    files = {
        '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')
        for layer in import_graph.PACKAGES
        for path in (ROOT / layer).rglob('*.py')
    }
    assert files <= tree.modules and len(files) > 200
    named = {import_graph.PRIVACY, import_graph.GEMMA_FILE, import_graph.TABLE_OF_FAMILIES}
    named |= {
        *import_graph.KNOW_GEMMA,
        *import_graph.STAND_ALONE,
        import_graph.COMMANDS,
        'pipeline.job',
        'pipeline.methods',
    }
    assert named <= tree.modules
    assert {'pipeline.asked.config', 'pipeline.settings'} & tree.modules
    assert {each.imported for each in tree.all() if each.importer == import_graph.GEMMA_FILE} >= {'gemma'}


def made_up(files: dict[str, str], root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Imports:
    """The imports of a tree with the five packages and these files, each in packages of its own."""
    for package in import_graph.PACKAGES:
        (root / package).mkdir()
        (root / package / '__init__.py').touch()
        # grimp asks Python where a package is, and Python would answer with the one it has imported. Set
        # first and then deleted, so that monkeypatch also takes away what is imported meanwhile.
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
        del sys.modules[package]
    (root / 'launch' / 'airflow').mkdir()
    for name, source in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.relative_to(root).parents[:-1]:
            (root / folder / '__init__.py').touch()
        path.write_text(source)
    (root / 'launch' / 'airflow' / '__init__.py').unlink(missing_ok=True)
    monkeypatch.syspath_prepend(root)
    importlib.invalidate_caches()
    return Imports(root)


LIBRARY = 'models/decoders/gemma/library.py'
FOR_TYPES = 'from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    '
LAZILY = 'from etils import epy\nwith epy.lazy_imports():\n    '
BAD = {
    'privacy imports models': (
        {'models/records.py': '', 'models/privacy/mechanism.py': 'from models import records'},
        'privacy_stands_alone',
        'models/privacy/mechanism.py:1: imports models.records',
    ),
    'models import transforms in a function': (
        {
            'transforms/assign.py': 'import apache_beam',
            'models/generate.py': 'def f():\n    from transforms import assign',
        },
        'layers',
        'models/generate.py:2: imports transforms.assign',
    ),
    'transforms import pipeline': (
        {
            'pipeline/asked/config.py': '',
            'transforms/assign.py': 'from pipeline.asked.config import JobConfig',
        },
        'layers',
        'transforms/assign.py:1: imports pipeline.asked.config',
    ),
    'pipeline imports launch': (
        {'launch/local.py': '', 'pipeline/job.py': 'import launch.local'},
        'layers',
        'pipeline/job.py:1: imports launch.local',
    ),
    'pipeline imports a folder that is no package': (
        {'launch/airflow/dag.py': '', 'pipeline/job.py': 'from launch.airflow import dag'},
        'layers',
        'pipeline/job.py:1: imports launch.airflow.dag',
    ),
    'pipeline imports the package for Python': (
        {'dp_corpus/calls.py': '', 'pipeline/job.py': 'from dp_corpus import calls'},
        'layers',
        'pipeline/job.py:1: imports dp_corpus.calls',
    ),
    'the ledger knows the settings': (
        {'pipeline/settings/budget.py': '', 'pipeline/ledger/ledger.py': 'import pipeline.settings.budget'},
        'rooms_stand_alone',
        'pipeline/ledger/ledger.py:1: imports pipeline.settings.budget',
    ),
    'the evaluation reaches a method by way of a page': (
        {
            'pipeline/methods/predict/plan.py': 'import jax',
            'pipeline/pages/page.py': 'def f():\n    from pipeline.methods.predict import plan',
            'pipeline/evaluation/__init__.py': '',
            'pipeline/evaluation/surface.py': 'from pipeline.pages import page',
        },
        'rooms_stand_alone',
        'pipeline/evaluation/surface.py:1: imports pipeline.pages.page, '
        'then pipeline/pages/page.py:2: imports pipeline.methods.predict.plan',
    ),
    'the package for Python calls a command': (
        {
            'pipeline/commands/plan.py': '',
            'pipeline/main.py': 'from pipeline.commands import plan',
            'dp_corpus/calls.py': 'from pipeline.commands import plan',
        },
        'commands_are_the_command_lines',
        'dp_corpus/calls.py:1: imports pipeline.commands.plan',
    ),
    'three files in a ring, one by a function and one for its types': (
        {
            'pipeline/a.py': 'from pipeline import b\nimport sklearn',
            'pipeline/b.py': 'def f():\n    from pipeline import c',
            'pipeline/c.py': 'import typing, jax\nif typing.TYPE_CHECKING:\n    from pipeline import a',
        },
        'no_circles',
        '3 files form a ring:\n  pipeline/a.py:1: imports pipeline.b\n'
        '  pipeline/b.py:2: imports pipeline.c\n  pipeline/c.py:3: imports pipeline.a',
    ),
    'a second file imports gemma': (
        {'models/decoders/decoder.py': 'def f():\n    from gemma import gm'},
        'one_file_imports_gemma',
        'models/decoders/decoder.py:2: imports gemma',
    ),
    'the one file imports gemma at its top': (
        {LIBRARY: 'from gemma import gm'},
        'one_file_imports_gemma',
        f'{LIBRARY}:1: imports gemma',
    ),
    'a family by name': (
        {
            'models/decoders/gemma/tokenizer.py': '',
            'models/prompts.py': 'from models.decoders.gemma import tokenizer',
        },
        'families_by_the_table',
        'models/prompts.py:1: imports models.decoders.gemma.tokenizer',
    ),
    'models know Beam': (
        {'models/records.py': 'import apache_beam as beam'},
        'models_know_no_beam',
        'models/records.py:1: imports apache_beam',
    ),
    'tests are imported': (
        {'models/generate.py': 'from tests import oracles'},
        'tests_and_tools_are_not_imported',
        'models/generate.py:1: imports tests',
    ),
    'tools are imported': (
        {'models/generate.py': 'from tools.bundled import corpus'},
        'tests_and_tools_are_not_imported',
        'models/generate.py:1: imports tools',
    ),
    'a light module of ours in a function': (
        {
            'models/records.py': 'import json',
            'models/generate.py': 'def f():\n    from models import records',
        },
        'deferred_for_what_is_heavy',
        'models/generate.py:2: imports models.records, which is not heavy: import it at the top',
    ),
    'a light library in a function': (
        {'pipeline/job.py': 'class A:\n    def f(self):\n        import rich.table'},
        'deferred_for_what_is_heavy',
        'pipeline/job.py:3: imports rich, which is not heavy: import it at the top',
    ),
    'a light library, lazily': (
        {'pipeline/job.py': LAZILY + 'import jax\n    import yaml'},
        'deferred_for_what_is_heavy',
        'pipeline/job.py:4: imports yaml, which is not heavy: import it at the top',
    ),
    'a heavy library that the top imports as well': (
        {'pipeline/job.py': 'import jax\ndef f():\n    import jax.numpy'},
        'deferred_for_what_is_heavy',
        'pipeline/job.py:3: imports jax, and the top of the file loads jax anyway: import it there',
    ),
    'a heavy module whose library the top loads by another': (
        {
            'pipeline/a.py': 'import jax',
            'pipeline/b.py': 'import jax',
            'pipeline/job.py': 'from pipeline import a\ndef f():\n    from pipeline import b',
        },
        'deferred_for_what_is_heavy',
        'pipeline/job.py:3: imports pipeline.b, and the top of the file loads jax anyway: import it there',
    ),
    'a module whose heavy import is itself deferred': (
        {
            'pipeline/a.py': 'def f():\n    import jax',
            'pipeline/job.py': 'def f():\n    from pipeline import a',
        },
        'deferred_for_what_is_heavy',
        'pipeline/job.py:2: imports pipeline.a, which is not heavy: import it at the top',
    ),
    'a relative import': (
        {'models/decoder.py': '', 'models/generate.py': 'from . import decoder'},
        'modules_are_named_in_full',
        'models/generate.py:1: a relative import',
    ),
    'an import by a string': (
        {'models/generate.py': 'import importlib\nimportlib.import_module("pipeline.job")'},
        'modules_are_named_in_full',
        'models/generate.py:2: an import by a string',
    ),
}


@pytest.mark.parametrize('case', BAD)
def test_a_wrong_import_breaks_one_contract(
    case: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, broken, fault = BAD[case]
    tree = made_up(files, tmp_path, monkeypatch)
    found = {contract.__name__: contract(tree) for contract in CONTRACTS}
    assert {name: faults for name, faults in found.items() if faults} == {broken: [fault]}


def test_every_contract_has_a_tree_that_breaks_it() -> None:
    assert {broken for _, broken, _ in BAD.values()} == {contract.__name__ for contract in CONTRACTS}


GOOD = {
    LIBRARY: FOR_TYPES + 'import gemma.gm\ndef f():\n    from gemma import gm',
    'models/decoders/gemma/checkpoints.py': 'from models.decoders.gemma import library',
    'models/decoders/gemma/family.py': '',
    'models/decoders/__init__.py': 'from models.decoders.gemma.family import GemmaFamily',
    'models/decoders/gemma/architectures.py': '',
    'models/privacy/mechanism.py': 'import jax',
    'models/generate.py': 'from models.privacy import mechanism',
    'transforms/predict.py': 'import apache_beam as beam\nfrom models import generate',
    'pipeline/main.py': '',
    'launch/local.py': 'from pipeline import main',
    'dp_corpus/calls.py': 'from pipeline import main',
    'launch/airflow/dag.py': 'from pipeline import main',
    # jax is loaded by a package around the module, and is heavy by way of another module.
    'pipeline/heavy/__init__.py': 'import jax',
    'pipeline/heavy/light.py': '',
    'pipeline/reaches.py': 'from models import generate',
    'pipeline/plan.py': (
        'from etils import epy\nwith epy.lazy_imports():\n    import numpy as np\n'
        'def f():\n    from pipeline.heavy import light\n    from pipeline import reaches\n    import scipy'
    ),
}


def test_the_made_up_trees_leave_nothing_behind(tmp_path: pathlib.Path) -> None:
    before = {package: sys.modules.get(package) for package in import_graph.PACKAGES}
    with pytest.MonkeyPatch.context() as monkeypatch:
        made_up({}, tmp_path, monkeypatch)
    assert {package: sys.modules.get(package) for package in import_graph.PACKAGES} == before


def test_right_imports_break_none(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = made_up(GOOD, tmp_path, monkeypatch)
    assert {contract.__name__: contract(tree) for contract in CONTRACTS} == {
        contract.__name__: [] for contract in CONTRACTS
    }
