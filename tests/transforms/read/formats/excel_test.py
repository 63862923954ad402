"""Excel workbooks: cells as other formats have them, one sheet, formulas by their values."""

import datetime
import pathlib
import re
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import openpyxl
import pytest

from tests.transforms.read.samples import LABELLED, TEXT, read_file
from transforms import read
from transforms.read import MissingColumns, Reason, RecordFields, RecordRules, Table
from transforms.read.columns import RestrictedError

ANY_LABEL = RecordRules(fields=RecordFields(text='text', label='label', record_id='id'), any_label=True)


def write(path: pathlib.Path, **sheets: Sequence[Sequence[Any]]) -> pathlib.Path:
    workbook = openpyxl.Workbook()
    workbook.remove(workbook.worksheets[0])
    for name, rows in sheets.items():
        sheet = workbook.create_sheet(name)
        for row in rows:
            sheet.append(row)
    workbook.save(path)
    return path


def edit(path: pathlib.Path, name: str, change: Callable[[str], str]) -> None:
    """Changes one file of a workbook, as another program would have written it."""
    with zipfile.ZipFile(path) as workbook:
        parts = {each: workbook.read(each) for each in workbook.namelist()}
    parts[name] = change(parts[name].decode()).encode()
    with zipfile.ZipFile(path, 'w') as workbook:
        for each, data in parts.items():
            workbook.writestr(each, data)


def columns(path: pathlib.Path, rules: RecordRules) -> None:
    read.check_input(str(path), rules.fields)


def test_cells_are_what_other_formats_have(tmp_path: pathlib.Path) -> None:
    day, hour = datetime.datetime(2024, 5, 6), datetime.datetime(2024, 5, 6, 7, 8)
    path = write(
        tmp_path / 'a.XLSX',
        Notes=[
            (),
            ('id', 'other', ' text ', 'label'),
            (1.0, None, 'One.', 1.0),
            (2, 'x', 12, True),
            (),
            (3.0, 'x', 1.5, 'b'),
            (2.5, 'x', 'Half an id.', 'b'),
            (day, 'x', day, hour),
            ('5', 'x', ' ä\n_x000D_ ', None),
            ('6', 'x', True, 'b'),
            (None, 'x', 'No id.', 'b'),
            ('8', 'x', None, 'b'),
        ],
    )
    columns(path, ANY_LABEL)
    records, rejected = read_file(path, ANY_LABEL)
    assert [(one.record_id, one.text, one.label) for one in records] == [
        ('1', 'One.', '1'),
        ('2', '12', 'true'),
        ('3', '1.5', 'b'),
        ('2024-05-06', '2024-05-06', '2024-05-06 07:08:00'),
    ]
    assert [one.reason for one in rejected] == [
        Reason.WRONG_TYPE, Reason.MISSING_FIELD, Reason.WRONG_TYPE, Reason.MISSING_RECORD_ID,
        Reason.MISSING_FIELD,
    ]  # fmt: skip
    assert rejected[3].raw.decode() == '{"text": "No id.", "label": "b", "id": null}'
    assert read_file(path, TEXT)[0][-2].text == ' ä\n\r '


def test_a_formula_has_the_value_that_its_writer_computed_or_its_row_is_rejected(
    tmp_path: pathlib.Path,
) -> None:
    rows = [('text', 'label', 'other'), ('One.', 'b', '=1+1'), ('=A2', 'b', 1), (), ('Three.', '=B2', 1),
            ('#REF!', 'b', 1), ('Five.', 'b', 1)]  # fmt: skip
    path = write(tmp_path / 'a.xlsx', Notes=rows)
    records, rejected = read_file(path, LABELLED)
    assert [one.text for one in records] == ['One.', 'Five.']
    assert [(one.reason, one.ordinal) for one in rejected] == [(Reason.NO_VALUE, n) for n in (1, 2, 3)]

    def computed(sheet: str) -> str:
        sheet, found = re.subn(r'<c r="A3"[^>]*><f>A2</f><v ?/></c>',
                               '<c r="A3" t="str"><f>A2</f><v>One.</v></c>', sheet)  # fmt: skip
        assert found == 1
        return sheet

    edit(path, 'xl/worksheets/sheet1.xml', computed)
    records, rejected = read_file(path, LABELLED)
    assert [one.text for one in records] == ['One.', 'One.', 'Five.'] and len(rejected) == 2


