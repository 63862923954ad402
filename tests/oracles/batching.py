"""Keyed hashes, counts of contexts and the batches themselves (METHOD 1 to 3), on all records at once."""

import hashlib
from collections.abc import Sequence

from models.batch_plan import BatchPlan
from models.privacy.params import Unit
from models.records import Batch, BatchId, Context, Record


def keyed_hash(secret: bytes, purpose: str, *parts: bytes) -> bytes:
    """Slow twin of `RunKey.hash`, from its description."""
    framed = b''.join(len(part).to_bytes(8, 'little') + part for part in parts)
    return hashlib.blake2b(framed, digest_size=16, key=secret, person=purpose.encode()).digest()


def record_hash(secret: bytes, record: Record) -> bytes:
    """Slow twin of `batching.record_hash`."""
    parts = (record.record_id or '', record.text, record.label or '')
    return keyed_hash(secret, 'record', *(part.encode() for part in parts))


def histogram(
    records: list[Record],
    labels: Sequence[str | None],
    clusters: Sequence[int | None],
    secret: bytes,
    *,
    unit: Unit,
) -> list[int]:
    """Contexts per cell: every label with every cluster (METHOD 3, steps 2 and 4).

    A unit's context counts where its record with the smallest keyed hash belongs; without
    units, every record counts.
    """
    counted: dict[object, Record] = {}
    declared = [record for record in records if record.label in labels]
    for order, record in enumerate(sorted(declared, key=lambda r: (record_hash(secret, r), r.text))):
        counted.setdefault(record.unit if unit == 'user' else order, record)
    return [
        sum((record.label, record.cluster) == (label, cluster) for record in counted.values())
        for label in labels
        for cluster in clusters
    ]


def batches(
    records: list[Record],
    plan: BatchPlan,
    secret: bytes,
    *,
    unit: Unit,
    k: int,
    slots: int,
    text_limit: int | None = None,
) -> list[Batch]:
    """Slow twin of the whole assignment: METHOD 1 to 3 word by word, on all records at once.

    With a clustering in the plan, records come with the kept centre that they are nearest to.
    """
    groups: list[tuple[str | None, int | None]] = []
    for order, label in enumerate(plan.labels):
        for cluster in [None] if plan.clustering is None else plan.clustering.kept[order]:
            groups.append((label, cluster))

    def group_of(record: Record) -> int:
        return groups.index((record.label, None if plan.clustering is None else record.cluster))

    def number(digest: bytes) -> int:
        return int.from_bytes(digest, 'little')

    records = sorted(
        (r for r in records if r.label in plan.labels), key=lambda r: (record_hash(secret, r), r.text)
    )
    contexts: dict[BatchId, list[Context]] = {}
    for group, count in enumerate(plan.batches_per_group):
        for index in range(count):
            contexts[BatchId(group=group, index=index)] = []
    by_place: dict[tuple, list[Record]] = {}
    for order, record in enumerate(records):
        group = group_of(record)
        digest = number(record_hash(secret, record))
        index = digest % plan.batches_per_group[group]
        if unit == 'user':
            place: tuple = (record.unit,)
        elif k > 1:
            place = (group, index, digest // plan.batches_per_group[group] % slots)
        else:
            place = (group, index, order)
        by_place.setdefault(place, []).append(record)
    for place, members in by_place.items():
        if unit == 'user':
            members = [member for member in members if member.label == members[0].label]
            group = group_of(members[0])
            name = keyed_hash(secret, 'unit', place[0].encode())
            batch = BatchId(group=group, index=number(name) % plan.batches_per_group[group])
        else:
            batch = BatchId(group=place[0], index=place[1])
            name = record_hash(secret, members[0])
            if k > 1:
                name = keyed_hash(secret, 'slot', *(part.to_bytes(8, 'little') for part in place))
        texts = tuple(member.text[:text_limit] for member in members[:k])
        contexts[batch].append(Context(context_hash=name, texts=texts))
    return [
        Batch(
            batch_id=batch,
            label=groups[batch.group][0],
            contexts=tuple(sorted(held, key=lambda context: (context.context_hash, context.texts))),
        )
        for batch, held in sorted(contexts.items())
    ]
