"""Excel workbooks: cells as other formats have them, one sheet, formulas by their values."""

import datetime
import pathlib
import re
import tracemalloc
import zipfile
from collections.abc import Callable, Sequence
from typing import Any
from xml.sax import saxutils

import hypothesis
import openpyxl
import pytest
from hypothesis import strategies as st

from tests.transforms.read.samples import LABELLED, TEXT, read_file
from transforms import read
from transforms.read import MissingColumns, Reason, RecordFields, RecordRules, Table, lines
from transforms.read.errors import RestrictedError
from transforms.read.formats import sheet

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


SHEET, TYPES = 'xl/worksheets/sheet1.xml', '[Content_Types].xml'
NAMESPACE = 'http://schemas.openxmlformats.org/spreadsheetml/2006/main'
IDS = RecordRules(fields=RecordFields(text='text', unit='who'), unit='user')
# The third of five rows: `who` of the third is in this cell.
THIRD = '<c r="A4" t="n"><v>2</v></c>'


def write_rows(path: pathlib.Path, cell: str = THIRD) -> pathlib.Path:
    """Five rows, in the third of which another program wrote the id."""
    write(path, Notes=[('who', 'text', 'score'), *((n, f'Note {n}.', 1.5) for n in range(5))])
    edit(path, SHEET, lambda text: changed(text, THIRD, cell))
    return path


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def ids_of(path: pathlib.Path) -> tuple[list[str | None], list[tuple[Reason, int]]]:
    records, rejected = read_file(path, IDS)
    return [one.unit for one in records], [(one.reason, one.ordinal) for one in rejected]


SHARED = 'xl/sharedStrings.xml'


def share(path: pathlib.Path) -> pathlib.Path:
    """Writes the texts of a workbook as Excel does: in a file of their own, and their numbers in cells."""
    with zipfile.ZipFile(path) as workbook:
        parts = {each: workbook.read(each).decode() for each in workbook.namelist()}
    texts = re.findall(r'<is>(.*?)</is>', parts[SHEET])
    numbers = iter(range(len(texts)))
    parts[SHEET] = re.sub(
        r' t="inlineStr"><is>.*?</is>', lambda _: f' t="s"><v>{next(numbers)}</v>', parts[SHEET]
    )
    parts[SHARED] = f'<sst xmlns="{NAMESPACE}">' + ''.join(f'<si>{text}</si>' for text in texts) + '</sst>'
    kind = 'application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml'
    parts[TYPES] = changed(
        parts[TYPES], '</Types>', f'<Override PartName="/{SHARED}" ContentType="{kind}"/></Types>'
    )
    with zipfile.ZipFile(path, 'w') as workbook:
        for each, data in parts.items():
            workbook.writestr(each, data)
    return path


