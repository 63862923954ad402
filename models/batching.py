"""The place of a record: its group, batch and slot, from keyed hashes alone (METHOD 1 to 3).

A place depends on the record (or on the records of one unit) and on the batch plan (`batch_plan.py`):
never on a position, a file, an order, or another unit's records. That is Assumption 1 of PP, on which the
batches' parallel composition rests. A record's cluster is a function of its text and of released values.

Hashes have 128 bits. An index is `hash mod b`, whose bias is at most b / 2^128: below
2^-88 for a trillion batches, so nothing corrects for it.
"""

import heapq
import operator
from collections.abc import Iterable

from models.batch_plan import BatchPlan
from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from models.records import Batch, BatchId, Context, Record

# (keyed hash of a record or unit, its texts): what a record or unit contributes to its batch.
Row = tuple[bytes, list[str]]
# (keyed hash of a record, its text, label and cluster): one candidate for a unit's context.
Candidate = tuple[bytes, str, str | None, int | None]
# (label, cluster, texts): what a unit's records make of it.
UnitContext = tuple[str | None, int | None, list[str]]


def record_hash(key: RunKey, record: Record) -> bytes:
    """Keyed hash of one record, of its id (or ''), text and label: 16 bytes.

    The id spreads duplicated texts; without one, duplicates share a batch. The cluster is not hashed,
    because it is a function of the text.
    """
    parts = (record.record_id or '', record.text, record.label or '')
    return key.hash('record', *(part.encode() for part in parts))


def unit_hash(key: RunKey, unit: str) -> bytes:
    """Keyed hash of a unit id: 16 bytes."""
    return key.hash('unit', unit.encode())


# Bytes of the hash that decides whether a unit is sampled: rates are resolved to 2**-64.
_SAMPLE_BYTES = 8


def is_sampled(key: RunKey, record: Record, rate: float) -> bool:
    """True if a record's unit is in the run's sample: a Poisson sample, decided by a hash of the unit.

    The unit is the unit id; without one, the record itself, by the fields that `record_hash` reads. The hash
    is used for nothing else, so the sample says nothing about which units share a batch.

    Args:
        key: The run's secret.
        record: The whole record.
        rate: Public probability of a unit, in (0, 1].
    """
    parts = ['record', record.record_id or '', record.text, record.label or '']
    if record.unit is not None:
        parts = ['unit', record.unit]
    digest = key.hash('sample', *(part.encode() for part in parts), size=_SAMPLE_BYTES)
    return int.from_bytes(digest, 'little') < rate * 2 ** (8 * _SAMPLE_BYTES)


def batch_of(digest: bytes, group: int, plan: BatchPlan) -> BatchId:
    """The batch of a group that a keyed hash falls into: `hash mod b_group`."""
    return BatchId(group=group, index=int.from_bytes(digest, 'little') % plan.batches_per_group[group])


def slot_of(digest: bytes, batches: int, slots: int) -> int:
    """A record's slot in its batch under k > 1: the digit after the batch's, in base `slots`."""
    return int.from_bytes(digest, 'little') // batches % slots


def place(key: RunKey, record: Record, plan: BatchPlan) -> tuple[BatchId, bytes] | None:
    """Batch and keyed hash of a record under the `example` unit; None for an undeclared label."""
    group = plan.group_of(record.label, record.cluster)
    if group is None:
        return None
    digest = record_hash(key, record)
    return batch_of(digest, group, plan), digest


def keep_smallest(candidates: Iterable[Candidate], k: int) -> list[Candidate]:
    """For each label, the k candidates of smallest keyed hash; equal hashes are ordered by text.

    Merging is associative: `keep_smallest(keep_smallest(a) + b) == keep_smallest(a + b)`,
    so a runner may combine a unit's records in any order. The label that wins is only
    known at the end (`unit_context`), hence k candidates for each.

    Args:
        candidates: Candidates of one unit, in any order.
        k: The largest number of candidates of one label to keep.

    Returns:
        At most k candidates of each label, sorted by hash and text.
    """
    by_label: dict[str | None, list[Candidate]] = {}
    for candidate in candidates:
        by_label.setdefault(candidate[2], []).append(candidate)
    order = operator.itemgetter(0, 1)
    kept = (heapq.nsmallest(k, same, key=order) for same in by_label.values())
    return sorted((candidate for same in kept for candidate in same), key=order)


def unit_context(candidates: Iterable[Candidate], k: int) -> UnitContext:
    """Label, cluster and texts of one unit's context under the `user` unit (METHOD 1).

    Label and cluster are those of the record with the smallest keyed hash. The unit's
    other records join only if they have the same label, whatever their cluster, at most
    k in all.

    Args:
        candidates: At least one candidate of the unit.
        k: The largest number of records of one context.
    """
    kept = keep_smallest(candidates, k)
    _, _, label, cluster = kept[0]
    return label, cluster, [text for _, text, other, _ in kept if other == label]


def contexts_of(
    key: RunKey, batch_id: BatchId, rows: Iterable[Row], plan: BatchPlan, *, unit: Unit, slots: int, k: int
) -> tuple[Context, ...]:
    """The contexts of one batch, sorted by their keyed hash, from its rows in any order.

    Args:
        key: The run's secret.
        batch_id: The planned batch.
        rows: One row of texts for each unit under the `user` unit; else one row for
            each record.
        plan: The batch plan.
        unit: The unit of privacy.
        slots: Slots of a batch under k > 1 without unit ids: the expected batch size s.
        k: The largest number of records of one context.
    """
    ordered = sorted(rows)
    if unit == 'example' and k > 1:
        ordered = _fill_slots(key, batch_id, ordered, plan, slots, k)
    return tuple(Context(context_hash=digest, texts=tuple(texts)) for digest, texts in ordered)


def _fill_slots(
    key: RunKey, batch_id: BatchId, rows: list[Row], plan: BatchPlan, slots: int, k: int
) -> list[Row]:
    """Groups sorted rows of single records into slots of at most k, sorted by the slots' hashes."""
    texts_of: dict[int, list[str]] = {}
    for digest, texts in rows:
        held = texts_of.setdefault(slot_of(digest, plan.batches_per_group[batch_id.group], slots), [])
        held.extend(texts[: k - len(held)])
    return sorted((slot_hash(key, batch_id, slot), texts) for slot, texts in texts_of.items())


def slot_hash(key: RunKey, batch_id: BatchId, slot: int) -> bytes:
    """Keyed hash of a slot, the context hash under k > 1 without unit ids: 16 bytes."""
    return key.hash(
        'slot', *(number.to_bytes(8, 'little') for number in (batch_id.group, batch_id.index, slot))
    )


def form_batch(
    key: RunKey, batch_id: BatchId, rows: Iterable[Row], plan: BatchPlan, *, unit: Unit, slots: int, k: int
) -> Batch:
    """One planned batch; without rows, an empty batch. See `contexts_of` for the arguments."""
    contexts = contexts_of(key, batch_id, rows, plan, unit=unit, slots=slots, k=k)
    return Batch(
        batch_id=batch_id,
        label=plan.group_names[batch_id.group][0],
        contexts=contexts,
        turns=plan.turns_of(batch_id),
    )
