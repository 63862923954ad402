"""Texts that are shown elsewhere: no formula, no script and no escape sequence of them does anything."""

import ast
import csv
import io
import json
import pathlib
import re
from collections.abc import Callable

import pyarrow as pa
import pytest
import rich.console
from pyarrow import parquet
from rich import panel, table, text

from pipeline.pages import notebook
from pipeline.release import export
from pipeline.screen import terminal
from transforms.run_files import DATA_FOLDER, REPORT

ROOT = pathlib.Path(__file__).parents[2]
# Clears the screen, sets the title, rings, changes colours by C1, writes over the line, turns text around.
HOSTILE = 'a\x1b[2J\x1b]0;title\x07\x9b31m\rb\x08\u202ec\x7f'
# Codes that rich writes for a style of its own.
_STYLES = re.compile(r'\x1b\[[0-9;]*m')


def shown(make: Callable[..., rich.console.Console]) -> str:
    """Everything that commands print, with the text in each place."""
    screen = io.StringIO()
    console = make(file=screen, width=100, force_terminal=True, color_system='truecolor')
    rows = table.Table(title=HOSTILE)
    rows.add_column(HOSTILE)
    rows.add_row(text.Text(HOSTILE, style='red'))
    console.print(rows)
    console.print(panel.Panel(text.Text(HOSTILE), title=text.Text(HOSTILE)))
    console.print(HOSTILE, markup=False, highlight=False, soft_wrap=True)
    console.print(f'[bold]{HOSTILE}[/bold]')
    return screen.getvalue()


def controls(printed: str) -> set[str]:
    return set(re.findall('[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]', _STYLES.sub('', printed)))


def test_no_text_controls_the_terminal_that_shows_it() -> None:
    printed = shown(terminal.console)
    assert controls(printed) == set() and 'a[2J]0;title' in printed
    assert _STYLES.search(printed), 'the console has no styles of its own left'


def test_a_plain_console_is_controlled() -> None:
    assert {'\x1b', '\x9b', '\u202e'} <= controls(shown(rich.console.Console))


def test_every_console_is_one_that_no_text_controls() -> None:
    """Commands make theirs in one place."""
    for folder in ('pipeline', 'dp_corpus', 'launch'):
        for path in (ROOT / folder).rglob('*.py'):
            if path != ROOT / 'pipeline' / 'screen' / 'terminal.py':
                calls = [
                    node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
                ]
                assert not [of for of in calls if ast.unparse(of).endswith('console.Console')], path


def test_a_notebook_shows_no_control_character() -> None:
    assert controls(notebook.shown(lambda console: console.print(HOSTILE, markup=False))) == set()


FORMULAS = ('=cmd|"/C calc"!A0', '+1', '-1+1', '@SUM(A1)', '\t=1', '\r=1', '\n=1', '\uff1d1', '\uff20x')


def write_corpus(folder: pathlib.Path) -> str:
    (folder / DATA_FOLDER).mkdir(parents=True)
    (folder / REPORT).write_text('{}')
    rows = [{'text': formula, '=HYPERLINK("x")': formula} for formula in FORMULAS]
    parquet.write_table(pa.Table.from_pylist(rows), folder / DATA_FOLDER / 'train-00000-of-00001.parquet')
    return str(folder)


def cells_of_csv(corpus: str, path: pathlib.Path) -> list[str]:
    export.export(corpus, str(path))
    with path.open(encoding='utf-8', newline='') as file:
        return [cell for row in csv.reader(file) for cell in row]


def test_no_cell_and_no_heading_of_csv_is_a_formula(tmp_path: pathlib.Path) -> None:
    cells = cells_of_csv(write_corpus(tmp_path / 'corpus'), tmp_path / 'a.csv')
    assert len(cells) == 2 * len(FORMULAS) + 2
    assert [cell for cell in cells if cell.startswith(export._BEGINS_FORMULA)] == []
    assert {cell.removeprefix("'") for cell in cells} == {*FORMULAS, 'text', '=HYPERLINK("x")'}


def test_cells_as_they_are_would_be_formulas(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, '_cell', lambda value: value)
    cells = cells_of_csv(write_corpus(tmp_path / 'corpus'), tmp_path / 'a.csv')
    assert '=HYPERLINK("x")' in cells and set(FORMULAS) < set(cells)


def test_lines_of_json_hold_no_control_character(tmp_path: pathlib.Path) -> None:
    corpus = tmp_path / 'corpus'
    (corpus / DATA_FOLDER).mkdir(parents=True)
    (corpus / REPORT).write_text('{}')
    table_of = pa.Table.from_pylist([{'text': HOSTILE}])
    parquet.write_table(table_of, corpus / DATA_FOLDER / 'train-00000-of-00001.parquet')
    export.export(str(corpus), str(tmp_path / 'a.jsonl'))
    line = (tmp_path / 'a.jsonl').read_text(encoding='utf-8')
    assert json.loads(line) == {'text': HOSTILE} and '\x1b' not in line
