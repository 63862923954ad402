"""Cells of a notebook: text as of a terminal, or a whole page in a frame."""

import html
import io
from collections.abc import Callable

import rich.console

from pipeline.screen import terminal

_COLUMNS = 100
_FRAME_PIXELS = 640
# No colours: a notebook has light and dark themes, and rich would fix one.
_FORM = '<pre style="white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace">{code}</pre>'


def shown(render: Callable[[rich.console.Console], None]) -> str:
    """HTML of what a function prints, escaped, without colours."""
    console = terminal.console(
        record=True, file=io.StringIO(), width=_COLUMNS, force_jupyter=False, color_system=None
    )
    render(console)
    lines = (line.rstrip() for line in console.export_text().splitlines())
    return _FORM.format(code=html.escape('\n'.join(lines).strip('\n')))


def framed(page: str) -> str:
    """HTML of a page in a frame: its styles stay its own, and nothing in it may run."""
    return (
        f'<iframe sandbox srcdoc="{html.escape(page)}" width="100%" height="{_FRAME_PIXELS}" '
        'style="border:1px solid #8888"></iframe>'
    )
