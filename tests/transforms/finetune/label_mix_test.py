"""Units, and the noisy counts of their labels."""

import collections
import pathlib
import random
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing import util

from models import batching
from models.batch_plan import BatchPlan
from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from models.records import Record
from tests.samples import SECRET, pipeline
from transforms.finetune.label_mix import DrawLabelMix
from transforms.units import SelectUnits

LABELS = ('a', 'b', 'c')

# Noise of scale 0.05: a value other than 0 has probability below e^-199.
WITHOUT_NOISE = 200.0


def some_records(number: int = 60) -> list[Record]:
    """With duplicates, labels that nobody declared, and users of several labels."""
    source = random.Random(5)
    return [
        Record(
            text=f'text {source.randrange(number)}',
            label=source.choice(['a', 'a', 'b', 'c', 'undeclared']),
            unit=f'user {source.randrange(15)}',
        )
        for _ in range(number)
    ]


def slow_counts(records: list[Record], unit: Unit) -> list[int]:
    """Slow twin: each unit under the label of its record with the smallest keyed hash."""
    declared = [record for record in records if record.label in LABELS]
    key = RunKey(SECRET)
    if unit == 'example':
        labels = [record.label for record in declared]
    else:
        of_units = collections.defaultdict(list)
        for record in declared:
            of_units[record.unit].append((batching.record_hash(key, record), record.label))
        labels = [min(of_unit)[1] for of_unit in of_units.values()]
    return [labels.count(label) for label in LABELS]


def drawn(records: list[Record], work_dir: str, unit: Unit, **changed: Any) -> BatchPlan:
    """The plan of a real run, which counts, and the number of units that training would have."""
    k = 3 if unit == 'user' else 1
    settings: dict[str, Any] = {
        'labels': LABELS, 'rho': WITHOUT_NOISE, 'work_dir': work_dir, 'texts': 30, 'together': 4,
        'unit': unit,
    }  # fmt: skip
    with pipeline() as p:
        read = p | beam.Create(records) | beam.Reshuffle()
        _ = read | DrawLabelMix(**(settings | changed))
        units = read | SelectUnits(LABELS, work_dir, of_users=unit == 'user', k=k)
        trained = units | beam.Map(lambda row: row[1]) | beam.combiners.Count.PerElement()
        expected = zip(LABELS, slow_counts(records, unit), strict=True)
        util.assert_that(trained, util.equal_to([pair for pair in expected if pair[1]]))
    return BatchPlan.from_json(pathlib.Path(work_dir, 'plan.json').read_text())


@pytest.mark.first
@pytest.mark.run
@pytest.mark.parametrize('unit', ['example', 'user'])
def test_a_unit_counts_once_under_the_label_that_it_is_trained_on(work_dir: str, unit: Unit) -> None:
    records = some_records()
    plan = drawn(records, work_dir, unit)
    assert list(plan.noisy_counts or ()) == slow_counts(records, unit)
    assert plan.contexts_rho == WITHOUT_NOISE and sum(plan.noisy_counts or ()) > 10
    # Taking any one unit away moves one count, by one: here three of them, of several records.
    for taken in records[:30:10]:
        rest = [
            record
            for record in records
            if (record.unit != taken.unit if unit == 'user' else record is not taken)
        ]
        pathlib.Path(work_dir, 'plan.json').unlink()
        moved = drawn(rest, work_dir, unit)
        pairs = zip(plan.noisy_counts or (), moved.noisy_counts or (), strict=True)
        differences = [one - other for one, other in pairs]
        declared = taken.label in LABELS or unit == 'user'
        assert sorted(differences) == ([0, 0, 1] if declared else [0, 0, 0])
    # Counting each record of a user would move several.
    if unit == 'user':
        by_record = [sum(record.label == label for record in records) for label in LABELS]
        assert by_record != list(plan.noisy_counts or ())


@pytest.mark.first
@pytest.mark.run
def test_the_mix_is_drawn_once_and_belongs_to_its_run(work_dir: str) -> None:
    records = some_records()
    first = drawn(records, work_dir, 'example', rho=0.005)
    assert first.noisy_counts is not None and sum(first.batches_per_group) >= 8
    # A later caller reads it, with other records even.
    assert drawn(records[:20], work_dir, 'example', rho=0.005) == first
    # A lost file is drawn the same again.
    pathlib.Path(work_dir, 'plan.json').unlink()
    assert drawn(records, work_dir, 'example', rho=0.005) == first
    for changed in ({'rho': 0.5}, {'labels': ('a', 'c', 'b')}):
        with pytest.raises(Exception, match='Expected the batch plan of this run'):
            drawn(records, work_dir, 'example', **({'rho': 0.005} | changed))
    with pytest.raises(ValueError, match='rho > 0'):
        DrawLabelMix(LABELS, 0.0, work_dir, texts=3, together=1)
