"""Tests of batch assignment: METHOD 1 to 3 against a slow twin, and the neighbouring relation."""

import collections
import dataclasses
import itertools
import math
import random

import hypothesis
import pytest
from hypothesis import strategies as st

from models import batching
from models.batching import BatchPlan, Clustering
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


@PLANS
@pytest.mark.parametrize(('unit', 'k'), MODES)
@hypothesis.given(records=RECORDS)
def test_assignment_equals_the_slow_twin(records: list[Record], plan: BatchPlan, unit: Unit, k: int) -> None:
    records = in_clusters(records, plan)
    assert assign(records, plan, unit, k) == oracles.batches(
        records, plan, SECRET, unit=unit, k=k, slots=SLOTS
    )


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


def test_place_hangs_on_the_key() -> None:
    plan = BatchPlan(labels=(None,), batches_per_group=(1000,), noisy_counts=None, contexts_rho=0.0)
    record = Record(text='text')
    places = {batching.place(RunKey(bytes([number]) * 32), record, plan)[0] for number in range(20)}
    assert len(places) > 10


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


def test_a_plan_survives_json() -> None:
    for plan in (
        PLAN,
        BatchPlan(labels=('é',), batches_per_group=(2,), noisy_counts=(-3,), contexts_rho=0.005),
        BatchPlan(labels=(None,), batches_per_group=(1,), noisy_counts=None, contexts_rho=0.0),
        CLUSTERED,
        dataclasses.replace(CLUSTERED, noisy_counts=None, contexts_rho=0.0),
    ):
        assert BatchPlan.from_json(plan.to_json()) == plan
        assert BatchPlan.from_json(plan.to_json()).to_json() == plan.to_json()


def test_batch_ids_are_in_order() -> None:
    assert [str(batch_id) for batch_id in PLAN.batch_ids()] == [
        '0000-000000', '0000-000001', '0000-000002', '0001-000000', '0001-000001',
    ]  # fmt: skip


def test_a_plan_of_no_text_has_no_batch() -> None:
    plan = BatchPlan(labels=('a', 'b'), batches_per_group=(0, 0), noisy_counts=None, contexts_rho=0.0)
    assert list(plan.batch_ids()) == [] and BatchPlan.from_json(plan.to_json()) == plan
    # An adapter alone may release counts of labels for those who sample from it.
    counted = dataclasses.replace(plan, noisy_counts=(7, -1), contexts_rho=0.1)
    assert list(counted.batch_ids()) == [] and BatchPlan.from_json(counted.to_json()) == counted


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'labels': ('a', 'a')}, 'distinct labels'),
        (
            {'batches_per_group': (2, 0), 'noisy_counts': (1, 2), 'contexts_rho': 0.1},
            'at least one batch for each of 2 groups',
        ),
        ({'labels': ()}, 'distinct labels'),
        ({'labels': ('a', None)}, 'distinct labels'),
        ({'batches_per_group': (1,)}, 'at least one batch'),
        ({'batches_per_group': (1, 0)}, 'at least one batch'),
        ({'noisy_counts': (1,), 'contexts_rho': 0.1}, 'one noisy count for each of 2 groups'),
        ({'noisy_counts': (1, 2)}, 'positive contexts_rho'),
        ({'contexts_rho': 0.1}, 'positive contexts_rho'),
        ({'noisy_counts': (1, 2), 'contexts_rho': float('nan')}, 'positive contexts_rho'),
    ],
)
def test_an_impossible_plan_is_refused(changed: dict, message: str) -> None:
    fields = {'labels': ('a', 'b'), 'batches_per_group': (3, 2), 'noisy_counts': None, 'contexts_rho': 0.0}
    with pytest.raises(ValueError, match=message):
        BatchPlan(**fields | changed)


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'batches_per_group': (3, 2)}, 'at least one batch for each of 4 groups'),
        ({'noisy_counts': (30, 20)}, 'one noisy count for each of 4 groups'),
        ({'labels': ('a',)}, 'kept centres for each label'),
        ({'clustering': None}, 'at least one batch for each of 2 groups'),
    ],
)
def test_a_plan_that_does_not_fit_its_clusters_is_refused(changed: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CLUSTERED, **changed)


def test_more_groups_than_a_batch_id_can_name_are_refused() -> None:
    def plan(labels: int) -> BatchPlan:
        clustering = Clustering(
            kept=(tuple(range(1000)),) * labels, noisy_counts=((0,) * 1000,) * labels, rho=1.0
        )
        names = tuple(f'label {number}' for number in range(labels))
        return BatchPlan(
            labels=names,
            batches_per_group=(1,) * 1000 * labels,
            noisy_counts=None,
            contexts_rho=0.0,
            clustering=clustering,
        )

    names = [str(batch_id) for batch_id in plan(10).batch_ids()]
    assert len(names) == 10_000 and names == sorted(names)
    with pytest.raises(ValueError, match='at most 10000 groups, got groups=11000'):
        plan(11)


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'kept': ((0, 2),)}, 'ascending indices below 3'),
        ({'kept': ((0, 2), ())}, 'ascending indices below 3'),
        ({'kept': ((2, 0), (1, 2))}, 'ascending indices below 3'),
        ({'kept': ((0, 0), (1, 2))}, 'ascending indices below 3'),
        ({'kept': ((-1, 2), (1, 2))}, 'ascending indices below 3'),
        ({'kept': ((0, 3), (1, 2))}, 'ascending indices below 3'),
        ({'noisy_counts': ((9, -4, 8), (0, 5))}, 'as many noisy counts'),
        ({'noisy_counts': ()}, 'as many noisy counts'),
        ({'rho': 0.0}, 'rho > 0'),
        ({'rho': math.inf}, 'rho > 0'),
        ({'rho': math.nan}, 'rho > 0'),
    ],
)
def test_an_impossible_clustering_is_refused(changed: dict, message: str) -> None:
    assert CLUSTERED.clustering is not None
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CLUSTERED.clustering, **changed)


NO_JSON_OF_OURS = ['', '[]', '{"labels": ["a"]}', PLAN.to_json()[:-5]]


@pytest.mark.parametrize('text', [*NO_JSON_OF_OURS, CLUSTERED.to_json().replace('"kept"', '"other"')])
def test_json_that_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        BatchPlan.from_json(text)


def test_a_clustering_survives_json() -> None:
    clustering = CLUSTERED.clustering
    assert clustering is not None
    assert Clustering.from_json(clustering.to_json()) == clustering


@pytest.mark.parametrize('text', [*NO_JSON_OF_OURS, PLAN.to_json()])
def test_json_that_is_no_clustering_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Clustering.from_json(text)


# --- Groups of clusters ----------------------------------------------------------


def test_groups_go_label_by_label_and_then_by_kept_centre() -> None:
    assert CLUSTERED.group_names == (('a', 0), ('a', 2), ('b', 1), ('b', 2))
    assert CLUSTERED.group_labels == ('a', 'a', 'b', 'b')
    assert CLUSTERED.group_clusters == (0, 2, 1, 2)
    assert (PLAN.group_labels, PLAN.group_clusters) == (('a', 'b'), (None, None))
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
