"""Rows of CSV against a slow twin, character by character; what one row's text can do to other rows."""

import csv
import io
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from transforms.read import Reason
from transforms.read import lines as lines_lib
from transforms.read.dialect import BACKSLASH, DOUBLE, NONE, QUOTINGS
from transforms.read.formats import csv as csv_lib
from transforms.read.formats.csv import csv_rows

QUOTED = [DOUBLE, BACKSLASH]
# An ill-formed row.
BAD = None
Row = list[str] | None


def rows_of(text: str, quoting: str, size: int = 7, delimiter: str = ',') -> list[Row]:
    data = text.encode()
    chunks = [data[place : place + size] for place in range(0, len(data), size)]
    return [BAD if isinstance(row, Reason) else row for row, _ in csv_rows(chunks, delimiter, quoting)]


# --- The slow twin -------------------------------------------------------------------


def slow_rows(text: str, quoting: str) -> list[Row]:
    """The same as `csv_rows`, as the grammar says it."""
    found: list[Row] = []
    place = 0
    while place < len(text):
        row, end = slow_row(text, place, quoting)
        if row is BAD:
            line_end = text.find('\n', place)
            end = len(text) if line_end < 0 else line_end + 1
        if row != []:
            found.append(row)
        place = end
    return found


def slow_row(text: str, place: int, quoting: str) -> tuple[Row, int]:
    """The row that begins at a place, and where the next one begins; `BAD` where the grammar has none."""
    fields: list[str] = []
    field, state = '', 'begin'
    while True:
        following = text[place : place + 1]
        if quoting == BACKSLASH and state != 'closed' and text[place : place + 2] in ('\\"', '\\\\'):
            field += text[place + 1]
            state = 'quoted' if state == 'quoted' else 'plain'
            place += 2
            continue
        if state == 'quoted':
            if not following:
                return BAD, place
            if following == '"':
                state = 'closed'
            else:
                field += following
        elif state == 'closed' and following == '"':
            field, state = field + '"', 'quoted'
        elif following == ',':
            fields.append(field)
            field, state = '', 'begin'
        elif following in ('', '\n', '\r'):
            is_blank = state == 'begin' and not fields
            end = place
            while text[end : end + 1] == '\r':
                end += 1
            if text[end : end + 1] not in ('', '\n'):
                return BAD, place
            return [] if is_blank else [*fields, field], end + 1
        elif state == 'closed':
            return BAD, place
        elif state == 'begin' and following == '"' and quoting != NONE:
            state = 'quoted'
        else:
            field, state = field + following, 'plain'
        place += 1


