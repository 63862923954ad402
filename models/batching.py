"""Where a record goes: its group, batch and slot, from keyed hashes alone (METHOD 1 and 2).

A place depends on the record (or on the records of one unit) and on the public plan:
never on a position, a file, an order, or another unit's records. That is Assumption 1
of PP, on which the batches' parallel composition rests.

Hashes have 128 bits. An index is `hash mod b`, whose bias is at most b / 2^128: below
2^-88 for a trillion batches, so nothing corrects for it.
"""

import dataclasses
import functools
import heapq
import json
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from models.records import Batch, BatchId, Context, Record

# (keyed hash of a record or unit, its texts): what one record or unit sends to its batch.
Row = tuple[bytes, list[str]]
# (keyed hash of a record, its text, its label): one candidate for a unit's context.
Candidate = tuple[bytes, str, str | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """The plan of batches: public, or paid for by `contexts_rho` (METHOD 2).

    Attributes:
        labels: The declared labels in their declared order, one group each; a single
            None when the run declares none.
        batches_per_group: Batches of each group, at least 1, in the order of `labels`.
        noisy_counts: The released noisy count of contexts of each group; None when
            the numbers of batches come from the config.
        contexts_rho: zCDP cost of `noisy_counts`; 0 without them.
    """

    labels: tuple[str | None, ...]
    batches_per_group: tuple[int, ...]
    noisy_counts: tuple[int, ...] | None
    contexts_rho: float

    def __post_init__(self) -> None:
        check_labels(self.labels)
        if len(self.batches_per_group) != len(self.labels) or min(self.batches_per_group, default=0) < 1:
            raise ValueError(
                'Expected at least one batch for each label, got '
                f'batches_per_group={self.batches_per_group!r}, labels={self.labels!r}. '
                'Give one positive whole number per declared label.'
            )
        if self.noisy_counts is not None and len(self.noisy_counts) != len(self.labels):
            raise ValueError(
                f'Expected one noisy count per label, got noisy_counts={self.noisy_counts!r}, '
                f'labels={self.labels!r}. Draw the plan again for these labels in a fresh work directory.'
            )
        if not math.isfinite(self.contexts_rho) or (self.contexts_rho > 0) != (self.noisy_counts is not None):
            raise ValueError(
                'Expected a positive contexts_rho with noisy counts and 0 without, got '
                f'contexts_rho={self.contexts_rho!r}, noisy_counts={self.noisy_counts!r}. '
                'Noisy counts are paid for; configured numbers of batches cost nothing.'
            )

    @functools.cached_property
    def groups(self) -> dict[str | None, int]:
        """Label -> index of its group."""
        return {label: group for group, label in enumerate(self.labels)}

    def batch_ids(self) -> Iterator[BatchId]:
        """Every planned batch, by group and then by index."""
        for group, batches in enumerate(self.batches_per_group):
            for index in range(batches):
                yield BatchId(group=group, index=index)

    def to_json(self) -> str:
        """The plan as JSON: the same text for the same plan."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + '\n'

    @classmethod
    def from_json(cls, text: str) -> 'BatchPlan':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: The text is not the JSON of a plan.
        """
        fields = {field.name for field in dataclasses.fields(cls)}
        values = json.loads(text)
        if not isinstance(values, dict) or set(values) != fields:
            raise ValueError(
                f'Expected a plan with the fields {sorted(fields)}, got another JSON value. '
                'Restore plan.json, or start a new run in a fresh work directory.'
            )
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**plain)


def check_labels(labels: Sequence[str | None]) -> None:
    """Refuses labels that do not name groups.

    Raises:
        ValueError: There is none, one occurs twice, or None stands beside others.
    """
    if not labels or len(set(labels)) != len(labels) or (None in labels and len(labels) > 1):
        raise ValueError(
            'Expected distinct labels, or a single None for a run without labels, got '
            f'labels={tuple(labels)!r}. '
            'Declare each label once.'
        )


def record_hash(key: RunKey, record: Record) -> bytes:
    """Keyed hash of one record, of its id (or ''), text and label: 16 bytes.

    The id spreads duplicated texts; without one, duplicates share a batch.
    """
    parts = (record.record_id or '', record.text, record.label or '')
    return key.hash('record', *(part.encode() for part in parts))


def unit_hash(key: RunKey, unit: str) -> bytes:
    """Keyed hash of a unit id: 16 bytes."""
    return key.hash('unit', unit.encode())


def batch_of(digest: bytes, group: int, plan: BatchPlan) -> BatchId:
    """The batch of a group that a keyed hash falls into: `hash mod b_group`."""
    return BatchId(group=group, index=int.from_bytes(digest, 'little') % plan.batches_per_group[group])


def slot_of(digest: bytes, batches: int, slots: int) -> int:
    """The slot within its batch of a record under k > 1: the next digit, base `slots`, after the batch's."""
    return int.from_bytes(digest, 'little') // batches % slots


def place(key: RunKey, record: Record, plan: BatchPlan) -> tuple[BatchId, bytes] | None:
    """Batch and keyed hash of a record under the `example` unit; None for an undeclared label."""
    group = plan.groups.get(record.label)
    if group is None:
        return None
    digest = record_hash(key, record)
    return batch_of(digest, group, plan), digest


def keep_smallest(candidates: Iterable[Candidate], k: int) -> list[Candidate]:
    """For each label, the k candidates of smallest keyed hash; equal hashes are ordered by text.

    Merging is associative: `keep_smallest(keep_smallest(a) + b) == keep_smallest(a + b)`,
    so a runner may combine a unit's records in any order. The label that wins is only
    known at the end (`unit_context`), hence k for each.

    Args:
        candidates: Candidates of one unit, in any order.
        k: Most candidates of one label to keep.

    Returns:
        At most k candidates of each label, sorted by hash and text.
    """
    by_label: dict[str | None, list[Candidate]] = {}
    for candidate in candidates:
        by_label.setdefault(candidate[2], []).append(candidate)
    order = operator.itemgetter(0, 1)
    kept = (heapq.nsmallest(k, same, key=order) for same in by_label.values())
    return sorted((candidate for same in kept for candidate in same), key=order)


def unit_context(candidates: Iterable[Candidate], k: int) -> tuple[str | None, list[str]]:
    """Label and texts of one unit's context under the `user` unit (METHOD 1).

    The label is that of the record with the smallest keyed hash. The unit's other
    records join only if they have the same label, at most k in all.

    Args:
        candidates: At least one candidate of the unit.
        k: Most records of one context.
    """
    kept = keep_smallest(candidates, k)
    label = kept[0][2]
    return label, [text for _, text, other in kept if other == label]


def contexts_of(
    key: RunKey, batch_id: BatchId, rows: Iterable[Row], plan: BatchPlan, *, unit: Unit, slots: int, k: int
) -> tuple[Context, ...]:
    """The contexts of one batch, sorted by their keyed hash, from its rows in any order.

    Args:
        key: The run's secret.
        batch_id: The planned batch.
        rows: Under the `user` unit, one row of texts for each unit; else one row for
            each record.
        plan: The plan of batches.
        unit: The unit of privacy.
        slots: Slots of a batch under k > 1 without unit ids: the expected batch size s.
        k: Most records of one context.
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
    """One planned batch; with no rows, an empty one. See `contexts_of` for the arguments."""
    contexts = contexts_of(key, batch_id, rows, plan, unit=unit, slots=slots, k=k)
    return Batch(batch_id=batch_id, label=plan.labels[batch_id.group], contexts=contexts)
