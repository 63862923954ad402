"""Runs whose examples are given values, with the bundled model: fixed ones, and those of counted cells.

The noise is small enough to know the released counts, or large enough to see that they are noisy.
"""

import collections
import json
import math
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from models.bundled import FOLDER as BUNDLED
from models.privacy import accounting
from pipeline import methods
from pipeline.methods.predict import plan
from pipeline.settings.job_config import JobConfig
from tests.launched import launch
from tests.one_model import one_model
from tests.pipeline.job_test import LABELS, corpus, report_of, restricted_of, rows_of, work_dir
from tests.pipeline.structure_run_test import RUNS, is_valid, records, structured
from transforms import run_files

needs_model = pytest.mark.skipif(
    not (BUNDLED / 'checkpoint').exists(), reason='the bundled model has no checkpoint: train it first'
)

CELLS = [('parcel', False), ('parcel', True), ('invoice', False), ('invoice', True)]
# A count is off by one with odds of e^-200.
SHARP = {'condition_on': ('about', 'urgent'), 'condition_rho': 200.0}


@pytest.fixture(scope='module', autouse=True)
def _one_model() -> Iterator[None]:
    with one_model():
        yield


def values_of(row: dict[str, Any]) -> tuple[str, bool] | None:
    """The values that an example was given, as far as it got."""
    try:
        found = json.loads(row['text'])
    except ValueError:
        return None
    return found['about'], found['urgent']


def true_counts() -> dict[str, collections.Counter[tuple[str, bool]]]:
    """The counts of each label, from the records that are JSON and whose values are declared."""
    counted: dict[str, collections.Counter[tuple[str, bool]]] = {
        label: collections.Counter() for label in LABELS
    }
    for row in records():
        try:
            value = json.loads(row['text'])
        except ValueError:
            continue
        if isinstance(value['urgent'], bool):
            counted[row['label']][value['about'], value['urgent']] += 1
    return counted


def assert_mix_follows_the_counts(run: JobConfig) -> None:
    """Among the first examples of all batches of a label no cell is two or more off its released share."""
    report = report_of(run)
    assert report.method.cells is not None
    for of_label in report.method.cells.cell_counts:
        shares = [max(0, count) for count in of_label.counts]
        rows = [row for row in rows_of(run) if row['label'] == of_label.label and not row['truncated']]
        complete = collections.Counter(row['batch_id'] for row in rows)
        number = min(complete.values())
        given = [values_of(row) for row in rows if row['index_in_batch'] < number]
        assert len(complete) == 2 and len(given) == 2 * number >= 10
        for cell, share in zip(CELLS, shares, strict=True):
            assert abs(given.count(cell) - len(given) * share / sum(shares)) < 2
        # Cells without a record have no example, later ones too.
        assert {values_of(row) for row in rows} <= {
            cell for cell, share in zip(CELLS, shares, strict=True) if share
        }


@needs_model
@pytest.mark.run
@pytest.mark.parametrize(
    'name',
    [pytest.param('mean, sparse vector', marks=pytest.mark.first), 'difference, individual, two rounds'],
)
def test_the_corpus_has_the_records_mix(tmp_path: pathlib.Path, name: str) -> None:
    run = structured(tmp_path, fixed=('note=late', 'items=[]'), **SHARP, **RUNS[name])
    launch(run, [])
    rows, report = rows_of(run), report_of(run)
    complete = [row for row in rows if not row['truncated']]
    assert complete and all(is_valid(row['text']) for row in complete)
    assert {json.loads(row['text'])['note'] for row in complete} == {'late'}
    assert {str(json.loads(row['text'])['items']) for row in complete} == {'[]'}
    # The counts are those of the records that have the values, and nobody else's.
    assert report.method.cells is not None and report.method.cells.fields == ('about', 'urgent')
    values = [tuple(map(json.loads, of)) for of in report.method.cells.values]
    assert values == CELLS
    counted = true_counts()
    for of_label in report.method.cells.cell_counts:
        assert of_label.counts == tuple(counted[str(of_label.label)][cell] for cell in CELLS)
    assert_mix_follows_the_counts(run)
    # Paid, told, and told to the curator alone.
    (stage,) = [stage for stage in report.stages if stage.name == 'Noisy counts per cell']
    assert stage.rho == 200.0 and 'about, urgent' in stage.explanation
    if report.rho_total is not None:
        assert report.rho_total == plan.plan_run(methods.solve(run)).rho_total > 200
    assert report.settings['condition_on'] == 'about, urgent' and report.settings['condition_rho'] == 200.0
    assert report.settings['fixed'] == 'note=late, items=[]'
    restricted = restricted_of(run)
    assert (restricted.records_in_no_cell, restricted.records_outside_structure) == (4, 4)
    page = pathlib.Path(str(run.output.output), run_files.REPORT_PAGE).read_text()
    assert 'Values that examples are given' in page and '&#34;parcel&#34;' in page
    assert 'Records in no cell' in (work_dir(run) / run_files.RESTRICTED_PAGE).read_text()


