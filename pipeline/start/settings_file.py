"""A TOML file of settings that says of each one where it comes from."""

import textwrap
import types
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from pipeline.methods.follows import Follows

_WIDTH = 100


def commented(
    head: Sequence[str],
    said: Mapping[str, Any],
    followed: Mapping[str, Follows],
    last: Mapping[str, Follows],
    notes: Mapping[str, str] = types.MappingProxyType({}),
) -> str:
    """The text of a file: what was said, what follows from it and why, and what is written where.

    Args:
        head: Lines of what the file is, without their `#`.
        said: Settings that somebody gave, by name.
        followed: Settings that follow, each with its reason.
        last: Further ones, of the output.
        notes: What some of the settings that were said mean, by name.
    """
    lines = [*(f'# {_plain(line)}'.rstrip() for line in head), '', '# --- What you said', '']
    for name, value in said.items():
        lines += [*_comment(notes.get(name, '')), _entry(name, value)]
    for title, found in (('What follows from it', followed), ('What is written', last)):
        lines += ['', f'# --- {title}']
        for name, follows in found.items():
            lines += ['', *_comment(follows.because), _entry(name, follows.value)]
    return '\n'.join(lines) + '\n'


def _entry(name: str, value: Any) -> str:
    return tomli_w.dumps({name: list(value) if isinstance(value, tuple) else value}).rstrip('\n')


def _comment(text: str) -> list[str]:
    # A word is never cut: a path or a command may be copied.
    return textwrap.wrap(
        _plain(text), _WIDTH, initial_indent='# ', subsequent_indent='# ', break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _plain(text: str) -> str:
    """A text on one line without characters that no comment of TOML may have."""
    return ''.join(each if each.isprintable() else ' ' for each in text)
