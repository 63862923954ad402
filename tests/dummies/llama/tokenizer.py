"""A byte is a token, after eight control tokens."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from models.decoders.tokenizer import END_OF_TURN, START_OF_TURN, Tokenizer

BOS, EOS, START, END, FIRST_BYTE = 0, 1, 2, 3, 8


@dataclasses.dataclass(frozen=True)
class LlamaTokenizer(Tokenizer):
    """See `Tokenizer`.

    Attributes:
        path: Path of a file that is never read.
    """

    path: str

    vocab_size = FIRST_BYTE + 256
    start_tokens = (BOS,)
    stop_tokens = frozenset({EOS, END})

    @property
    def turn_markers(self) -> Mapping[str, tuple[int, ...]]:
        return {START_OF_TURN: (START,), END_OF_TURN: (END,)}

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [
            np.frombuffer(text.encode(errors='replace'), np.uint8).astype(np.int32) + FIRST_BYTE
            for text in texts
        ]

    def decode_batch(self, ids: Sequence[Sequence[int] | np.ndarray]) -> list[str]:
        if outside := [index for row in ids for index in row if not 0 <= index < self.vocab_size]:
            raise ValueError(f'Expected ids in [0, {self.vocab_size}), got id={outside[0]}. Mask them.')
        pieces = self.token_bytes()
        return [b''.join(pieces[index] for index in row).decode(errors='replace') for row in ids]

    def token_bytes(self) -> list[bytes]:
        return [b''] * FIRST_BYTE + [bytes([byte]) for byte in range(256)]

    def released_token_mask(self, num_embed: int | None = None) -> np.ndarray:
        size = self.vocab_size if num_embed is None else num_embed
        if size < self.vocab_size:
            raise ValueError(
                f'Expected rows for vocab_size={self.vocab_size}, got num_embed={size}. Add them.'
            )
        mask = (np.arange(size) >= FIRST_BYTE) & (np.arange(size) < self.vocab_size)
        mask[sorted(self.stop_tokens)] = True
        return mask