@needs_model
@pytest.mark.run
def test_a_resumed_run_has_the_same_counts_and_the_same_corpus(tmp_path: pathlib.Path) -> None:
    """With batches from noisy counts too, and noise that would not come again by chance."""
    settings = {**RUNS['mean'], 'condition_on': ('about', 'urgent'), 'condition_rho': 0.005}
    run = structured(tmp_path, batches_per_label=None, count_rho=0.5, **settings)
    launch(run, [])
    found, report = corpus(run), report_of(run)
    assert report.method.cells is not None
    counted = true_counts()
    noise = [
        count - counted[str(of_label.label)][cell]
        for of_label in report.method.cells.cell_counts
        for cell, count in zip(CELLS, of_label.counts, strict=True)
    ]
    # Eight draws of scale 10: all below 3 with odds of 1e-5.
    assert max(map(abs, noise)) >= 3
    kept = (work_dir(run) / run_files.CONDITIONS).read_bytes()
    assert json.loads((work_dir(run) / run_files.PLAN).read_text())['conditions'] == json.loads(kept)
    shutil.rmtree(str(run.output.output))
    for path in (work_dir(run) / run_files.BATCHES_FOLDER).iterdir():
        path.unlink()
    launch(run, [])
    assert corpus(run) == found and report_of(run).method.cells == report.method.cells
    assert (work_dir(run) / run_files.CONDITIONS).read_bytes() == kept


@needs_model
@pytest.mark.run
def test_what_a_cap_cut_short_ends_with_the_values_of_its_cell(tmp_path: pathlib.Path) -> None:
    run = structured(
        tmp_path, close_truncated=True, max_example_tokens=9, fixed=('note=x',), **SHARP, **RUNS['mean']
    )
    launch(run, [])
    rows = rows_of(run)
    assert any(row['truncated'] for row in rows) and all(is_valid(row['text']) for row in rows)
    counted = true_counts()
    for row in rows:
        assert counted[row['label']][values_of(row)] > 0, 'no example has a cell without records'


def test_the_plan_prices_the_counts(tmp_path: pathlib.Path) -> None:
    run = structured(tmp_path, **RUNS['mean'])
    conditioned = structured(tmp_path, condition_on=('urgent',), **RUNS['mean'])
    before, after = plan.plan_run(methods.solve(run)), plan.plan_run(methods.solve(conditioned))
    assert (before.rho_cells, after.rho_cells) == (0.0, 0.005)
    assert before.rho_total is not None and after.rho_total == pytest.approx(before.rho_total + 0.005)
    assert methods.solve(conditioned).cost.stages == {
        **methods.solve(run).cost.stages,
        'cell_counts': accounting.ZCDpEvent(rho=0.005),
    }
    # With an epsilon, what is left for tokens is less.
    solved = [
        plan.plan_run(
            methods.solve(of.replace(max_private_tokens=None, max_batch_tokens=None, epsilon=2.0, delta=1e-5))
        )
        for of in (run, conditioned.replace(condition_rho=0.03))
    ]
    assert solved[1].max_private_tokens < solved[0].max_private_tokens
    assert all(found.epsilon is not None and found.epsilon <= 2.0 for found in solved)
    # Values that are given are forced.
    fixed = plan.plan_run(
        methods.solve(structured(tmp_path, fixed=('about=invoice', 'urgent=true'), **RUNS['mean']))
    )
    assert before.forced is not None and fixed.forced is not None and after.forced is not None
    # '"note":"' and what follows is not; of the values before it nothing is left to choose.
    assert fixed.forced.shortest_bytes - fixed.forced.forced_bytes == 2
    assert before.forced.shortest_bytes - before.forced.forced_bytes > 3


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (
            {'fixed': ('colour=red',)},
            "declares at its root, got 'colour'. Declared: about, urgent, note, items",
        ),
        ({'fixed': ('about=letter',)}, "allows for about, got about='letter'"),
        ({'fixed': ('note=far too long a note',)}, 'allows for note'),
        ({'fixed': ('items=[1,2,3]',)}, 'allows for items'),
        ({'fixed': ('about',)}, 'FIELD=VALUE in fixed'),
        ({'fixed': ('about=parcel', 'about=invoice')}, r"\['about'\] twice"),
        ({'fixed': ('about=parcel',), 'condition_on': ('about',)}, r"\['about'\] twice"),
        ({'condition_on': ('note',)}, "an enum, a boolean or a const, got 'note'"),
        ({'condition_on': ('items',)}, "an enum, a boolean or a const, got 'items'"),
        ({'condition_on': ('colour',)}, "declares at its root, got 'colour'"),
        ({'condition_rho': 0.1}, 'condition_rho with condition_on only'),
        ({'condition_on': ('about',), 'condition_rho': 0.0}, 'condition_rho > 0'),
        ({'condition_on': ('about',), 'condition_rho': math.inf}, 'condition_rho > 0'),
        ({'json_schema': None, 'regex': 'a+', 'fixed': ('about=parcel',)}, 'json_schema with fixed'),
        ({'json_schema': None, 'condition_on': ('about',)}, 'json_schema with fixed'),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    tmp_path: pathlib.Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        structured(tmp_path, **RUNS['mean'], **settings)


def test_too_many_cells_are_refused_with_their_numbers(tmp_path: pathlib.Path) -> None:
    properties = {f'f{number}': {'enum': list(range(17))} for number in range(2)}
    wide = {'type': 'object', 'properties': properties}
    with pytest.raises(ValueError, match='1 to 256 combinations .*, got cells=289: f0 has 17, f1 has 17'):
        structured(tmp_path, wide, **RUNS['mean'], condition_on=('f0', 'f1'))
    assert structured(tmp_path, wide, **RUNS['mean'], condition_on=('f0',)).method.structure is not None
