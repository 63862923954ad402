"""Labels of several columns: what a row needs, and which rows have a declared label."""

import csv
import io
import itertools
import json
import pathlib

import hypothesis
import pytest
from hypothesis import strategies as st

from models import attributes
from models.records import Record
from tests.transforms.read.samples import read_file
from transforms import read
from transforms.read import Dialect, Reason, RecordFields, RecordRules

FIELDS = RecordFields(text='text', attributes=('stars', 'mood'), record_id='id')
RULES = RecordRules(fields=FIELDS, labels=('1|good', '1|', '5|good', '5|'))
# (stars, mood) and what becomes of the row.
ROWS: list[tuple[object, object, str | Reason]] = [
    (1, 'good', '1|good'),
    ('5', '', '5|'),
    (5.0, 'good', '5|good'),
    (2, 'good', Reason.UNDECLARED_LABEL),
    (1, 'bad', Reason.UNDECLARED_LABEL),
    (1, ' good', '1|good'),
    (1, 'Good', Reason.UNDECLARED_LABEL),
    ('1|good', '', Reason.UNDECLARED_LABEL),
    ('', '1|good', Reason.UNDECLARED_LABEL),
    (None, 'good', Reason.MISSING_FIELD),
    (1, None, Reason.MISSING_FIELD),
]


def found_in(path: pathlib.Path, rules: RecordRules = RULES) -> list[str | Reason | None]:
    read.check_input(str(path), rules.fields)
    records, rejected = read_file(path, rules)
    by_row: dict[int, str | Reason | None] = {int(str(of.record_id)): of.label for of in records}
    return [of for _, of in sorted((by_row | {of.ordinal: of.reason for of in rejected}).items())]


def test_json_lines(tmp_path: pathlib.Path) -> None:
    rows = [
        {'text': 'x', 'id': place, **({} if stars is None else {'stars': stars}), 'mood': mood}
        for place, (stars, mood, _) in enumerate(ROWS)
    ]
    rows.append({'text': 'x', 'id': len(ROWS), 'stars': 1, 'mood': ['good']})
    path = tmp_path / 'a.jsonl'
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    assert found_in(path) == [*(expected for _, _, expected in ROWS), Reason.WRONG_TYPE]


@pytest.mark.parametrize('delimiter', [',', '|'])
def test_csv(tmp_path: pathlib.Path, delimiter: str) -> None:
    """A value in quotes may hold what stands between columns, and between values in a label."""
    rows = [row for row in ROWS if None not in row and row[0] != 5.0]
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(('id', 'mood', 'text', 'stars'))
    writer.writerows((place, mood, 'x', stars) for place, (stars, mood, _) in enumerate(rows))
    path = tmp_path / 'a.csv'
    path.write_text(out.getvalue())
    assert found_in(path) == [expected for *_, expected in rows]
    # The same columns by their numbers.
    path.write_text(out.getvalue().partition('\n')[2])
    fields = RecordFields(
        text='2', attributes=('3', '1'), record_id='0', dialect=Dialect(delimiter=delimiter)
    )
    assert found_in(path, RecordRules(fields=fields, labels=RULES.labels)) == [
        expected for *_, expected in rows
    ]


@pytest.mark.parametrize('lacking', ['stars', 'mood'])
def test_a_file_without_one_of_the_columns_is_refused(tmp_path: pathlib.Path, lacking: str) -> None:
    (tmp_path / 'a.csv').write_text(
        'text,id,' + {'stars': 'mood', 'mood': 'stars'}[lacking] + '\nsecret,1,x\n'
    )
    with pytest.raises(read.MissingColumns, match=f"missing=\\['{lacking}'\\]") as caught:
        read.check_input(str(tmp_path / 'a.csv'), FIELDS)
    assert 'secret' not in str(caught.value)


VALUES = st.text('a|b', max_size=3)


@hypothesis.given(
    declared=st.lists(
        st.lists(VALUES.filter(lambda value: attributes.SEPARATOR not in value), min_size=1, unique=True),
        min_size=1,
        max_size=3,
    ),
    values=st.lists(VALUES, min_size=3, max_size=3),
)
@hypothesis.example(declared=[['a', 'a'], ['b']], values=['a|b', '', ''])
@hypothesis.example(declared=[['', 'a'], ['']], values=['', '', ''])
def test_a_record_is_taken_where_each_of_its_values_is_declared(
    declared: list[list[str]], values: list[str]
) -> None:
    """Column by column, and never by what several values happen to join to."""
    columns = [f'column {place}' for place, _ in enumerate(declared)]
    labels = tuple(dict.fromkeys(map(attributes.label_of, itertools.product(*declared))))
    rules = RecordRules(fields=RecordFields(text='text', attributes=tuple(columns)), labels=labels)
    own = dict(zip(columns, values, strict=False))
    found = read.to_record({'text': 'x', **own}, rules)
    if all(value in of for value, of in zip(values, declared, strict=False)):
        assert isinstance(found, Record) and found.label is not None
        assert attributes.values_of(found.label) == tuple(own.values())
    else:
        assert found is Reason.UNDECLARED_LABEL


def test_any_label_is_read_as_it_comes_of_several_columns_too() -> None:
    rules = RecordRules(fields=RecordFields(text='text', attributes=('a', 'b')), any_label=True)
    assert read.to_record({'text': 'x', 'a': 2.0, 'b': True}, rules) == Record(text='x', label='2|true')
    assert read.to_record({'text': 'x', 'a': 2.0}, rules) is Reason.MISSING_FIELD


@pytest.mark.parametrize(
    'arguments',
    [{'text': 't', 'label': 'l', 'attributes': ('a',)}, {'text': 't', 'attributes': ('a', '')}],
)
def test_columns_that_contradict_each_other_are_refused(arguments: dict) -> None:
    with pytest.raises(ValueError, match='Expected'):
        RecordFields(**arguments)


def test_attributes_need_declared_labels() -> None:
    with pytest.raises(ValueError, match='declared labels and a label column together'):
        RecordRules(fields=FIELDS)
