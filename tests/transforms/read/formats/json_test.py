"""JSON lines, arrays, and files that seem to be one and are the other."""

import gzip
import json
import pathlib
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.transforms.read.samples import TEXT, read_bytes
from transforms import read
from transforms.read import Reason, lines
from transforms.read.formats import json as json_lib
from transforms.read.rules import REJECTION_BYTES


@pytest.mark.parametrize('data', [b'', b'\n', b'[]', b' [ ] '])
def test_an_empty_file_holds_no_record(tmp_path: pathlib.Path, data: bytes) -> None:
    assert read_bytes(tmp_path, 'a.json', data, TEXT) == ([], [])
    read.check_input(str(tmp_path / 'a.json'), TEXT.fields)


@pytest.mark.parametrize('rest', ['{"text": "b"', '{"text": "b"} {', 'nonsense]', ''])
def test_a_broken_array_keeps_what_came_before(tmp_path: pathlib.Path, rest: str) -> None:
    texts, rejected = read_bytes(tmp_path, 'a.json', f'[{{"text": "a"}}, 7, {rest}'.encode(), TEXT)
    assert texts == ['a']
    assert rejected == [(Reason.MALFORMED, 1, b'7'), (Reason.UNREADABLE_REST, 2, rest.encode())]


@pytest.mark.parametrize(
    ('line', 'reason'),
    [
        (b'{"text": "caf\xe9"}', Reason.NOT_TEXT),
        (b'{"text": "\\ud800"}', Reason.NOT_TEXT),
        (b'{"text": "x"', Reason.MALFORMED),
        (b'"text"', Reason.MALFORMED),
        (b'[' * 100_000, Reason.MALFORMED),
        (b'{"text": ' + b'9' * 5_000 + b'}', Reason.WRONG_TYPE),
        (b'{}', Reason.MISSING_FIELD),
        (b'{"text": null}', Reason.MISSING_FIELD),
        (b'{"text": 5}', Reason.WRONG_TYPE),
        (b'{"text": ["x"]}', Reason.WRONG_TYPE),
        (b'{"text": ""}', Reason.BLANK_TEXT),
        (b'{"text": " \\n\\u3000"}', Reason.BLANK_TEXT),
        (b'{"text": "' + b'x' * 100_001 + b'"}', Reason.TOO_LONG),
        (b'{"text": "' + 'é'.encode() * 50_001 + b'"}', Reason.TOO_LONG),
    ],
    ids=lambda value: value.name if isinstance(value, Reason) else '',
)
def test_a_bad_json_line_is_rejected_alone(tmp_path: pathlib.Path, line: bytes, reason: Reason) -> None:
    data = b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n'
    texts, rejected = read_bytes(tmp_path, 'a.jsonl', data, TEXT)
    assert texts == ['before', 'after']
    assert rejected == [(reason, 1, (line + b'\n')[:REJECTION_BYTES])]


# Elements of an array, the last two with what an array's own decoder takes for its end.
BAD_ELEMENTS = [
    (b'{"text": ' + b'9' * 5_000 + b'}', Reason.WRONG_TYPE),
    (b'9' * 5_000, Reason.MALFORMED),
    (b'[' * 100_000 + b']' * 100_000, Reason.MALFORMED),
    (b'{"text": "\\"}]", "n": ' + b'[' * 100_000 + b']' * 100_000 + b'}', Reason.MALFORMED),
    (b'{"text": nonsense, "]": "{"}', Reason.MALFORMED),
    (b'{"text" "x", "other": {"a": [1, 2}]}', Reason.MALFORMED),
    (b'{"text": "caf\xe9"}', Reason.NOT_TEXT),
]


@pytest.mark.parametrize(('element', 'reason'), BAD_ELEMENTS, ids=lambda value: repr(value)[:24])
@pytest.mark.parametrize('size', [7, 70_000])
def test_a_bad_element_of_an_array_is_rejected_alone(element: bytes, reason: Reason, size: int) -> None:
    data = b'[{"text": "before"}, ' + element + b' , {"text": "after"}]'
    rows = list(json_lib.json_file(cut(data, size)))
    found = [values if isinstance(values, Reason) else read.to_record(values, TEXT) for values, _ in rows]
    assert [one if isinstance(one, Reason) else one.text for one in found] == ['before', reason, 'after']
    assert rows[1][1] == element


