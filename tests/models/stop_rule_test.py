"""The automaton over tokens against decoding and searching: tests/oracles/stopping.py."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import bundled
from models.decoders.gemma import tokenizer
from models.stop_rule import MAX_STATES, StopRule, check_stop_texts, cut_at_stop_text, may_come
from tests import oracles

# Few characters, so that texts meet: a letter, white space, two and four bytes of UTF-8.
_ALPHABET = 'ab\n é😀'
_TEXTS = st.lists(st.text(_ALPHABET, min_size=1, max_size=5), min_size=1, max_size=4).map(tuple)
_PIECES = st.lists(
    st.text(_ALPHABET, max_size=4).map(str.encode)
    | st.sampled_from([bytes([byte]) for byte in 'é😀\n'.encode()] + [b'\xff', b'\xe2\x96']),
    min_size=1,
    max_size=12,
)
VOCABULARY = tokenizer.GemmaTokenizer(bundled.TOKENIZER, '3')
BUNDLED_TEXTS = (
    ('\n\n',),
    ('\nTopic:', '\n\n'),
    ('```',),
    ('\n',),
    (' the', '. The', 'é'),
    ('😀\n', '▁', '  '),
)


def ends_at(rule: StopRule, ids: Sequence[int]) -> list[bool]:
    """For every token of an example, whether the example has ended with it or before."""
    state, found = 0, []
    for token in ids:
        state = rule.ended if state == rule.ended else int(rule.table[state, token])
        found.append(state == rule.ended)
    return found


def expected(ids: Sequence[int], stop: oracles.StopTexts) -> list[bool]:
    """The same by decoding every beginning."""
    ended = [oracles.stopped(ids[: end + 1], stop) for end in range(len(ids))]
    return [any(ended[: end + 1]) for end in range(len(ids))]


@settings(max_examples=300, deadline=None)
@given(pieces=_PIECES, texts=_TEXTS, data=st.data())
def test_any_vocabulary_ends_where_the_decoded_text_holds_a_stop_text(
    pieces: list[bytes], texts: tuple[str, ...], data: st.DataObject
) -> None:
    """Characters split over byte pieces, stop texts within one another, tokens without text."""
    pieces = [b'', *pieces]
    stop = oracles.StopTexts(
        frozenset({0}), texts, lambda ids: b''.join(pieces[index] for index in ids).decode(errors='replace')
    )
    rule = StopRule.of(len(pieces) + 2, tokens={0}, texts=texts, token_bytes=pieces)
    assert rule.table.dtype == np.uint8 and rule.table.shape[1] == len(pieces) + 2
    ids = data.draw(st.lists(st.integers(0, len(pieces) + 1), max_size=10))
    ids = [index if index < len(pieces) else 1 for index in ids]
    assert ends_at(rule, ids) == expected(ids, stop)
    assert cut_at_stop_text(stop.decode(ids), texts) == oracles.released_text(ids, stop)


@settings(max_examples=100, deadline=None)
@given(
    pieces=_PIECES,
    texts=_TEXTS,
    examples=st.lists(st.lists(st.integers(0, 12), max_size=5), min_size=1, max_size=4),
    min_tokens=st.integers(0, 6),
)
def test_no_token_may_come_that_ends_an_example_too_early(
    pieces: list[bytes], texts: tuple[str, ...], examples: list[list[int]], min_tokens: int
) -> None:
    """Every token after every beginning, by decoding; rows at once and one by one, by NumPy and by JAX."""
    pieces = [b'', *pieces]
    stop = oracles.StopTexts(
        frozenset({0}), texts, lambda ids: b''.join(pieces[index] for index in ids).decode(errors='replace')
    )
    rule = StopRule.of(len(pieces), tokens={0}, texts=texts, token_bytes=pieces)
    examples = [[index % len(pieces) for index in ids] for ids in examples]
    examples = [ids for ids in examples if not any(ends_at(rule, ids))]
    states = np.array([functools.reduce(lambda at, token: rule.table[at, token], ids, 0) for ids in examples])
    places = np.array([len(ids) for ids in examples])
    found = may_come(rule.table, states.astype(np.uint8), places, min_tokens)
    for row, ids in zip(found, examples, strict=True):
        assert row.tolist() == [
            oracles.may_come(ids, token, stop, min_tokens) for token in range(len(pieces))
        ]
    table = jnp.asarray(rule.table)
    for row, state, place in zip(found, states, places, strict=True):
        one = jax.jit(may_come)(table, jnp.uint8(state), jnp.int32(place), jnp.int32(min_tokens))
        np.testing.assert_array_equal(one, row)


def test_of_a_row_that_has_ended_some_tokens_are_looked_up() -> None:
    """A loop of many rows goes on while one of them does."""
    rule = StopRule.of(3, tokens={0}, texts=('aa',), token_bytes=[b'', b'a', b'b'])
    found = may_come(rule.table, np.array([0, 1, rule.ended], np.uint8), np.array([0, 1, 2]), 2)
    assert found.tolist() == [[False, True, True], [False, False, True], [True, True, True]]


@functools.cache
def _bundled_rule(texts: tuple[str, ...]) -> StopRule:
    return StopRule.of(5000, tokens={1, 106}, texts=texts, token_bytes=VOCABULARY.token_bytes())


@functools.cache
def _near_stops() -> list[int]:
    """Ids whose bytes are in stop texts, and byte pieces: random ids would hardly ever end anything."""
    wanted = set(''.join(text for texts in BUNDLED_TEXTS for text in texts).encode())
    return [index for index, piece in enumerate(VOCABULARY.token_bytes()) if piece and set(piece) <= wanted]


@pytest.mark.parametrize('texts', BUNDLED_TEXTS, ids=repr)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_bundled_vocabulary_ends_where_its_own_decoding_does(
    texts: tuple[str, ...], data: st.DataObject
) -> None:
    """Through SentencePiece's decoder: ids of any piece, and of pieces of the stop texts' bytes."""
    released = np.flatnonzero(VOCABULARY.released_token_mask()).tolist()
    near = st.sampled_from(_near_stops())
    stops = st.sampled_from(texts).flatmap(
        lambda text: st.sampled_from([VOCABULARY.encode_batch([text])[0].tolist()])
    )
    parts = data.draw(
        st.lists(st.one_of(st.sampled_from(released).map(lambda i: [i]), near.map(lambda i: [i]), stops))
    )
    ids = [index for part in parts for index in part][:20]
    decoded = VOCABULARY.decode_batch([ids[:end] for end in range(len(ids) + 1)])
    stop = oracles.StopTexts(VOCABULARY.stop_tokens, texts, lambda beginning: decoded[len(beginning)])
    assert ends_at(_bundled_rule(texts), ids) == expected(ids, stop)
    assert cut_at_stop_text(decoded[-1], texts) == oracles.released_text(ids, stop)


def test_a_stop_text_ends_an_example_wherever_tokens_are_cut() -> None:
    """Every split of one text into two and three pieces."""
    text = b'so it goes\n\nTopic: new'
    for first in range(1, len(text) - 1):
        for second in range(first + 1, len(text)):
            pieces = [text[:first], text[first:second], text[second:]]
            rule = StopRule.of(3, tokens=(), texts=('\n\nTopic:',), token_bytes=pieces)
            assert ends_at(rule, [0, 1, 2])[-1]
            assert not any(ends_at(rule, [1, 0])) or b'\n\nTopic:' in pieces[1] + pieces[0]


@pytest.mark.parametrize(
    'text, stops, shown',
    [('one two', ('two', ' t'), 'one'), ('one', (), 'one'), ('one', ('two',), 'one'), ('', ('a',), '')],
)
def test_cuts_by_hand(text: str, stops: tuple[str, ...], shown: str) -> None:
    assert cut_at_stop_text(text, stops) == shown


def test_a_table_has_a_byte_for_each_token_and_state() -> None:
    """The size of Gemma's largest vocabulary: the states of two stop texts."""
    rule = StopRule.of(262_144, tokens={1}, texts=('\n\n', '\nTopic:'), token_bytes=[b'a\n', b'\nTo'])
    assert rule.table.nbytes == 262_144 * len(rule.table) and len(rule.table) == 7
    assert len(StopRule.of(9, tokens={1}).table) == 1


def test_stop_texts_of_too_many_bytes_are_refused() -> None:
    check_stop_texts(['x' * MAX_STATES])
    rule = StopRule.of(2, tokens=(), texts=['x' * MAX_STATES], token_bytes=[b'x', b'x' * MAX_STATES])
    assert rule.ended == 255 and ends_at(rule, [0] * 256).index(True) == 254 and ends_at(rule, [1]) == [True]
    with pytest.raises(ValueError, match='at most 255 bytes in all, got 256'):
        check_stop_texts(['x' * (MAX_STATES + 1)])
