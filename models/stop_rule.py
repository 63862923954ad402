"""The end of an example: at a stop token, or where its text first holds a stop text.

The end is a function of the example's tokens and of public settings, so it is free (METHOD 4); all sampled
tokens count. A stop text may begin in the middle of one token and end in the middle of another, so an
automaton over the bytes of the text decides (Aho and Corasick, 1975). Its state is the longest suffix of the
text so far that is a prefix of a stop text. The table holds the state after each whole token, so a step of
the compiled loop is one look-up.

A text is bytes here, and a stop text its UTF-8. Where the bytes are not valid UTF-8 the decoded text has
replacement characters; stop texts are found all the same, because no character's UTF-8 begins within
another's.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

# States are bytes of the table, the last one for the end.
MAX_STATES = 255
# Every example begins in this state.
START = np.uint8(0)


def check_stop_texts(texts: Sequence[str]) -> None:
    """Refuses stop texts that never or always match, and more text than the table has states for.

    Raises:
        ValueError: An empty text, one that is no UTF-8, a replacement character, or too much text.
    """
    for text in texts:
        if not text or '\ufffd' in text or text.encode(errors='replace').decode() != text:
            raise ValueError(
                'Expected stop texts that a text can hold, got '
                f'text={text!r}. Leave out empty texts, lone surrogates and replacement characters.'
            )
    if (states := len(_states([text.encode() for text in texts]))) > MAX_STATES:
        raise ValueError(
            f'Expected stop texts of at most {MAX_STATES} bytes in all, got {states}. Shorten them.'
        )


def cut_at_stop_text(text: str, stop_texts: Iterable[str]) -> str:
    """The text before the first place where any of the stop texts begins."""
    places = [place for stop in stop_texts if (place := text.find(stop)) >= 0]
    return text[: min(places, default=len(text))]


def may_come(table: Any, state: Any, place: Any, min_tokens: Any) -> Any:
    """The tokens that may come by the stop rule: none that ends an example after fewer than N tokens.

    So an example that ends by the rule has at least N tokens before the one that ends it. A function of the
    example's tokens and of public settings, like the end itself. It may leave no token: whoever combines
    it with a mask says what comes then.

    Args:
        table: `StopRule.table`, `[S, V]` uint8; like the next two an array of NumPy or JAX.
        state: State of the rule before the token: a scalar, or `[m]` for m rows. A row that has ended, in
            state S, is taken as one in the state before it.
        place: Tokens of the example before this one, of the same shape.
        min_tokens: N; 0 lets every token come.

    Returns:
        `[V]` bool, or `[m, V]`.
    """
    after = table[state.clip(0, len(table) - 1)]
    return (after != len(table)) | (place >= min_tokens)[..., None]


@dataclasses.dataclass(frozen=True, eq=False)
class StopRule:
    """The end of an example, apart from the length cap.

    Attributes:
        tokens: Ids of control tokens, each of which ends an example at once.
        table: `[S, V]` uint8, the state after a token in a state; S means that the example
            has ended. Every example begins in state 0.
    """

    tokens: frozenset[int]
    table: np.ndarray = dataclasses.field(repr=False)

    @classmethod
    def of(
        cls,
        vocab_size: int,
        *,
        tokens: Iterable[int],
        texts: Sequence[str] = (),
        token_bytes: Sequence[bytes] = (),
    ) -> 'StopRule':
        """From stop tokens, stop texts and the bytes of each token.

        Args:
            vocab_size: V, of the model.
            tokens: Stop tokens.
            texts: Stop texts.
            token_bytes: `Tokenizer.token_bytes`; ids beyond them have no text.

        Raises:
            ValueError: See `check_stop_texts`.
        """
        check_stop_texts(texts)
        encoded = [text.encode() for text in texts]
        states = _states(encoded)
        after_byte = _after_byte(encoded, states)
        token_bytes = token_bytes[:vocab_size]
        lengths = np.zeros(vocab_size, np.int64)
        lengths[: len(token_bytes)] = [len(piece) for piece in token_bytes]
        starts = np.cumsum(lengths) - lengths
        content = np.frombuffer(b''.join(token_bytes), np.uint8)
        table = np.repeat(np.arange(len(states), dtype=np.uint8)[:, None], vocab_size, axis=1)
        for place in range(int(lengths.max(initial=0))):
            longer = np.flatnonzero(lengths > place)
            table[:, longer] = after_byte[table[:, longer], content[starts[longer] + place]]
        tokens = frozenset(tokens)
        table[:, sorted(tokens)] = len(states)
        return cls(tokens, table)

    @property
    def ended(self) -> int:
        """The state after which no token of the example follows: S."""
        return len(self.table)


def _states(stop_texts: Sequence[bytes]) -> list[bytes]:
    """Every proper prefix of a stop text that contains no stop text itself, the empty one first."""
    beginnings = {text[:length] for text in stop_texts for length in range(len(text))} | {b''}
    return sorted(
        (begin for begin in beginnings if not any(text in begin for text in stop_texts)),
        key=lambda begin: (len(begin), begin),
    )


def _after_byte(stop_texts: Sequence[bytes], states: Sequence[bytes]) -> np.ndarray:
    """`[S + 1, 256]` uint8, the state after a byte."""
    number = {state: index for index, state in enumerate(states)}
    after = np.zeros((len(states) + 1, 256), np.uint8)
    after[len(states)] = len(states)
    for index, state in enumerate(states):
        for byte in set(b''.join(stop_texts)):
            text = state + bytes([byte])
            if text.endswith(tuple(stop_texts)):
                after[index, byte] = len(states)
            else:
                after[index, byte] = next(number[end] for end in _ends(text) if end in number)
    return after


def _ends(text: bytes) -> Iterable[bytes]:
    """The suffixes of a text, the longest first."""
    return (text[start:] for start in range(len(text) + 1))