def test_an_open_twin_of_arrays_loses_the_elements_after_a_bad_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It decodes as Python does by itself, and looks for no end of what it cannot decode."""
    monkeypatch.setattr(json_lib, '_DECODER', json.JSONDecoder())
    monkeypatch.setattr(json_lib, '_end_of_value', lambda text, place: len(text))
    for element, _ in BAD_ELEMENTS[:4]:
        rows = list(json_lib.json_file([b'[{"text": "before"}, ' + element + b' , {"text": "after"}]']))
        assert [values for values, _ in rows if not isinstance(values, Reason)] == [{'text': 'before'}]


def test_a_number_of_any_length_in_another_column_rejects_no_row(tmp_path: pathlib.Path) -> None:
    row = b'{"text": "x", "n": ' + b'9' * 5_000 + b'}'
    assert read_bytes(tmp_path, 'a.jsonl', row + b'\n', TEXT) == (['x'], [])
    assert read_bytes(tmp_path, 'a.json', b'[' + row + b']', TEXT) == (['x'], [])


# First lines of files of lines that look like an array's beginning.
BAD_FIRST_LINES = [
    '[1]', '[1', '[', '[[', '[]', '[1,', '[{"text": 1', '[{"text": "open', '["a", {"b":', '[1] 2', '["\\',
    '[tru', '[[1], [', '\ufeff[1]', '  [1]', '[' * 100_000, '[' + '9' * 5_000 + ']', '[1]\x0b',
    '[' + '1,' * 1_000,
]  # fmt: skip


@pytest.mark.parametrize('count', [1, 2, 5])
@pytest.mark.parametrize('line', BAD_FIRST_LINES, ids=lambda line: repr(line[:12]))
def test_a_first_line_that_begins_an_array_spoils_no_other(
    tmp_path: pathlib.Path, line: str, count: int
) -> None:
    """Called .json, a file of lines stays one, whatever its first line is."""
    expected = [f'text {number}' for number in range(count)]
    rows = ''.join(json.dumps({'text': text}) + '\n' for text in expected)
    texts, rejected = read_bytes(tmp_path, 'a.json', f'{line}\n{rows}'.encode(), TEXT)
    assert texts == expected
    assert rejected or line == '[]', 'a bad row is told'
    read.check_input(str(tmp_path / 'a.json'), TEXT.fields)


def test_a_first_line_that_is_an_array_is_one_bad_row_and_no_rows(tmp_path: pathlib.Path) -> None:
    data = b'[{"text": "a"}, {"text": "b"}]\n \n{"text": "c"}\n'
    assert read_bytes(tmp_path, 'a.json', data, TEXT) == (
        ['c'],
        [(Reason.MALFORMED, 0, b'[{"text": "a"}, {"text": "b"}]\n')],
    )


@hypothesis.settings(deadline=None)
@hypothesis.given(
    first=st.text('[]{},":1a\\ \t', max_size=8).map('['.__add__),
    count=st.integers(1, 3),
    size=st.integers(1, 9),
)
def test_whatever_the_first_line_the_others_are_read(first: str, count: int, size: int) -> None:
    expected = [{'text': str(number)} for number in range(count)]
    data = '\n'.join([first, *map(json.dumps, expected)]).encode()
    found = [values for values, _ in json_lib.json_file(cut(data, size))]
    assert found[-count:] == expected


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[place : place + size] for place in range(0, len(data), size)]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
@hypothesis.given(
    values=st.lists(VALUES, max_size=5), indent=st.none() | st.integers(0, 2), ascii=st.booleans(),
    size=st.integers(1, 9), space=st.text(' \n\t', max_size=4),
)  # fmt: skip
def test_an_array_is_read_element_by_element_whatever_the_chunks(
    values: list[object], indent: int | None, ascii: bool, size: int, space: str
) -> None:
    text = space + json.dumps(values, indent=indent, ensure_ascii=ascii) + space
    rows = list(json_lib.json_file(cut(text.encode(errors='surrogatepass'), size)))
    assert [row for row, _ in rows] == [
        value if isinstance(value, dict) else Reason.MALFORMED for value in values
    ]
    assert [json.loads(raw) for _, raw in rows] == values


@pytest.mark.parametrize('separator', [', ', ',\n'])
def test_an_array_is_never_held_whole(separator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of 20 MB, on one line or on many, is read ahead near the bound alone."""
    monkeypatch.setattr(lines, 'MAX_ROW_BYTES', 100_000)
    row = json.dumps({'text': 'x' * 2_000})
    fed = 0

    def chunks() -> Iterator[bytes]:
        nonlocal fed
        yield b'['
        for number in range(10_000):
            data = (row + separator).encode() if number < 9_999 else f'{row}]'.encode()
            fed += len(data)
            yield data

    read_so_far = 0
    for values, raw in json_lib.json_file(chunks()):
        assert values == {'text': 'x' * 2_000}
        read_so_far += len(raw)
        assert fed - read_so_far < 300_000
    assert read_so_far > 19_000_000


