"""Tests of the noisy counts of cells, on a local runner against slow twins and exactly on small ones."""

import itertools
import json
import math
import pathlib
import pickle
import random

import apache_beam as beam
import numpy as np
import pytest

from models.conditions import Conditions
from models.grammars.structure import Structure
from models.privacy.params import Unit
from models.records import Record
from tests import oracles
from tests.samples import LABELS, SECRET, pipeline
from transforms import condition, run_files

SCHEMA = {
    'type': 'object',
    'properties': {
        'note': {'type': 'string'},
        'sex': {'enum': ['F', 'M', None]},
        'urgent': {'type': 'boolean'},
    },
    'required': ['note'],
}
STRUCTURE = Structure(json_schema=json.dumps(SCHEMA), condition_on=('sex', 'urgent'))
CELLS = [('F', False), ('F', True), ('M', False), ('M', True), (None, False), (None, True)]
# Noise below half of one, but for e^-400.
SHARP = 200.0


def some_records(number: int = 90) -> list[Record]:
    """Records of users, several each, in several cells and labels; of every nine three are in no cell."""
    source = random.Random(4)
    records = []
    for index in range(number):
        value = {
            'urgent': source.random() < 0.3,
            'note': f'no {source.randrange(number)}',
            'sex': source.choice(['F', 'F', 'M', None]),
        }
        if index % 9 == 1:
            del value['sex']
        if index % 9 == 4:
            value['urgent'] = 'very'
        records.append(
            Record(
                text='No record.' if index % 9 == 7 else json.dumps(value, indent=index % 3),
                label=source.choice(['a', 'a', 'b', 'undeclared']),
                unit=f'user {source.randrange(15)}',
            )
        )
    return records


def slow_cell(text: str) -> int | None:
    """The cell of a record, by Python's own reading of JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    found = [cell for cell, (sex, urgent) in enumerate(CELLS)
             if 'sex' in value and value['sex'] == sex and value.get('urgent') is urgent]  # fmt: skip
    return found[0] if found else None


def true_counts(records: list[Record], unit: Unit) -> list[int]:
    """Slow twin: the histogram of METHOD 3's twin, of the records that are in a cell."""
    placed = [
        Record(text=record.text, label=record.label, unit=record.unit, cluster=slow_cell(record.text))
        for record in records
    ]
    inside = [record for record in placed if record.cluster is not None]
    return oracles.histogram(inside, LABELS, list(range(len(CELLS))), SECRET, unit=unit)


def drawn(records: list[Record], work_dir: str, unit: Unit, rho: float = SHARP) -> Conditions:
    with pipeline() as p:
        found = (
            p
            | beam.Create(records)
            | beam.Reshuffle()
            | condition.DrawConditions(STRUCTURE, LABELS, rho, work_dir, unit)
        )
        assert found.element_type is Conditions
        found | beam.Map(_keep, f'{work_dir}/found')
    return pickle.loads(pathlib.Path(work_dir, 'found').read_bytes())


def _keep(found: Conditions, path: str) -> None:
    pathlib.Path(path).write_bytes(pickle.dumps(found))


@pytest.mark.first
def test_cells_are_every_combination_of_the_declared_values() -> None:
    assert STRUCTURE.cells == tuple((json.dumps(sex), json.dumps(urgent)) for sex, urgent in CELLS)
    records = some_records()
    cells = [STRUCTURE.cell_of(record.text) for record in records]
    assert cells == [slow_cell(record.text) for record in records]
    assert cells.count(None) == 30 and len(set(cells)) == 7


@pytest.mark.first
@pytest.mark.run
@pytest.mark.parametrize('unit', ['example', 'user'])
def test_counts_equal_the_slow_twin(work_dir: str, unit: Unit) -> None:
    records = some_records()
    found = drawn(records, work_dir, unit)
    expected = true_counts(records, unit)
    assert list(itertools.chain(*found.noisy_counts)) == expected and sum(expected) > 10
    # Users count once, whatever they have.
    assert (sum(expected) <= 15) == (unit == 'user')
    assert (found.fields, found.cells, found.rho) == (('sex', 'urgent'), STRUCTURE.cells, SHARP)
    # A second attempt, even with other records, reads what the first one wrote.
    assert drawn(records[:5], work_dir, unit) == found


