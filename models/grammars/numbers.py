"""JSON numbers between bounds and multiples of a decimal, exactly, by automata of their digits.

A number is written without an exponent, and zero without a sign: `0`, `-12`, `3.50`. Bounds compare as
decimals of any length; nothing is rounded.
"""

import dataclasses
from decimal import Decimal

from models.grammars import automaton, expressions
from models.grammars.automaton import Automaton
from models.grammars.expressions import Expression, concatenation, literal, repetition, union

# The remainders of a `multipleOf` are states.
MAX_REMAINDERS = 10_000
# Digits of a bound or a multiple.
MAX_DIGITS = 400

_DIGIT = expressions.one_of('0123456789')
_DIGITS = repetition(_DIGIT, 0, None)
_POSITIVE = expressions.one_of('123456789')
_ZEROS = repetition(literal('0'), 0, None)
_POINT = literal('.')
_ANY_FRACTION = repetition(concatenation(_POINT, repetition(_DIGIT, 1, None)), 0, 1)
_POSITIVE_FRACTION = concatenation(_POINT, _ZEROS, _POSITIVE, _DIGITS)
_WHOLE = union(literal('0'), concatenation(_POSITIVE, _DIGITS))
_MAGNITUDE = concatenation(_WHOLE, _ANY_FRACTION)


@dataclasses.dataclass(frozen=True)
class Bound:
    """An end of an interval.

    Attributes:
        value: The end.
        is_exclusive: Whether it is outside of the interval.
    """

    value: Decimal
    is_exclusive: bool = False


def parts_of(value: Decimal) -> tuple[str, str]:
    """The digits before the point of a magnitude, and those behind it without trailing zeros.

    Raises:
        ValueError: There are more than `MAX_DIGITS`.
    """
    if (
        not value.is_finite()
        or abs(value.adjusted()) > MAX_DIGITS
        or len(value.as_tuple().digits) > MAX_DIGITS
    ):
        raise ValueError(
            f'Expected a number of at most {MAX_DIGITS} digits, got {value:.6E}. Leave the bound out.'
        )
    whole, _, fraction = f'{value.copy_abs():f}'.partition('.')
    return whole.lstrip('0') or '0', fraction.rstrip('0')


def text_of(value: Decimal | int) -> str:
    """A number's shortest text.

    Raises:
        ValueError: It has more than `MAX_DIGITS` digits.
    """
    whole, fraction = parts_of(Decimal(value))
    text = f'{whole}.{fraction}' if fraction else whole
    return f'-{text}' if value < 0 else text


def number(
    *,
    at_least: tuple[Bound, ...] = (),
    at_most: tuple[Bound, ...] = (),
    multiples_of: tuple[Decimal, ...] = (),
    is_integer: bool = False,
) -> Automaton:
    """The numbers of an interval.

    Args:
        at_least: Lower bounds; all of them hold.
        at_most: Upper bounds.
        multiples_of: Positive numbers that divide it.
        is_integer: Whether it is written without a fraction.

    Raises:
        ValueError: A bound has too many digits, or a divisor too many remainders.
    """
    if is_integer:
        form = union(literal('0'), concatenation(repetition(literal('-'), 0, 1), _POSITIVE, _DIGITS))
    else:
        negative = concatenation(literal('-'), _magnitude_at_least(Bound(Decimal(0), is_exclusive=True)))
        form = union(_MAGNITUDE, negative)
    numerals = automaton.build(form)
    conditions = [
        *(automaton.build(_at_least(bound)) for bound in at_least),
        *(automaton.build(_at_most(bound)) for bound in at_most),
        *(_multiples_of(divisor) for divisor in multiples_of),
    ]
    for condition in conditions:
        numerals = automaton.intersection(numerals, condition)
    return numerals


def _at_least(bound: Bound) -> Expression:
    if bound.value >= 0:
        return _magnitude_at_least(bound)
    return union(_MAGNITUDE, concatenation(literal('-'), _magnitude_at_most(bound)))


def _at_most(bound: Bound) -> Expression:
    if bound.value < 0:
        return concatenation(literal('-'), _magnitude_at_least(bound))
    return union(concatenation(literal('-'), _MAGNITUDE), _magnitude_at_most(bound))


