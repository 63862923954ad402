"""The end of an example, by decoding the whole of it after every token and searching the text."""

import dataclasses
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class StopTexts:
    """Stop tokens, and stop texts in what tokens decode to.

    Attributes:
        tokens: Ids that end an example at once.
        texts: Texts that end it as soon as its own text holds one.
        decode: From ids to their text.
    """

    tokens: frozenset[int]
    texts: tuple[str, ...]
    decode: Callable[[Sequence[int]], str]


# Stop tokens alone, or texts as well.
Stop = frozenset[int] | StopTexts


def stop_tokens(stop: Stop) -> frozenset[int]:
    """The ids among what ends an example."""
    return stop.tokens if isinstance(stop, StopTexts) else stop


def stopped(example: Sequence[int], stop: Stop) -> bool:
    """True if an example's last token ends it, however long it may get."""
    if example[-1] in stop_tokens(stop):
        return True
    return isinstance(stop, StopTexts) and any(text in stop.decode(example) for text in stop.texts)


def may_come(example: Sequence[int], token: int, stop: Stop, min_tokens: int) -> bool:
    """True if a token may come after an example's tokens: one that ends it has N tokens before it."""
    return len(example) >= min_tokens or not stopped((*example, token), stop)


def released_text(example: Sequence[int], stop: StopTexts) -> str:
    """The text before any stop text, the longest beginning that no stop text begins within."""
    text = stop.decode(example)
    return next(
        (
            text[:end]
            for end in range(len(text))
            if any(text[end:].startswith(stop_text) for stop_text in stop.texts)
        ),
        text,
    )
