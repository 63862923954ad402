"""Tests of batch assignment: METHOD 1 to 3 against a slow twin, and the neighbouring relation."""

import collections
import dataclasses
import itertools
import random

import hypothesis
import pytest
from hypothesis import strategies as st

from models import batching
from models.batch_plan import BatchPlan
from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from models.records import Batch, BatchId, Record
from tests import oracles
from tests.samples import CLUSTERED, PLAN, SECRET, in_clusters

KEY = RunKey(SECRET)
MODES: list[tuple[Unit, int]] = [('example', 1), ('example', 3), ('user', 1), ('user', 2)]
SLOTS = 4
PLANS = pytest.mark.parametrize('plan', [PLAN, CLUSTERED], ids=['labels', 'clusters'])

# Few values, so that duplicates, shared units and shared texts are common.
RECORDS = st.lists(
    st.builds(
        Record,
        text=st.sampled_from(['x', 'y', 'z', 'é', 'long text']) | st.text(min_size=1, max_size=3),
        label=st.sampled_from(['a', 'b', 'undeclared']),
        unit=st.sampled_from(['u1', 'u2', 'u3', 'u4', 'u5']),
        record_id=st.none() | st.sampled_from(['1', '2']),
    ),
    max_size=25,
)


def assign(records: list[Record], plan: BatchPlan, unit: Unit, k: int) -> list[Batch]:
    """The functions under test, wired as a pipeline would, without one."""
    rows: dict[BatchId, list[batching.Row]] = {batch_id: [] for batch_id in plan.batch_ids()}
    units: dict[bytes, list[batching.Candidate]] = collections.defaultdict(list)
    for record in records:
        if unit == 'example':
            placed = batching.place(KEY, record, plan)
            if placed is not None:
                rows[placed[0]].append((placed[1], [record.text]))
        elif record.label in plan.labels:
            candidate = (batching.record_hash(KEY, record), record.text, record.label, record.cluster)
            units[batching.unit_hash(KEY, record.unit or '')].append(candidate)
    for digest, candidates in units.items():
        label, cluster, texts = batching.unit_context(candidates, k)
        group = plan.group_of(label, cluster)
        assert group is not None
        rows[batching.batch_of(digest, group, plan)].append((digest, texts))
    return [
        batching.form_batch(KEY, batch_id, held, plan, unit=unit, slots=SLOTS, k=k)
        for batch_id, held in rows.items()
    ]


@pytest.mark.first
@pytest.mark.heavy
@PLANS
@pytest.mark.parametrize(('unit', 'k'), MODES)
@hypothesis.given(records=RECORDS)
def test_assignment_equals_the_slow_twin(records: list[Record], plan: BatchPlan, unit: Unit, k: int) -> None:
    records = in_clusters(records, plan)
    assert assign(records, plan, unit, k) == oracles.batches(
        records, plan, SECRET, unit=unit, k=k, slots=SLOTS
    )


@pytest.mark.first
@pytest.mark.heavy
@PLANS
@pytest.mark.parametrize(('unit', 'k'), MODES)
@hypothesis.given(records=RECORDS, seed=st.integers())
def test_order_of_the_input_changes_nothing(
    records: list[Record], seed: int, plan: BatchPlan, unit: Unit, k: int
) -> None:
    records = in_clusters(records, plan)
    shuffled = random.Random(seed).sample(records, len(records))
    assert assign(shuffled, plan, unit, k) == assign(records, plan, unit, k)


def changes(before: list[Batch], after: list[Batch]) -> list[tuple[collections.Counter, collections.Counter]]:
    """For each batch that differs, (contexts lost, contexts gained)."""
    assert [batch.batch_id for batch in before] == [batch.batch_id for batch in after]
    pairs = [
        (collections.Counter(b.contexts), collections.Counter(a.contexts))
        for b, a in zip(before, after, strict=True)
    ]
    return [(old - new, new - old) for old, new in pairs if old != new]


