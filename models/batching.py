"""Where a record goes: its group, batch and slot, from keyed hashes alone (METHOD 1 to 3).

A place depends on the record (or on the records of one unit) and on the batch plan:
never on a position, a file, an order, or another unit's records. That is Assumption 1
of PP, on which the batches' parallel composition rests. A group is a label, or a label
and a cluster, which is a function of the record's text and of released values.

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

from models.conditions import Conditions, Turns
from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from models.records import Batch, BatchId, Context, Record

# (keyed hash of a record or unit, its texts): what one record or unit sends to its batch.
Row = tuple[bytes, list[str]]
# (keyed hash of a record, its text, label and cluster): one candidate for a unit's context.
Candidate = tuple[bytes, str, str | None, int | None]
# (label, cluster, texts): what a unit's records make of it.
UnitContext = tuple[str | None, int | None, list[str]]
# What a run's groups are: (label, cluster), with None where the run declares no labels,
# and where it makes no clusters.
GroupName = tuple[str | None, int | None]

# `BatchId` writes four digits, and names are sorted as text.
MAX_GROUPS = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clustering:
    """The centres that each label keeps, by released noisy counts (METHOD 3, steps 2 and 3).

    Attributes:
        kept: For each label, the ascending indices of the centres that it keeps.
        noisy_counts: For each label, the released noisy count of contexts of every centre.
        rho: zCDP cost of `noisy_counts`.
    """

    kept: tuple[tuple[int, ...], ...]
    noisy_counts: tuple[tuple[int, ...], ...]
    rho: float

    def __post_init__(self) -> None:
        if not self.noisy_counts or len({len(cells) for cells in self.noisy_counts}) > 1:
            raise ValueError(
                f'Expected as many noisy counts for each label, got labels={len(self.noisy_counts)}, '
                f'counts={sorted({len(cells) for cells in self.noisy_counts})}. '
                'Restore clustering.json, or start a new run in a fresh work directory.'
            )
        if len(self.kept) != len(self.noisy_counts) or not all(
            indices
            and list(indices) == sorted(set(indices))
            and 0 <= indices[0] <= indices[-1] < self.centers
            for indices in self.kept
        ):
            raise ValueError(
                f'Expected ascending indices below {self.centers} for each label, got kept={self.kept!r}. '
                'Restore clustering.json, or start a new run in a fresh work directory.'
            )
        if not (math.isfinite(self.rho) and self.rho > 0):
            raise ValueError(
                f'Expected rho > 0, got rho={self.rho!r}. Noisy counts are paid for: state their price.'
            )

    @property
    def centers(self) -> int:
        """Number K of centres that were counted."""
        return len(self.noisy_counts[0])

    def to_json(self) -> str:
        """The clustering as JSON: the same text for the same clustering."""
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> 'Clustering':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: The text is not the JSON of a clustering.
        """
        return cls(**_fields_of(cls, json.loads(text), 'clustering.json'))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """The batch plan: public, or paid for by `contexts_rho` (METHOD 2).

    Attributes:
        labels: The declared labels in their declared order; a single None when the run
            declares no labels. A label is one group or, with clusters, one group for each
            centre that it keeps.
        batches_per_group: The number of batches of each group, at least 1, in the order of
            `group_names`; 0 of each where the config asks for no text.
        noisy_counts: The released noisy count of contexts of each group; None when
            the numbers of batches come from the config.
        contexts_rho: zCDP cost of `noisy_counts`; 0 without them.
        clustering: The centres that each label keeps, with a price of their own; None
            without clusters.
        conditions: The noisy counts by which examples are given values of declared fields, with a price
            of their own; None where they are given none.
    """

    labels: tuple[str | None, ...]
    batches_per_group: tuple[int, ...]
    noisy_counts: tuple[int, ...] | None
    contexts_rho: float
    clustering: Clustering | None = None
    conditions: Conditions | None = None

    def __post_init__(self) -> None:
        check_labels(self.labels)
        if self.conditions is not None and len(self.conditions.noisy_counts) != len(self.labels):
            raise ValueError(
                f'Expected counts of cells for each of labels={self.labels!r}, got labels='
                f'{len(self.conditions.noisy_counts)}. Draw both again for these labels in a fresh work '
                'directory.'
            )
        if self.clustering is not None and len(self.clustering.kept) != len(self.labels):
            raise ValueError(
                f'Expected kept centres for each label, got kept={self.clustering.kept!r}, '
                f'labels={self.labels!r}. Draw both again for these labels in a fresh work directory.'
            )
        groups = len(self.group_names)
        if groups > MAX_GROUPS:
            raise ValueError(
                f'Expected at most {MAX_GROUPS} groups, got groups={groups}. '
                'Keep fewer centres for each label, or declare fewer labels.'
            )
        is_without_text = not any(self.batches_per_group)
        has_every_batch = min(self.batches_per_group, default=0) >= 1
        if len(self.batches_per_group) != groups or not (has_every_batch or is_without_text):
            raise ValueError(
                f'Expected at least one batch for each of {groups} groups, got '
                f'batches_per_group={self.batches_per_group!r}, labels={self.labels!r}. '
                'Give one positive whole number per declared label, or per kept centre of each.'
            )
        if self.noisy_counts is not None and len(self.noisy_counts) != groups:
            raise ValueError(
                f'Expected one noisy count for each of {groups} groups, got '
                f'noisy_counts={self.noisy_counts!r}, labels={self.labels!r}. '
                'Draw the batch plan again for these labels in a fresh work directory.'
            )
        if not math.isfinite(self.contexts_rho) or (self.contexts_rho > 0) != (self.noisy_counts is not None):
            raise ValueError(
                'Expected a positive contexts_rho with noisy counts and 0 without, got '
                f'contexts_rho={self.contexts_rho!r}, noisy_counts={self.noisy_counts!r}. '
                'Noisy counts are paid for; configured numbers of batches cost nothing.'
            )

    @functools.cached_property
    def group_names(self) -> tuple[GroupName, ...]:
        """(label, cluster) of each group: label by label, then in the order of the kept centres."""
        if self.clustering is None:
            return tuple((label, None) for label in self.labels)
        kept_by_label = zip(self.labels, self.clustering.kept, strict=True)
        return tuple((label, cluster) for label, kept in kept_by_label for cluster in kept)

    @property
    def group_labels(self) -> tuple[str | None, ...]:
        """The label of each group."""
        return tuple(label for label, _ in self.group_names)

    @property
    def group_clusters(self) -> tuple[int | None, ...]:
        """The cluster of each group, an index of a centre; None without clusters."""
        return tuple(cluster for _, cluster in self.group_names)

    @functools.cached_property
    def groups(self) -> dict[GroupName, int]:
        """(label, cluster) -> index of its group."""
        return {name: group for group, name in enumerate(self.group_names)}

    def group_of(self, label: str | None, cluster: int | None) -> int | None:
        """The group of a record, or of a unit by its first record; None for an undeclared label.

        Args:
            label: The record's label.
            cluster: The record's cluster; it plays no part where the batch plan has no clusters.

        Raises:
            RuntimeError: The batch plan has clusters, and the label keeps another or no such cluster.
        """
        group = self.groups.get((label, None if self.clustering is None else cluster))
        if group is None and label in self.labels:
            raise RuntimeError(
                'Expected every record in a cluster that its label keeps, got one in another or in none. '
                'Choose clusters among the kept centres of the clustering in this batch plan.'
            )
        return group

    def batch_ids(self) -> Iterator[BatchId]:
        """The name of every planned batch, by group and then by index."""
        for group, batches in enumerate(self.batches_per_group):
            for index in range(batches):
                yield BatchId(group=group, index=index)

    def turns_of(self, batch_id: BatchId) -> Turns | None:
        """Which cells a batch's examples are given; None where they are given no values."""
        if self.conditions is None:
            return None
        order = self.labels.index(self.group_names[batch_id.group][0])
        groups = [group for group, label in enumerate(self.group_labels) if label == self.labels[order]]
        before = (self.batches_per_group[group] for group in groups if group < batch_id.group)
        return Turns(
            shares=self.conditions.shares(order),
            label=order,
            place=sum(before) + batch_id.index,
            batches=sum(self.batches_per_group[group] for group in groups),
        )

    def to_json(self) -> str:
        """The batch plan as JSON: the same text for the same plan."""
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> 'BatchPlan':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: The text is not the JSON of a batch plan.
        """
        plain = _fields_of(cls, json.loads(text), 'plan.json')
        if plain['clustering'] is not None:
            plain['clustering'] = Clustering(**_fields_of(Clustering, plain['clustering'], 'plan.json'))
        if plain['conditions'] is not None:
            plain['conditions'] = Conditions.of_plain(plain['conditions'], 'plan.json')
        return cls(**plain)


def _to_json(value: BatchPlan | Clustering) -> str:
    return json.dumps(dataclasses.asdict(value), indent=2, ensure_ascii=False) + '\n'


def _fields_of(kind: type, values: object, file: str) -> dict[str, Any]:
    """The fields of a dataclass from a JSON object, with tuples for lists."""
    fields = {field.name for field in dataclasses.fields(kind)}
    if not isinstance(values, dict) or set(values) != fields:
        raise ValueError(
            f'Expected a {kind.__name__} with the fields {sorted(fields)}, got another JSON value. '
            f'Restore {file}, or start a new run in a fresh work directory.'
        )
    return {name: _tuples(value) for name, value in values.items()}


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def check_labels(labels: Sequence[str | None]) -> None:
    """Refuses labels that do not name groups.

    Raises:
        ValueError: There is no label, one label occurs twice, or None stands beside others.
    """
    if not labels or len(set(labels)) != len(labels) or (None in labels and len(labels) > 1):
        raise ValueError(
            'Expected distinct labels, or a single None for a run without labels, got '
            f'labels={tuple(labels)!r}. '
            'Declare each label once.'
        )


def record_hash(key: RunKey, record: Record) -> bytes:
    """Keyed hash of one record, of its id (or ''), text and label: 16 bytes.

    The id spreads duplicated texts; without one, duplicates share a batch. The cluster
    is left out: it is a function of the text, and the group that it names is no part of
    the hash either.
    """
    parts = (record.record_id or '', record.text, record.label or '')
    return key.hash('record', *(part.encode() for part in parts))


def unit_hash(key: RunKey, unit: str) -> bytes:
    """Keyed hash of a unit id: 16 bytes."""
    return key.hash('unit', unit.encode())


# Of the hash that decides on a unit: rates are resolved to 2**-64.
_SAMPLE_BYTES = 8


def is_sampled(key: RunKey, record: Record, rate: float) -> bool:
    """Whether a record's unit is in the run's sample: a Poisson sample, each unit by a hash of its own.

    Its unit is the unit id, else the record itself, by what `record_hash` is of. The hash has a purpose
    of its own, so that who is in the sample says nothing of who shares a batch.

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
