"""The walk-through keeps its word: symbols resolve, tests exist, numbers are those of the code.

Everything is read with `ast` or without imports of JAX, gemma or Beam, so that this runs in a second.
"""

import ast
import doctest
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[3]
README = ROOT / 'models' / 'privacy' / 'README.md'
TEXT = README.read_text(encoding='utf-8')
CURATOR = 'the curator'


@functools.cache
def tree_of(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding='utf-8'))


def names_in(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Names that a module's or a class's body defines."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
        elif isinstance(node, ast.Assign):
            found |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
    return found


def defines(symbol: str) -> bool:
    """True if a dotted name is defined in the project, `package.module.Class.method` included."""
    parts = symbol.split('.')
    for length in range(len(parts) - 1, 0, -1):
        path = ROOT.joinpath(*parts[:length]).with_suffix('.py')
        if path.is_file():
            body: list[ast.stmt] = tree_of(path).body
            for name in parts[length:]:
                node = names_in(body).get(name)
                if node is None:
                    return False
                body = node.body if isinstance(node, ast.ClassDef) else []
            return True
    return False


def has_test(reference: str) -> bool:
    """True if `tests/path_test.py::test_name` is a function of that file that asserts something."""
    name, _, function = reference.partition('::')
    path = ROOT / name
    node = names_in(tree_of(path).body).get(function) if path.is_file() else None
    if not (isinstance(node, ast.FunctionDef) and function.startswith('test_')):
        return False
    nodes = list(ast.walk(node))
    calls = [ast.unparse(inner.func) for inner in nodes if isinstance(inner, ast.Call)]
    asserted = any(isinstance(inner, ast.Assert) for inner in nodes)
    return asserted or any('assert' in call or call == 'pytest.raises' for call in calls)


def table_of(header: str) -> list[list[str]]:
    """The cells of the table whose header row begins so."""
    lines = TEXT.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(header))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith('|'):
            break
        rows.append([cell.strip() for cell in line.strip('|').split('|')])
    return rows


ASSUMPTIONS = table_of('| assumption |')
# Row of section 6, which is no step of the proof.
MEDIAN = table_of('| what section 6 needs |')
# Rows of section 9, whose proof has steps of its own.
TUNING = table_of('| what section 9 needs |')
# And of sections 10 to 12.
VOTES = table_of('| what section 10 needs |')
TOGETHER = table_of('| what section 11 needs |') + table_of('| what section 12 needs |')


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('row', ASSUMPTIONS + MEDIAN + TUNING + VOTES + TOGETHER, ids=lambda row: row[0][:40])
def test_every_assumption_names_who_keeps_it_and_what_watches(row: list[str]) -> None:
    assumption, steps, keeper, test = row
    assert assumption and re.fullmatch(r'\d( to \d|(, \d)*)', steps)
    if CURATOR in (keeper, test):
        assert keeper == test == CURATOR
        return
    assert re.fullmatch(r'`[\w.]+`', keeper) and defines(keeper.strip('`')), keeper
    assert re.fullmatch(r'`tests/[\w/]+_test\.py::test_\w+`', test) and has_test(test.strip('`')), test


def test_every_step_of_the_proof_is_somebodys() -> None:
    numbered = [int(number) for number in re.findall(r'^\*\*Step (\d)\.', TEXT, re.MULTILINE)]
    assert numbered == list(range(1, 10))
    enforced = {step for row in ASSUMPTIONS if row[2] != CURATOR for step in re.findall(r'\d', row[1])}
    assert enforced == {str(number) for number in numbered}


def test_our_names_in_the_symbol_table_exist() -> None:
    sources = (ROOT / 'models' / 'privacy').rglob('*.py')
    words = set(re.findall(r'\w+', ' '.join(path.read_text(encoding='utf-8') for path in sources)))
    names = [name for row in table_of('| paper |') for name in re.findall(r'`(\w+)`', row[1])]
    assert len(names) > 15 and set(names) <= words


def test_the_worked_example_is_what_accounting_gives() -> None:
    test = doctest.DocTestParser().get_doctest(TEXT, {}, 'README.md', str(README), 0)
    assert len(test.examples) > 15
    runner = doctest.DocTestRunner(verbose=False)
    report: list[str] = []
    runner.run(test, out=report.append)
    assert runner.failures == 0, ''.join(report)


def test_numbers_in_the_prose_are_those_of_the_example() -> None:
    from models.privacy import accounting
    from models.privacy.params import MechanismParams

    def price(**changes: int) -> tuple[int, float]:
        settings = {'batch_size': 64, 'clip_bound': 10.0, 'temperature': 2.0, 'max_batch_tokens': 1}
        one = MechanismParams(**settings, max_private_tokens=1, **changes)
        cap = accounting.solve_max_private_tokens(one, epsilon=10, delta=delta, other_rho=0.005)
        return cap, 0.005 + cap * accounting.rho_per_private_token(one)

    delta = 18_000**-1.1
    cap, rho = price()
    slots, _ = price(examples_per_context=2)
    error = 1e-5 + 2**-20 * 1.5 * 10 / 2
    batches = round(18_000 / 64)
    sentences = [
        f'ε = {accounting.epsilon_from_rho(2 * rho, delta):.2f}, not 10',  # the job run twice
        f'two records turn ε = 10 into {accounting.epsilon_from_rho(4 * rho, delta):.2f}',
        f'{slots} tokens for {cap}',
        f'{100 * ((1 + 2 * error / (10 / 128)) ** 2 - 1):.2f} % of ρ',
        f'about {batches} batches, so about {round(batches * cap, -3):,} private tokens',
    ]
    flat = ' '.join(TEXT.split())
    assert [flat.count(sentence) for sentence in sentences] == [1] * len(sentences)


def test_lines_are_short_outside_tables_and_nothing_of_a_machine_is_named() -> None:
    assert [line for line in TEXT.splitlines() if len(line) > 100 and not line.startswith('|')] == []
    assert not re.search(r'(?<![\w.])/(work|tmp|home)\b|https?://', TEXT)


# ------------------------------------------------------------------- the readers themselves


@pytest.mark.parametrize(
    'symbol, exists',
    [
        ('models.privacy.aggregates.clipping.clip_logits', True),
        ('models.privacy.public_numbers.PublicNumbers.change', True),
        ('models.privacy.public_numbers.PublicNumbers.batch_size', True),
        ('models.privacy.sampling.MAX_CLIP_OVER_TEMPERATURE', True),
        ('models.privacy.mechanism.clip_logit', False),
        ('models.privacy.aggregates.clipping.clip_logits.inner', False),
        ('models.privacy.absent.clip_logits', False),
        ('jax.numpy.exp', False),
    ],
)
def test_symbols_are_resolved(symbol: str, exists: bool) -> None:
    assert defines(symbol) is exists


@pytest.mark.parametrize(
    'reference, exists',
    [
        ('tests/models/privacy/readme_test.py::test_symbols_are_resolved', True),
        ('tests/models/privacy/readme_test.py::test_absent', False),
        ('tests/models/privacy/readme_test.py::defines', False),
        ('tests/models/privacy/absent_test.py::test_symbols_are_resolved', False),
    ],
)
def test_tests_are_found(reference: str, exists: bool) -> None:
    assert has_test(reference) is exists
