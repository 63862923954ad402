"""The batches, on a local runner against slow twins."""

import pathlib
import pickle
import random
import tempfile
import traceback

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners import pipeline_context
from apache_beam.testing import util

from models import batching
from models.batch_plan import BatchPlan
from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from models.records import Batch, Record
from tests import oracles
from tests.samples import CLUSTERED, LABELS, MODES, PLAN, SECRET, in_clusters, keep_batch, pipeline
from tests.transforms.samples import CENTERS, SLOTS, some_records
from transforms import assign, count, durable
from transforms.plan import DrawPlan


def run(
    records: list[Record], work_dir: str, unit: Unit, k: int, *,
    plan: BatchPlan = PLAN, text_limit: int | None = None, flags: tuple[str, ...] = (),
) -> list[Batch]:  # fmt: skip
    """The batches of a real run, sorted by batch id, since no runner promises an order."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=work_dir))
    with pipeline(*flags) as p:
        batches = (
            p
            | beam.Create(records)
            | beam.Reshuffle()
            | assign.AssignBatches(plan, work_dir, SLOTS, unit, k, text_limit)
        )
        assert batches.element_type is Batch
        batches | beam.Map(keep_batch, str(folder))
        names = batches | beam.Map(lambda batch: batch.batch_id)
        util.assert_that(names, util.equal_to(list(plan.batch_ids())))
    return [pickle.loads(path.read_bytes()) for path in sorted(folder.iterdir())]


@pytest.mark.run
@pytest.mark.parametrize(('unit', 'k'), MODES)
def test_batches_equal_the_slow_twin_whatever_the_order(work_dir: str, unit: Unit, k: int) -> None:
    records = some_records()
    expected = oracles.batches(records, PLAN, SECRET, unit=unit, k=k, slots=SLOTS)
    assert sum(len(batch.contexts) for batch in expected) > 10
    assert run(records, work_dir, unit, k) == expected
    random.Random(0).shuffle(records)
    assert run(records, work_dir, unit, k) == expected
    # A text is cut after it has been hashed: nothing moves.
    short = oracles.batches(records, PLAN, SECRET, unit=unit, k=k, slots=SLOTS, text_limit=6)
    assert short != expected
    assert run(records, work_dir, unit, k, text_limit=6) == short


@pytest.mark.run
@pytest.mark.parametrize(('unit', 'k'), MODES)
def test_batches_of_clusters_equal_the_slow_twin_whatever_the_order(
    work_dir: str, unit: Unit, k: int
) -> None:
    records = in_clusters(some_records(), CLUSTERED)
    expected = oracles.batches(records, CLUSTERED, SECRET, unit=unit, k=k, slots=SLOTS)
    assert sum(len(batch.contexts) > 0 for batch in expected) > 5
    assert run(records, work_dir, unit, k, plan=CLUSTERED) == expected
    random.Random(0).shuffle(records)
    assert run(records, work_dir, unit, k, plan=CLUSTERED) == expected
    # Clusters change the batches: the comparison above could tell.
    assert expected != oracles.batches(records, PLAN, SECRET, unit=unit, k=k, slots=SLOTS)


@pytest.mark.run
@pytest.mark.parametrize('unit', ['example', 'user'])
def test_a_record_without_a_kept_cluster_stops_the_run(work_dir: str, unit: Unit) -> None:
    for wrong in (None, 1):
        record = Record(text='secret', label='a', unit='u', cluster=wrong)
        with pytest.raises(Exception, match='find its batch|cluster that its label keeps') as caught:
            run([record], work_dir, unit, 1, plan=CLUSTERED)
        assert 'secret' not in str(caught.value)


@pytest.mark.run
def test_an_error_over_a_record_stays_with_the_curator(
    work_dir: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: RunKey, record: Record, *__: object) -> None:
        raise KeyError(record.text)

    records = [Record(text='secret', label='a', unit='u')]
    monkeypatch.setattr(batching, 'place', fail)
    monkeypatch.setattr(batching, 'record_hash', fail)
    for unit in ('example', 'user'):
        with pytest.raises(Exception, match='find its batch, got error=KeyError') as caught:
            run(records, work_dir, unit, 1)
        shown = ''.join(traceback.format_exception(caught.value)) + caplog.text
        assert 'secret' not in shown
    kept = [path.read_text() for path in pathlib.Path(work_dir, durable.ERRORS_FOLDER).iterdir()]
    assert len(kept) == 2 and all('secret' in text for text in kept)


@pytest.mark.run
@pytest.mark.parametrize(
    'flags',
    [
        ('--direct_num_workers=2',),
        ('--direct_runner_bundle_repeat=1',),
        ('--runner=BundleBasedDirectRunner',),
    ],
    ids=['two workers', 'every bundle twice', 'bundle by bundle'],
)
def test_how_the_work_is_spread_changes_nothing(work_dir: str, flags: tuple[str, ...]) -> None:
    records = some_records()
    expected = oracles.batches(records, PLAN, SECRET, unit='user', k=2, slots=SLOTS)
    assert run(records, work_dir, 'user', 2, flags=flags) == expected


@pytest.mark.first
@pytest.mark.run
@pytest.mark.parametrize('unit', ['example', 'user'])
@pytest.mark.parametrize('plan', [PLAN, CLUSTERED], ids=['labels', 'clusters'])
def test_every_planned_batch_emits_without_any_record(work_dir: str, plan: BatchPlan, unit: Unit) -> None:
    undeclared = [Record(text='x', label='undeclared', unit='u'), Record(text='x', label=None, unit='u')]
    for records in ([], undeclared):
        batches = run(records, work_dir, unit, 1, plan=plan)
        assert [batch.batch_id for batch in batches] == list(plan.batch_ids())
        assert [batch.label for batch in batches] == [
            plan.group_labels[batch_id.group] for batch_id in plan.batch_ids()
        ]
        assert {batch.contexts for batch in batches} == {()}


@pytest.mark.run
def test_an_undeclared_label_cannot_win_the_group_of_a_unit(work_dir: str) -> None:
    records = [Record(text=f'text {number}', label='undeclared', unit='u') for number in range(20)]
    batches = run([*records, Record(text='declared', label='b', unit='u')], work_dir, 'user', 3)
    (context,) = [context for batch in batches for context in batch.contexts]
    assert context.texts == ('declared',)


def test_shuffles_use_no_coder_that_guesses(work_dir: str, caplog: pytest.LogCaptureFixture) -> None:
    p = beam.Pipeline(options=PipelineOptions(['--runner=FnApiRunner']))
    records = p | beam.Create(some_records()).with_output_types(Record)
    true_counts = records | count.CountContexts(LABELS, work_dir, 'user')
    plan = true_counts | DrawPlan(work_dir, LABELS, 1.0, SLOTS, 'user')
    for unit, k in MODES:
        records | f'Assign {unit} {k}' >> assign.AssignBatches(plan, work_dir, SLOTS, unit, k)
    clustering = p | 'Clustering' >> beam.Create([CLUSTERED.clustering])
    cells = records | 'Count cells' >> count.CountContexts(LABELS, work_dir, 'user', CENTERS)
    plan = cells | 'Plan of clusters' >> DrawPlan(work_dir, LABELS, 1.0, SLOTS, 'user', clustering=clustering)
    for unit, k in MODES:
        records | f'Assign clusters {unit} {k}' >> assign.AssignBatches(plan, work_dir, SLOTS, unit, k)
    components = p.to_runner_api().components
    context = pipeline_context.PipelineContext(components)
    grouped = {
        transform.unique_name: components.pcollections[next(iter(transform.inputs.values()))].coder_id
        for transform in components.transforms.values()
        if transform.unique_name.endswith(('/GroupByBatch', '/FormContexts', '/FirstOfUnit'))
    }
    assert len(grouped) == 2 * (len(MODES) + 2 + 1)
    for name, coder_id in grouped.items():
        coder = context.coders[coder_id]
        # Beam's coders that guess or pickle are the ones that are not deterministic.
        assert coder.key_coder().is_deterministic(), name
        assert coder.value_coder().is_deterministic() or not name.endswith('/GroupByBatch'), name
    assert not any('coder' in record.getMessage() for record in caplog.records)


def test_the_run_key_is_read_by_workers_and_not_when_the_pipeline_is_built(tmp_path: pathlib.Path) -> None:
    p = beam.Pipeline(options=PipelineOptions(['--runner=FnApiRunner']))
    absent = str(tmp_path / 'absent')
    records = p | beam.Create(some_records())
    records | count.CountContexts(LABELS, absent, 'user')
    records | assign.AssignBatches(PLAN, absent, SLOTS, 'user', 2)
    assert p.to_runner_api().components.transforms


@pytest.mark.first
@pytest.mark.run
def test_a_run_key_that_others_can_read_stops_the_run(work_dir: str) -> None:
    pathlib.Path(work_dir, durable.RUN_KEY).chmod(0o644)
    with pytest.raises(Exception, match='readable by its owner alone'):
        run(some_records(), work_dir, 'example', 1)
