"""Batches of an audit, formed in memory by the same functions as in a run, without Beam."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from models import batching
from models.batch_plan import BatchPlan
from models.privacy.params import MechanismParams, Unit
from models.privacy.randomness import RunKey
from models.records import Batch, BatchId, Record

# (keyed hash, label, cluster, texts): what one record or unit sends to its batch.
Placement = tuple[bytes, str | None, int | None, list[str]]


class Units(Protocol):
    """The unit of privacy in the parameters of any mechanism."""

    @property
    def unit(self) -> Unit: ...

    @property
    def examples_per_context(self) -> int: ...


def placements(
    records: Iterable[Record], labels: Sequence[str | None], params: Units, key: RunKey
) -> list[Placement]:
    """The rows that records of declared labels contribute to batches: one for each record, or for each unit.

    Args:
        records: Any records.
        labels: The declared labels, or a single None.
        params: The unit of privacy and k are read.
        key: The key of the audit.
    """
    known = [record for record in records if record.label in labels]
    if params.unit == 'example':
        return [(batching.record_hash(key, r), r.label, r.cluster, [r.text]) for r in known]
    by_unit: dict[str, list[batching.Candidate]] = {}
    for r in known:
        if r.unit is not None:
            by_unit.setdefault(r.unit, []).append((batching.record_hash(key, r), r.text, r.label, r.cluster))
    return [
        (batching.unit_hash(key, unit), *batching.unit_context(candidates, params.examples_per_context))
        for unit, candidates in by_unit.items()
    ]


def batches_of(
    placed: Iterable[Placement], plan: BatchPlan, params: MechanismParams, key: RunKey
) -> list[Batch]:
    """Every planned batch, as a run forms it, all in memory."""
    rows: dict[BatchId, list[batching.Row]] = {batch_id: [] for batch_id in plan.batch_ids()}
    for digest, label, cluster, texts in placed:
        group = plan.group_of(label, cluster)
        if group is not None:
            rows[batching.batch_of(digest, group, plan)].append((digest, texts))
    return [
        batching.form_batch(
            key,
            batch_id,
            held,
            plan,
            unit=params.unit,
            slots=params.batch_size,
            k=params.examples_per_context,
        )
        for batch_id, held in rows.items()
    ]
