"""One spelling of ids and labels: what is the same, what is kept apart, and what identifies nobody."""

import datetime
import decimal
import doctest
import math
import unicodedata
import uuid

import hypothesis
import pytest
from hypothesis import strategies as st

from models import spelling
from models.spelling import alike, id_of, spelled

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(600, 6_000).map(lambda digits: 10**digits)
    | st.floats() | st.decimals()
    | st.sampled_from([decimal.Decimal('sNaN'), decimal.Decimal('-1e999999'), float('-0')])
    | st.text() | st.text(st.characters(categories=['Cs', 'Nd', 'Zs', 'Cf', 'Mn'])) | st.binary()
    | st.dates() | st.datetimes() | st.uuids(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=3,
)  # fmt: skip


def test_examples_hold() -> None:
    assert doctest.testmod(spelling).failed == 0


@pytest.mark.parametrize(
    ('values', 'expected'),
    [
        ((7, 7.0, '7', '7.0', '7.00', ' 7', '7\u200b', '\ufeff7.0\t', b'7', decimal.Decimal('7.000')), '7'),
        ((-7, '-7.0', decimal.Decimal('-7')), '-7'),
        ((0, -0.0, '-0', '-0.0', '0.0'), '0'),
        (('007', '007.0', ' 007'), '007'),
        (('José', unicodedata.normalize('NFD', 'José'), ' José\u00a0', 'José'.encode()), 'José'),
        (('P000', 'P000 ', '\u2028P000\x7f'), 'P000'),
        (('p000',), 'p000'),
        (('P 000',), 'P 000'),
        ((10**20, '100000000000000000000', decimal.Decimal('1E20')), '1' + 20 * '0'),
        (('1.10',), '1.10'),
        (('1e3',), '1e3'),
    ],
)  # fmt: skip
def test_spellings_of_one_id_are_one(values: tuple[object, ...], expected: str) -> None:
    assert {id_of(value) for value in values} == {spelled(value) for value in values} == {expected}


@pytest.mark.parametrize(
    ('value', 'as_label'),
    [
        (7.5, '7.5'),
        (decimal.Decimal('7.50'), '7.50'),
        (True, 'true'),
        (2.0**53, str(2**53)),
        ('1.23457E+15', '1.23457E+15'),
        ('1,2e+16', '1,2e+16'),
        (math.nan, None),
        (-math.inf, None),
        (decimal.Decimal('sNaN'), None),
        (10**640, None),
        (decimal.Decimal('1e640'), None),
        (decimal.Decimal('1e999999'), None),
        (b'\xff', None),
        ('\ud800', None),
        (None, None),
        (['7'], None),
        (datetime.date(2024, 5, 6), None),
        (uuid.UUID(int=7), None),
    ],
)
def test_what_formats_disagree_on_identifies_nobody(value: object, as_label: str | None) -> None:
    assert id_of(value) is None and spelled(value) == as_label


@hypothesis.given(value=ANYTHING)
def test_whatever_the_value_it_has_one_spelling_or_none(value: object) -> None:
    for found in (spelled(value), id_of(value)):
        assert found is None or isinstance(found, str)
        if found is not None:
            assert spelled(found) == found == unicodedata.normalize('NFC', found)
            assert not found or not {unicodedata.category(found[at])[0] for at in (0, -1)} & {'Z'}
    assert id_of(value) in (spelled(value), None)


@hypothesis.given(
    name=st.text(st.characters(codec='utf-8')), around=st.text(' \t\u200b\ufeff\u3000\xad', max_size=3)
)
def test_neither_composition_nor_blanks_make_another_id(name: str, around: str) -> None:
    for form in ('NFC', 'NFD'):
        assert spelled(around + unicodedata.normalize(form, name) + around) == spelled(name)


@hypothesis.given(number=st.integers(-(2**53) + 1, 2**53 - 1))
def test_a_whole_number_is_one_in_every_type(number: int) -> None:
    assert {id_of(one) for one in (number, float(number), str(float(number)), decimal.Decimal(number))} == {
        str(number)
    }


@pytest.mark.parametrize(
    ('one', 'other', 'expected'),
    [
        ('P000', 'p000', True), ('P-7', 'p7', True), ('007', '7', True), ('P007', 'P7', True),
        ('a.b@c', 'ab@c', True), ('７', '7', True), ('Straße', 'STRASSE', True), ('7\u200b8', '78', True),
        ('7', '8', False), ('70', '7', False), ('P0', 'P', False), ('👍', '👎', False), ('की', 'का', False),
    ],
)  # fmt: skip
def test_ids_are_alike_but_for_case_zeros_and_punctuation(one: str, other: str, expected: bool) -> None:
    assert (alike(one) == alike(other)) is expected and spelled(one) != spelled(other)
