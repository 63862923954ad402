"""Answers of an endpoint, which nobody vouches for: of bounded length and duration, and then read as a text.

An answer may be any bytes. What is no completion is no answer; it never is an error.
"""

import dataclasses
import json
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx2

from models.prompts import PlainPrompts
from models.sampling.source import SampledText

# A token is some four characters long in English; one of white space may have dozens.
_CHARACTERS_PER_TOKEN: Final = 16
_BYTES_PER_TOKEN: Final = 4
# A character is at most two escapes of six bytes, and there is more in an answer than its text.
_BYTES_PER_CHARACTER, _OTHER_BYTES = 12, 1 << 20
# No text of ours has them: neither is a character, and some files and databases cannot hold them.
_NO_CHARACTERS = re.compile('[\0\ud800-\udfff]')


class AnswerTooLongError(Exception):
    """An answer has more bytes than any completion that was asked for."""


def most_bytes(max_example_tokens: int) -> int:
    """Bytes that are read of an answer."""
    return max_example_tokens * _CHARACTERS_PER_TOKEN * _BYTES_PER_CHARACTER + _OTHER_BYTES


@dataclasses.dataclass(frozen=True, eq=False)
class BoundedStream(httpx2.SyncByteStream):
    """The body of an answer, which ends with an error where it is too long or takes too long.

    A client's timeout is for each piece alone: an answer that drips would never end.

    Attributes:
        most_bytes: More raise `AnswerTooLongError`.
        deadline: Of `time.monotonic`; a piece that comes later raises `httpx2.ReadTimeout`.
    """

    body: httpx2.SyncByteStream
    most_bytes: int
    deadline: float

    def __iter__(self) -> Iterator[bytes]:
        read = 0
        for piece in self.body:
            read += len(piece)
            if read > self.most_bytes:
                raise AnswerTooLongError
            if time.monotonic() > self.deadline:
                raise httpx2.ReadTimeout('The answer took too long.')
            yield piece

    def close(self) -> None:
        self.body.close()


def read_answer(content: bytes, prompts: PlainPrompts, max_example_tokens: int) -> SampledText | None:
    """The text of a completion, a total function of any bytes; None where they are none.

    Replacement characters stand for NUL and lone surrogates. Of a text that is longer than so many tokens
    could be, the beginning is taken. The tokens are those that the endpoint counted where it says so and that
    is possible, otherwise an estimate: one for four bytes.
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return None
    choices = _entry(answer, 'choices')
    choice = choices[0] if isinstance(choices, list) and choices else None
    text = _entry(choice, 'text')
    if not isinstance(text, str):
        return None
    cut = text[: max_example_tokens * _CHARACTERS_PER_TOKEN]
    sampled = _NO_CHARACTERS.sub('\ufffd', cut)
    is_short = _entry(choice, 'finish_reason') == 'length' or len(cut) < len(text)
    counted = _entry(_entry(answer, 'usage'), 'completion_tokens')
    estimated = min(max(1, -(-len(sampled.encode()) // _BYTES_PER_TOKEN)), max_example_tokens)
    is_possible = type(counted) is int and 1 <= counted <= max_example_tokens
    return SampledText(
        text=prompts.answer_text(sampled),
        tokens=counted if is_possible else estimated,
        truncated=is_short and not any(stop in sampled for stop in prompts.plain_stop),
    )


def _entry(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
