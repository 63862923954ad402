"""Automata accept what their expressions say, by Python's `re`, and have no state too many."""

import re

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from models.grammars import automaton, expressions
from models.grammars.automaton import Automaton
from models.grammars.expressions import (
    Expression,
    concatenation,
    literal,
    repetition,
    separated,
    union,
)
from tests import oracles

# A small alphabet, so that random texts are often accepted, with the least and the greatest byte.
LETTERS = b'ab\x00\xff'
# Half of a surrogate pair is no character of UTF-8.
CHARACTERS = st.characters(codec='utf-8')


def _grown(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    counts = st.integers(0, 3)
    return st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: concatenation(*parts)),
        st.lists(inner, max_size=3).map(lambda parts: union(*parts)),
        st.builds(
            lambda part, least, more: repetition(part, least, None if more == 3 else least + more),
            inner, counts, counts,
        ),
        st.builds(separated, st.lists(st.tuples(inner, st.booleans()), max_size=3), st.just(literal(b'a'))),
    )  # fmt: skip


EXPRESSIONS = st.recursive(
    st.sets(st.sampled_from(LETTERS), min_size=1).map(
        lambda chosen: expressions.Bytes(expressions.normalized((byte, byte) for byte in chosen))
    ),
    _grown,
    max_leaves=8,
)
TEXTS = st.lists(st.lists(st.sampled_from(LETTERS), max_size=6).map(bytes), min_size=30, max_size=30)


def built(expression: Expression) -> Automaton:
    """Its automaton; one of too many states is refused, as the door does, and another is drawn."""
    try:
        return automaton.build(expression, max_states=20_000)
    except ValueError as error:
        assert 'automaton of at most' in str(error)
        reject()


def assert_well_formed(found: Automaton) -> None:
    assert found.table.shape == (found.states, int(found.class_of_byte.max()) + 1)
    assert (found.table[automaton.DEAD] == automaton.DEAD).all() and not found.accepting[automaton.DEAD]
    if not found.is_empty:
        assert oracles.told_apart(found) == found.states
    assert len(np.unique(found.table, axis=1).T) == found.table.shape[1]


@settings(max_examples=60)
@given(EXPRESSIONS, TEXTS)
def test_texts_are_those_that_the_expression_says(expression: Expression, texts: list[bytes]) -> None:
    found, twin = built(expression), re.compile(oracles.as_re(expression), re.DOTALL)
    assert_well_formed(found)
    own = oracles.texts(found, 0 if found.is_empty else 5, np.random.default_rng(0))
    for text in (*texts, *own):
        assert found.accepts(text) == (twin.fullmatch(text) is not None), text


@settings(max_examples=40)
@given(EXPRESSIONS, EXPRESSIONS, TEXTS)
def test_an_intersection_is_that_of_sets(first: Expression, second: Expression, texts: list[bytes]) -> None:
    one, other = built(first), built(second)
    both = automaton.intersection(one, other)
    assert_well_formed(both)
    for text in texts:
        assert both.accepts(text) == (one.accepts(text) and other.accepts(text))
    whole = automaton.build(union(automaton.embedded(both), automaton.embedded(one)))
    # Automata of the same set have the same numbers.
    np.testing.assert_array_equal(whole.table, one.table)
    np.testing.assert_array_equal(whole.accepting, one.accepting)
    np.testing.assert_array_equal(whole.class_of_byte, one.class_of_byte)


def test_an_embedded_automaton_may_go_on_from_where_it_ends() -> None:
    letters = automaton.embedded(automaton.build(repetition(literal('a'), 1, None)))
    found = automaton.build(concatenation(letters, literal('ab'), repetition(letters, 0, 1)))
    assert [found.accepts(text) for text in (b'ab', b'aab', b'aaaba', b'aabaaa', b'aba')] == [
        False, True, True, True, False,
    ]  # fmt: skip


def test_computed_states() -> None:
    found = automaton.explore(0, lambda left, byte: (2 * left + byte - 48) % 3, lambda left: left == 0, b'01')
    for value in range(50):
        assert found.accepts(f'{value:b}'.encode()) == (value % 3 == 0)
    assert_well_formed(found)


@pytest.mark.parametrize(
    ('expression', 'prefix', 'run'),
    [
        (literal('{"a":'), b'', b'{"a":'),
        (concatenation(literal('ab'), union(literal('cd'), literal('ce'))), b'', b'abc'),
        (concatenation(literal('a'), repetition(literal('b'), 0, 1), literal('c')), b'ab', b'c'),
        # A text may end here: to go on is a choice.
        (concatenation(literal('a'), repetition(literal('b'), 0, 1)), b'', b'a'),
        (union(literal('é'), literal('è')), b'', b'\xc3'),
        (literal('a'), b'a', b''),
    ],
)
def test_forced_bytes(expression: Expression, prefix: bytes, run: bytes) -> None:
    found = automaton.build(expression)
    assert found.forced(found.walk(prefix)) == run


def test_forced_bytes_are_those_of_all_texts() -> None:
    rng = np.random.default_rng(1)
    found = automaton.build(concatenation(literal('ab'), repetition(expressions.one_of('cd'), 1, 3)))
    for text in oracles.texts(found, 20, rng):
        assert text.startswith(found.forced())
        assert len(found.forced()) == 2


@pytest.mark.parametrize('times', [300, 10_000])
def test_too_many_states_are_refused(times: int) -> None:
    with pytest.raises(ValueError, match='max_states=100, got more'):
        automaton.build(repetition(literal('a'), times, times), max_states=100)
    assert automaton.build(repetition(literal('a'), 90, 90), max_states=100).states == 92


def test_what_has_no_text_is_empty() -> None:
    assert automaton.build(expressions.NOTHING).is_empty
    assert automaton.embedded(automaton.build(expressions.NOTHING)) is expressions.NOTHING


# --- Characters --------------------------------------------------------------------


@settings(max_examples=30)
@given(st.sets(CHARACTERS, min_size=1, max_size=5), st.lists(CHARACTERS, min_size=5, max_size=5))
def test_characters_are_utf_8(inside: set[str], others: list[str]) -> None:
    low, high = min(map(ord, inside)), max(map(ord, inside))
    found = automaton.build(expressions.utf_8(((low, high),)))
    for character in (*inside, *others):
        assert found.accepts(character.encode()) == (low <= ord(character) <= high)


@pytest.mark.parametrize(
    'data', [b'\xc0\x80', b'\xed\xa0\x80', b'\xf4\x90\x80\x80', b'\x80', b'\xe0\x80\x80', b'ab']
)
def test_what_is_no_character_is_not_utf_8(data: bytes) -> None:
    assert not automaton.build(expressions.utf_8(expressions.CHARACTERS)).accepts(data)
