"""Tests of the counts, the plan and the batches, on a local runner against slow twins."""

import collections
import dataclasses
import json
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
from models.batching import BatchPlan, Clustering
from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from models.records import Batch, Record
from tests import oracles
from tests.samples import CLUSTERED, LABELS, MODES, PLAN, SECRET, in_clusters, keep_batch, pipeline
from transforms import assign, durable, read

CENTERS = 3
SLOTS = 4


@pytest.fixture
def work_dir(tmp_path: pathlib.Path) -> str:
    durable.write_key(str(tmp_path), RunKey(SECRET))
    (tmp_path / durable.ERRORS_FOLDER).mkdir()
    return str(tmp_path)


def some_records(number: int = 60) -> list[Record]:
    """Records with duplicates, undeclared labels, and users of several labels."""
    source = random.Random(3)
    return [
        Record(
            text=f'text {source.randrange(number)} ' + 'é' * source.randrange(30),
            label=source.choice(['a', 'a', 'b', 'undeclared']),
            unit=f'user {source.randrange(15)}',
        )
        for _ in range(number)
    ]


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
def test_every_planned_batch_of_every_cluster_emits_without_any_record(work_dir: str) -> None:
    undeclared = [Record(text='x', label='undeclared', unit='u')]
    for records in ([], undeclared):
        batches = run(records, work_dir, 'user', 1, plan=CLUSTERED)
        assert [batch.batch_id for batch in batches] == list(CLUSTERED.batch_ids())
        assert [batch.label for batch in batches] == ['a'] * 5 + ['b'] * 5
        assert {batch.contexts for batch in batches} == {()}


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
    monkeypatch.setattr(assign.batching, 'place', fail)
    monkeypatch.setattr(assign.batching, 'record_hash', fail)
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
        ('--direct_num_workers=2', '--direct_running_mode=multi_threading'),
        ('--direct_runner_bundle_repeat=1',),
        ('--runner=BundleBasedDirectRunner',),
    ],
    ids=['two workers', 'every bundle twice', 'bundle by bundle'],
)
def test_how_the_work_is_spread_changes_nothing(work_dir: str, flags: tuple[str, ...]) -> None:
    records = some_records()
    expected = oracles.batches(records, PLAN, SECRET, unit='user', k=2, slots=SLOTS)
    assert run(records, work_dir, 'user', 2, flags=flags) == expected


@pytest.mark.run
@pytest.mark.parametrize('unit', ['example', 'user'])
def test_every_planned_batch_emits_without_any_record(work_dir: str, unit: Unit) -> None:
    undeclared = [Record(text='x', label='undeclared', unit='u'), Record(text='x', label=None, unit='u')]
    for records in ([], undeclared):
        batches = run(records, work_dir, unit, 1)
        assert [batch.batch_id for batch in batches] == list(PLAN.batch_ids())
        assert [batch.label for batch in batches] == ['a', 'a', 'a', 'b', 'b']
        assert {batch.contexts for batch in batches} == {()}


@pytest.mark.run
def test_an_undeclared_label_cannot_win_the_group_of_a_unit(work_dir: str) -> None:
    records = [Record(text=f'text {number}', label='undeclared', unit='u') for number in range(20)]
    batches = run([*records, Record(text='declared', label='b', unit='u')], work_dir, 'user', 3)
    (context,) = [context for batch in batches for context in batch.contexts]
    assert context.texts == ('declared',)


@pytest.mark.run
@pytest.mark.parametrize(('unit', 'k'), MODES)
def test_sharding_of_the_files_changes_nothing(work_dir: str, unit: Unit, k: int) -> None:
    records = some_records()
    fields = read.RecordFields(text='text', label='label', unit='unit' if unit == 'user' else None)
    rules = read.RecordRules(fields=fields, labels=LABELS, unit=unit)
    found = []
    for shards in (1, 5):
        folder = pathlib.Path(tempfile.mkdtemp(dir=work_dir))
        out = folder / 'out'
        out.mkdir()
        for shard in range(shards):
            rows = [{'text': r.text, 'label': r.label, 'unit': r.unit} for r in records[shard::shards]]
            (folder / f'{shard}.jsonl').write_text('\n'.join(json.dumps(row) for row in rows))
        with pipeline() as p:
            read_records, _ = p | read.ReadRecords(f'{folder}/*.jsonl', rules)
            batches = read_records | assign.AssignBatches(PLAN, work_dir, SLOTS, unit, k)
            batches | beam.Map(keep_batch, str(out))
        found.append([path.read_bytes() for path in sorted(out.iterdir())])
    assert found[0] == found[1]
    expected = oracles.batches(records, PLAN, SECRET, unit=unit, k=k, slots=SLOTS)
    assert [pickle.loads(batch) for batch in found[0]] == expected