@pytest.mark.first
def test_one_unit_moves_one_cell_by_one() -> None:
    """All of its records together, whatever their labels and cells; a count of records moves by more."""
    records = some_records()
    for unit in ('example', 'user'):
        base = np.array(true_counts(records, unit))
        units = (
            [[record] for record in records]
            if unit == 'example'
            else [[r for r in records if r.unit == name] for name in sorted({str(r.unit) for r in records})]
        )
        moved = []
        for of_unit in units:
            without = [record for record in records if not any(record is one for one in of_unit)]
            change = base - np.array(true_counts(without, unit))
            assert (change >= 0).all() and change.sum() <= 1
            moved.append(int(change.sum()))
            if unit == 'user':
                by_record = np.array(true_counts(records, 'example')) - np.array(
                    true_counts(without, 'example')
                )
                moved[-1] += 10 * int(np.linalg.norm(by_record) > 1)
        assert 1 in [move % 10 for move in moved]
        assert (unit == 'example') == (max(moved) == 1), 'the wrong count is found'


@pytest.mark.first
def test_the_released_counts_cost_their_price_exactly() -> None:
    """All outputs of two cells: neighbours differ by at most αρ; a unit in two cells would differ by more."""
    rho = 0.5
    scale = 1 / math.sqrt(2 * rho)
    reach = range(-30, 31)
    log_total = math.log(math.fsum(math.exp(-(x**2) / (2 * scale**2)) for x in range(-60, 61)))

    def log_probability(output: tuple[int, ...]) -> float:
        return math.fsum(-(x**2) / (2 * scale**2) - log_total for x in output)

    def divergence(moved: tuple[int, int], order: float) -> float:
        terms = []
        for output in itertools.product(reach, repeat=2):
            other = tuple(x - move for x, move in zip(output, moved, strict=True))
            terms.append(math.exp(order * log_probability(output) + (1 - order) * log_probability(other)))
        return math.log(math.fsum(terms)) / (order - 1)

    for order in (1.5, 2.0, 4.0):
        for moved in ((1, 0), (0, 1), (-1, 0)):
            assert divergence(moved, order) <= order * rho * (1 + 1e-9)
        assert divergence((1, 1), order) > 1.9 * order * rho
        assert divergence((2, 0), order) > 3.9 * order * rho


@pytest.mark.first
@pytest.mark.run
def test_noise_is_drawn_once_and_of_the_right_scale(work_dir: str) -> None:
    cells = tuple((str(number),) for number in range(256))

    def draw(rho: float, of: int = 0) -> np.ndarray:
        found = condition.draw_conditions(
            [of] * 512, work_dir, fields=('x',), cells=cells, labels=LABELS, rho=rho
        )
        return np.array(found.noisy_counts).reshape(-1) - of

    def draw_again(rho: float, of: int = 0) -> np.ndarray:
        pathlib.Path(work_dir, run_files.CONDITIONS).unlink()
        return draw(rho, of)

    first = draw(0.005)
    assert (draw(0.005) == first).all() and first.std() > 1
    # Who lost the file draws the same again; other counts get other noise.
    assert (draw_again(0.005) == first).all() and (draw_again(0.005, of=1) != first).any()
    # 4096 draws: a standard deviation of 10 is found to 5 %, six of its own errors.
    many = np.concatenate([draw_again(0.005, of=number) for number in range(8)])
    assert abs(many.std() / 10 - 1) < 0.07 and abs(many.mean()) < 1
    for wrong in (0.005 / 2, 0.005 * 2):
        others = np.concatenate([draw_again(wrong, of=number) for number in range(8)])
        assert abs(others.std() / 10 - 1) > 0.2


@pytest.mark.first
def test_conditions_of_another_run_are_refused(work_dir: str) -> None:
    given = {'fields': ('sex',), 'cells': (('"F"',), ('"M"',)), 'labels': LABELS, 'rho': 0.5}
    condition.draw_conditions([1, 2, 3, 4], work_dir, **given)
    changes = [{'rho': 0.6}, {'fields': ('ward',)}, {'cells': (('"F"',), ('"X"',))}]
    for change in changes:
        with pytest.raises(ValueError, match='Expected the conditions of this run'):
            condition.draw_conditions([1, 2, 3, 4], work_dir, **{**given, **change})
    with pytest.raises(ValueError, match='one count for each of cells=2'):
        condition.draw_conditions([1, 2, 3], work_dir, **given)
    with pytest.raises(ValueError, match='rho > 0'):
        condition.DrawConditions(STRUCTURE, LABELS, 0.0, work_dir)


@pytest.mark.first
def test_an_undeclared_cell_or_label_cannot_win_a_units_cell() -> None:
    """Records in no cell drop out first, so that a unit counts in that of its first record that has one."""
    outside = [Record(text=f'No record {number}.', label='a', unit='u') for number in range(30)]
    inside = Record(text='{"sex": "M", "urgent": true}', label='b', unit='u')
    counts = true_counts([*outside, inside], 'user')
    assert counts[len(CELLS) + 3] == sum(counts) == 1
    found = list(condition.in_cells([*outside, inside], STRUCTURE))
    assert [record.cluster for record in found] == [3]
