"""Regular expressions as expressions of bytes: the regular part of ECMAScript's, in Unicode mode.

JSON Schema's `pattern` is of that dialect (2020-12 Core, 6.4): `\\d` and `\\w` are ASCII, `.` is no line
terminator, `$` is the very end. What is not regular (references back), and what is not read exactly (looks
around, word boundaries, Unicode properties, anchors inside), is refused with its place.
"""

import dataclasses
from collections.abc import Callable

from models.grammars import expressions
from models.grammars.expressions import (
    CHARACTERS,
    Concatenation,
    Expression,
    Ranges,
    Repetition,
    Union,
)

# From a set of characters to the bytes that spell one of them.
Spelling = Callable[[Ranges], Expression]


def _of(*characters: str) -> Ranges:
    return expressions.normalized((ord(pair[0]), ord(pair[-1])) for pair in characters)


_DIGITS = _of('09')
_WORD = _of('az', 'AZ', '09', '_')
_LINE_ENDS = _of('\n', '\r', '\u2028\u2029')
# ECMAScript's WhiteSpace and LineTerminator.
_SPACES = _of('\t\r', ' ', '\u00a0', '\u1680', '\u2000\u200a', '\u2028\u2029', '\u202f', '\u205f', '\u3000',
              '\ufeff')  # fmt: skip
_CLASSES = {'d': _DIGITS, 'w': _WORD, 's': _SPACES}
_CONTROLS = {'t': '\t', 'n': '\n', 'v': '\v', 'f': '\f', 'r': '\r'}
# Digits of a bound; more would be too many states in any case.
_MOST_DIGITS = 9
_MOST_QUOTED = 500
_HEX = frozenset('0123456789abcdefABCDEF')
_NAMES = {
    '(?=': 'a look ahead', '(?!': 'a look ahead', '(?<=': 'a look behind', '(?<!': 'a look behind',
}  # fmt: skip


class UnsupportedPatternError(ValueError):
    """A regular expression that is malformed or cannot be an automaton."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Anchor(Expression):
    """The text's begin or end, `^` or `$`."""

    sign: str
    place: int


def matched(pattern: str, spelling: Spelling = expressions.utf_8) -> Expression:
    """The texts that a pattern matches from their begin to their end.

    Raises:
        UnsupportedPatternError: It is malformed or not supported.
    """
    return _anchored(_Parser(pattern, spelling).parse(), pattern, expressions.EMPTY)


def searched(pattern: str, spelling: Spelling = expressions.utf_8) -> Expression:
    """The texts in which a pattern matches somewhere, as `pattern` of JSON Schema means it.

    Raises:
        UnsupportedPatternError: It is malformed or not supported.
    """
    anything = expressions.repetition(spelling(CHARACTERS), 0, None)
    return _anchored(_Parser(pattern, spelling).parse(), pattern, anything)


def _anchored(expression: Expression, pattern: str, around: Expression) -> Expression:
    """With `around` where no anchor stands.

    Raises:
        UnsupportedPatternError: An anchor stands neither first nor last in an alternative of the whole.
    """
    if isinstance(expression, Union):
        return expressions.union(*(_anchored(part, pattern, around) for part in expression.parts))
    parts = list(expression.parts) if isinstance(expression, Concatenation) else [expression]
    before = after = around
    while parts and isinstance(parts[0], _Anchor) and parts[0].sign == '^':
        before = expressions.EMPTY
        parts.pop(0)
    while parts and isinstance(parts[-1], _Anchor) and parts[-1].sign == '$':
        after = expressions.EMPTY
        parts.pop()
    for part in parts:
        inside = _anchor_in(part)
        if inside is not None:
            raise _refused(
                pattern, inside.place, f'{inside.sign!r} first or last in an alternative of the whole pattern'
            )
    return expressions.concatenation(before, *parts, after)


def _anchor_in(expression: Expression) -> _Anchor | None:
    match expression:
        case _Anchor():
            return expression
        case Union(parts) | Concatenation(parts):
            return next((anchor for part in parts if (anchor := _anchor_in(part)) is not None), None)
        case Repetition(part, _, _):
            return _anchor_in(part)
    return None