def _digit(_: int, low: int, high: int) -> Expression:
    return expressions.one_of('0123456789'[low : high + 1])


def _wholes(low: str, high: str) -> Expression:
    """Numerals of one length, from `low` to `high`."""
    if low > high:
        return expressions.NOTHING
    return expressions.between([*map(int, low)], [*map(int, high)], [(0, 9)] * len(low), _digit)


def _magnitude_at_least(bound: Bound) -> Expression:
    whole, fraction = parts_of(bound.value)
    size = len(whole)
    greater = union(
        _wholes(str(int(whole) + 1), '9' * size) if whole != '9' * size else expressions.NOTHING,
        concatenation(_POSITIVE, repetition(_DIGIT, size, None)),
    )
    if fraction:
        tail = _POSITIVE_TAIL if bound.is_exclusive else _DIGITS
        above = [
            concatenation(literal(f'.{fraction[:place]}'), _digit(0, int(digit) + 1, 9), _DIGITS)
            for place, digit in enumerate(fraction)
            if digit != '9'
        ]
        fractions = union(*above, concatenation(literal(f'.{fraction}'), tail))
    else:
        fractions = _POSITIVE_FRACTION if bound.is_exclusive else _ANY_FRACTION
    return union(concatenation(greater, _ANY_FRACTION), concatenation(literal(whole), fractions))


_POSITIVE_TAIL = concatenation(_ZEROS, _POSITIVE, _DIGITS)


def _magnitude_at_most(bound: Bound) -> Expression:
    whole, fraction = parts_of(bound.value)
    size = len(whole)
    smaller = [concatenation(_POSITIVE, repetition(_DIGIT, length, length)) for length in range(size - 1)]
    if size > 1:
        smaller.append(literal('0'))
    if int(whole) > 0:
        least = '1' + '0' * (size - 1) if size > 1 else '0'
        smaller.append(_wholes(least, str(int(whole) - 1).zfill(size)))
    if fraction:
        below = [
            concatenation(literal(f'.{fraction[:place]}'), _digit(0, 0, int(digit) - 1), _DIGITS)
            for place, digit in enumerate(fraction)
            if digit != '0'
        ]
        # One that ends early is smaller: the last digit of `fraction` is not zero.
        early = [expressions.EMPTY, *(literal(f'.{fraction[:place]}') for place in range(1, len(fraction)))]
        equal = [] if bound.is_exclusive else [concatenation(literal(f'.{fraction}'), _ZEROS)]
        fractions = union(*below, *early, *equal)
    elif bound.is_exclusive:
        fractions = expressions.NOTHING
    else:
        fractions = repetition(concatenation(_POINT, literal('0'), _ZEROS), 0, 1)
    return union(concatenation(union(*smaller), _ANY_FRACTION), concatenation(literal(whole), fractions))


def _multiples_of(divisor: Decimal) -> Automaton:
    """Numerals of the multiples of a divisor p / 10^k: p divides the value times 10^k.

    Raises:
        ValueError: p is greater than `MAX_REMAINDERS`.
    """
    whole, fraction = parts_of(divisor)
    places, modulus = len(fraction), int(whole + fraction)
    if not 0 < modulus <= MAX_REMAINDERS:
        raise ValueError(
            f'Expected a divisor of at most {MAX_REMAINDERS:,} in units of its last digit, got {modulus:,}. '
            'Leave it out, or give minimum and maximum.'
        )

    # The remainder so far, and the digits behind the point, None before it.
    def step(state: tuple[int, int | None], byte: int) -> tuple[int, int | None] | None:
        remainder, behind = state
        if byte == ord('-'):
            return state
        if byte == ord('.'):
            return (remainder, 0) if behind is None else None
        if behind == places:
            return state if byte == ord('0') else None
        following = (10 * remainder + byte - ord('0')) % modulus
        return following, None if behind is None else behind + 1

    def accepts(state: tuple[int, int | None]) -> bool:
        remainder, behind = state
        return remainder * pow(10, places - (behind or 0), modulus) % modulus == 0

    start: tuple[int, int | None] = (0, None)
    return automaton.explore(start, step, accepts, b'-.0123456789')
