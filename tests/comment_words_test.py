"""Docstrings and comments begin with the noun that the line defines, and never with a word that hides it."""

import ast
import io
import pathlib
import re
import tokenize
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[1]
HIDES = re.compile(r'(Of|What|Whoever|How|Whether|Where|Which)\b')
FILES = [
    path
    for room in ('dp_corpus', 'launch', 'pipeline', 'transforms', 'models', 'tools', 'tests')
    for path in sorted((ROOT / room).rglob('*.py'))
]


def openings(source: str) -> Iterator[tuple[int, str]]:
    """(line, first line) of each docstring, and of each comment or block of comments."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if docstring := ast.get_docstring(node):
            yield getattr(node, 'lineno', 1), docstring.partition('\n')[0]
    before = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != before + 1:
                yield token.start[0], token.string.lstrip('#: ')
            before = token.start[0]


@pytest.mark.parametrize('room', sorted({path.relative_to(ROOT).parts[0] for path in FILES}))
def test_comments_begin_with_their_noun(room: str) -> None:
    riddles = [
        f'{path.relative_to(ROOT)}:{line}: {text}'
        for path in FILES
        if path.is_relative_to(ROOT / room)
        for line, text in openings(path.read_text(encoding='utf-8'))
        if HIDES.match(text)
    ]
    assert not riddles, '\n'.join(riddles)


def test_a_riddle_is_told() -> None:
    source = '# A noun.\n# Of a second line.\n\nx = 1  # How much.\ndef f():\n    """What it is."""\n'
    assert [text for _, text in openings(source) if HIDES.match(text)] == ['What it is.', 'How much.']