@pytest.mark.run
@pytest.mark.parametrize(('unit', 'k'), MODES)
def test_removing_one_unit_changes_exactly_one_batch(work_dir: str, unit: Unit, k: int) -> None:
    records = some_records()
    before = run(records, work_dir, unit, k)
    # One whose text is in a batch: under k > 1 a full slot may have no room for some.
    held = {text for batch in before for context in batch.contexts for text in context.texts}
    removed = next(record for record in records if record.text in held and record.label in LABELS)
    if unit == 'user':
        rest = [record for record in records if record.unit != removed.unit]
    else:
        rest = [record for record in records if record is not removed]
    after = run(rest, work_dir, unit, k)
    (differing,) = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    lost, gained = (list(batch.contexts) for batch in differing)
    for context in differing[1].contexts:
        if context in lost:
            lost.remove(context)
            gained.remove(context)
    assert len(lost) == 1
    assert len(gained) <= (1 if unit == 'example' and k > 1 else 0)


def test_shuffles_use_no_coder_that_guesses(work_dir: str, caplog: pytest.LogCaptureFixture) -> None:
    p = beam.Pipeline(options=PipelineOptions(['--runner=FnApiRunner']))
    records = p | beam.Create(some_records()).with_output_types(Record)
    plan_path = f'{work_dir}/plan.json'
    true_counts = records | assign.CountContexts(LABELS, work_dir, 'user')
    plan = true_counts | assign.DrawPlan(plan_path, LABELS, 1.0, SLOTS, 'user')
    for unit, k in MODES:
        records | f'Assign {unit} {k}' >> assign.AssignBatches(plan, work_dir, SLOTS, unit, k)
    clustering = p | 'Clustering' >> beam.Create([CLUSTERED.clustering])
    cells = records | 'Count cells' >> assign.CountContexts(LABELS, work_dir, 'user', CENTERS)
    plan = cells | 'Plan of clusters' >> assign.DrawPlan(
        plan_path, LABELS, 1.0, SLOTS, 'user', clustering=clustering
    )
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


# --- Counts and the plan ---------------------------------------------------------


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
        true_counts = p | beam.Create(records) | assign.CountContexts(LABELS, work_dir, unit)
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
        true_counts = p | beam.Create(records) | assign.CountContexts(LABELS, work_dir, unit, CENTERS)
        util.assert_that(true_counts, util.equal_to([expected]))
    assert len(expected) == 6
    if number:
        assert sum(expected) == sum(slow_counts(records, unit)) and min(expected[::2]) > 0


def count_cells(records: list[Record], unit: Unit, centers: int | None) -> list[int]:
    """What `CountContexts` wires, without Beam."""
    counter = assign._CountPerCell(LABELS, centers)
    groups = [(record.label, record.cluster) for record in records]
    if unit == 'user':
        key = RunKey(SECRET)
        units: dict[bytes, list[batching.Candidate]] = collections.defaultdict(list)
        doer = assign.KeyByUnit('no file', text_limit=0)
        doer._key = key
        for record in records:
            for digest, candidate in doer.process(record, LABELS):
                units[digest].append(candidate)
        first = assign.SmallestRecords(1)
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


@pytest.mark.run
@pytest.mark.parametrize('wrong', [None, -1, CENTERS])
def test_a_record_in_no_cluster_is_not_left_out_of_the_counts(work_dir: str, wrong: int | None) -> None:
    records = [Record(text='secret', label='a', cluster=wrong)]
    with pytest.raises(Exception, match='one of centers=3 clusters') as caught, pipeline() as p:
        p | beam.Create(records) | assign.CountContexts(LABELS, work_dir, 'example', CENTERS)
    assert 'secret' not in str(caught.value)
    with pytest.raises(ValueError, match='centers >= 1, got centers=0'):
        assign.CountContexts(LABELS, work_dir, 'example', 0)


@pytest.mark.run
def test_a_run_without_labels_has_one_group(work_dir: str) -> None:
    with pipeline() as p:
        records = p | beam.Create([Record(text='x'), Record(text='x'), Record(text='y')])
        true_counts = records | assign.CountContexts((None,), work_dir)
        util.assert_that(true_counts, util.equal_to([[3]]))


def test_the_noise_is_drawn_once_in_the_life_of_a_work_directory(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / 'plan.json')
    arguments = {'labels': LABELS, 'rho': 0.0005, 'contexts_per_batch': 10}
    first = assign.draw_plan([1000, 2000], path, **arguments)
    # Scale 32: two draws of two counts are equal with odds below 1e-3 each, so 20 never are.
    for _ in range(20):
        assert assign.draw_plan([1000, 2000], path, **arguments) == first
    written = (tmp_path / 'plan.json').read_bytes()
    assert BatchPlan.from_json(written.decode()) == first
    assert assign.read_plan(path) == first
    assert [file.name for file in tmp_path.iterdir()] == ['plan.json']
    assert first.noisy_counts is not None
    assert first.batches_per_group == tuple(max(1, round(noisy / 10)) for noisy in first.noisy_counts)
    assert first.contexts_rho == 0.0005


