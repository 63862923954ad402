"""The files for the curator alone."""

import json
import pathlib

import apache_beam as beam
import pytest

from models.batch_plan import BatchPlan
from models.privacy.ex_post import BatchLoss
from models.records import BatchId
from tests.samples import pipeline
from tests.transforms.examples import PLAN
from transforms import restricted
from transforms.read import Reason, Rejection

REJECTED = [
    Rejection(reason=Reason.BLANK_TEXT, file='b.jsonl', ordinal=3, raw=b'{"text": " "}'),
    Rejection(reason=Reason.NOT_TEXT, file='a.jsonl', ordinal=10, raw=b'\xff\x00'),
    Rejection(reason=Reason.BLANK_TEXT, file='a.jsonl', ordinal=2, raw=b''),
]

SIZES = [(BatchId(group=0, index=1), 0), (BatchId(group=0, index=0), 1)]

LOSSES = [
    BatchLoss(batch_id=name, minus_log_alpha=(0.5,), log_beta=(0.25,), places=(0,), is_private=(True,))
    for name in ('0000-000001', '0000-000000')
]


@pytest.mark.first
@pytest.mark.run
@pytest.mark.parametrize('empty', [False, True])
def test_restricted_counts(tmp_path: pathlib.Path, empty: bool) -> None:
    with pipeline() as root:
        records = root | 'R' >> beam.Create([] if empty else ['x'] * 7)
        rejected = root | 'J' >> beam.Create([] if empty else REJECTED)
        sizes = root | 'B' >> beam.Create(SIZES)
        losses = root | 'L' >> beam.Create([] if empty else LOSSES)
        counted = root | 'S' >> beam.Create([] if empty else [('records_in_reference', 2)])
        left_out = root | 'O' >> beam.Create([] if empty else [3])
        plan = root | 'P' >> beam.Create([PLAN])
        totals = root | 'T' >> beam.Create([12])
        _ = records | restricted.WriteRestricted(
            rejected, sizes, losses, counted, left_out, plan, totals, _render_restricted, str(tmp_path)
        )
    reasons = {} if empty else {'blank_text': 2, 'not_text': 1}
    found = json.loads((tmp_path / 'restricted.json').read_text())
    by_batch = [] if empty else ['0000-000000', '0000-000001']
    groups, counts = list(PLAN.batches_per_group), {} if empty else {'records_in_reference': 2}
    assert found == [
        reasons,
        {'0000-000000': 1, '0000-000001': 0},
        0 if empty else 7,
        by_batch,
        counts,
        None if empty else 3,
        groups,
        12,
    ]


def _render_restricted(
    reasons: dict[str, int],
    sizes: dict[BatchId, int],
    records: int,
    losses: list[BatchLoss],
    counted: dict[str, int],
    left_out: int | None,
    plan: BatchPlan,
    texts: int,
) -> restricted.Files:
    by_batch = [loss.batch_id for loss in losses]
    by_size = {str(batch_id): size for batch_id, size in sizes.items()}
    found = [reasons, by_size, records, by_batch, counted, left_out, list(plan.batches_per_group), texts]
    return {'restricted.json': json.dumps(found).encode()}


@pytest.mark.first
@pytest.mark.run
def test_rejected_rows_are_kept_in_order_and_byte_for_byte(tmp_path: pathlib.Path) -> None:
    with pipeline() as root:
        _ = root | beam.Create(REJECTED) | restricted.KeepRejected(str(tmp_path))
    rows = [json.loads(line) for line in (tmp_path / 'rejected.jsonl').read_text().splitlines()]
    assert [(row['file'], row['ordinal'], row['reason']) for row in rows] == [
        ('a.jsonl', 2, 'blank_text'), ('a.jsonl', 10, 'not_text'), ('b.jsonl', 3, 'blank_text')
    ]  # fmt: skip
    assert rows[1]['raw'].encode('latin-1') == b'\xff\x00'