@pytest.mark.first
@pytest.mark.heavy
@PLANS
@pytest.mark.parametrize(('unit', 'k'), MODES)
@hypothesis.given(records=RECORDS.filter(bool), data=st.data())
def test_removing_one_unit_changes_at_most_one_context_of_one_batch(
    records: list[Record], data: st.DataObject, plan: BatchPlan, unit: Unit, k: int
) -> None:
    records = in_clusters(records, plan)
    removed = data.draw(st.sampled_from(records))
    if unit == 'user':
        rest = [record for record in records if record.unit != removed.unit]
    else:
        rest = list(records)
        rest.remove(removed)
    counted = any(
        record.label in plan.labels
        for record in records
        if record == removed or (unit == 'user' and record.unit == removed.unit)
    )
    differing = changes(assign(records, plan, unit, k), assign(rest, plan, unit, k))
    if unit == 'example' and k > 1:
        # A record that its slot had no room for leaves no trace; any other changes one slot,
        # which is replaced unless it held that record alone.
        assert len(differing) <= (1 if counted else 0)
        for lost, gained in differing:
            assert lost.total() == 1
            assert gained.total() <= 1
            assert {context.context_hash for context in gained} <= {context.context_hash for context in lost}
    else:
        assert len(differing) == (1 if counted else 0)
        for lost, gained in differing:
            assert (lost.total(), gained.total()) == (1, 0)


def test_removing_a_record_of_a_full_slot_lets_the_next_one_in() -> None:
    plan = BatchPlan(labels=(None,), batches_per_group=(1,), noisy_counts=None, contexts_rho=0.0)
    records = [Record(text=f'text {number}') for number in range(40)]
    before = batching_example_k2(records, plan)
    first = next(context for context in before.contexts if len(context.texts) == 2)
    after = batching_example_k2([record for record in records if record.text != first.texts[0]], plan)
    ((lost, gained),) = changes([before], [after])
    assert lost.total() == gained.total() == 1
    (replaced,) = gained
    assert replaced.context_hash == first.context_hash
    assert replaced.texts[0] == first.texts[1]
    assert len(replaced.texts) == 2


def batching_example_k2(records: list[Record], plan: BatchPlan) -> Batch:
    rows = [(batching.record_hash(KEY, record), [record.text]) for record in records]
    return batching.form_batch(KEY, BatchId(group=0, index=0), rows, plan, unit='example', slots=SLOTS, k=2)


def test_duplicates_stay_separate_contexts_and_ids_spread_them() -> None:
    plan = BatchPlan(labels=(None,), batches_per_group=(50,), noisy_counts=None, contexts_rho=0.0)
    same = assign([Record(text='same')] * 30, plan, 'example', 1)
    assert sorted(len(batch.contexts) for batch in same) == [0] * 49 + [30]
    spread = assign([Record(text='same', record_id=str(number)) for number in range(30)], plan, 'example', 1)
    assert sum(len(batch.contexts) for batch in spread) == 30
    assert max(len(batch.contexts) for batch in spread) < 10


def test_a_sample_takes_each_unit_with_its_rate_and_keeps_units_whole() -> None:
    records = [Record(text=f'text {number}') for number in range(7_000)]
    kept = [record for record in records if batching.is_sampled(KEY, record, 0.1)]
    # Six standard deviations; the key is fixed, so this is no matter of luck.
    assert abs(len(kept) - 700) < 6 * (700 * 0.9) ** 0.5
    assert all(batching.is_sampled(KEY, record, 1.0) for record in records)
    # A larger sample holds the smaller one, and another key draws another.
    assert all(batching.is_sampled(KEY, record, 0.2) for record in kept)
    assert not all(batching.is_sampled(RunKey(bytes(32)), record, 0.1) for record in kept)
    for user in range(50):
        rows = [Record(text=f'text {row}', unit=f'user {user}', label=str(row)) for row in range(5)]
        assert len({batching.is_sampled(KEY, row, 0.5) for row in rows}) == 1


def test_who_is_sampled_says_nothing_of_who_shares_a_batch() -> None:
    plan = BatchPlan(labels=(None,), batches_per_group=(2,), noisy_counts=None, contexts_rho=0.0)
    records = [Record(text=f'text {number}') for number in range(7_000)]
    table = collections.Counter(
        (batching.is_sampled(KEY, record, 0.5), batching.place(KEY, record, plan)[0].index)
        for record in records
    )
    assert len(table) == 4
    assert all(abs(count - 1750) < 6 * (7_000 * 3 / 16) ** 0.5 for count in table.values())


def test_batches_are_filled_evenly() -> None:
    plan = BatchPlan(labels=(None,), batches_per_group=(7,), noisy_counts=None, contexts_rho=0.0)
    records = [Record(text=f'text {number}') for number in range(7_000)]
    sizes = collections.Counter(batching.place(KEY, record, plan)[0].index for record in records)
    # Six standard deviations; the key is fixed, so this is no matter of luck.
    assert all(abs(sizes[index] - 1000) < 6 * 1000**0.5 for index in range(7))
    slots = collections.Counter(
        batching.slot_of(batching.record_hash(KEY, record), 7, 10) for record in records
    )
    assert all(abs(slots[slot] - 700) < 6 * 700**0.5 for slot in range(10))


