"""First lines of CSV files: line feeds in names, a declared delimiter, line ends; and encodings of JSON."""

import csv
import io
import pathlib

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.transforms.read.samples import TEXT, read_bytes
from transforms.read import Dialect, RecordFields, RecordRules, read_header
from transforms.read import dialect as dialect_lib
from transforms.read.dialect import Layout

GIVEN_NOTHING = Dialect()
ENCODINGS = ('utf-8', 'utf-8-sig', 'utf-16', 'utf-16-le', 'utf-16-be')


def names_of(
    folder: pathlib.Path, data: bytes, dialect: Dialect = GIVEN_NOTHING, name: str = 'h.csv'
) -> list[str]:
    (folder / name).write_bytes(data)
    return list(read_header(str(folder / name), dialect).columns)


@pytest.mark.parametrize('line_end', ['\n', '\r\n', '\r'])
@pytest.mark.parametrize('delimiter', [',', ';', '\t', '|'])
@pytest.mark.parametrize('encoding', ENCODINGS)
@pytest.mark.parametrize('inner', ['\n', '\r\n', '\r', '""'])
def test_a_name_may_hold_a_line_end_or_a_quote(
    tmp_path: pathlib.Path, line_end: str, delimiter: str, encoding: str, inner: str
) -> None:
    header = delimiter.join(('id', f'"a{inner}b"', 'text'))
    row = delimiter.join(('1', '"x\ny, z"', f'first{line_end}'))
    data = f'{header}{line_end}{row}{row}'.encode(encoding)
    name = f'a{inner.replace(2 * chr(34), chr(34))}b'
    assert names_of(tmp_path, data) == ['id', name, 'text']
    for column, text in ((name, 'x\ny, z'), ('text', 'first')):
        found = read_bytes(tmp_path, 'a.csv', data, RecordRules(fields=RecordFields(text=column)))
        assert found == ([text, text], [])


@pytest.mark.parametrize('line', ['sep={}', '"sep={}"', 'SEP={}'])
@pytest.mark.parametrize('line_end', ['\n', '\r\n', '\r'])
@pytest.mark.parametrize('delimiter', [',', ';', '\t', '#'])
@pytest.mark.parametrize('encoding', ENCODINGS)
def test_a_line_may_declare_the_delimiter(
    tmp_path: pathlib.Path, line: str, line_end: str, delimiter: str, encoding: str
) -> None:
    rows = (('text', 'label'), ('"x"', 'a'), ('y', 'b'))
    body = ''.join(delimiter.join(row) + line_end for row in rows)
    data = f'{line.format(delimiter)}{line_end}{body}'.encode(encoding)
    assert names_of(tmp_path, data) == ['text', 'label']
    (header,) = [read_header(str(tmp_path / 'h.csv'), Dialect())]
    assert header.dialect == Dialect(), 'a reader finds it out again'
    assert read_bytes(tmp_path, 'a.csv', data, TEXT) == (['x', 'y'], [])


def test_what_is_declared_gives_way_to_what_is_given_and_is_a_record_without_a_header(
    tmp_path: pathlib.Path,
) -> None:
    data = b'sep=;\ntext|a;b\nx|1\n'
    rules = RecordRules(fields=RecordFields(text='text', dialect=Dialect(delimiter='|')))
    assert read_bytes(tmp_path, 'a.csv', data, rules) == (['x'], [])
    rules = RecordRules(fields=RecordFields(text='0'))
    assert read_bytes(tmp_path, 'a.csv', b'sep=;\nx;y\n', rules) == (['sep=;', 'x;y'], [])


@hypothesis.given(
    names=st.lists(st.text('ab,;"\n\r', min_size=1), min_size=1, unique=True),
    line_end=st.sampled_from(['\n', '\r\n', '\r']),
    declared=st.sampled_from(['', 'sep=;']),
    records=st.lists(st.text('ab,;"\n\r'), min_size=2, max_size=2),
)
def test_no_record_decides_where_a_header_ends_and_how(
    names: list[str], line_end: str, declared: str, records: list[str]
) -> None:
    file = io.StringIO(newline='')
    csv.writer(file, delimiter=';', quoting=csv.QUOTE_ALL, lineterminator=line_end).writerow(names)
    header = (declared and declared + line_end) + file.getvalue()
    # A record that begins with a line feed after a carriage return would be the end of the header line.
    ends = [header + record.lstrip('\n') for record in (*records, '')]
    found = [dialect_lib.detect(text.encode(), Dialect(), names) for text in ends]
    line_bytes = b'\r' if line_end == '\r' else b'\n'
    assert found[0] == found[1] == found[2]
    assert found[0].line_end == line_bytes
    shown = [dialect_lib.likeliest(text.encode(), Dialect()) for text in ends]
    assert shown[0] == shown[1] == shown[2]


