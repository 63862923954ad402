"""Lines, whatever the chunks, and rows beyond any use."""

import pathlib

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.transforms.read.samples import TEXT, read_bytes
from transforms.read import Reason
from transforms.read import lines as lines_lib


@hypothesis.given(data=st.text('ab\n\r').map(str.encode), size=st.integers(1, 5), limit=st.integers(4, 20))
def test_lines_do_not_hang_on_the_chunks(data: bytes, size: int, limit: int) -> None:
    chunks = [data[place : place + size] for place in range(0, len(data), size)]
    lines = list(lines_lib.split_lines(chunks, limit))
    slow = [line + b'\n' for line in data.split(b'\n')]
    slow[-1] = slow[-1][:-1]
    expected = [line for line in slow if line]
    assert len(lines) == len(expected)
    for (line, whole), full in zip(lines, expected, strict=True):
        body = full.removesuffix(b'\n')
        assert whole == (len(body) < limit)
        assert line == full if whole else line[:limit] == body[:limit]


def test_rows_beyond_any_use_are_never_held_whole(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(lines_lib, 'MAX_ROW_BYTES', 1_000)
    long = b'{"text": "' + b'x' * 200_000 + b'"}\n'
    texts, rejected = read_bytes(tmp_path, 'a.jsonl', b'{"text": "a"}\n' + long + b'{"text": "b"}\n', TEXT)
    assert texts == ['a', 'b']
    assert rejected == [(Reason.TOO_LONG, 1, long[:1_000])]
    data = b'text\na\n' + b'x' * 200_000 + b'\nb\n'
    texts, rejected = read_bytes(tmp_path, 'a.csv', data, TEXT)
    assert texts == ['a', 'b']
    assert [row[:2] for row in rejected] == [(Reason.TOO_LONG, 1)]
