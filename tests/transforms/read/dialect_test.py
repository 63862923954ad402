"""Files of any delimiter and encoding: what a header line shows, and what no record may decide."""

import codecs
import csv
import io
import pathlib
import re

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.transforms.read.samples import TEXT, read_bytes
from transforms import read
from transforms.read import Dialect, Reason, RecordFields, RecordRules
from transforms.read import dialect as dialect_lib
from transforms.read.dialect import Layout
from transforms.read.formats.csv import csv_records

DETECTED = ('utf-8', 'utf-8-sig', 'utf-16', 'utf-16-le', 'utf-16-be')
# Ends in a byte order mark's opposite, a line feed in either half of a code unit, and a surrogate pair.
ODD = ',;|\t"\r\n\0é\u010a\u0a0a\u0a00\ufeff\U0001f600'


def written(rows: list[tuple[str, ...]], delimiter: str, encoding: str) -> bytes:
    """The rows by Python's own writer; 'utf-16' and 'utf-8-sig' begin with a mark."""
    file = io.StringIO(newline='')
    csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)
    return file.getvalue().encode(encoding)


@hypothesis.settings(deadline=None)
@hypothesis.given(
    rows=st.lists(
        st.tuples(*2 * [st.text(st.characters(exclude_categories=['Cs']) | st.sampled_from(ODD), min_size=1)])
    ),
    delimiter=st.sampled_from(dialect_lib.DELIMITERS),
    encoding=st.sampled_from(DETECTED),
    size=st.integers(1, 9),
)
def test_what_the_csv_writer_wrote_is_read_however_it_is_cut(
    rows: list[tuple[str, str]], delimiter: str, encoding: str, size: int
) -> None:
    data = written([('text', 'other'), *rows], delimiter, encoding)
    chunks = [data[place : place + size] for place in range(0, len(data), size)]
    values = [values for values, _ in csv_records(chunks, TEXT.fields)]
    assert values == [{'text': text} for text, _ in rows]


@hypothesis.settings(deadline=None)
@hypothesis.given(
    names=st.lists(st.sampled_from(['text', 'id', 'a b', 'x,y', 'p;q', 'ü']), min_size=1, unique=True),
    delimiter=st.sampled_from([*dialect_lib.DELIMITERS, '~']),
    encoding=st.sampled_from([*DETECTED, 'windows-1252']),
    given_delimiter=st.sampled_from([None, ',', ';']),
    records=st.lists(st.binary(max_size=200), min_size=2, max_size=2),
)
def test_no_record_decides_what_a_file_is_taken_for(
    names: list[str], delimiter: str, encoding: str, given_delimiter: str | None, records: list[bytes]
) -> None:
    file = io.StringIO(newline='')
    csv.writer(file, delimiter=delimiter).writerow(names)
    header = file.getvalue().encode(encoding)
    given = Dialect(delimiter=given_delimiter)
    found = [dialect_lib.detect(header + rest, given, names[:1]) for rest in (*records, b'')]
    assert found[0] == found[1] == found[2]
    hints = [dialect_lib.suggest(header + rest, names[:1]) for rest in (*records, b'')]
    assert hints[0] == hints[1] == hints[2]


def test_a_file_without_a_header_row_shows_its_byte_order_mark_alone() -> None:
    rows = [('1', 'a;b;c'), ('2', 'text')]
    fields = RecordFields(text='1')
    for encoding in ('utf-8', 'utf-8-sig', 'utf-16'):
        data = written(rows, ',', encoding)
        assert [values for values, _ in csv_records([data], fields)] == [{'1': 'a;b;c'}, {'1': 'text'}]
    assert dialect_lib.detect(b'0;1\n', Dialect(), ()) == Layout(delimiter=',', encoding='utf-8')
    given = RecordFields(text='1', dialect=Dialect(delimiter=';', encoding='utf-16-le'))
    data = written(rows, ';', 'utf-16-le')
    assert [values for values, _ in csv_records([data], given)] == [{'1': 'a;b;c'}, {'1': 'text'}]


