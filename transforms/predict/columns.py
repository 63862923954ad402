"""The corpus of private prediction: its columns, and the totals of its rows."""

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from models.privacy.report import CorpusTotals, StructuredTotals
from models.records import StructuredExample, SyntheticExample
from transforms.columns import Columns


def _count(examples: Sequence[SyntheticExample]) -> CorpusTotals:
    return CorpusTotals(
        examples=len(examples),
        private_tokens=sum(example.private_tokens for example in examples),
        public_tokens=sum(example.public_tokens for example in examples),
        truncated=sum(example.truncated for example in examples),
    )


COLUMNS = Columns(
    row=SyntheticExample,
    schema=pa.schema([
        pa.field('text', pa.string(), nullable=False),
        pa.field('label', pa.string()),
        pa.field('batch_id', pa.string(), nullable=False),
        pa.field('index_in_batch', pa.int32(), nullable=False),
        pa.field('private_tokens', pa.int32(), nullable=False),
        pa.field('public_tokens', pa.int32(), nullable=False),
        pa.field('truncated', pa.bool_(), nullable=False),
    ]),
    order=('batch_id', 'index_in_batch'),
    totals=CorpusTotals,
    count=_count,
    meanings={
        'text': ('string', 'The synthetic text.'),
        'label': ('string', 'The declared label it was generated for; null where the run declared none.'),
        'batch_id': ('string', 'The batch that voted on its tokens. Rows of one batch come from one stream.'),
        'index_in_batch': ('integer', 'Its place in that stream, from 0.'),
        'private_tokens': ('integer', 'Tokens sampled from the aggregate of the private prompts.'),
        'public_tokens': ('integer', "Tokens sampled from the public prompt's prediction."),
        'truncated': (
            'boolean',
            'It ended without a stop token: at its length cap, or because the batch had used up its tokens.',
        ),
    },
)  # fmt: skip


def _count_structured(examples: Sequence[StructuredExample]) -> StructuredTotals:
    return StructuredTotals(
        **dataclasses.asdict(_count(examples)),
        forced_tokens=sum(example.forced_tokens for example in examples),
    )


_BEFORE_FORCED = COLUMNS.schema.get_field_index('public_tokens') + 1
# Columns of examples that have a structure.
STRUCTURED_COLUMNS = dataclasses.replace(
    COLUMNS,
    row=StructuredExample,
    schema=COLUMNS.schema.insert(_BEFORE_FORCED, pa.field('forced_tokens', pa.int32(), nullable=False)),
    totals=StructuredTotals,
    count=_count_structured,
    meanings={
        **dict(list(COLUMNS.meanings.items())[:_BEFORE_FORCED]),
        'forced_tokens': ('integer', 'Tokens that nobody chose: the structure allowed no other.'),
        **dict(list(COLUMNS.meanings.items())[_BEFORE_FORCED:]),
    },
)