@pytest.fixture
def lines_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that the reader of rows takes."""
    taken: list[str] = []
    real = csv_lib._CsvLines.__next__

    def counted(self: csv_lib._CsvLines) -> str:
        taken.append(line := real(self))
        return line

    monkeypatch.setattr(csv_lib._CsvLines, '__next__', counted)
    return taken


@pytest.mark.parametrize('quoting', QUOTINGS)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=500)
@hypothesis.given(text=st.text('a,"\\\n\r', max_size=40), size=st.integers(1, 9))
def test_rows_are_those_of_the_grammar_and_no_line_is_read_a_third_time(
    lines_read: list[str], quoting: str, text: str, size: int
) -> None:
    lines_read.clear()
    assert rows_of(text, quoting, size) == slow_rows(text, quoting)
    assert len(lines_read) <= 2 * len(text.split('\n'))


# --- Properly written files ----------------------------------------------------------

WRITERS: dict[str, tuple[str, dict[str, Any]]] = {
    'RFC 4180': (DOUBLE, {'quoting': csv.QUOTE_ALL}),
    'Spark': (BACKSLASH, {}),
    'pandas': (BACKSLASH, {'quoting': csv.QUOTE_ALL, 'doublequote': False, 'escapechar': '\\'}),
}


def written(row: Sequence[str], writer: str) -> str:
    if writer == 'Spark':
        inside = [field.replace('\\', '\\\\').replace('"', '\\"') for field in row]
        return ','.join(f'"{field}"' for field in inside) + '\n'
    file = io.StringIO(newline='')
    csv.writer(file, **WRITERS[writer][1]).writerow(row)
    return file.getvalue()


@pytest.mark.parametrize('writer', WRITERS)
@hypothesis.given(rows=st.lists(st.lists(st.text('aé,"\\\n\r\0'), min_size=1, max_size=3)))
def test_what_a_writer_of_the_quoting_wrote_is_read(writer: str, rows: list[list[str]]) -> None:
    assert rows_of(''.join(written(row, writer) for row in rows), WRITERS[writer][0]) == rows


@hypothesis.given(
    lines=st.lists(st.lists(st.text('aé,"\\\0'), min_size=1, max_size=3).filter(any)),
)
def test_without_quotes_every_line_is_a_row(lines: list[list[str]]) -> None:
    text = ''.join('\t'.join(fields) + '\n' for fields in lines)
    assert rows_of(text, NONE, delimiter='\t') == lines


def grammar_rows(quoting: str) -> st.SearchStrategy[str]:
    """Texts of one row, as no writer might write it; without a quote that opens where none stands."""
    escapes = ['\\"', '\\\\', '\\a'] if quoting == BACKSLASH else ['\\']
    inside = st.lists(st.sampled_from(['a', '""', ',', '\n', '\r', *escapes])).map(''.join)
    quoted = inside.map(lambda text: f'"{text}"')
    plain = st.lists(st.sampled_from(['a', ' ', 'a"', *escapes[1:]])).map(''.join)
    row = st.lists(quoted | plain, min_size=1, max_size=3).map(','.join)
    return st.tuples(row, st.sampled_from(['\n', '\r\n'])).map(''.join)


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('quoting', QUOTED)
@hypothesis.given(data=st.data())
def test_adding_removing_or_replacing_a_row_changes_that_row(quoting: str, data: st.DataObject) -> None:
    texts = data.draw(st.lists(grammar_rows(quoting), min_size=1, max_size=5))
    # By itself each is one row, or a blank line.
    alone = [rows_of(text, quoting) for text in texts]
    assert all(len(rows) <= 1 and rows != [BAD] for rows in alone)
    place = data.draw(st.integers(0, len(texts) - 1))
    other = data.draw(grammar_rows(quoting))
    for changed, expected in (
        ([other, *texts[place:]], [rows_of(other, quoting), *alone[place:]]),
        ([other, *texts[place + 1 :]], [rows_of(other, quoting), *alone[place + 1 :]]),
        (texts[place + 1 :], alone[place + 1 :]),
    ):
        before = texts[:place]
        found = rows_of(''.join([*before, *changed]), quoting)
        assert found == [row for rows in [*alone[:place], *expected] for row in rows]


@pytest.mark.parametrize('quoting', QUOTED)
@hypothesis.given(
    stray=st.sampled_from(['"', 'a,"b', '"a"b', '"a\r', '"']),
    after=st.lists(st.text('a, ', min_size=1), max_size=5),
)
def test_a_stray_quote_before_rows_without_quotes_changes_its_own_row(
    quoting: str, stray: str, after: list[str]
) -> None:
    rest = ''.join(f'{line}\n' for line in after)
    assert rows_of(f'a,b\n{stray}\n{rest}', quoting) == [['a', 'b'], BAD, *rows_of(rest, quoting)]


# --- Bounds --------------------------------------------------------------------------


def test_a_quoted_text_of_many_lines_is_one_row_and_its_lines_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else one person's text would be as many records as it has lines."""
    monkeypatch.setattr(lines_lib, 'MAX_ROW_LINES', 3)
    data = b'1,"a\nb\nc"\n2,"' + b'x,y\n' * 3 + b'"\n3,z\n'
    found = list(csv_rows([data]))
    assert [row for row, _ in found] == [['1', 'a\nb\nc'], Reason.TOO_LONG, ['3', 'z']]
    assert found[1][1] == b'2,"' + b'x,y\n' * 3 + b'"\n'


def test_after_a_quote_that_no_row_closes_in_sight_lines_are_read_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines_lib, 'MAX_ROW_BYTES', 1_000)
    data = b'1,a\n2,"b\n' + b'3,c\n' * 500
    assert [row for row, _ in csv_rows([data])] == [['1', 'a'], Reason.MALFORMED, *[['3', 'c']] * 500]


@pytest.mark.first
@pytest.mark.heavy
def test_lines_that_are_read_anew_are_never_held_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB of line ends after a quote would be 64 million objects."""
    monkeypatch.setattr(lines_lib, 'MAX_ROW_BYTES', 2**20)

    def chunks() -> Iterator[bytes]:
        yield b'text\n"open\n'
        for _ in range(3 * 2**20 // 2**15):
            yield b'x\n' * 2**14

    tracemalloc.start()
    try:
        count = sum(1 for _ in csv_rows(chunks()))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 2 + 3 * 2**19
    assert most < 16 * 2**20


def test_a_carriage_return_alone_may_end_lines() -> None:
    data = b'id,text\r1,"a\rb\nc"\r2,"open\r3,d\r\r4,e\nf\r'
    assert [row for row, _ in csv_rows([data], line_end=b'\r')] == [
        ['id', 'text'],
        ['1', 'a\rb\nc'],
        Reason.MALFORMED,
        ['3', 'd'],
        Reason.MALFORMED,
    ]
