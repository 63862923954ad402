"""Numbers between bounds, against comparisons of decimals."""

import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.grammars import numbers
from models.grammars.numbers import Bound
from tests import oracles

VALUES = st.decimals(-1100, 1100, places=2) | st.integers(-12, 12).map(Decimal)
BOUNDS = st.lists(st.builds(Bound, VALUES, st.booleans()), max_size=1).map(tuple)
DIVISORS = st.lists(
    st.sampled_from(['1', '2', '7', '0.1', '0.25', '0.05', '20', '1.5', '12.0']).map(Decimal), max_size=2
)
DIGITS = st.text(alphabet='019257', max_size=3)
NUMERALS = st.builds(
    '{}{}{}{}'.format, st.sampled_from(['', '-']), DIGITS, st.sampled_from(['', '.']), DIGITS
)


def _is_in(
    text: str, lower: tuple[Bound, ...], upper: tuple[Bound, ...], divisors: list[Decimal], is_integer: bool
) -> bool:
    if not re.fullmatch(r'-?(0|[1-9][0-9]*)' + ('' if is_integer else r'(\.[0-9]+)?'), text):
        return False
    value = Decimal(text)
    if value == 0 and text.startswith('-'):
        return False
    return (
        all(value > bound.value or (value == bound.value and not bound.is_exclusive) for bound in lower)
        and all(value < bound.value or (value == bound.value and not bound.is_exclusive) for bound in upper)
        and all(Fraction(value) % Fraction(divisor) == 0 for divisor in divisors)
    )


@settings(max_examples=60)
@given(BOUNDS, BOUNDS, DIVISORS, st.booleans(), st.lists(NUMERALS, min_size=30, max_size=30))
def test_numbers_are_those_of_the_interval(
    lower: tuple[Bound, ...],
    upper: tuple[Bound, ...],
    divisors: list[Decimal],
    is_integer: bool,
    numerals: list[str],
) -> None:
    found = numbers.number(at_least=lower, at_most=upper, multiples_of=tuple(divisors), is_integer=is_integer)
    near = [
        bound.value + step
        for bound in (*lower, *upper)
        for step in map(Decimal, ('0', '0.01', '-1', '-0.001'))
    ]
    own = [
        text.decode() for text in oracles.texts(found, 0 if found.is_empty else 5, np.random.default_rng(0))
    ]
    for text in (*numerals, *own, *map(str, near), *(f'{value}0' for value in near)):
        expected = _is_in(text, lower, upper, divisors, is_integer)
        assert found.accepts(text.encode()) == expected, text


@pytest.mark.parametrize('is_exclusive', [False, True])
@pytest.mark.parametrize(
    'value', ['-0.89', '-0.8', '-0.09', '0', '0.08', '0.8', '0.98', '0.99', '1', '1.09', '10']
)
def test_every_numeral_near_a_bound(value: str, is_exclusive: bool) -> None:
    bound = (Bound(Decimal(value), is_exclusive),)
    lower, upper = numbers.number(at_least=bound), numbers.number(at_most=bound)
    for hundredths in range(-130, 131):
        for text in (f'{Decimal(hundredths) / 100}', f'{Decimal(hundredths) / 100:.3f}', f'{hundredths}'):
            assert lower.accepts(text.encode()) == _is_in(text, bound, (), [], False), text
            assert upper.accepts(text.encode()) == _is_in(text, (), bound, [], False), text


def test_bounds_of_many_digits_are_exact() -> None:
    edge = Decimal('12345678901234567890123456789012345678.5')
    found = numbers.number(at_least=(Bound(edge, is_exclusive=True),), at_most=(Bound(edge + 1),))
    assert not found.accepts(b'12345678901234567890123456789012345678.5')
    assert found.accepts(b'12345678901234567890123456789012345678.50000001')


@pytest.mark.parametrize(
    ('value', 'text'),
    [
        (Decimal('1.50'), '1.5'), (Decimal('-0.0'), '0'), (Decimal('1E+3'), '1000'), (7, '7'),
        (Decimal('1E-7'), '0.0000001'),
    ],
)  # fmt: skip
def test_the_shortest_text(value: Decimal | int, text: str) -> None:
    assert numbers.text_of(value) == text


@pytest.mark.parametrize('value', ['1E+500', 'Infinity', '1E-500'])
def test_numbers_of_too_many_digits_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match='at most 400 digits'):
        numbers.number(at_least=(Bound(Decimal(value)),))


def test_a_divisor_of_too_many_remainders_is_refused() -> None:
    with pytest.raises(ValueError, match='Expected a divisor of at most 10,000'):
        numbers.number(multiples_of=(Decimal('10.001'),))
