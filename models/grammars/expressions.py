"""Regular expressions of bytes as a tree, and sets of characters as the bytes that spell them.

The functions build the tree. `NOTHING`, the empty set of texts, disappears from a union and makes a
concatenation `NOTHING`, so it is never a part of another expression.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

# Sorted, disjoint and not adjacent, ends included.
Ranges = tuple[tuple[int, int], ...]
# Edges of one state: ranges of bytes, ends included, and the state that each leads to.
Edges = list[tuple[int, int, int]]


@dataclasses.dataclass(frozen=True, eq=False)
class Expression:
    """A set of texts."""


@dataclasses.dataclass(frozen=True, eq=False)
class Bytes(Expression):
    """One byte of some ranges."""

    ranges: Ranges


@dataclasses.dataclass(frozen=True, eq=False)
class Concatenation(Expression):
    """One after another."""

    parts: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Union(Expression):
    """Any one of these."""

    parts: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Repetition(Expression):
    """One part `least` to `most` times; None for any number."""

    part: Expression
    least: int
    most: int | None


@dataclasses.dataclass(frozen=True, eq=False)
class Separated(Expression):
    """Items in this order, with a separator between any two; items that are not required may be missing."""

    items: tuple[tuple[Expression, bool], ...]
    separator: Expression


@dataclasses.dataclass(frozen=True, eq=False)
class Embedded(Expression):
    """The texts of a deterministic automaton.

    Attributes:
        rows: The edges of each state; texts begin in state `minimization.START`.
        accepting: Whether a text may end in each state.
    """

    rows: tuple[Edges, ...]
    accepting: tuple[bool, ...]


NOTHING: Expression = Union(())
EMPTY: Expression = Concatenation(())


def concatenation(*parts: Expression) -> Expression:
    """One after another."""
    if any(part is NOTHING for part in parts):
        return NOTHING
    return parts[0] if len(parts) == 1 else Concatenation(parts)


def union(*parts: Expression) -> Expression:
    """Any one of these."""
    some = tuple(part for part in parts if part is not NOTHING)
    if not some:
        return NOTHING
    return some[0] if len(some) == 1 else Union(some)


def repetition(part: Expression, least: int, most: int | None) -> Expression:
    """From `least` to `most` times, or from `least` on."""
    if most is not None and most < least:
        return NOTHING
    if part is NOTHING or most == 0:
        return NOTHING if least else EMPTY
    return Repetition(part, least, most)


def separated(items: Iterable[tuple[Expression, bool]], separator: Expression) -> Expression:
    """Items with whether each is required, in this order."""
    items = tuple(items)
    if any(item is NOTHING and is_required for item, is_required in items):
        return NOTHING
    return Separated(tuple(pair for pair in items if pair[0] is not NOTHING), separator)


def literal(text: str | bytes) -> Expression:
    """This text alone, as UTF-8."""
    data = text.encode() if isinstance(text, str) else text
    return concatenation(*(Bytes(((byte, byte),)) for byte in data))


def one_of(characters: str) -> Expression:
    """One of these ASCII characters."""
    return Bytes(normalized((ord(character), ord(character)) for character in characters))


# --- Sets of integers --------------------------------------------------------------


def normalized(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same set, sorted and merged."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        elif low <= high:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges: Ranges, universe: Ranges) -> Ranges:
    """The universe without a set."""
    left = []
    for low, high in universe:
        for first, last in ranges:
            if low <= high and first <= high and last >= low:
                left.append((low, first - 1))
                low = last + 1
        left.append((low, high))
    return normalized((low, high) for low, high in left if low <= high)


def common(first: Ranges, second: Ranges) -> Ranges:
    """The intersection of two sets."""
    return normalized((max(a, c), min(b, d)) for a, b in first for c, d in second if max(a, c) <= min(b, d))


# --- Numerals of a fixed length ----------------------------------------------------


def between(
    low: Sequence[int],
    high: Sequence[int],
    digits: Sequence[tuple[int, int]],
    digit: Callable[[int, int, int], Expression],
) -> Expression:
    """Every numeral from `low` to `high`, all of one length, in lexicographic order.

    Args:
        low: Digits, most significant first.
        high: The same, not before `low`.
        digits: The least and greatest digit of each place.
        digit: From a place and a range of digits there to their spelling.
    """

    def after(place: int, low: Sequence[int], high: Sequence[int]) -> Expression:
        if place == len(digits):
            return EMPTY
        least, most = [d[0] for d in digits[place + 1 :]], [d[1] for d in digits[place + 1 :]]
        (first, *low_rest), (last, *high_rest) = low, high
        if first == last:
            return concatenation(digit(place, first, first), after(place + 1, low_rest, high_rest))
        parts = []
        if low_rest != least:
            parts.append(concatenation(digit(place, first, first), after(place + 1, low_rest, most)))
            first += 1
        if high_rest != most:
            parts.append(concatenation(digit(place, last, last), after(place + 1, least, high_rest)))
            last -= 1
        if first <= last:
            whole = [digit(place + 1 + i, a, b) for i, (a, b) in enumerate(digits[place + 1 :])]
            parts.append(concatenation(digit(place, first, last), *whole))
        return union(*parts)

    return after(0, list(low), list(high))


# --- Characters --------------------------------------------------------------------

# Unicode scalar values: no surrogates, which no text has.
CHARACTERS: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
_BY_LENGTH = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, 0x10FFFF))
_CONTINUATION = (0x80, 0xBF)


@functools.cache
def utf_8(characters: Ranges) -> Expression:
    """One of these characters, as UTF-8 (RFC 3629): no overlong form, no surrogate."""
    parts = []
    for length_range in _BY_LENGTH:
        for low, high in common(common(characters, CHARACTERS), (length_range,)):
            first, last = chr(low).encode(), chr(high).encode()
            digits = [(0, 0xFF), *[_CONTINUATION] * (len(first) - 1)]
            parts.append(between(first, last, digits, lambda _, a, b: Bytes(((a, b),))))
    return union(*parts)


_SHORT_ESCAPES = {'"': '"', '\\': '\\', '/': '/', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}
# RFC 8259, 7: a quotation mark, a reverse solidus and the control characters have to be escaped.
_UNESCAPED: Ranges = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x10FFFF))
_HEX = (0, 15)
_SURROGATES = ((8, 11), _HEX, _HEX, (12, 15), _HEX, _HEX)


def _hex_digit(low: int, high: int) -> Expression:
    digits = '0123456789abcdef'[low : high + 1]
    return one_of(digits + digits.upper())


def _unit_digit(place: int, low: int, high: int) -> Expression:
    return concatenation(literal('\\u'), _hex_digit(low, high)) if place == 0 else _hex_digit(low, high)


def _surrogate_digit(place: int, low: int, high: int) -> Expression:
    prefix = (literal('\\u'), one_of('dD')) if place in (0, 3) else ()
    return concatenation(*prefix, _hex_digit(low, high))


def _unit(character: int) -> tuple[int, ...]:
    return tuple(character >> shift & 15 for shift in (12, 8, 4, 0))


def _pair(character: int) -> tuple[int, ...]:
    high, low = divmod(character - 0x10000, 0x400)
    return (8 + (high >> 8), high >> 4 & 15, high & 15, 12 + (low >> 8), low >> 4 & 15, low & 15)


@functools.cache
def in_json(characters: Ranges) -> Expression:
    """One of these characters inside a JSON string, in each of its spellings (RFC 8259, 7).

    As it is in UTF-8, by a short escape, by `\\uXXXX` in either case, or as an escaped pair of
    surrogates. Half a pair stands for no character, and is not in it.
    """
    characters = common(characters, CHARACTERS)
    parts = [utf_8(common(characters, _UNESCAPED))]
    escapes = [
        escape for character, escape in _SHORT_ESCAPES.items() if common(characters, ((ord(character),) * 2,))
    ]
    if escapes:
        parts.append(concatenation(literal('\\'), one_of(''.join(escapes))))
    for low, high in common(characters, ((0, 0xFFFF),)):
        parts.append(between(_unit(low), _unit(high), [_HEX] * 4, _unit_digit))
    for low, high in common(characters, ((0x10000, 0x10FFFF),)):
        parts.append(between(_pair(low), _pair(high), _SURROGATES, _surrogate_digit))
    return union(*parts)
