"""Executes the notebooks of the pages: `python -m tests.notebooks` writes their outputs anew.

A notebook runs in an empty folder, and its outputs name no path of this machine.
"""

import os
import pathlib
import tempfile
from collections.abc import Mapping

import nbclient
import nbformat

from tests.pages import ROOT

NOTEBOOKS = tuple(sorted((ROOT / 'docs').glob('*.ipynb')))
_WIDGET = 'application/vnd.jupyter.widget-view+json'


def executed(path: pathlib.Path, folder: pathlib.Path, *, seconds: int = 600) -> nbformat.NotebookNode:
    """A notebook with the outputs of this machine.

    Args:
        path: The notebook.
        folder: Folder in which its cells run.
        seconds: Time that a cell may take.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell ended with an error.
    """
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=seconds, kernel_name='python3', resources={'metadata': {'path': str(folder)}},
        record_timing=False,
    )  # fmt: skip
    before = os.environ.get('PYTHONPATH')
    os.environ['PYTHONPATH'] = str(ROOT)
    try:
        client.execute()
    finally:
        if before is None:
            del os.environ['PYTHONPATH']
        else:
            os.environ['PYTHONPATH'] = before
    return without_displays(notebook)


def without_displays(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A notebook without what moved while its cells ran, of which nothing could be shown later."""
    for cell in notebook.cells:
        if cell.cell_type == 'code':
            cell.outputs = [one for one in cell.outputs if _is_shown(one.get('data', {'text/plain': 'text'}))]
    # The Python version says nothing to a reader.
    notebook.metadata = {'kernelspec': notebook.metadata['kernelspec'], 'language_info': {'name': 'python'}}
    return notebook


def _is_shown(data: Mapping[str, str]) -> bool:
    """True if an output is neither a display that moved, nor the empty line that one leaves."""
    return _WIDGET not in data and bool(data.get('text/plain', '').strip())


if __name__ == '__main__':
    for each in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as place:
            nbformat.write(executed(each, pathlib.Path(place)), each)