def test_texts_that_cells_share_are_read_as_they_are_written(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / 'a.xlsx', Notes=[('who', 'text'), (1, 'One & <two>'), (2, ' _x005F_x000D_ ä')])
    edit(path, SHEET, lambda text: changed(
        text, '<is><t>One &amp; &lt;two&gt;</t></is>',
        '<is><r><t>One &amp;</t></r><r><rPr/><t> &lt;two&gt;</t></r><rPh sb="0"><t>wan</t></rPh></is>',
    ))  # fmt: skip
    alone = [one.text for one in read_file(path, IDS)[0]]
    assert [one.text for one in read_file(share(path), IDS)[0]] == alone == ['One & <two>', ' _x000D_ ä']
    edit(path, SHARED, lambda text: text[: len(text) // 2])
    with pytest.raises(ValueError, match='Expected an Excel workbook'):
        columns(path, IDS)
    assert ids_of(path) == ([], [(Reason.UNREADABLE_REST, 0)])


BAD_CELLS = {
    'nan': '<c r="A4" t="n"><v>nan</v></c>',
    'infinity': '<c r="A4" t="n"><v>INF</v></c>',
    'no date': '<c r="A4" t="d"><v>0000-13-45</v></c>',
    'no such text': '<c r="A4" t="s"><v>99999</v></c>',
    'text before the first': '<c r="A4" t="s"><v>-1</v></c>',
    'digits': f'<c r="A4" t="n"><v>{"7" * 5_000}</v></c>',
    'boolean': '<c r="A4" t="b"><v>x</v></c>',
    'style': '<c r="A4" s="x"><v>2</v></c>',
    'place': '<c r="4" t="n"><v>2</v></c>',
    'far place': '<c r="AAAA4" t="n"><v>2</v></c>',
}


@pytest.mark.parametrize('cell', BAD_CELLS.values(), ids=BAD_CELLS)
def test_a_bad_cell_rejects_its_row_and_no_other(tmp_path: pathlib.Path, cell: str) -> None:
    path = write_rows(tmp_path / 'a.xlsx')
    assert ids_of(path) == (['0', '1', '2', '3', '4'], [])
    path = write_rows(path, cell)
    columns(path, IDS)
    assert ids_of(path) == (['0', '1', '3', '4'], [(Reason.MALFORMED, 2)])
    # An open twin, the reader of the library, ends with an error there, and gives no later row.
    twin = openpyxl.load_workbook(path, read_only=True, data_only=True).worksheets[0]
    seen = []
    with pytest.raises(Exception):  # noqa: B017, PT011 - of many kinds
        for row in twin.iter_rows(values_only=True):
            seen.append(row)
    assert len(seen) == 3


@pytest.mark.parametrize('cell', [cell for name, cell in BAD_CELLS.items() if 'place' not in name])
def test_a_bad_cell_of_a_column_that_is_not_read_rejects_nothing(tmp_path: pathlib.Path, cell: str) -> None:
    path = write_rows(tmp_path / 'a.xlsx')
    edit(path, SHEET, lambda text: changed(text, '<c r="C4" t="n"><v>1.5</v></c>', cell.replace('A4', 'C4')))
    assert ids_of(path) == (['0', '1', '2', '3', '4'], [])


def test_what_a_style_takes_for_a_date_out_of_range_rejects_its_row(tmp_path: pathlib.Path) -> None:
    path = write(
        tmp_path / 'a.xlsx',
        Notes=[('text', 'who'), ('One.', datetime.datetime(2024, 5, 6)), ('Two.', 2), ('Three.', 3)],
    )
    edit(path, SHEET, lambda text: re.sub(r'<v>45418</v>', '<v>1e300</v>', text))
    assert ids_of(path) == (['2', '3'], [(Reason.MALFORMED, 0)])


def sheet_of(row: str) -> str:
    """A sheet whose texts are not shared, with a row between two others."""

    def of(who: str, text: str) -> str:
        return f'<row><c><v>{who}</v></c><c t="inlineStr"><is><t>{text}</t></is></c></row>'

    head = of('', '').replace('<v></v>', '<f/><v>who</v>').replace('<c><f/>', '<c t="str"><f/>')
    head = head.replace('<t></t>', '<t>text</t>')
    return (
        f'<worksheet xmlns="{NAMESPACE}"><sheetData>{head}{of("0", "a")}{row}{of("2", "c")}'
        '</sheetData></worksheet>'
    )


def with_sheet(path: pathlib.Path, text: str) -> pathlib.Path:
    write_rows(path)
    with zipfile.ZipFile(path) as workbook:
        parts = {each: workbook.read(each) for each in workbook.namelist()}
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as workbook:
        for each, data in parts.items():
            workbook.writestr(each, text if each == SHEET else data)
    return path


HUGE = 40 * 2**20
TOO_LARGE = {
    'text': (f'<row><c><v>1</v></c><c t="inlineStr"><is><t>{"a" * HUGE}</t></is></c></row>', Reason.TOO_LONG),
    'references': (
        f'<row><c><v>1</v></c><c t="inlineStr"><is><t>{"&amp;" * (HUGE // 5)}</t></is></c></row>',
        Reason.TOO_LONG,
    ),
    'number': (f'<row><c><v>{"1" * HUGE}</v></c><c t="str"><v>b</v></c></row>', Reason.TOO_LONG),
    'unread column': (
        f'<row><c><v>1</v></c><c t="str"><v>b</v></c><c t="str"><v>{"a" * HUGE}</v></c></row>', None
    ),
    'tag': (f'<row><c r="{"A" * HUGE}"/></row>', Reason.UNREADABLE_REST),
    'depth': ('<a>' * (HUGE // 40), Reason.UNREADABLE_REST),
}  # fmt: skip


@pytest.mark.parametrize(('row', 'reason'), TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_row_of_any_size_is_never_held(tmp_path: pathlib.Path, row: str, reason: Reason | None) -> None:
    path = with_sheet(tmp_path / 'a.xlsx', sheet_of(row))
    assert path.stat().st_size < HUGE / 100
    columns(path, IDS)
    tracemalloc.start()
    found = ids_of(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (
        found
        == {
            None: (['0', '1', '2'], []),
            Reason.TOO_LONG: (['0', '2'], [(Reason.TOO_LONG, 1)]),
            Reason.UNREADABLE_REST: (['0'], [(Reason.UNREADABLE_REST, 1)]),
        }[reason]
    )
    assert most < HUGE / 4
    if row.startswith('<row><c><v>1</v></c><c t="inlineStr"><is><t>a'):
        # An open twin, the reader of the library, holds the text, whole.
        tracemalloc.start()
        list(openpyxl.load_workbook(path, read_only=True).worksheets[0].iter_rows(values_only=True))
        assert tracemalloc.get_traced_memory()[1] > HUGE
        tracemalloc.stop()


def test_a_row_of_very_many_cells_is_too_long(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, 'MAX_ROW_BYTES', 100_000)
    path = with_sheet(tmp_path / 'a.xlsx', sheet_of('<row>' + '<c><v>1</v></c>' * 10_000 + '</row>'))
    assert ids_of(path) == (['0', '2'], [(Reason.TOO_LONG, 1)])


def test_texts_that_cells_share_are_bounded_one_by_one_and_together(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sheet, 'MAX_CELL_CHARACTERS', 1_000)
    path = write(
        tmp_path / 'a.xlsx',
        Notes=[('who', 'text'), *((n, f'Note {n}. ' + 'x' * (2_000 if n == 1 else n)) for n in range(5))],
    )
    assert ids_of(share(path)) == (['0', '2', '3', '4'], [(Reason.TOO_LONG, 1)])
    # Two names of columns and four texts of some 75 bytes each; the long one has no more.
    monkeypatch.setattr(sheet, 'MAX_SHARED_BYTES', 410)
    assert ids_of(path) == (['0', '2'], [(Reason.TOO_LONG, n) for n in (1, 3, 4)])


LAUGHS = '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">' + ''.join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
)


@pytest.mark.parametrize('encoding', ['utf-8', 'utf-16'])
@pytest.mark.parametrize('part', [SHEET, SHARED, 'xl/workbook.xml', 'xl/styles.xml'])
def test_a_declaration_of_entities_is_refused_wherever_it_is(
    tmp_path: pathlib.Path, part: str, encoding: str
) -> None:
    path = share(write_rows(tmp_path / 'a.xlsx'))
    with zipfile.ZipFile(path) as workbook:
        parts = {each: workbook.read(each) for each in workbook.namelist()}
    text = re.sub(r'^<\?xml[^>]*\?>', '', parts[part].decode())
    declared = f'<?xml version="1.0" encoding="{encoding}"?>{{}}{text}'
    for laughs in ('', f'{LAUGHS}]>'):
        parts[part] = declared.format(laughs).encode(encoding)
        with zipfile.ZipFile(path, 'w') as workbook:
            for each, data in parts.items():
                workbook.writestr(each, data)
        if not laughs:
            columns(path, IDS)
            continue
        with pytest.raises(ValueError, match='Expected an Excel workbook') as caught:
            columns(path, IDS)
        assert 'aaa' not in str(caught.value)


def test_files_of_a_workbook_that_are_larger_than_they_say_are_refused(tmp_path: pathlib.Path) -> None:
    path = write_rows(tmp_path / 'a.xlsx')
    with zipfile.ZipFile(path) as workbook:
        parts = {each: workbook.read(each) for each in workbook.namelist()}
    for name, compression in (('xl/styles.xml', zipfile.ZIP_DEFLATED), (SHEET, zipfile.ZIP_BZIP2)):
        with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as workbook:
            for each, data in parts.items():
                own = data + b' ' * HUGE if each == name else data
                workbook.writestr(each, own, compression if each == name else None)
        tracemalloc.start()
        with pytest.raises(ValueError, match='Expected an Excel workbook'):
            columns(path, IDS)
        assert tracemalloc.get_traced_memory()[1] < HUGE
        tracemalloc.stop()


@hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(
    kind=st.sampled_from(['', *(f' t="{kind}"' for kind in ('n', 's', 'b', 'd', 'e', 'str', 'inlineStr'))]),
    style=st.sampled_from(['', ' s="0"', ' s="1"', ' s="-7"']),
    written=st.text(st.characters(codec='utf-8', exclude_categories=['Cc']), max_size=6)
    | st.text('0123456789-+.eE:TZ ', max_size=12),
    has_formula=st.booleans(),
)  # fmt: skip
def test_whatever_a_cell_holds_the_other_rows_are_read(
    tmp_path: pathlib.Path, kind: str, style: str, written: str, has_formula: bool
) -> None:
    inner = saxutils.escape(written)
    formula = '<f>A1</f>' if has_formula else ''
    path = write_rows(
        tmp_path / 'a.xlsx', f'<c r="A4"{kind}{style}>{formula}<v>{inner}</v><is><t>{inner}</t></is></c>'
    )
    records, rejected = read_file(path, IDS)
    assert [one.text for one in records if one.text != 'Note 2.'] == [f'Note {n}.' for n in (0, 1, 3, 4)]
    assert len(records) + len(rejected) == 5
