"""The pages of the checkout, and what of a page is text, a command, or a path."""

import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
_FOLDERS = ('docs', 'launch', 'pipeline', 'transforms', 'models', 'tests')
# Paths that pages name before the code is there. A test fails once one is: take it out then.
NOT_YET: frozenset[str] = frozenset()
_FENCED = re.compile(r'^```(\w*)\n(.*?)^```$\n?', re.MULTILINE | re.DOTALL)


def all_pages() -> list[pathlib.Path]:
    """Every page: at the top of the checkout, and in its folders."""
    found = (path for folder in _FOLDERS for path in (ROOT / folder).rglob('*.md'))
    return sorted([*ROOT.glob('*.md'), *found])


def guide() -> list[pathlib.Path]:
    """The pages that a new user reads: what one of them says, no other repeats."""
    return [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *sorted((ROOT / 'docs').rglob('*.md'))]


def name_of(page: pathlib.Path) -> str:
    """Its path in the checkout."""
    return str(page.relative_to(ROOT))


def is_there(path: pathlib.Path) -> bool:
    """True if a path of the checkout exists, or is expected."""
    return path.exists() or str(path.relative_to(ROOT)) in NOT_YET


def blocks(text: str, language: str | None = None) -> list[str]:
    """The fenced blocks of a page, of one language or of all."""
    return [body for of, body in _FENCED.findall(text) if language is None or of == language]


def without_fenced(text: str) -> str:
    """A page without its fenced blocks."""
    return _FENCED.sub('', text)


def block_lines(text: str) -> Iterator[str]:
    """The lines of all blocks of code, fenced or indented; a line that a backslash continues is one."""
    joined = re.sub(r'\\\n\s*', '', text)
    for block in blocks(joined):
        yield from block.splitlines()
    yield from re.findall(r'^ {4}(\S.*)$', without_fenced(joined), re.MULTILINE)


def inline_code(text: str) -> list[str]:
    """The texts in backticks, in one line each."""
    prose = re.sub(r'^ {4}\S.*$', '', without_fenced(text), flags=re.MULTILINE)
    return [re.sub(r'\s+', ' ', code) for code in re.findall(r'`([^`]+)`', prose)]


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, without its marks: of paragraphs, list items, headings and cells.

    What stands in backticks is one word.
    """
    prose = re.sub(r'^ {4,}\S.*$', '', without_fenced(text), flags=re.MULTILINE)
    prose = re.sub(r'`([^`]+)`', lambda code: re.sub(r'\W+', '_', code[1]), prose)
    prose = re.sub(r'!?\[([^\]]*)\]\([^)\s]*\)', r'\1', prose)
    prose = re.sub(r'^\s*(?:[*-] |\d+\. |> ?|#+ )', '\n\n', prose, flags=re.MULTILINE)
    prose = re.sub(r'^\|.*\|$', lambda row: row[0].replace('|', '\n\n'), prose, flags=re.MULTILINE)
    for part in re.split(r'\n\s*\n', prose):
        line = re.sub(r'[*]', '', re.sub(r'\s+', ' ', part)).strip()
        yield from (found for found in re.split(r'(?<=[.!?:;]) ', line) if found)
