"""The files that see epsilon while a run is solved: those of docs/how-it-is-built.md, and at most eight."""

import pathlib
import sys
import types
from sys import monitoring
from typing import Any

import pytest

from pipeline import methods
from pipeline.asked.config import job_config

ROOT = pathlib.Path(methods.__file__).parents[2]
PAGE = (ROOT / 'docs/how-it-is-built.md').read_text(encoding='utf-8')
PRODUCT = tuple(f'{ROOT}/{layer}/' for layer in ('pipeline', 'transforms', 'models'))
EPSILON = 1.2345678
METHODS: dict[str, dict[str, Any]] = {
    'predict': {},
    'fine-tune': {'model': 'bundled'},
    'tune-refine': {'model': 'bundled'},
    'evolve': {},
}


def seen_in(method: str) -> set[str]:
    """Files of ours with a function that held epsilon when it returned."""
    config: dict[str, Any] = {'delta': 1e-6, 'records': 10_000} | METHODS[method]
    files: set[str] = set()

    def look(code: types.CodeType, *_: object) -> object:
        name = code.co_filename
        if name in files or not name.startswith(PRODUCT):
            return monitoring.DISABLE
        values = list(sys._getframe(1).f_locals.values())
        values += [of for value in values if isinstance(value, dict) for of in value.values()]
        if any(type(value) is float and value == EPSILON for value in values):
            files.add(name)
        return None

    monitoring.use_tool_id(monitoring.PROFILER_ID, __name__)
    monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.PY_RETURN, look)
    monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.PY_RETURN)
    try:
        methods.solve(job_config(method=method, epsilon=EPSILON, **config))
    finally:
        monitoring.set_events(monitoring.PROFILER_ID, 0)
        monitoring.free_tool_id(monitoring.PROFILER_ID)
    monitoring.restart_events()
    return {pathlib.Path(name).relative_to(ROOT).as_posix() for name in files}


@pytest.fixture(scope='module')
def files() -> dict[str, set[str]]:
    return {method: seen_in(method) for method in METHODS}


def test_at_most_eight_files_see_epsilon(files: dict[str, set[str]]) -> None:
    assert all(0 < len(seen) <= 8 for seen in files.values()), files


def test_the_page_names_them_all_and_no_other(files: dict[str, set[str]]) -> None:
    table = PAGE.partition('## The way of ε')[2].partition('| method |')[0]
    named = {part.partition(')')[0] for part in table.split('](../')[1:]}
    assert named == set().union(*files.values())
