"""Examples cut from a token stream: where the stop rule or the length cap ended one."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from models import stop_rule as stop_rules
from models.generate.stream import TokenStream
from models.stop_rule import StopRule


@dataclasses.dataclass(frozen=True)
class ExampleTokens:
    """One example cut from a token stream.

    Attributes:
        tokens: Its ids, without the stop token but with those of a stop text.
        private_tokens: Number of private tokens, including the stop token.
        public_tokens: Number of public tokens, including the stop token.
        truncated: True where neither a stop token nor a stop text ended it.
        forced_tokens: Number of forced tokens, including the stop token.
    """

    tokens: tuple[int, ...]
    private_tokens: int
    public_tokens: int
    truncated: bool
    forced_tokens: int = 0


def _ends(tokens: np.ndarray, stop_rule: StopRule, max_example_tokens: int) -> Iterator[tuple[bool, bool]]:
    """For every token of a stream: whether the stop rule ends the example there, and whether it ends."""
    state, place = stop_rules.START, 0
    for token in tokens.tolist():
        state, place = stop_rule.table[state, token], place + 1
        stopped = bool(state == stop_rule.ended)
        ended = stopped or place == max_example_tokens
        yield stopped, ended
        if ended:
            state, place = stop_rules.START, 0


def split_examples(
    stream: TokenStream, *, stop_rule: StopRule, max_example_tokens: int
) -> list[ExampleTokens]:
    """Cuts a token stream into examples where a stop token, a stop text or the length cap ended one.

    A function of released tokens alone. The tokens after the last end are an example too, a
    truncated one.
    """
    examples, start = [], 0
    for position, (stopped, ended) in enumerate(_ends(stream.tokens, stop_rule, max_example_tokens)):
        if ended or position + 1 == len(stream.tokens):
            ids = stream.tokens[start : position + 1].tolist()
            private = int(stream.is_private[start : position + 1].sum())
            forced = int((~stream.is_chosen[start : position + 1]).sum())
            examples.append(
                ExampleTokens(
                    tuple(ids[:-1] if ids[-1] in stop_rule.tokens else ids),
                    private,
                    len(ids) - private - forced,
                    truncated=not stopped,
                    forced_tokens=forced,
                )
            )
            start = position + 1
    return examples


def places_in_examples(
    tokens: np.ndarray, *, stop_rule: StopRule, max_example_tokens: int
) -> tuple[int, ...]:
    """Place of every token of a stream within its example, from 0, stop tokens included."""
    places, place = [], 0
    for _, ended in _ends(tokens, stop_rule, max_example_tokens):
        places.append(place)
        place = 0 if ended else place + 1
    return tuple(places)
