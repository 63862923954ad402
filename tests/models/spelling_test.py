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
from models.spelling import alike, difference, id_of, spelled

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(600, 6_000).map(lambda digits: 10**digits)
    | st.floats() | st.decimals()
    | st.sampled_from([decimal.Decimal('sNaN'), decimal.Decimal('-1e999999'), float('-0')])
    | st.text() | st.text(st.characters(categories=['Cs', 'Nd', 'Zs', 'Cf', 'Mn'])) | st.binary()
    | st.dates() | st.datetimes() | st.times() | st.timedeltas() | st.uuids()
    | st.from_regex(r'[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([+-][0-9]{2})?'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=3,
)  # fmt: skip
DAY = datetime.datetime(2024, 5, 6)


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
        ((spelling.Single(2.0**24 - 1), 2**24 - 1), str(2**24 - 1)),
        ((spelling.Half(2.0**11 - 1),), '2047'),
        ((uuid.UUID(int=7), str(uuid.UUID(int=7))), '00000000-0000-0000-0000-000000000007'),
        ((DAY, DAY.date(), '2024-05-06', '2024-05-06 00:00:00', '2024-05-06T00:00:00.000'), '2024-05-06'),
        ((DAY.replace(hour=7), '2024-05-06T07:00:00', '2024-05-06 07:00:00.0'), '2024-05-06 07:00:00'),
        ((DAY.replace(tzinfo=datetime.UTC), '2024-05-06T00:00:00Z', '2024-05-05 19:00:00-05',
          '2024-05-06T05:45:00.000+05:45', '2024-05-06 05:45:00+0545'), '2024-05-06 00:00:00+00'),
        (('0005-05-06 00:30:00+01',), '0005-05-05 23:30:00+00'),
        ((datetime.time(7, 8, 9, 500_000), '07:08:09.500', '07:08:09.5'), '07:08:09.5'),
        (('07:08:09+02',), '07:08:09+02'),
        # No calendar has these times, and so they are texts like others.
        (('2024-02-30 00:00:00',), '2024-02-30 00:00:00'),
        (('0001-01-01 00:00:00+01',), '0001-01-01 00:00:00+01'),
        (('2024-05-06 24:00:00.0',), '2024-05-06 24:00:00.0'),
        ((datetime.timedelta(days=1, seconds=7_384), '1 day 02:03:04'), '1 day 02:03:04'),
        ((datetime.timedelta(days=-1, microseconds=-500_000),), '-1 days -00:00:00.5'),
        ((datetime.timedelta(days=2),), '2 days'),
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
        (spelling.Single(2.0**24), str(2**24)),
        (spelling.Half(2.0**11), str(2**11)),
        (spelling.Single(math.nan), None),
        (decimal.Decimal('1e-641'), None),
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


@pytest.mark.parametrize(
    ('one', 'other', 'said'),
    [
        ('CAFÉ', 'Café', 'case'),
        ('Ca\u200bfé', 'Café', r"'\u200b' (ZERO WIDTH SPACE) against nothing"),
        ('A\u00a01', 'A 1', r"'\xa0' (NO-BREAK SPACE) against ' ' (SPACE)"),
        (
            '\uff211',
            'A1',
            r"'\uff21' (FULLWIDTH LATIN CAPITAL LETTER A) against 'A' (LATIN CAPITAL LETTER A)",
        ),
        ('A1', 'A01', "nothing against '0' (DIGIT ZERO)"),
        ('-a-b-c-d', 'abcd', ', '.join(3 * ["'-' (HYPHEN-MINUS) against nothing"]) + ', ...'),
    ],
)
def test_what_looks_the_same_is_told_apart_by_its_characters(one: str, other: str, said: str) -> None:
    assert alike(one) == alike(other) and spelled(one) == one and spelled(other) == other
    assert difference(one, other) == said


@hypothesis.given(one=st.text(), other=st.text())
def test_any_two_texts_differ_in_something_that_can_be_shown(one: str, other: str) -> None:
    hypothesis.assume(one != other)
    assert difference(one, other).isprintable()
