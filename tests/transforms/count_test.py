"""The counts of contexts, on a local runner against slow twins."""

import collections
import dataclasses

import apache_beam as beam
import pytest
from apache_beam.testing import util

from models import batching
from models.batch_plan import BatchPlan
from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from models.records import Record
from tests import oracles
from tests.samples import CLUSTERED, LABELS, SECRET, in_clusters, pipeline
from tests.transforms.samples import CENTERS, SLOTS, some_records
from transforms import count
from transforms.units import KeyByUnit, SmallestRecords


def slow_counts(records: list[Record], unit: Unit) -> list[int]:
    """Slow twin of `CountContexts`: the contexts of a plan with one batch per label."""
    plan = BatchPlan(labels=LABELS, batches_per_group=(1, 1), noisy_counts=None, contexts_rho=0.0)
    return [
        len(batch.contexts) for batch in oracles.batches(records, plan, SECRET, unit=unit, k=1, slots=SLOTS)
    ]


@pytest.mark.run
@pytest.mark.parametrize('unit', ['example', 'user'])
@pytest.mark.parametrize('number', [0, 60])
def test_contexts_are_counted_per_label(work_dir: str, unit: Unit, number: int) -> None:
    records = some_records(number) if number else []
    with pipeline() as p:
        true_counts = p | beam.Create(records) | count.CountContexts(LABELS, work_dir, unit)
        util.assert_that(true_counts, util.equal_to([slow_counts(records, unit)]))
    if number and unit == 'user':
        assert sum(slow_counts(records, unit)) == 15


@pytest.mark.run
@pytest.mark.parametrize('unit', ['example', 'user'])
@pytest.mark.parametrize('number', [0, 60])
def test_contexts_are_counted_per_label_and_cluster(work_dir: str, unit: Unit, number: int) -> None:
    records = in_clusters(some_records(number), CLUSTERED) if number else []
    expected = oracles.histogram(records, LABELS, range(CENTERS), SECRET, unit=unit)
    with pipeline() as p:
        true_counts = p | beam.Create(records) | count.CountContexts(LABELS, work_dir, unit, CENTERS)
        util.assert_that(true_counts, util.equal_to([expected]))
    assert len(expected) == 6
    if number:
        assert sum(expected) == sum(slow_counts(records, unit)) and min(expected[::2]) > 0


def count_cells(records: list[Record], unit: Unit, centers: int | None) -> list[int]:
    """The counts of what `CountContexts` wires, without Beam."""
    counter = count._CountPerCell(LABELS, centers)
    groups = [(record.label, record.cluster) for record in records]
    if unit == 'user':
        key = RunKey(SECRET)
        units: dict[bytes, list[batching.Candidate]] = collections.defaultdict(list)
        doer = KeyByUnit('no file', text_limit=0)
        doer._key = key
        for record in records:
            for digest, candidate in doer.process(record, LABELS):
                units[digest].append(candidate)
        first = SmallestRecords(1)
        groups = [first.extract_output(first.merge_accumulators([held, []]))[:2] for held in units.values()]
    cells = counter.create_accumulator()
    for group in groups:
        cells = counter.add_input(cells, group)
    return counter.merge_accumulators([cells, counter.create_accumulator()])


@pytest.mark.parametrize('centers', [None, CENTERS])
@pytest.mark.parametrize('unit', ['example', 'user'])
def test_any_unit_more_moves_one_cell_by_one(unit: Unit, centers: int | None) -> None:
    """The sensitivity of both histograms, exhaustively: any unit joins any other of two records."""
    possible = [Record(text=text, label=label) for text in 'xy' for label in (*LABELS, 'undeclared')]
    pairs = [[one, other] for one in possible for other in possible]
    clusters = range(CENTERS) if centers else [None]
    for held in [[], *pairs]:
        held = [dataclasses.replace(record, unit='held') for record in held]
        for joining in pairs if unit == 'user' else [[record] for record in possible]:
            joined = [*held, *(dataclasses.replace(record, unit='new') for record in joining)]
            if centers:
                held, joined = in_clusters(held, CLUSTERED), in_clusters(joined, CLUSTERED)
            before, after = count_cells(held, unit, centers), count_cells(joined, unit, centers)
            assert after == oracles.histogram(joined, LABELS, clusters, SECRET, unit=unit)
            moved = [new - old for old, new in zip(before, after, strict=True) if new != old]
            assert moved == [1] * any(record.label in LABELS for record in joining)


@pytest.mark.first
@pytest.mark.run
@pytest.mark.parametrize('wrong', [None, -1, CENTERS])
def test_a_record_in_no_cluster_is_not_left_out_of_the_counts(work_dir: str, wrong: int | None) -> None:
    records = [Record(text='secret', label='a', cluster=wrong)]
    with pytest.raises(Exception, match='one of centers=3 clusters') as caught, pipeline() as p:
        p | beam.Create(records) | count.CountContexts(LABELS, work_dir, 'example', CENTERS)
    assert 'secret' not in str(caught.value)
    with pytest.raises(ValueError, match='centers >= 1, got centers=0'):
        count.CountContexts(LABELS, work_dir, 'example', 0)


@pytest.mark.run
def test_a_run_without_labels_has_one_group(work_dir: str) -> None:
    with pipeline() as p:
        records = p | beam.Create([Record(text='x'), Record(text='x'), Record(text='y')])
        true_counts = records | count.CountContexts((None,), work_dir)
        util.assert_that(true_counts, util.equal_to([[3]]))
