"""Lark grammars: masks are those of llguidance on random walks, texts those of regular expressions."""

import itertools
import re

import pytest

from models.grammars import automaton, lark
from tests.models.grammars import llguidance_test

GRAMMARS = {
    'literals and rules': """start: greeting ", " NAME "."
        greeting: "Dear" | "Hello" | "Hi"
        NAME: /[A-Z][a-z]{1,5}/""",
    'ranges, options and counts': """start: LETTER~2 DIGIT~1..3 ["-" DIGIT] (";" LETTER{1,2})*
        LETTER: "a".."f"
        DIGIT: "0".."9" """,
    'a list that goes on to the right': """start: item
        item: "x" | "x" "," item | "yy" "," item""",
    'a list that goes on to the left': """start: "[" items "]"
        items: NUMBER | items ";" NUMBER
        NUMBER: /-?[0-9]+/""",
    'comments, lines, names of trees': """// A form.
        start: "a" -> one
          | "b" part  // the other
          | part
        ?part: "c" "d"?
        !more: "never" """,
    'imports': """%import common.INT
        %import common.HEXDIGIT -> HEX
        %llguidance {}
        start: INT ":" HEX HEX""",
    'characters of Unicode': r"""start: "\u00e9" /[α-ω]{1,2}/ "\"" "☃".."☆" """,
    'a JSON value': """start: "Visit: " visit "!"
        visit: %json {"type": "object", "properties": {"a": {"enum": ["x", "}"]}, "b": {"type": "boolean"}},
                      "required": ["a"], "additionalProperties": false}""",
    'any character but a line end': r"""start: /a.b/ | /[^\n"\\\[\]-]/ "." """,
}  # fmt: skip


@pytest.mark.parametrize('name', GRAMMARS)
def test_masks_are_those_of_llguidance(name: str) -> None:
    grammar = GRAMMARS[name]
    theirs = grammar
    if '%json' in grammar:
        # In the form that ours is of.
        theirs = theirs.replace('%json {', '%json {"x-guidance": {"whitespace_flexible": false}, ')
    matcher = llguidance_test._matcher(llguidance_test.llguidance.LLMatcher.grammar_from_lark(theirs))
    found = automaton.build(lark.matched(grammar))
    assert llguidance_test.assert_same_masks(found, matcher, b'', b'', steps=200) >= 8


@pytest.mark.parametrize(
    ('grammar', 'pattern', 'letters'),
    [
        ('start: a b?\na: "x" | "y" a\nb: "z"~2..3', 'y*x(z{2,3})?', 'xyz'),
        ('start: (X | "y"+ X)*\nX: "x"', r'(y*x)*', 'xy'),
        ('start: ab | start "," ab\nab: "a" ["b"]', r'ab?(,ab?)*', 'ab,'),
        ('start: "a" "a"{2,} | "b"{,1} | "c"{2}', r'a{3,}|b?|c{2}', 'abc'),
        ('start:\n  | "a"\n  | /b|c{2}/\n', r'|a|b|cc', 'abc'),
    ],
)
def test_texts_are_those_of_a_regular_expression(grammar: str, pattern: str, letters: str) -> None:
    found, known = automaton.build(lark.matched(grammar)), 0
    for length in range(6):
        for text in map(''.join, itertools.product(letters, repeat=length)):
            assert found.accepts(text.encode()) == bool(re.fullmatch(pattern, text)), text
            known += found.accepts(text.encode())
    assert known > 3


def test_a_terminal_takes_no_more_than_its_rule_leaves() -> None:
    """What is stated of the difference from a lexer that takes the longest terminal."""
    found = automaton.build(lark.matched('start: A "b"\nA: /[ab]+/'))
    assert found.accepts(b'aab') and found.accepts(b'bb') and not found.accepts(b'ab' + b'a')


@pytest.mark.parametrize(
    ('grammar', 'construct', 'line'),
    [
        ('start: "(" start ")" | "x"', 'the recursion start -> start', 1),
        ('start: "a" b\nb: "c" d\nd: "e" b | "f"', 'the recursion b -> d -> b', 2),
        ('start: start "x" | "y" start | "z"', 'the recursion start -> start', 1),
        ('start: "a"\n%ignore " "', "'%ignore'", 2),
        ('start: "a"\n%declare X', "'%declare'", 2),
        ('start: "a"\n%more', "'%more'", 2),
        ('start: "a"i', """the flags 'i' of '"a"i'""", 1),
        ('start: /a/s', "the flags 's' of '/a/s'", 1),
        (r'start: /a\d/', r"'\\d' of '/a\\d/'", 1),
        ('start: "b" |\n /a+?b/', "'+' of '/a+?b/'", 2),
        ('start: /^a/', "'^' of '/^a/'", 1),
        ('start: /[a&&b]/', "'&' of '/[a&&b]/'", 1),
        ('start: /(?=a)b/', "'/(?=a)b/'", 1),
        (r'start: /a\bc/', r"'\\b' of '/a\\bc/'", 1),
        ('start: A & B\nA: "a"\nB: "b"', "'&'", 1),
        ('start: ~"a"', "'~'", 1),
        ('start: <|end|>', "'<|end|>'", 1),
        ('start[max_tokens=5]: "a"', "attributes of 'start'", 1),
        ('start: a\na[capture]: "b"', "attributes of 'a'", 2),
        ('start: "c"\npair{x}: x x', "a template of 'pair'", 2),
        ('start: "c"\npair.2: "d"', "the priority of 'pair'", 2),
        ('start: a', "'a'", 1),
        ('a: "b"', 'no rule start', 1),
        ('', 'no rule start', 1),
        ('start: "a"\nstart: "b"', "'start'", 2),
        ('%import python.NUMBER\nstart: NUMBER', "'python'", 1),
        ('%import common.NUMBER\nstart: NUMBER', "'NUMBER'", 1),
        ('start: "a" ^ "b"', """'^ "b"'""", 1),
        ('start: ("a"', "'the end'", 1),
        ('start: "b".."a"', """'"b"'""", 1),
        ('start: "a"~3..2', "'~'", 1),
        (r'start: "\x41"', r"""'"\\x41"'""", 1),
        ('start: %json {', "'%json'", 1),
        ('start: "a"\n\n: "b"', "':'", 3),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_with_its_name_and_line(
    grammar: str, construct: str, line: int
) -> None:
    with pytest.raises(
        lark.UnsupportedGrammarError, match='Expected a grammar that can be enforced'
    ) as caught:
        lark.matched(grammar)
    assert (caught.value.construct, caught.value.line) == (construct, line)


def test_a_keyword_inside_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="keyword='uniqueItems'"):
        lark.matched('start: %json {"type": "array", "items": {"type": "null"}, "uniqueItems": true}')
