"""Every format under every codec, and streams that break."""

import json
import pathlib

import pytest

from tests.transforms.read.samples import PACK, TEXT, read_bytes
from transforms import read
from transforms.read import Reason

CONTENT = {
    'jsonl': b'{"text": "one\\nline"}\n\n{"text": "two, \\u00e9"}\r\n{"text": "three"}',
    'json': b'[{"text": "one\\nline"},\n {"text": "two, \xc3\xa9"} , {"text": "three"}]\n',
    'csv': b'id,text\r\n1,"one\nline"\r\n2,"two, \xc3\xa9"\r\n\r\n3,three',
}


@pytest.mark.parametrize('suffix', PACK)
@pytest.mark.parametrize('kind', CONTENT)
@pytest.mark.parametrize('mark', [b'', b'\xef\xbb\xbf'], ids=['plain', 'bom'])
def test_every_format_and_codec(tmp_path: pathlib.Path, kind: str, suffix: str, mark: bytes) -> None:
    texts, rejected = read_bytes(tmp_path, f'a.{kind}{suffix}', PACK[suffix](mark + CONTENT[kind]), TEXT)
    assert texts == ['one\nline', 'two, é', 'three']
    assert rejected == []
    (file,) = read.check_input(str(tmp_path / '*'), TEXT.fields)
    assert file.path == str(tmp_path / f'a.{kind}{suffix}')


@pytest.mark.parametrize('suffix', [suffix for suffix in PACK if suffix])
def test_members_of_a_concatenated_file_are_all_read(tmp_path: pathlib.Path, suffix: str) -> None:
    data = PACK[suffix](b'{"text": "a"}\n{"te') + PACK[suffix](b'xt": "b"}\n')
    assert read_bytes(tmp_path, 'a.jsonl' + suffix, data, TEXT) == (['a', 'b'], [])


@pytest.mark.parametrize('suffix', ['.gz', '.xz'])
def test_zero_bytes_may_pad_a_compressed_file(tmp_path: pathlib.Path, suffix: str) -> None:
    data = PACK[suffix](b'{"text": "a"}\n') + bytes(70_000)
    assert read_bytes(tmp_path, 'a.jsonl' + suffix, data, TEXT) == (['a'], [])


@pytest.mark.parametrize('suffix', [suffix for suffix in PACK if suffix])
@pytest.mark.parametrize('damage', ['cut', 'garbage after', 'no such stream'])
def test_a_broken_stream_rejects_its_rest_once(tmp_path: pathlib.Path, suffix: str, damage: str) -> None:
    lines = [f'{{"text": "text {number} {hash(str(number))}"}}\n' for number in range(20_000)]
    data = PACK[suffix](''.join(lines).encode())
    data = {'cut': data[: len(data) // 2], 'garbage after': data + b'garbage', 'no such stream': b'garbage'}[
        damage
    ]
    texts, rejected = read_bytes(tmp_path, 'a.jsonl' + suffix, data, TEXT)
    assert rejected == [(Reason.UNREADABLE_REST, len(texts), b'')]
    assert texts == [json.loads(line)['text'] for line in lines[: len(texts)]]
    if damage == 'garbage after':
        assert len(texts) == 20_000
    if damage == 'cut' and suffix != '.bz2':  # Its blocks of 900 kB come whole or not at all.
        assert len(texts) > 1_000