def test_a_plan_that_appears_while_the_noise_is_drawn_wins(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / 'plan.json'
    other = BatchPlan(labels=LABELS, batches_per_group=(7, 7), noisy_counts=(70, 70), contexts_rho=0.5)
    draw = assign.counts.noisy_counts

    def slow_draw(true_counts: list[int], rho: float) -> list[int]:
        path.write_text(other.to_json())
        return draw(true_counts, rho)

    monkeypatch.setattr(assign.counts, 'noisy_counts', slow_draw)
    assert assign.draw_plan([1, 1], str(path), labels=LABELS, rho=0.5, contexts_per_batch=10) == other
    assert [file.name for file in tmp_path.iterdir()] == ['plan.json']


@pytest.mark.parametrize('changed', [{'labels': ('a', 'c')}, {'rho': 0.6}])
def test_a_plan_of_another_run_is_refused(tmp_path: pathlib.Path, changed: dict) -> None:
    arguments = {'labels': LABELS, 'rho': 0.5, 'contexts_per_batch': 10}
    path = str(tmp_path / 'plan.json')
    assign.draw_plan([5, 5], path, **arguments)
    with pytest.raises(ValueError, match='the batch plan of this run'):
        assign.draw_plan([5, 5], path, **arguments | changed)


def test_a_plan_of_clusters_takes_the_counts_of_kept_centres(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / 'plan.json')
    clustering = CLUSTERED.clustering
    # Scale 0.07: a value other than the count has odds below 1e-40. Centres that are not kept have 7000.
    cells = [100, 7000, 200, 7000, 300, 400]
    arguments = {'labels': LABELS, 'rho': 100.0, 'contexts_per_batch': 10}
    plan = assign.draw_plan(cells, path, **arguments, clustering=clustering)
    assert plan.noisy_counts == (100, 200, 300, 400)
    assert plan.batches_per_group == (10, 20, 30, 40)
    assert plan.clustering == clustering and plan.contexts_rho == 100.0
    assert plan == assign.read_plan(path)
    other = dataclasses.replace(clustering, kept=((0, 1), (1, 2)))
    for wrong in (None, other):
        with pytest.raises(ValueError, match='the batch plan of this run'):
            assign.draw_plan(cells, path, **arguments, clustering=wrong)


@pytest.mark.parametrize('clustering', [None, CLUSTERED.clustering])
def test_counts_of_other_cells_are_refused_before_any_noise(
    tmp_path: pathlib.Path, clustering: Clustering | None
) -> None:
    for cells in ([5], [5] * 4, [5] * 7):
        with pytest.raises(ValueError, match='counts for each label'):
            assign.draw_plan(
                cells, str(tmp_path / 'plan.json'), labels=LABELS, rho=1.0, contexts_per_batch=10,
                clustering=clustering,
            )  # fmt: skip
    assert not list(tmp_path.iterdir())


@pytest.mark.run
@pytest.mark.parametrize(
    ('unit', 'k', 'batches'), [('example', 1, 100), ('example', 5, 20), ('user', 5, 100)]
)
def test_batches_are_planned_for_what_was_counted(
    tmp_path: pathlib.Path, work_dir: str, unit: Unit, k: int, batches: int
) -> None:
    path = str(tmp_path / 'plan.json')
    with pipeline() as p:
        # Scale 0.7: noise of 10 or more has odds below 1e-40 and would move no figure here.
        plan = p | beam.Create([[1000, 0]]) | assign.DrawPlan(path, LABELS, 1.0, 10, unit, k)
        assert plan.element_type is BatchPlan
        figures = plan | beam.Map(lambda plan: plan.batches_per_group)
        util.assert_that(figures, util.equal_to([(batches, 1)]))


def test_the_run_key_is_read_by_workers_and_not_when_the_pipeline_is_built(tmp_path: pathlib.Path) -> None:
    p = beam.Pipeline(options=PipelineOptions(['--runner=FnApiRunner']))
    absent = str(tmp_path / 'absent')
    records = p | beam.Create(some_records())
    records | assign.CountContexts(LABELS, absent, 'user')
    records | assign.AssignBatches(PLAN, absent, SLOTS, 'user', 2)
    assert p.to_runner_api().components.transforms


@pytest.mark.run
def test_a_run_key_that_others_can_read_stops_the_run(work_dir: str) -> None:
    pathlib.Path(work_dir, durable.RUN_KEY).chmod(0o644)
    with pytest.raises(Exception, match='readable by its owner alone'):
        run(some_records(), work_dir, 'example', 1)
