"""Writes keywords.py, the types of all keyword arguments: for editors and type checkers.

A setting that is added, renamed or dropped changes the file; a test compares it with what is made here. Write
it anew with `python -m dp_corpus.generated`.
"""

import inspect
import pathlib
import types
import typing
from collections.abc import Iterable
from typing import Any

from pipeline import config
from pipeline.commands import evaluate, fine_tune, refine

FILE = pathlib.Path(__file__).with_name('keywords.py')
# A text that the help of `evaluate` shows as one of these is a path.
_PATHS = ('DIR', 'FILE', 'FILES', 'CORPUS')
_NOT_KEYWORDS = ('corpus', 'as_json', 'quiet')
_HEAD = '''"""The types of keyword arguments, one for each flag: from `python -m dp_corpus.generated`."""

import os
from collections.abc import Sequence
from typing import Literal, TypedDict
'''


def generate() -> str:
    """The text of keywords.py."""
    of_runs = {name: _of_setting(setting) for name, setting in config.all_settings().items()}
    signature = inspect.signature(evaluate.evaluate)
    of_evaluations = {
        name: _of_flag(parameter.annotation)
        for name, parameter in signature.parameters.items()
        if name not in _NOT_KEYWORDS
    }
    classes = {
        'RunSettings': ('The settings of `plan` and `generate`.', of_runs),
        'TrainingSettings': ('The settings of `fine_tune`.', _only(of_runs, fine_tune.SETTINGS)),
        'RefineSettings': ('The settings of `refine`.', _only(of_runs, refine.SETTINGS)),
        'EvaluationSettings': ('The settings of `evaluate`.', of_evaluations),
    }
    parts = [_HEAD]
    for name, (said, fields) in classes.items():
        lines = [f'class {name}(TypedDict, total=False):', f'    """{said}"""', '']
        parts.append('\n'.join([*lines, *(f'    {field}: {of}' for field, of in fields.items())]) + '\n')
    return '\n\n'.join(parts)


def _only(fields: dict[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: of for name, of in fields.items() if name in set(names)}


def _of_setting(setting: config.Setting) -> str:
    """Its type in Python's words; where it may name a file, a path of any kind."""
    return _union(_words(setting.type, is_path=setting.names_path))


def _of_flag(annotation: Any) -> str:
    hint, option = typing.get_args(annotation)
    return _union(_words(hint, is_path=option.metavar in _PATHS))


def _union(words: list[str]) -> str:
    # None means that nobody gave it.
    return ' | '.join(dict.fromkeys([*(word for word in words if word != 'None'), 'None']))


def _words(hint: Any, *, is_path: bool) -> list[str]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return [word for option in inner for word in _words(option, is_path=is_path)]
    if origin is typing.Literal:
        return [f'Literal[{", ".join(map(repr, inner))}]']
    if origin in (tuple, list):
        # A text is a sequence of texts too, and is split at its commas.
        return ['Sequence[str]']
    if hint is str and is_path:
        return ['str', 'os.PathLike[str]']
    return ['None' if hint is types.NoneType else hint.__name__]


if __name__ == '__main__':
    FILE.write_text(generate(), encoding='utf-8')
