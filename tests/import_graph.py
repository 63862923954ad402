"""The rules of imports, as contracts on the graph that grimp reads from the source files.

Nothing is imported to read it. An import counts wherever it stands: at the top, in a function, in a
`with epy.lazy_imports()` or under `TYPE_CHECKING`. The last three are *deferred*: they run later or
never. What grimp does not tell is read from the syntax tree here: which imports are deferred, and
which are written in a way that grimp cannot see through.
"""

import ast
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator

import grimp

# From the top down: a layer imports itself and those after it; two that stand beside one another do not
# know each other.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({'dp_corpus', 'launch'}),
    frozenset({'pipeline'}),
    frozenset({'transforms'}),
    frozenset({'models'}),
)
PACKAGES = tuple(sorted(frozenset().union(*LAYERS)))
# Airflow reads the files of this folder by path, so it is no package; grimp has to be told of it.
FOLDERS = ('launch.airflow',)
PRIVACY = 'models.privacy'
GEMMA_ROOM = 'models.decoders.gemma'
# The only file that imports the gemma library.
GEMMA_FILE = f'{GEMMA_ROOM}.library'
# Rooms that may know a family of decoders by name: itself, beside the table of families. All others ask
# models.decoders.family.
KNOW_GEMMA = (GEMMA_ROOM,)
TABLE_OF_FAMILIES = 'models.decoders'
# Rooms that another program could use without a run, and what they therefore know nothing of.
STAND_ALONE = ('pipeline.ledger', 'pipeline.evaluation')
COMMANDS = 'pipeline.commands'
A_RUN = ('pipeline.job', 'pipeline.asked', 'pipeline.settings', 'pipeline.methods')

# The only libraries that an import may be deferred for, or for a module of ours that imports one of
# them. Each takes 50 ms or more to import (`python -X importtime`), or is not always installed.
HEAVY = frozenset(
    {
        'apache_beam',
        'datasets',
        'dp_accounting',
        'etils',
        'gemma',
        'gguf',
        'jax',
        'jax_privacy',
        'jinja2',
        'matplotlib',
        'numpy',
        'openpyxl',
        'optax',
        'orbax',
        'pandas',
        'psycopg',
        'pyarrow',
        'pydantic',
        'safetensors',
        'scipy',
        'sentencepiece',
        'sklearn',
        'sqlalchemy',
        'tensorflow',
        'tensorflow_text',
        # Not in every installation: the extras of setup.py.
        'google',
        'httpx2',
        'jsonschema',
        'jsonschema_specifications',
        'llguidance',
        'mauve',
        'openai',
        'referencing',
        'tokenizers',
    }
)


@dataclasses.dataclass(frozen=True, order=True)
class Import:
    """One import statement, as far as it names one module.

    Attributes:
        path: File, from the root of the tree.
        line: Line number.
        importer: Dotted name of the file's module.
        imported: Dotted name of a module of ours, or the first part of the name of another's.
        is_deferred: True if it does not run when the file is imported.
    """

    path: str
    line: int
    importer: str
    imported: str
    is_deferred: bool

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: imports {self.imported}'


