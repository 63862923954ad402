"""Rows to records: every defined treatment of a bad one."""

import decimal
import json

import hypothesis
import pytest
from hypothesis import strategies as st

from models import spelling
from models.records import Record
from tests.transforms.read.samples import LABELLED
from transforms import read
from transforms.read import Reason, RecordFields, RecordRules, Rejection

pytestmark = [pytest.mark.heavy, pytest.mark.first]


@pytest.mark.parametrize(
    ('label', 'expected'),
    [
        ('1', '1'), ('1.0', '1'), ('"1"', '1'), ('"b"', 'b'), ('true', 'true'), ('""', ''),
        ('"1.0"', '1'), ('" b"', 'b'), ('2', Reason.UNDECLARED_LABEL),
        ('"B"', Reason.UNDECLARED_LABEL), ('"True"', Reason.UNDECLARED_LABEL),
        ('1.5', Reason.UNDECLARED_LABEL), ('false', Reason.UNDECLARED_LABEL),
        ('null', Reason.MISSING_FIELD), ('["b"]', Reason.WRONG_TYPE),
        ('1e999', Reason.WRONG_TYPE), ('NaN', Reason.WRONG_TYPE),
    ],
)  # fmt: skip
def test_labels_are_compared_as_strings(label: str, expected: str | Reason) -> None:
    found = read.to_record(json.loads(f'{{"text": "x", "label": {label}}}'), LABELLED)
    assert (found.label if isinstance(found, Record) else found) == expected


def test_ids_are_needed_where_they_are_named() -> None:
    fields = RecordFields(text='text', unit='user', record_id='id')
    rules = RecordRules(fields=fields, unit='user')
    whole = {'text': 'x', 'user': 7, 'id': 'r'}
    assert read.to_record(whole, rules) == Record(text='x', unit='7', record_id='r')
    for absent in (None, ''):
        assert read.to_record(whole | {'user': absent}, rules) is Reason.MISSING_UNIT
        assert read.to_record(whole | {'id': absent}, rules) is Reason.MISSING_RECORD_ID
    assert read.to_record(whole | {'user': {}}, rules) is Reason.WRONG_TYPE
    assert read.to_record(whole | {'user': b'\xff'}, rules) is Reason.NOT_TEXT


def test_any_label_is_read_as_it_comes_and_needs_a_column() -> None:
    rules = RecordRules(fields=RecordFields(text='text', label='label'), any_label=True)
    assert read.to_record({'text': 'x', 'label': 2.0}, rules) == Record(text='x', label='2')
    assert read.to_record({'text': 'x'}, rules) is Reason.MISSING_FIELD
    for fields, labels in ((RecordFields(text='text'), None), (RecordFields(text='text', label='l'), ('a',))):
        with pytest.raises(ValueError, match='any_label'):
            RecordRules(fields=fields, labels=labels, any_label=True)


# Values of a database, Arrow, JSON, a workbook and CSV, and numbers of more digits than Python writes.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(600, 6_000).map(lambda digits: 10**digits)
    | st.floats() | st.decimals() | st.sampled_from([decimal.Decimal('sNaN'), decimal.Decimal('-1e999999')])
    | st.text() | st.text(st.characters(categories=['Cs', 'Cf', 'Mn', 'Zs'])) | st.binary()
    | st.binary().map(memoryview) | st.dates() | st.datetimes() | st.times() | st.timedeltas() | st.uuids()
    | st.ip_addresses(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=3,
)  # fmt: skip


def is_record_or_reason(values: dict[str, object]) -> bool:
    fields = RecordFields(text='text', label='label', unit='unit', record_id='id')
    found = read.to_record(
        values, RecordRules(fields=fields, labels=('0', ''), unit='user', max_record_bytes=3)
    )
    if isinstance(found, Record):
        assert found.text.strip()
        assert len(found.text.encode()) <= 3
        assert found.label in ('0', '')
        assert found.unit
        assert found.record_id
        return True
    return isinstance(found, Reason)


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.too_slow], deadline=None)
@hypothesis.given(values=st.dictionaries(st.sampled_from(['text', 'label', 'unit', 'id']), VALUES))
def test_any_values_are_a_record_or_a_reason(values: dict[str, object]) -> None:
    assert is_record_or_reason(values)


@pytest.mark.parametrize(
    'value',
    [10**5_000, decimal.Decimal('1e5000'), decimal.Decimal('sNaN')],
    ids=['int', 'decimal', 'no number'],
)
def test_a_value_that_python_cannot_write_is_a_reason(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {'text': 'x', 'label': '', 'id': 1}
    assert is_record_or_reason(values | {'unit': value}) and is_record_or_reason(values | {'label': value})
    # An open twin, which writes a whole number as it is, raises.
    monkeypatch.setattr(spelling, 'id_of', lambda value: str(int(value)))
    with pytest.raises(ValueError):
        is_record_or_reason(values | {'unit': value})


def test_a_rejection_shows_nothing_of_its_row() -> None:
    rejection = Rejection(reason=Reason.BLANK_TEXT, file='a.csv', ordinal=123, raw=b'secret')
    assert repr(rejection) == "Rejection(file='a.csv')"


@pytest.mark.parametrize(
    'arguments',
    [
        {'fields': RecordFields(text='t', label='l')},
        {'fields': RecordFields(text='t'), 'labels': ('a',)},
        {'fields': RecordFields(text='t'), 'unit': 'user'},
        {'fields': RecordFields(text='t', unit='u')},
        {'fields': RecordFields(text='t'), 'max_record_bytes': 0},
    ],
)
def test_rules_that_contradict_each_other_are_refused(arguments: dict) -> None:
    with pytest.raises(ValueError, match='Expected'):
        RecordRules(**arguments)


def test_an_empty_column_name_is_refused() -> None:
    with pytest.raises(ValueError, match='column names'):
        RecordFields(text='')
