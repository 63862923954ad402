"""Tests of batch assignment: METHOD 1 and 2 against a slow twin, and the neighbouring relation."""

import collections
import random

import hypothesis
import pytest
from hypothesis import strategies as st

from models import batching
from models.batching import BatchPlan
from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from models.records import Batch, BatchId, Record
from tests import oracles

SECRET = bytes(range(32))
KEY = RunKey(SECRET)
MODES: list[tuple[Unit, int]] = [('example', 1), ('example', 3), ('user', 1), ('user', 2)]
SLOTS = 4
PLAN = BatchPlan(labels=('a', 'b'), batches_per_group=(3, 2), noisy_counts=None, contexts_rho=0.0)

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
            candidate = (batching.record_hash(KEY, record), record.text, record.label)
            units[batching.unit_hash(KEY, record.unit or '')].append(candidate)
    for digest, candidates in units.items():
        label, texts = batching.unit_context(candidates, k)
        rows[batching.batch_of(digest, plan.groups[label], plan)].append((digest, texts))
    return [
        batching.form_batch(KEY, batch_id, held, plan, unit=unit, slots=SLOTS, k=k)
        for batch_id, held in rows.items()
    ]


@pytest.mark.parametrize(('unit', 'k'), MODES)
@hypothesis.given(records=RECORDS)
def test_assignment_equals_the_slow_twin(records: list[Record], unit: Unit, k: int) -> None:
    assert assign(records, PLAN, unit, k) == oracles.batches(
        records, PLAN, SECRET, unit=unit, k=k, slots=SLOTS
    )


@pytest.mark.parametrize(('unit', 'k'), MODES)
@hypothesis.given(records=RECORDS, seed=st.integers())
def test_order_of_the_input_changes_nothing(records: list[Record], seed: int, unit: Unit, k: int) -> None:
    shuffled = random.Random(seed).sample(records, len(records))
    assert assign(shuffled, PLAN, unit, k) == assign(records, PLAN, unit, k)


def changes(before: list[Batch], after: list[Batch]) -> list[tuple[collections.Counter, collections.Counter]]:
    """For each batch that differs, (contexts lost, contexts gained)."""
    assert [batch.batch_id for batch in before] == [batch.batch_id for batch in after]
    pairs = [
        (collections.Counter(b.contexts), collections.Counter(a.contexts))
        for b, a in zip(before, after, strict=True)
    ]
    return [(old - new, new - old) for old, new in pairs if old != new]


@pytest.mark.parametrize(('unit', 'k'), MODES)
@hypothesis.given(records=RECORDS.filter(bool), data=st.data())
def test_removing_one_unit_changes_at_most_one_context_of_one_batch(
    records: list[Record], data: st.DataObject, unit: Unit, k: int
) -> None:
    removed = data.draw(st.sampled_from(records))
    if unit == 'user':
        rest = [record for record in records if record.unit != removed.unit]
    else:
        rest = list(records)
        rest.remove(removed)
    counted = any(
        record.label in PLAN.labels
        for record in records
        if record == removed or (unit == 'user' and record.unit == removed.unit)
    )
    differing = changes(assign(records, PLAN, unit, k), assign(rest, PLAN, unit, k))
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


def test_place_hangs_on_the_key() -> None:
    plan = BatchPlan(labels=(None,), batches_per_group=(1000,), noisy_counts=None, contexts_rho=0.0)
    record = Record(text='text')
    places = {batching.place(RunKey(bytes([number]) * 32), record, plan)[0] for number in range(20)}
    assert len(places) > 10


@hypothesis.given(
    candidates=st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=1), st.sampled_from(['x', 'y']), st.sampled_from(['a', 'b'])
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


def test_a_plan_survives_json() -> None:
    for plan in (
        PLAN,
        BatchPlan(labels=('é',), batches_per_group=(2,), noisy_counts=(-3,), contexts_rho=0.005),
        BatchPlan(labels=(None,), batches_per_group=(1,), noisy_counts=None, contexts_rho=0.0),
    ):
        assert BatchPlan.from_json(plan.to_json()) == plan
        assert BatchPlan.from_json(plan.to_json()).to_json() == plan.to_json()


def test_batch_ids_are_in_order() -> None:
    assert [str(batch_id) for batch_id in PLAN.batch_ids()] == [
        '0000-000000', '0000-000001', '0000-000002', '0001-000000', '0001-000001',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'labels': ('a', 'a')}, 'distinct labels'),
        ({'labels': ()}, 'distinct labels'),
        ({'labels': ('a', None)}, 'distinct labels'),
        ({'batches_per_group': (1,)}, 'at least one batch'),
        ({'batches_per_group': (1, 0)}, 'at least one batch'),
        ({'noisy_counts': (1,), 'contexts_rho': 0.1}, 'one noisy count per label'),
        ({'noisy_counts': (1, 2)}, 'positive contexts_rho'),
        ({'contexts_rho': 0.1}, 'positive contexts_rho'),
        ({'noisy_counts': (1, 2), 'contexts_rho': float('nan')}, 'positive contexts_rho'),
    ],
)
def test_an_impossible_plan_is_refused(changed: dict, message: str) -> None:
    fields = {'labels': ('a', 'b'), 'batches_per_group': (3, 2), 'noisy_counts': None, 'contexts_rho': 0.0}
    with pytest.raises(ValueError, match=message):
        BatchPlan(**fields | changed)


@pytest.mark.parametrize('text', ['', '[]', '{"labels": ["a"]}', PLAN.to_json()[:-5]])
def test_json_that_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        BatchPlan.from_json(text)
