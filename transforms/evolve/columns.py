"""The corpus of votes on whole texts: its columns, and the totals of its rows."""

from collections.abc import Iterable

import pyarrow as pa

from models.privacy.report import ChosenTotals
from models.records import EvolvedExample
from transforms.columns import Columns


def _count(examples: Iterable[EvolvedExample]) -> ChosenTotals:
    rows = list(examples)
    return ChosenTotals(
        examples=len(rows),
        voted=sum(row.round is not None for row in rows),
        sampled_tokens=sum(row.tokens for row in rows),
        truncated=sum(row.truncated for row in rows),
    )


COLUMNS = Columns(
    row=EvolvedExample,
    schema=pa.schema([
        pa.field('text', pa.string(), nullable=False),
        pa.field('label', pa.string()),
        pa.field('batch_id', pa.string(), nullable=False),
        pa.field('index_in_batch', pa.int32(), nullable=False),
        pa.field('tokens', pa.int32(), nullable=False),
        pa.field('truncated', pa.bool_(), nullable=False),
        pa.field('round', pa.int32()),
        pa.field('noisy_votes', pa.float64()),
        pa.field('parents', pa.string(), nullable=False),
    ]),
    order=('batch_id', 'index_in_batch'),
    totals=ChosenTotals,
    count=_count,
    meanings={
        'text': ('string', 'The synthetic text.'),
        'label': ('string', 'The declared label whose records favour it most; null where the run declared '
                  'none.'),
        'batch_id': ('string', 'The texts that it was sampled together with; each is sampled for itself.'),
        'index_in_batch': ('integer', 'Its place among them, from 0.'),
        'tokens': ('integer', 'Tokens that were sampled, with what ends the text; 0 of a text that was '
                   'given.'),
        'truncated': ('boolean', 'It ended without a stop token, at its length cap.'),
        'round': ('integer', 'The round of votes that it came up in, from 1; null of a text that was sampled '
                  'after the last one.'),
        'noisy_votes': ('number', "Noisy votes of its label's records in the last round; null where nobody "
                        'voted.'),
        'parents': ('string', 'The texts that its prompt showed, by batch and place; empty for none.'),
    },
)  # fmt: skip
