"""Writes keywords.py, the types of all keyword arguments: for editors and type checkers.

`Unpack` takes a TypedDict alone, and no type checker makes one of a dataclass. A setting that is added,
renamed or dropped changes the file; a test compares it with what is made here. Write it anew with
`python -m dp_corpus.generated`.
"""

import pathlib
import re

from dp_corpus.calls import KEYWORDS
from pipeline.asked.config import Setting

FILE = pathlib.Path(__file__).with_name('keywords.py')
# Classes of keywords by the function that has them; `plan` has those of `generate`.
_CLASSES = {
    'generate': 'RunSettings',
    'fine_tune': 'TrainingSettings',
    'refine': 'RefineSettings',
    'evaluate': 'EvaluationSettings',
}
_HEAD = '''"""The types of keyword arguments, one for each flag: from `python -m dp_corpus.generated`."""

import os
import typing
from collections.abc import Sequence

type Place = str | os.PathLike[str]
'''


def generate() -> str:
    """The text of keywords.py: keywords that several functions share stand in a base of their classes."""
    lines = {name: [_line(setting) for setting in KEYWORDS[name].values()] for name in _CLASSES}
    # Functions -> the lines that exactly these have.
    shared: dict[tuple[str, ...], list[str]] = {}
    for line in dict.fromkeys(line for of_function in lines.values() for line in of_function):
        shared.setdefault(tuple(name for name in lines if line in lines[name]), []).append(line)
    bases = {names: '_' + ''.join(name.title().replace('_', '') for name in names) for names in shared}
    parts = [_HEAD]
    for names, base in bases.items():
        parts.append('\n'.join([f'class {base}(typing.TypedDict, total=False):', *shared[names], '']))
    for name, title in _CLASSES.items():
        of_class = ', '.join(base for names, base in bases.items() if name in names)
        parts.append(f'class {title}({of_class}):\n    """The settings of `{name}`."""\n')
    return '\n\n'.join(parts)


def _line(setting: Setting) -> str:
    # None means that nobody gave it. A list may be given as a text with commas, which is a sequence of texts.
    hint = re.sub(r'typing\.Optional\[(.*)\]', r'\1 | None', repr(setting.type | None))
    hint = hint.replace('tuple[str, ...]', 'Sequence[str]')
    if setting.names_path and hint == 'str | None':
        hint = 'Place | None'
    return f'    {setting.name}: {hint}'


if __name__ == '__main__':
    FILE.write_text(generate(), encoding='utf-8')