def test_an_array_that_is_cut_in_its_stream_keeps_what_came_before(tmp_path: pathlib.Path) -> None:
    data = json.dumps([{'text': f'text {number} {hash(str(number))}'} for number in range(20_000)])
    packed = gzip.compress(data.encode())
    texts, rejected = read_bytes(tmp_path, 'a.json.gz', packed[: len(packed) // 2], TEXT)
    assert 1_000 < len(texts) < 20_000
    assert texts == [row['text'] for row in json.loads(data)[: len(texts)]]
    assert rejected == [(Reason.UNREADABLE_REST, len(texts), b'')]


def test_what_follows_an_array_is_told(tmp_path: pathlib.Path) -> None:
    data = b'[\n{"text": "a"}\n]\n{"text": "b"}\nrest\n'
    assert read_bytes(tmp_path, 'a.json', data, TEXT) == (
        ['a', 'b'],
        [(Reason.MALFORMED, 2, b'rest\n')],
    )


# --- Values over several lines ------------------------------------------------------

CASE = pathlib.Path(__file__).parents[5] / 'shared' / 'cases' / '15-jsonl'
RECORDS = [{'text': f'text {number}', 'n': [1, 2.5, None], 'of': {}} for number in range(3)]
GOOD = '{"text": "x"}\n'
PRETTY = {
    'an object around an array': json.dumps({'data': RECORDS}, indent=1),
    'an object around rows': '{"data": [\n' + ',\n'.join(map(json.dumps, RECORDS)) + '\n]}',
    'objects': '\n'.join(json.dumps(row, indent=2) for row in RECORDS),
    'objects with commas': ',\n'.join(json.dumps(row, indent='\t') for row in RECORDS),
    'an object longer than what is looked at': json.dumps({'data': RECORDS * 10_000}, indent=0),
    'objects longer than what is looked at': '\n'.join(json.dumps(row, indent=2) for row in RECORDS * 10_000),
    'behind a mark and blank lines': '\ufeff \r\n' + json.dumps({'data': RECORDS}, indent=1),
}


@pytest.mark.parametrize('name', ['a.json', 'a.jsonl', 'a.json.gz'])
@pytest.mark.parametrize('kind', PRETTY)
def test_objects_over_several_lines_are_refused(tmp_path: pathlib.Path, kind: str, name: str) -> None:
    data = PRETTY[kind].encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith('.gz') else data)
    for look in (
        lambda: read.check_input(str(tmp_path / name), TEXT.fields),
        lambda: read.read_header(str(tmp_path / name), read.Dialect()),
    ):
        with pytest.raises(ValueError, match=r'objects over several lines.*jq -c') as caught:
            look()
        assert name in str(caught.value) and 'text 0' not in str(caught.value)


def test_an_array_over_several_lines_has_to_be_called_json(tmp_path: pathlib.Path) -> None:
    for name in ('a.jsonl', 'a.json'):
        (tmp_path / name).write_text(json.dumps(RECORDS, indent=1))
    read.check_input(str(tmp_path / 'a.json'), TEXT.fields)
    with pytest.raises(ValueError, match=r'one array over several lines. Let its name end in .json'):
        read.check_input(str(tmp_path / 'a.jsonl'), TEXT.fields)


@pytest.mark.parametrize('name', ['a.json', 'a.jsonl'])
@pytest.mark.parametrize(
    'bad',
    [
        '{',
        '{"a":',
        '{"a": [',
        '{"a": {"b":',
        '[1,',
        '[[',
        '"',
        '{"a": "',
        '{"a": 1,',
        '{\n"a": 1\n}',
        '{\n}\nx',
        '5',
    ],
)
@pytest.mark.parametrize('rows', [1, 2, 30_000])
def test_a_bad_first_row_does_not_stop_the_others(
    tmp_path: pathlib.Path, name: str, bad: str, rows: int
) -> None:
    (tmp_path / name).write_text(f'{bad}\n{GOOD * rows}')
    read.check_input(str(tmp_path / name), TEXT.fields)


@pytest.mark.parametrize('end', [*range(3, 12), 20, 28])
@pytest.mark.parametrize('indent', [0, 1, '\t'])
def test_where_a_long_value_is_cut_tells_nothing(indent: int | str, end: int) -> None:
    lines_of = json.dumps({'data': RECORDS, 'e': [[], {}, 'x'], 'k': True}, indent=indent).splitlines(True)
    for within in ('', '  "x', ' 12', '"a\\'):
        assert json_lib._spans_lines(''.join(lines_of[:end]) + within, is_cut=True)


@pytest.mark.skipif(not CASE.is_dir(), reason='files of shared/cases are not here')
def test_files_of_the_case_are_read_or_refused() -> None:
    with pytest.raises(ValueError, match='objects over several lines'):
        read.check_input(str(CASE / 'pretty.json'), TEXT.fields)
    for name in ('array.json', 'crlf.jsonl', 'mixed.jsonl', 'u2028.jsonl'):
        (file,) = read.check_input(str(CASE / name), TEXT.fields)
        (piece,) = read.split_file(file.path)
        assert [type(row).__name__ for row in read.read_piece(piece, TEXT)] == ['Record'] * 40, name


@pytest.mark.parametrize('name', ['a.json', 'a.jsonl'])
def test_a_long_object_around_all_records_is_refused_and_a_long_bad_row_is_not(
    tmp_path: pathlib.Path, name: str
) -> None:
    path = tmp_path / name
    around = json.dumps({'data': [{'text': 'x' * 1_000}] * 600})
    path.write_text(around)
    with pytest.raises(read.MissingColumns, match='an object around an array') as refused:
        read.check_input(str(path), TEXT.fields)
    assert 'xxx' not in str(refused.value)
    path.write_text(around + '\n{"text": "a"}\n')
    read.check_input(str(path), TEXT.fields)
