"""The corpus of fine-tuning: its columns, and the totals of its rows."""

from collections.abc import Iterable

import pyarrow as pa

from models.privacy.report import TunedTotals
from models.records import TunedExample
from transforms.columns import Columns


def _count(examples: Iterable[TunedExample]) -> TunedTotals:
    rows = list(examples)
    return TunedTotals(
        examples=len(rows),
        sampled_tokens=sum(row.tokens for row in rows),
        truncated=sum(row.truncated for row in rows),
    )


COLUMNS = Columns(
    row=TunedExample,
    schema=pa.schema([
        pa.field('text', pa.string(), nullable=False),
        pa.field('label', pa.string()),
        pa.field('batch_id', pa.string(), nullable=False),
        pa.field('index_in_batch', pa.int32(), nullable=False),
        pa.field('tokens', pa.int32(), nullable=False),
        pa.field('truncated', pa.bool_(), nullable=False),
    ]),
    order=('batch_id', 'index_in_batch'),
    totals=TunedTotals,
    count=_count,
    meanings={
        'text': ('string', 'The synthetic text.'),
        'label': ('string', 'The declared label it was sampled for; null where the run declared none.'),
        'batch_id': ('string', 'The texts that it was sampled together with; each is sampled for itself.'),
        'index_in_batch': ('integer', 'Its place among them, from 0.'),
        'tokens': ('integer', 'Tokens that were sampled, with what ends the text.'),
        'truncated': ('boolean', 'It ended without a stop token, at its length cap.'),
    },
)  # fmt: skip