def shortened(pattern: str) -> str:
    """A pattern as errors quote it: whole, or how it begins."""
    return repr(pattern) if len(pattern) <= _MOST_QUOTED else f'{pattern[:_MOST_QUOTED]!r}…'


def _refused(pattern: str, place: int, expected: str) -> UnsupportedPatternError:
    return UnsupportedPatternError(
        f'Expected {expected}, got {pattern[place : place + 8]!r} at character {place} of '
        f'pattern={shortened(pattern)}. Write it with classes, groups, alternatives and repetitions.'
    )


class _Parser:
    """Recursive descent over ECMA-262, 22.2.1, as far as it is regular."""

    def __init__(self, pattern: str, spelling: Spelling) -> None:
        self.pattern, self.spelling, self.place = pattern, spelling, 0

    def parse(self) -> Expression:
        expression = self._alternatives()
        if self.place < len(self.pattern):
            raise self._refuse('a group to begin before it ends')
        return expression

    def _refuse(self, expected: str, place: int | None = None) -> UnsupportedPatternError:
        return _refused(self.pattern, self.place if place is None else place, expected)

    def _next_is(self, text: str) -> bool:
        return self.pattern.startswith(text, self.place)

    def _take(self, text: str) -> bool:
        is_next = self._next_is(text)
        self.place += len(text) * is_next
        return is_next

    def _character(self, expected: str) -> str:
        if self.place == len(self.pattern):
            raise self._refuse(expected)
        self.place += 1
        return self.pattern[self.place - 1]

    def _alternatives(self) -> Expression:
        parts = [self._sequence()]
        while self._take('|'):
            parts.append(self._sequence())
        return expressions.union(*parts)

    def _sequence(self) -> Expression:
        parts = []
        while self.place < len(self.pattern) and self.pattern[self.place] not in '|)':
            parts.append(self._term())
        return expressions.concatenation(*parts)

    def _term(self) -> Expression:
        place = self.place
        character = self._character('a term')
        if character in '^$':
            return _Anchor(character, place)
        if character == '(':
            atom = self._group(place)
        elif character == '[':
            atom = self.spelling(self._class())
        elif character == '.':
            atom = self.spelling(expressions.complement(_LINE_ENDS, CHARACTERS))
        elif character == '\\':
            atom = self.spelling(self._escape(is_in_class=False))
        elif character in '*+?{}]':
            raise self._refuse('a backslash before a sign that stands for itself', place)
        else:
            atom = self.spelling(self._single(ord(character), place))
        return self._repeated(atom)

    def _group(self, place: int) -> Expression:
        for sign, name in _NAMES.items():
            if self.pattern.startswith(sign, place):
                raise self._refuse(f'no {name.removeprefix("a ")}', place)
        if self._take('?<'):
            end = self.pattern.find('>', self.place)
            if not self.pattern[self.place : end].isidentifier():
                raise self._refuse("a group's name", place)
            self.place = end + 1
        elif self._take('?') and not self._take(':'):
            raise self._refuse('a plain group, (?:...) or (?<name>...)', place)
        expression = self._alternatives()
        if not self._take(')'):
            raise self._refuse('a group that ends', place)
        return expression

    def _repeated(self, atom: Expression) -> Expression:
        place = self.place
        if self._take('*'):
            least, most = 0, None
        elif self._take('+'):
            least, most = 1, None
        elif self._take('?'):
            least, most = 0, 1
        elif self._take('{'):
            end = self.pattern.find('}', place)
            low, comma, high = self.pattern[self.place : end].partition(',')
            are_digits = [not part.strip('0123456789') for part in (low, high)]
            is_written = low and all(are_digits) and max(len(low), len(high)) <= _MOST_DIGITS
            if end < 0 or not is_written:
                raise self._refuse(f'{{n}}, {{n,}} or {{n,m}} of {_MOST_DIGITS} digits at the most', place)
            self.place = end + 1
            least = int(low)
            most = int(high) if high else None if comma else least
            if most is not None and most < least:
                raise self._refuse('n <= m in {n,m}', place)
        else:
            return atom
        if place_of := _anchor_in(atom):
            raise self._refuse('an anchor outside of repetitions', place_of.place)
        # Lazy or not, the texts are the same.
        self._take('?')
        if self.place < len(self.pattern) and self.pattern[self.place] in '*+?{':
            raise self._refuse('one repetition')
        return expressions.repetition(atom, least, most)

    def _single(self, character: int, place: int) -> Ranges:
        if 0xD800 <= character <= 0xDFFF:
            raise self._refuse('a Unicode character, no half of a surrogate pair', place)
        return ((character, character),)

    def _class(self) -> Ranges:
        begin = self.place - 1
        is_negated = self._take('^')
        if self._next_is(']'):
            raise self._refuse('a class that is not empty, with a backslash before ] and [', begin)
        pairs: list[tuple[int, int]] = []
        while not self._take(']'):
            place = self.place
            low = self._member(begin)
            if self._next_is('-') and not self._next_is('-]'):
                self.place += 1
                high = self._member(begin)
                ends = [*low, *high]
                if len(ends) != 2 or any(a != b for a, b in ends) or ends[0][0] > ends[1][0]:
                    raise self._refuse('a range of characters, the first not after the last', place)
                pairs.append((ends[0][0], ends[1][0]))
            else:
                pairs.extend(low)
        ranges = expressions.normalized(pairs)
        return expressions.complement(ranges, CHARACTERS) if is_negated else ranges

    def _member(self, begin: int) -> Ranges:
        place = self.place
        if place == len(self.pattern):
            raise self._refuse('a class that ends', begin)
        character = self._character('a character')
        if character == '\\':
            return self._escape(is_in_class=True)
        if character == '[':
            raise self._refuse('a backslash before [ in a class', place)
        return self._single(ord(character), place)

    def _escape(self, *, is_in_class: bool) -> Ranges:
        place = self.place - 1
        character = self._character('a character after a backslash')
        if character.lower() in _CLASSES:
            ranges = _CLASSES[character.lower()]
            return ranges if character.islower() else expressions.complement(ranges, CHARACTERS)
        if character in _CONTROLS:
            return self._single(ord(_CONTROLS[character]), place)
        if character == 'b' and is_in_class:
            return self._single(8, place)
        if character == 'c':
            letter = self._character('a letter after \\c')
            if not (letter.isascii() and letter.isalpha()):
                raise self._refuse('a letter after \\c', place)
            return self._single(ord(letter) % 32, place)
        if character == '0':
            if self.place < len(self.pattern) and self.pattern[self.place] in '0123456789':
                raise self._refuse('\\0 without further digits', place)
            return self._single(0, place)
        if character == 'x':
            return self._single(self._hexadecimal(2, place), place)
        if character == 'u':
            return self._single(self._unicode(place), place)
        if character.isascii() and not character.isalnum() and character.isprintable():
            return self._single(ord(character), place)
        raise self._refuse('an escape of a character or of \\d \\D \\w \\W \\s \\S', place)

    def _hexadecimal(self, digits: int, place: int) -> int:
        text = self.pattern[self.place : self.place + digits]
        if len(text) < digits or not _HEX.issuperset(text):
            raise self._refuse(f'{digits} hexadecimal digits', place)
        self.place += digits
        return int(text, 16)

    def _unicode(self, place: int) -> int:
        if self._take('{'):
            end = self.pattern.find('}', self.place)
            text = self.pattern[self.place : end] if end >= 0 else ''
            if not text or not _HEX.issuperset(text) or int(text, 16) > 0x10FFFF:
                raise self._refuse('\\u{...} with a code point', place)
            self.place = end + 1
            return int(text, 16)
        unit = self._hexadecimal(4, place)
        if 0xD800 <= unit <= 0xDBFF and self._take('\\u'):
            low = self._hexadecimal(4, place)
            if not 0xDC00 <= low <= 0xDFFF:
                raise self._refuse('a pair of surrogates', place)
            return 0x10000 + (unit - 0xD800) * 0x400 + low - 0xDC00
        return unit