@pytest.mark.parametrize('record', [b'', b'caf\xe9;"x"\r', b'x;"\r\n', b'5";,;"\n,,,"\r', b'\0'])
def test_a_quote_within_a_name_opens_nothing_and_no_record_closes_it(record: bytes) -> None:
    head = b'text;5" pipe\n' + record
    found = dialect_lib.detect(head, Dialect(), ['text', '5" pipe'])
    assert found == Layout(encoding='utf-8', delimiter=';')
    shown = dialect_lib.likeliest(head, Dialect())
    assert shown == (['text', '5" pipe'], Dialect(delimiter=';'))


def test_a_header_shows_its_line_end_alone() -> None:
    layout = dialect_lib.detect(b'text\r"a\nb"\rc\n', Dialect(), ['text'])
    assert layout == Layout(encoding='utf-8', delimiter=',', line_end=b'\r')
    # Without a header line nothing is found out.
    assert dialect_lib.detect(b'1;x\r2;y\r', Dialect(), ()).line_end == b'\n'


def test_a_tsv_file_has_tabs_unless_its_header_shows_otherwise(tmp_path: pathlib.Path) -> None:
    by_place = RecordRules(fields=RecordFields(text='1'))
    assert read_bytes(tmp_path, 'a.tsv', b'a,b\tx\n', by_place) == (['x'], [])
    assert read_bytes(tmp_path, 'a.tsv', b'id\ttext\n1\tx, y\n', TEXT) == (['x, y'], [])
    assert read_bytes(tmp_path, 'a.tsv', b'id;text\n1;x\n', TEXT) == (['x'], [])
    assert names_of(tmp_path, b'a, b\ttext\n', name='b.tsv') == ['a, b', 'text']
    assert read_bytes(tmp_path, 'a.ndjson', b'{"text": "x"}\n', TEXT) == (['x'], [])


def test_a_name_of_several_lines_may_be_of_eight_bits(tmp_path: pathlib.Path) -> None:
    data = 'id;"the\nGröße";text\n1;2;ß\n'.encode('windows-1252')
    assert names_of(tmp_path, data) == ['id', 'the\nGröße', 'text']
    assert read_header(str(tmp_path / 'h.csv'), Dialect()).dialect.encoding == 'windows-1252'


def test_names_at_the_end_that_are_empty_are_no_columns(tmp_path: pathlib.Path) -> None:
    assert names_of(tmp_path, b'id;text;; \n1;x;;\n') == ['id', 'text']


@pytest.mark.parametrize('name', ['a.jsonl', 'a.ndjson', 'a.json', 'array.json'])
@pytest.mark.parametrize(
    ('encoding', 'given'),
    [
        ('utf-16', None), ('utf-16', 'utf-16'), ('utf-8-sig', None), ('utf-16-le', 'utf-16'),
        ('utf-16-be', 'utf-16-be'), ('windows-1252', 'windows-1252'),
    ],
)  # fmt: skip
def test_json_is_of_any_encoding(tmp_path: pathlib.Path, name: str, encoding: str, given: str | None) -> None:
    rows = [f'{{"text": "café {n}"}}' for n in range(3)]
    text = f'[{",".join(rows)}]' if name.startswith('array') else '\n'.join(rows)
    rules = RecordRules(fields=RecordFields(text='text', dialect=Dialect(encoding=given)))
    assert read_bytes(tmp_path, name, text.encode(encoding), rules) == ([f'café {n}' for n in range(3)], [])
    assert names_of(tmp_path, text.encode(encoding), rules.fields.dialect, name) == ['text']


def test_a_row_of_json_that_is_no_text_spoils_itself_alone(tmp_path: pathlib.Path) -> None:
    good, bad = '{"text": "x"}\n'.encode('utf-16-le'), b'\x00\xd8' + 'x\n'.encode('utf-16-le')
    rules = RecordRules(fields=RecordFields(text='text', dialect=Dialect(encoding='utf-16-le')))
    texts, rejected = read_bytes(tmp_path, 'a.jsonl', good + bad + good, rules)
    assert texts == ['x', 'x'] and len(rejected) == 1
