"""Tokens of the scripts of a prompt."""

import numpy as np
import pytest

from models.decoders.tokenizer import Tokenizer
from models.sampling import columns
from tests.models.finetuning import tiny

PIECES = [
    '', '', '', 'ab', ' Straße', 'слово', '日本', 'ひらがな', '12', '…', '👩', 'é', 'e\u0301', 'aя',
    ' ', '\n',
]  # fmt: skip


class _Pieces(tiny.Bytes):
    """Whole words, and two bytes of a character."""

    vocab_size = len(PIECES) + 2

    def token_bytes(self) -> list[bytes]:
        return [*(piece.encode() for piece in PIECES), b'\xd1', b'\x8f']

    def released_token_mask(self, num_embed: int | None = None) -> np.ndarray:
        return np.arange(self.vocab_size) != tiny.BOS


@pytest.mark.parametrize(
    'text, others',
    [
        ('A text: {label}', {'слово', '日本', 'ひらがな', 'aя'}),
        ('Текст', {'日本', 'ひらがな'}),
        ('日本のテ', {'слово', 'aя'}),
        ('12?', {'слово', '日本', 'ひらがな', 'aя'}),
    ],
)
def test_tokens_of_other_scripts_are_left_out(text: str, others: set[str]) -> None:
    tokenizer: Tokenizer = _Pieces()
    kept = columns.of_texts(tokenizer, ['', text])
    left_out = set(range(tokenizer.vocab_size)) - set(kept.tolist()) - {tiny.BOS}
    assert {PIECES[token] for token in left_out} == others
    assert kept.dtype == np.int32 and (np.diff(kept) > 0).all()
