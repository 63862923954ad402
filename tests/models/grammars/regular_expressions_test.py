"""Patterns match what Python's `re` says where both dialects agree, and what ECMAScript says elsewhere."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.grammars import automaton, expressions, regular_expressions
from tests import oracles

_ATOMS = st.sampled_from(
    ['a', 'b', r'\.', '[ab]', '[^a]', 'é', r'\d', r'\w', r'[\d\-x]', '\U0001f600', r'\x62', '1']
)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(['', '*', '+', '?', '{2}', '{1,}', '{0,2}', '*?', '{1,2}?'])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(''.join),
        st.lists(inner, min_size=1, max_size=3).map('|'.join).map('({})'.format),
        st.builds('(?:{}){}'.format, inner, signs),
    )


PATTERNS = st.recursive(_ATOMS, _grown, max_leaves=6)
TEXTS = st.lists(st.text(alphabet='ab.é1-x\U0001f600c', max_size=5), min_size=25, max_size=25)


@settings(max_examples=80)
@given(PATTERNS, TEXTS)
def test_a_match_is_that_of_re(pattern: str, texts: list[str]) -> None:
    found, twin = automaton.build(regular_expressions.matched(pattern)), re.compile(pattern, re.ASCII)
    own = [text.decode() for text in oracles.texts(found, 5, np.random.default_rng(0))]
    for text in (*texts, *own):
        assert found.accepts(text.encode()) == (twin.fullmatch(text) is not None), text


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), PATTERNS, st.booleans()), min_size=1, max_size=2), TEXTS)
def test_a_search_is_that_of_re(parts: list[tuple[bool, str, bool]], texts: list[str]) -> None:
    pattern = '|'.join(f'{"^" * begins}(?:{part}){"$" * ends}' for begins, part, ends in parts)
    found, twin = automaton.build(regular_expressions.searched(pattern)), re.compile(pattern, re.ASCII)
    for text in texts:
        assert found.accepts(text.encode()) == (twin.search(text) is not None), text


@pytest.mark.parametrize(
    ('pattern', 'inside', 'outside'),
    [
        (r'\d', '09', '\u0660a'),
        (r'\D', '\u0660a', '5'),
        (r'\w', 'z_', 'é'),
        (r'\s', '\ufeff\u00a0\u2028\v', '\x1c\x85'),
        (r'\S', '\x1c', ' '),
        ('.', 'a\x85', '\n\r\u2028\u2029'),
        (r'[^\n]', '\r', '\n'),
        (r'\cA\0', ['\x01\0'], 'A'),
        (r'\u00e9|\u{1F600}|\ud83d\ude01', 'é\U0001f600\U0001f601', 'e'),
        (r'[\b]', '\b', 'b'),
        (r'(?<name>a)\/\-', ['a/-'], 'a'),
        ('(^a|b$)', 'ab', 'c'),
        ('[a-]', 'a-', 'b'),
        ('[+--]', '+,-', '*'),
        ('^$', [''], 'a'),
    ],
)
def test_the_dialect_is_that_of_ecmascript(pattern: str, inside: list[str], outside: list[str]) -> None:
    found = automaton.build(regular_expressions.matched(pattern))
    assert all(found.accepts(text.encode()) for text in inside)
    assert not any(found.accepts(text.encode()) for text in outside)


def test_the_very_end_is_an_end() -> None:
    found = automaton.build(regular_expressions.searched('^a$'))
    assert found.accepts(b'a') and not found.accepts(b'a\n')


@pytest.mark.parametrize(
    ('pattern', 'expected', 'place'),
    [
        ('a(?=b)', 'no look ahead', 1),
        ('(?<!b)a', 'no look behind', 0),
        (r'(a)\1', 'an escape', 3),
        (r'\bword', 'an escape', 0),
        (r'\p{L}', 'an escape', 0),
        (r'a\Z', 'an escape', 1),
        ('(?i)a', 'a plain group', 0),
        ('(?P<name>a)', 'a plain group', 0),
        ('a^b', "'^' first or last", 1),
        ('(^a)b', "'^' first or last", 1),
        ('(^a)*', 'an anchor outside of repetitions', 1),
        ('a**', 'one repetition', 2),
        ('*a', 'a backslash', 0),
        ('a]', 'a backslash', 1),
        ('a{,3}', '{n}, {n,} or {n,m}', 1),
        ('a{3,1}', 'n <= m', 1),
        ('[]a]', 'a class that is not empty', 0),
        ('[a', 'a class that ends', 0),
        ('[b-a]', 'a range', 1),
        (r'[\d-z]', 'a range', 1),
        ('[[a]', 'a backslash', 1),
        ('(a', 'a group that ends', 0),
        ('a)', 'a group to begin', 1),
        (r'\ud83d', 'a Unicode character', 0),
        (r'\01', r'\\0 without', 0),
        (r'\xg0', '2 hexadecimal', 0),
        ('a\\', 'a character after', 2),
    ],
)
def test_what_is_not_supported_is_refused_with_its_place(pattern: str, expected: str, place: int) -> None:
    with pytest.raises(
        regular_expressions.UnsupportedPatternError, match=re.escape(f'at character {place} of')
    ) as error:
        regular_expressions.matched(pattern)
    assert f'Expected {expected}'.replace('\\\\', '\\') in str(error.value)


def test_a_pattern_may_be_of_strings_in_json() -> None:
    found = automaton.build(regular_expressions.matched('["é]{2}', expressions.in_json))
    for text in (r'\"é', r'\u0022\u00E9', r'é\u00e9'):
        assert found.accepts(text.encode())
    for text in ('"é', r'\né', r'\u00e9'):
        assert not found.accepts(text.encode())