def test_the_only_sheet_with_cells_is_read_and_of_several_the_named_one(tmp_path: pathlib.Path) -> None:
    rows = [('text',), ('From notes.',)]
    path = write(tmp_path / 'a.xlsx', Empty=[], Notes=rows, Blank=[(), (None, None)])
    columns(path, TEXT)
    assert [one.text for one in read_file(path, TEXT)[0]] == ['From notes.']
    path = write(tmp_path / 'a.xlsx', Notes=rows, Secret=[('text',), ('From secret.',)])
    with pytest.raises(RestrictedError, match='2 sheets with cells.*--sheet') as caught:
        columns(path, TEXT)
    assert 'Secret' not in str(caught.value) and "['Notes', 'Secret']" in caught.value.for_the_curator
    named = RecordRules(fields=RecordFields(text='text', table=Table(sheet='Secret')))
    columns(path, named)
    assert [one.text for one in read_file(path, named)[0]] == ['From secret.']
    with pytest.raises(RestrictedError, match="sheet='secret'"):
        columns(path, RecordRules(fields=RecordFields(text='text', table=Table(sheet='secret'))))


def test_a_hidden_sheet_is_read_only_by_its_name(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / 'a.xlsx', Notes=[('text',), ('Seen.',)], Old=[('text',), ('Hidden.',)])
    edit(path, 'xl/workbook.xml', lambda text: text.replace('name="Old"', 'name="Old" state="hidden"')
         .replace('state="hidden" sheetId="2" state="visible"', 'sheetId="2" state="hidden"'))  # fmt: skip
    columns(path, TEXT)
    assert [one.text for one in read_file(path, TEXT)[0]] == ['Seen.']


def test_columns_may_be_positions(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / 'a.xlsx', Notes=[(None, 'One.', 'b'), (None, 'Two.', 1), (None, 'Three.')])
    rules = RecordRules(fields=RecordFields(text='1', label='2'), labels=('1', 'b'))
    columns(path, rules)
    records, rejected = read_file(path, rules)
    assert [(one.text, one.label) for one in records] == [('One.', 'b'), ('Two.', '1')]
    assert [one.reason for one in rejected] == [Reason.MISSING_FIELD]
    with pytest.raises(MissingColumns, match=r"missing=\['3'\]"):
        columns(path, RecordRules(fields=RecordFields(text='3')))


def test_what_names_no_columns_is_refused_without_content(tmp_path: pathlib.Path) -> None:
    for rows in ([('secret title',), ('text',), ('x',)], [('text', 'text'), ('secret', 'x')], []):
        path = write(tmp_path / 'a.xlsx', Notes=rows)
        with pytest.raises(MissingColumns, match='delete what stands above it') as caught:
            columns(path, TEXT)
        assert 'secret' not in str(caught.value)


def test_what_is_no_workbook_is_refused(tmp_path: pathlib.Path) -> None:
    whole = write(tmp_path / 'b.xlsx', Notes=[('text',), ('secret',)]).read_bytes()
    # Nothing, half a file, another zip file, and what a password makes of one.
    for data in (b'', whole[: len(whole) // 2], b'PK\5\6' + bytes(18), b'\xd0\xcf\x11\xe0' + bytes(999)):
        (tmp_path / 'a.xlsx').write_bytes(data)
        with pytest.raises(ValueError, match='Expected an Excel workbook') as caught:
            columns(tmp_path / 'a.xlsx', TEXT)
        assert (
            'secret' not in str(caught.value) and caught.value.__cause__ is caught.value.__context__ is None
        )


def test_damage_within_a_sheet_ends_it_as_a_rejected_row(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / 'a.xlsx', Notes=[('text',), *((f'Note {n}.',) for n in range(100))])
    edit(path, 'xl/worksheets/sheet1.xml', lambda text: text[: len(text) // 2])
    columns(path, TEXT)
    records, rejected = read_file(path, TEXT)
    assert 0 < len(records) < 100 and [one.reason for one in rejected] == [Reason.UNREADABLE_REST]


def test_a_wrong_size_in_the_file_hides_no_row(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / 'a.xlsx', Notes=[('id', 'text'), (1, 'One.'), (2, 'Two.')])
    edit(
        path,
        'xl/worksheets/sheet1.xml',
        lambda text: re.sub(r'<dimension[^>]*>', '<dimension ref="A1"/>', text),
    )
    columns(path, TEXT)
    assert [one.text for one in read_file(path, TEXT)[0]] == ['One.', 'Two.']
