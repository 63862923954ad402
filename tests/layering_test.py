"""Imports run one way, launch -> pipeline -> transforms -> models -> models/privacy.

Only models/decoders/gemma/decoder.py imports gemma, and inside functions. What is Gemma's is
imported by its own room, by the table of families, and by the scripts of the bundled model. Read from
the syntax trees, so that no module has to be imported, and an import inside a function counts as well.
"""

import ast
import dataclasses
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# From the foundation up: a layer may import itself and those before it.
LAYERS = ('models.privacy', 'models', 'transforms', 'pipeline', 'launch')
FILES = sorted(
    path for layer in ('models', 'transforms', 'pipeline', 'launch') for path in (ROOT / layer).rglob('*.py')
)


@dataclasses.dataclass(frozen=True)
class Import:
    """One imported module, as far as its name tells.

    Attributes:
        module: Dotted name; `from a import b` counts as `a.b`.
        lazy: Whether it runs only when a function does, or for type checkers only.
        line: Line number.
    """

    module: str
    lazy: bool
    line: int


def imports_of(source: str) -> Iterator[Import]:
    """Every import of a module, those by `importlib.import_module('...')` included."""

    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        match node:
            case ast.Import(names=names):
                yield from (Import(alias.name, lazy, node.lineno) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                prefix = '.' * level + (module or '')
                yield from (Import(f'{prefix}.{alias.name}', lazy, node.lineno) for alias in names)
            case ast.Call(
                func=ast.Attribute(attr='import_module') | ast.Name(id='import_module' | '__import__')
            ):
                match node.args:
                    case [ast.Constant(value=str(module)), *_]:
                        yield Import(module, lazy, node.lineno)
                    case _:
                        yield Import('?', lazy, node.lineno)
        inner = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.unparse(node.test):
            inner = True
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inner)

    return visit(ast.parse(source), False)


def layer_of(module: str) -> int | None:
    """Place in `LAYERS` of a dotted name, or None for other people's modules."""
    for place, layer in enumerate(LAYERS):
        if module == layer or module.startswith(f'{layer}.'):
            return place
    return None


def faults_of(path: pathlib.PurePath, source: str) -> list[str]:
    """What a file of the tree at `path` imports against the rules."""
    place = layer_of('.'.join(path.with_suffix('').parts))
    if place is None:
        raise ValueError(f'Expected a path inside the layers, got path={str(path)!r}.')
    faults = []
    for found in imports_of(source):
        target, root = layer_of(found.module), found.module.split('.')[0]
        if found.module.startswith('.') or found.module == '?':
            faults.append(f'line {found.line}: {found.module!r} does not name a module in full')
        elif target is not None and target > place:
            faults.append(f'line {found.line}: {LAYERS[place]} imports {found.module}, above it')
        elif root == 'tests':
            faults.append(f'line {found.line}: imports {found.module}')
        elif found.module.startswith('models.decoders.gemma') and not _may_know_gemma(path):
            faults.append(f'line {found.line}: a family is reached through models.decoders.family')
        elif root == 'apache_beam' and place <= LAYERS.index('models'):
            faults.append(f'line {found.line}: models knows nothing of Beam')
        elif root == 'gemma' and path.parts != ('models', 'decoders', 'gemma', 'decoder.py'):
            faults.append(f'line {found.line}: only models/decoders/gemma/decoder.py imports gemma')
        elif root == 'gemma' and not found.lazy:
            faults.append(f'line {found.line}: gemma is imported inside functions, it costs seconds')
    return faults


def _may_know_gemma(path: pathlib.PurePath) -> bool:
    """The family itself, the table that it is registered in, and the scripts that made the bundled Gemma."""
    return path == pathlib.PurePath('models/decoders/__init__.py') or (
        path.parts[:3] == ('models', 'decoders', 'gemma') or path.parts[:2] == ('models', 'bundled')
    )


@pytest.mark.parametrize('path', FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path: pathlib.Path) -> None:
    assert faults_of(path.relative_to(ROOT), path.read_text()) == []


def test_the_layers_are_where_the_test_looks() -> None:
    names = {str(path.relative_to(ROOT)) for path in FILES}
    assert {'models/privacy/mechanism.py', 'models/generate.py', 'models/decoders/gemma/decoder.py'} <= names
    assert {path.split('/')[0] for path in names} >= {'models', 'transforms', 'pipeline'}


@pytest.mark.parametrize(
    'path, source, fault',
    [
        ('models/privacy/mechanism.py', 'from models import records', 'above it'),
        ('models/privacy/mechanism.py', 'import models.generate', 'above it'),
        ('models/generate.py', 'def f():\n    from transforms import assign', 'above it'),
        ('transforms/assign.py', 'from pipeline.config import JobConfig', 'above it'),
        ('pipeline/job.py', 'import launch.local', 'above it'),
        ('models/generate.py', 'import importlib\nimportlib.import_module("pipeline.job")', 'above it'),
        ('models/generate.py', 'import importlib\nimportlib.import_module(name)', 'in full'),
        ('models/generate.py', 'from . import decoder', 'in full'),
        ('models/generate.py', 'from tests import oracles', 'imports tests'),
        ('models/prompts.py', 'from models.decoders.gemma import tokenizer', 'models.decoders.family'),
        ('pipeline/job.py', 'def f():\n    import models.decoders.gemma', 'models.decoders.family'),
        ('models/records.py', 'import apache_beam as beam', 'nothing of Beam'),
        (
            'models/decoders/decoder.py',
            'def f():\n    from gemma import gm',
            'only models/decoders/gemma/decoder.py',
        ),
        ('models/bundled/train.py', 'import gemma.gm', 'only models/decoders/gemma/decoder.py'),
        ('models/decoders/gemma/decoder.py', 'from gemma import gm', 'inside functions'),
        ('models/decoders/gemma/decoder.py', 'class A:\n    from gemma import gm', 'inside functions'),
    ],
)
def test_a_wrong_import_is_found(path: str, source: str, fault: str) -> None:
    faults = faults_of(pathlib.PurePath(path), source)
    assert len(faults) == 1 and fault in faults[0]


@pytest.mark.parametrize(
    'path, source',
    [
        ('models/decoders/gemma/decoder.py', 'def f():\n    from gemma import gm'),
        ('models/decoders/gemma/decoder.py', 'if TYPE_CHECKING:\n    from gemma import gm'),
        ('models/decoders/gemma/checkpoints.py', 'from models.decoders.gemma import decoder'),
        ('models/decoders/__init__.py', 'from models.decoders.gemma.family import GemmaFamily'),
        ('models/bundled/train.py', 'from models.decoders.gemma import architectures'),
        ('models/generate.py', 'from models.privacy import mechanism'),
        ('transforms/predict.py', 'import apache_beam as beam\nfrom models import generate'),
        ('launch/local.py', 'from pipeline import main'),
    ],
)
def test_a_right_import_passes(path: str, source: str) -> None:
    assert faults_of(pathlib.PurePath(path), source) == []
