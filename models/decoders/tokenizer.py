"""The tokenizer interface: text to token ids and back, and which ids mean more than text.

Records are text that nobody has read, so no text may ever spell a control token: what an
end of turn in a record would do is the prompt's to decide, never the record's. A prompt
that wants a control token adds its id, from `start_tokens` or `turn_markers`.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

# The words that a prompt template has for turns, whatever the family calls them.
START_OF_TURN: Final = '<start_of_turn>'
END_OF_TURN: Final = '<end_of_turn>'


class Tokenizer(abc.ABC):
    """A vocabulary. Pickling carries its settings and paths, never what the files hold."""

    @property
    @abc.abstractmethod
    def vocab_size(self) -> int:
        """Number of pieces. A model's embedding may have more rows; no text has their ids."""

    @property
    @abc.abstractmethod
    def start_tokens(self) -> tuple[int, ...]:
        """The control tokens that every prompt begins with, such as start of text; may be none."""

    @property
    @abc.abstractmethod
    def stop_tokens(self) -> frozenset[int]:
        """The control tokens that end an example whatever the prompt: end of text, end of turn."""

    @property
    @abc.abstractmethod
    def turn_markers(self) -> Mapping[str, tuple[int, ...]]:
        """Ids that stand for `START_OF_TURN` and `END_OF_TURN` in a template; empty without turns.

        Read without opening a file. A key may be longer than the bare word, such as
        `<start_of_turn>model` with its newline, for a family that writes a role in another
        way; the longest key that fits is taken.
        """

    @abc.abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text, without start or end of text.

        Total on any `str` (a lone surrogate counts as a question mark), and never
        a control id, whatever a text spells.

        Returns:
            One int32 array of shape `[length]` for each text.
        """

    @abc.abstractmethod
    def decode_batch(self, ids: Sequence[Sequence[int] | np.ndarray]) -> list[str]:
        """The text of each list of ids.

        Control tokens give no text. Byte pieces that do not add up to UTF-8 give
        replacement characters, so that every output is valid Unicode.

        Args:
            ids: Lists or arrays of ids in `[0, vocab_size)`.

        Raises:
            ValueError: An id is outside the vocabulary.
        """

    @abc.abstractmethod
    def token_bytes(self) -> list[bytes]:
        """The bytes that each id adds to a text, `vocab_size` of them; none for a control token.

        One after another, and read as UTF-8, they are what `decode_batch` gives of the same ids,
        but for how many replacement characters stand for bytes that are no UTF-8.
        """

    @abc.abstractmethod
    def released_token_mask(self, num_embed: int | None = None) -> np.ndarray:
        """Mask of the tokens that may be sampled: ordinary text, bytes, and the stop tokens.

        A function of the vocabulary alone, so it costs nothing.

        Args:
            num_embed: Rows of the model's embedding; further ids are left out as well.

        Returns:
            bool array of shape `[num_embed]`, by default `[vocab_size]`.

        Raises:
            ValueError: The model has fewer rows than the vocabulary has pieces.
        """