class Imports:
    """All imports of a tree.

    Args:
        root: Folder that holds `PACKAGES`, on `sys.path`.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        # Without a cache: it would be a folder in the tree.
        self.graph = grimp.build_graph(
            *PACKAGES, *FOLDERS, include_external_packages=True, exclude_type_checking_imports=False,
            cache_dir=None,
        )  # fmt: skip
        self.modules = frozenset(name for name in self.graph.modules if name.split('.')[0] in PACKAGES)
        self._by_pair = {
            (module, imported): self._statements(module, imported)
            for module in self.modules
            for imported in self.graph.find_modules_directly_imported_by(module)
        }

    def between(self, importer: str, imported: str) -> list[Import]:
        """The statements by which one module imports another."""
        return self._by_pair[importer, imported]

    def all(self) -> list[Import]:
        """Every import, sorted by file and line."""
        return sorted(each for found in self._by_pair.values() for each in found)

    def chain(self, importer: str, imported: str) -> list[str]:
        """Files of one room that lead to another room, a text for each shortest way."""
        ways = self.graph.find_shortest_chains(importer=importer, imported=imported, as_packages=True)
        return [self.describe(way) for way in sorted(ways)]

    def describe(self, way: tuple[str, ...]) -> str:
        """One way of imports: 'a.py:3: imports b, then b.py:1: imports c'."""
        return ', then '.join(str(self.between(*pair)[0]) for pair in zip(way, way[1:]))

    def rings(self) -> list[list[str]]:
        """The strongly connected components of more than one file: each file reaches all others."""
        ours = self.modules
        found = {
            frozenset(
                self.graph.find_upstream_modules(each) & self.graph.find_downstream_modules(each) & ours
                | {each}
            )
            for each in ours
        }
        return sorted(sorted(ring) for ring in found if len(ring) > 1)

    @functools.cached_property
    def loads(self) -> dict[str, frozenset[str]]:
        """The heavy libraries that a module has loaded once it is imported."""
        eager: dict[str, set[str]] = {}
        for module in self.modules:
            # A file's package, and the packages around it, are imported before it.
            parts = module.split('.')
            eager[module] = {'.'.join(parts[:length]) for length in range(1, len(parts))} & self.modules
        for each in self.all():
            if not each.is_deferred:
                eager[each.importer].add(each.imported)
        found = {}
        for module in self.modules:
            seen, waiting = {module}, [module]
            while waiting:
                fresh = eager.get(waiting.pop(), set()) - seen
                seen |= fresh
                waiting += fresh
            found[module] = frozenset(seen & HEAVY)
        return found

    def _statements(self, importer: str, imported: str) -> list[Import]:
        path = self.path_of(importer)
        deferred = _deferred_lines(path)
        details = self.graph.get_import_details(importer=importer, imported=imported)
        return sorted(
            Import(
                str(path.relative_to(self.root)),
                each['line_number'],
                importer,
                imported,
                each['line_number'] in deferred,
            )
            for each in details
        )

    def path_of(self, module: str) -> pathlib.Path:
        """The file of a module of ours."""
        stem = self.root.joinpath(*module.split('.'))
        return stem / '__init__.py' if stem.is_dir() else stem.with_suffix('.py')


@functools.cache
def _tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def _deferred_lines(path: pathlib.Path) -> frozenset[int]:
    """First lines of the import statements that do not run when the file is imported."""

    def visit(node: ast.AST, inside: bool) -> Iterator[int]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                inside = True
            case ast.If(test=test) if 'TYPE_CHECKING' in ast.unparse(test):
                inside = True
            case ast.With(items=items) if any('lazy_imports' in ast.unparse(item) for item in items):
                inside = True
            case ast.Import() | ast.ImportFrom() if inside:
                yield node.lineno
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return frozenset(visit(_tree(path), False))


# --- Contracts: what a tree does against each, one text for each place ---------------------------


def layers(tree: Imports) -> list[str]:
    """Imports run dp_corpus, launch -> pipeline -> transforms -> models."""
    found = tree.graph.find_illegal_dependencies_for_layers(layers=list(map(set, LAYERS)))
    return sorted({way for each in found for way in tree.chain(each.importer, each.imported)})


def privacy_stands_alone(tree: Imports) -> list[str]:
    """models/privacy imports nothing of models but itself."""
    return [
        str(each)
        for each in tree.all()
        if _within(each.importer, PRIVACY)
        and _within(each.imported, 'models')
        and not _within(each.imported, PRIVACY)
    ]


def rooms_stand_alone(tree: Imports) -> list[str]:
    """No file of a room of `STAND_ALONE` reaches what makes up a run."""
    present = [name for name in A_RUN if name in tree.modules]
    return [
        way
        for room in STAND_ALONE
        if room in tree.modules
        for name in present
        for way in tree.chain(room, name)
    ]


def commands_are_the_command_lines(tree: Imports) -> list[str]:
    """Commands parse and print: neither the library nor a room of pipeline stands on them."""
    return [
        str(each)
        for each in tree.all()
        if _within(each.imported, COMMANDS)
        and not any(_within(each.importer, place) for place in (COMMANDS, 'pipeline.main', 'launch'))
    ]


def no_circles(tree: Imports) -> list[str]:
    """No file imports itself by way of others."""
    return [
        f'{len(ring)} files form a ring:\n'
        + '\n'.join(
            f'  {tree.between(one, other)[0]}'
            for one in ring
            for other in ring
            if tree.graph.direct_import_exists(importer=one, imported=other)
        )
        for ring in tree.rings()
    ]


def one_file_imports_gemma(tree: Imports) -> list[str]:
    """Only one file imports the gemma library, and not at its top: it costs seconds."""
    return [
        str(each)
        for each in tree.all()
        if each.imported == 'gemma' and not (each.importer == GEMMA_FILE and each.is_deferred)
    ]


def families_by_the_table(tree: Imports) -> list[str]:
    """A family of decoders is reached through models.decoders.family."""
    return [
        str(each)
        for each in tree.all()
        if _within(each.imported, GEMMA_ROOM)
        and each.importer != TABLE_OF_FAMILIES
        and not any(_within(each.importer, room) for room in KNOW_GEMMA)
    ]


def models_know_no_beam(tree: Imports) -> list[str]:
    """Models compute what one worker does, and know nothing of Beam."""
    return [
        str(each)
        for each in tree.all()
        if _within(each.importer, 'models') and each.imported == 'apache_beam'
    ]


def tests_and_tools_are_not_imported(tree: Imports) -> list[str]:
    """The packages of the wheel need nothing that it leaves out."""
    return [str(each) for each in tree.all() if each.imported in ('tests', 'tools')]


def deferred_for_what_is_heavy(tree: Imports) -> list[str]:
    """A deferred import saves the time that a heavy library takes; every other import is at the top.

    Of a heavy library, or of a module of ours that loads one, which the importing file does not load at
    its top anyway.
    """
    faults = []
    for each in tree.all():
        if not each.is_deferred:
            continue
        target = tree.loads.get(each.imported, frozenset({each.imported}) & HEAVY)
        if not target:
            faults.append(f'{each}, which is not heavy: import it at the top')
        elif target <= tree.loads[each.importer]:
            faults.append(f'{each}, and the top of the file loads {_names(target)} anyway: import it there')
    return faults


def modules_are_named_in_full(tree: Imports) -> list[str]:
    """No relative import, and none by a string: neither people nor grimp could look them up."""
    faults = []
    for module in sorted(tree.modules):
        path = tree.path_of(module)
        for node in ast.walk(_tree(path)) if path.exists() else ():
            match node:
                case ast.ImportFrom(level=level) if level:
                    how = 'a relative import'
                case ast.Call(
                    func=ast.Attribute(attr='import_module') | ast.Name(id='import_module' | '__import__')
                ):
                    how = 'an import by a string'
                case _:
                    continue
            faults.append(f'{path.relative_to(tree.root)}:{node.lineno}: {how}')
    return faults


CONTRACTS: tuple[Callable[[Imports], list[str]], ...] = (
    layers,
    privacy_stands_alone,
    rooms_stand_alone,
    commands_are_the_command_lines,
    no_circles,
    one_file_imports_gemma,
    families_by_the_table,
    models_know_no_beam,
    tests_and_tools_are_not_imported,
    deferred_for_what_is_heavy,
    modules_are_named_in_full,
)


def _within(module: str, room: str) -> bool:
    return module == room or module.startswith(f'{room}.')


def _names(libraries: Iterable[str]) -> str:
    return ', '.join(sorted(libraries))