@pytest.mark.parametrize('encoding', ['windows-1252', 'iso-8859-2', 'windows-1251', 'shift-jis', 'gb18030'])
def test_an_encoding_that_is_given_is_used(tmp_path: pathlib.Path, encoding: str) -> None:
    texts = {'windows-1252': 'Über €', 'iso-8859-2': 'Łódź', 'windows-1251': 'Привет'}
    text = texts.get(encoding, '日本 text')
    data = written([('id', 'text'), ('1', text), ('2', f'{text}\nmore')], ';', encoding)
    rules = RecordRules(fields=RecordFields(text='text', dialect=Dialect(encoding=encoding)))
    assert read_bytes(tmp_path, 'a.csv', data, rules) == ([text, f'{text}\nmore'], [])


@pytest.mark.parametrize(
    ('encoding', 'bad'),
    [
        ('utf-16-le', b'\x00\xd8'),  # half of a surrogate pair
        ('utf-16-be', b'\xdc\x00'),
        ('windows-1252', b'\x81'),
        ('shift-jis', b'\xff'),
    ],
)
def test_bytes_that_are_no_text_spoil_their_row_alone(
    tmp_path: pathlib.Path, encoding: str, bad: bytes
) -> None:
    head, row, rest = (part.encode(encoding) for part in ('id;text\n0;before\n1;b', 'x\n', '2;after\n'))
    rules = RecordRules(fields=RecordFields(text='text', dialect=Dialect(encoding=encoding)))
    texts, rejected = read_bytes(tmp_path, 'a.csv', head + bad + row + rest, rules)
    assert texts == ['before', 'after']
    assert [(reason, place) for reason, place, _ in rejected] == [(Reason.NOT_TEXT, 1)]


def test_a_half_character_at_the_end_spoils_the_last_row(tmp_path: pathlib.Path) -> None:
    data = codecs.BOM_UTF16_LE + 'text\nbefore\nlast'.encode('utf-16-le') + b'x'
    texts, rejected = read_bytes(tmp_path, 'a.csv', data, TEXT)
    assert texts == ['before']
    assert [reason for reason, _, _ in rejected] == [Reason.NOT_TEXT]


def test_a_header_line_without_an_end_in_sight_is_not_looked_at() -> None:
    long = b'text;' + b'x' * dialect_lib.HEAD_BYTES
    assert dialect_lib.detect(long[: dialect_lib.HEAD_BYTES], Dialect(), ('text',)).delimiter == ','
    assert dialect_lib.detect(b'text;x', Dialect(), ('text',)).delimiter == ';'


REFUSED = {
    'latin.csv': ('Größe;text\nsecret\n'.encode('latin-1'), Dialect(), "';' --encoding windows-1252"),
    'semicolon.csv': (b'secret;text\n', Dialect(delimiter=','), "--delimiter ';' --encoding utf-8"),
    'tab.csv': (b'secret\ttext\n', Dialect(delimiter=';'), "--delimiter 'tab' --encoding utf-8: give"),
    'wide.csv': ('secret,text\n'.encode('utf-16'), Dialect(encoding='utf-8'), '--encoding utf-16-le: give'),
    'none.csv': (b'secret;x\n', Dialect(), 'Name the columns as the file does'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_what_to_try_is_said_and_only_a_screen_may_show_the_columns(
    tmp_path: pathlib.Path, name: str
) -> None:
    data, dialect, remedy = REFUSED[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(read.MissingColumns, match=re.escape(remedy)) as caught:
        read.check_input(str(tmp_path / name), RecordFields(text='text', dialect=dialect))
    assert 'secret' not in str(caught.value) and 'secret' not in repr(caught.value)
    assert caught.value.for_the_curator.startswith('For the curator alone')


def test_the_columns_that_a_screen_may_show_are_bounded(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.csv').write_text(','.join(f'c{column}' + 99 * 'x' for column in range(999)) + '\n')
    with pytest.raises(read.MissingColumns) as caught:
        read.check_input(str(tmp_path / 'a.csv'), TEXT.fields)
    assert len(caught.value.for_the_curator) < 4_000
