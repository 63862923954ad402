"""Consoles that show text of others as text: nothing that it holds controls the terminal.

A report, a ledger and labels of records were written by others. An escape sequence in one of them could
clear the screen, change the window's title, or write what looks like another answer.
"""

import re
from collections.abc import Iterator
from typing import Any

import rich.console
import rich.segment

# All control characters but the line feed and the tab, with those that change the direction of text.
_CONTROLS = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]')


def plain(text: str) -> str:
    r"""A text without what controls a terminal.

    >>> plain('a\x1b[2Jb')
    'a[2Jb'
    """
    return _CONTROLS.sub('', text)


def console(**options: Any) -> rich.console.Console:
    """A console whose styles are its own: what is printed has no control characters left.

    Args:
        **options: Options of `rich.console.Console`.
    """
    made = rich.console.Console(**options)
    made.push_render_hook(_Plain(made))
    return made


class _Plain(rich.console.RenderHook):
    def __init__(self, console: rich.console.Console) -> None:
        self._console = console

    def process_renderables(
        self, renderables: list[rich.console.ConsoleRenderable]
    ) -> list[rich.console.ConsoleRenderable]:
        return [_PlainRenderable(self._console, renderable) for renderable in renderables]


class _PlainRenderable:
    def __init__(self, console: rich.console.Console, shown: rich.console.ConsoleRenderable) -> None:
        self._console, self._shown = console, shown

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> Iterator[rich.segment.Segment]:
        for segment in console.render(self._shown, options):
            if segment.control:
                yield segment
            else:
                yield rich.segment.Segment(plain(segment.text), segment.style)
