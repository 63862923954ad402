"""Forced text as tokens: where the automaton leaves no choice, the tokens that the tokenizer cuts it into."""

from collections.abc import Iterable, Sequence

import numpy as np

from models.decoders.tokenizer import Tokenizer
from models.grammars import automaton as automaton_lib
from models.grammars.automaton import Automaton

NO_TOKEN = -1
# Bytes that a token is cut from: longer than any token, and the cut of what is left goes on in the same way.
_LOOK_AHEAD = 128


def forced_table(
    automaton: Automaton,
    tokenizer: Tokenizer,
    token_bytes: Sequence[bytes],
    *,
    tokens: np.ndarray,
    stop_tokens: Iterable[int],
) -> np.ndarray:
    """The forced token of each state, so that forced text has one spelling in tokens.

    It is the first token of the tokenizer's cut of the bytes that `Automaton.forced` returns for the state.
    The tokens that a merging or a unigram tokenizer cuts after its first one are its cut of the rest, so the
    tokens from state to state are the whole cut. Where no byte may follow a text, it is the first stop token.
    A character that is forced only in part is sampled. If a sampled token spelled the first bytes of a
    character, tokens of single bytes finish it, where the vocabulary has them.

    The tokenizer might cut the text differently when more text follows, with a token that reaches beyond the
    forced run; the bytes are the same.

    Args:
        automaton: The automaton of a whole example.
        tokenizer: The tokenizer that cuts.
        token_bytes: Its `token_bytes()`, read once.
        tokens: `[V]` bool, the tokens that may be sampled.
        stop_tokens: Ids that end an example.

    Returns:
        `[states]` int32, `NO_TOKEN` where there is a choice.

    Raises:
        ValueError: The tokenizer changes some texts, so its tokens spell other bytes.
    """
    live = automaton.table[:, automaton.class_of_byte] != automaton_lib.DEAD
    has_one = (live.sum(axis=1) == 1) & ~automaton.accepting
    only_byte = np.where(has_one, live.argmax(axis=1), -1).tolist()
    table = np.full(automaton.states, NO_TOKEN, np.int32)
    is_over = automaton.accepting & ~live.any(axis=1)
    table[is_over] = min(stop_tokens, default=NO_TOKEN)
    of_byte = _tokens_of_bytes(token_bytes, tokens)
    following = automaton.table[np.arange(automaton.states), automaton.class_of_byte[live.argmax(axis=1)]]
    after, states_of = following.tolist(), dict[str, list[int]]()
    for state in np.flatnonzero(has_one).tolist():
        run, place = bytearray(), state
        while only_byte[place] >= 0 and len(run) < _LOOK_AHEAD:
            run.append(only_byte[place])
            place = after[place]
        if 0x80 <= run[0] < 0xC0:
            table[state] = of_byte.get(run[0], NO_TOKEN)
        elif text := _whole_characters(bytes(run)):
            states_of.setdefault(text, []).append(state)
    for text, ids in zip(states_of, tokenizer.encode_batch(list(states_of)), strict=True):
        first = int(ids[0]) if len(ids) else None
        data = b'' if first is None else token_bytes[first]
        if first is None or not data or not tokens[first] or not text.encode().startswith(data):
            raise ValueError(
                f'Expected a tokenizer that spells forced text as it is, got other bytes for text={text!r}. '
                'Use one without normalization, or a schema without this text.'
            )
        table[states_of[text]] = first
    return table


def _whole_characters(run: bytes) -> str:
    """The whole characters at the beginning of some bytes."""
    try:
        return run.decode()
    except UnicodeDecodeError as error:
        return run[: error.start].decode()


def _tokens_of_bytes(token_bytes: Sequence[bytes], tokens: np.ndarray) -> dict[int, int]:
    """For each byte with which only one token begins, that token, if it has no other byte."""
    token_of_byte: dict[int, int] = {}
    several: set[int] = set()
    for token in np.flatnonzero(tokens[: len(token_bytes)]).tolist():
        data = token_bytes[token]
        if not data:
            continue
        if data[0] in token_of_byte or len(data) > 1:
            several.add(data[0])
        token_of_byte[data[0]] = token
    return {byte: token for byte, token in token_of_byte.items() if byte not in several}