@hypothesis.given(
    candidates=st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=1),
            st.sampled_from(['x', 'y']),
            st.sampled_from(['a', 'b']),
            st.none(),
        ),
        max_size=20,
    ),
    cut=st.integers(0, 20),
    k=st.integers(1, 4),
)
def test_keeping_the_smallest_in_parts_equals_keeping_them_at_once(
    candidates: list[batching.Candidate], cut: int, k: int
) -> None:
    parts = batching.keep_smallest(candidates[:cut], k) + batching.keep_smallest(candidates[cut:], k)
    # Hashes cannot be equal across labels outside of this test; order only what is.
    assert sorted(batching.keep_smallest(parts, k)) == sorted(batching.keep_smallest(candidates, k))


# --- Groups of clusters ----------------------------------------------------------


def test_groups_go_label_by_label_and_then_by_kept_centre() -> None:
    assert CLUSTERED.group_names == (('a', 0), ('a', 2), ('b', 1), ('b', 2))
    assert CLUSTERED.group_labels == ('a', 'a', 'b', 'b')
    assert PLAN.group_names == (('a', None), ('b', None))
    assert [batch_id.group for batch_id in CLUSTERED.batch_ids()] == [0] * 3 + [1] * 2 + [2] + [3] * 4
    assert [batch.label for batch in assign([], CLUSTERED, 'example', 1)] == ['a'] * 5 + ['b'] * 5


def test_a_record_goes_to_the_group_of_its_label_and_cluster() -> None:
    for group, (label, cluster) in enumerate(CLUSTERED.group_names):
        record = Record(text='text', label=label, cluster=cluster)
        placed = batching.place(KEY, record, CLUSTERED)
        assert placed is not None and placed[0].group == group
        # The hash is the same in every group: only the modulus is the group's.
        digest = batching.record_hash(KEY, Record(text='text', label=label))
        assert placed[0].index == int.from_bytes(digest, 'little') % CLUSTERED.batches_per_group[group]
    assert batching.place(KEY, Record(text='text', label='undeclared', cluster=0), CLUSTERED) is None
    # Without clusters in the plan, a record's cluster plays no part.
    assert batching.place(KEY, Record(text='text', label='a', cluster=7), PLAN) == batching.place(
        KEY, Record(text='text', label='a'), PLAN
    )


@pytest.mark.parametrize('cluster', [None, 1])
def test_a_record_outside_of_the_kept_clusters_is_an_error_and_never_lost(cluster: int | None) -> None:
    with pytest.raises(RuntimeError, match='cluster that its label keeps'):
        batching.place(KEY, Record(text='secret', label='a', cluster=cluster), CLUSTERED)


def test_a_units_first_record_decides_its_cluster_and_others_join_by_label_alone() -> None:
    candidates: list[batching.Candidate] = [
        (b'2', 'second', 'a', 2),
        (b'1', 'other label', 'b', 1),
        (b'0', 'first', 'a', 0),
        (b'3', 'third', 'a', 0),
    ]
    for order in itertools.permutations(candidates):
        assert batching.unit_context(order, 2) == ('a', 0, ['first', 'second'])
        assert batching.unit_context(order, 9) == ('a', 0, ['first', 'second', 'third'])


# Every text with every label; the clusters follow from both.
POSSIBLE = [Record(text=text, label=label) for text in 'xy' for label in ('a', 'b', 'undeclared')]
PAIRS = [[one, other] for one in POSSIBLE for other in POSSIBLE]


@pytest.mark.parametrize(('unit', 'k'), [('example', 1), ('user', 1), ('user', 2)])
def test_any_unit_more_adds_one_context_to_one_batch(unit: Unit, k: int) -> None:
    """The neighbouring relation given the plan, exhaustively: any unit joins any other of two records."""
    for held in [[], *PAIRS]:
        held = in_clusters([dataclasses.replace(record, unit='held') for record in held], CLUSTERED)
        before = assign(held, CLUSTERED, unit, k)
        for joining in PAIRS if unit == 'user' else [[record] for record in POSSIBLE]:
            joined = in_clusters([dataclasses.replace(record, unit='new') for record in joining], CLUSTERED)
            differing = changes(before, assign([*held, *joined], CLUSTERED, unit, k))
            declared = any(record.label in CLUSTERED.labels for record in joined)
            assert [(lost.total(), gained.total()) for lost, gained in differing] == [(0, 1)] * declared
