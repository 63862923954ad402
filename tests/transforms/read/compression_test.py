"""Every format under every codec, streams that break, and those that stand for very much."""

import bz2
import io
import json
import lzma
import pathlib
import tracemalloc
import zlib

import hypothesis
import pytest
import zstandard
from hypothesis import strategies as st

from tests.transforms.read.samples import PACK, TEXT, read_bytes
from transforms import read
from transforms.read import Reason, compression
from transforms.read.compression import decompressed

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


@pytest.mark.first
@pytest.mark.heavy
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


# Blank rows, which each codec makes a file of some hundred kilobytes at the most.
ROWS, ROW = 40_000, b'{"text": "x"}' + b' ' * 2_000 + b'\n'


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('suffix', [suffix for suffix in PACK if suffix])
def test_what_a_small_file_stands_for_is_never_held(suffix: str) -> None:
    packed = PACK[suffix](ROW * ROWS)
    assert len(packed) < 500_000
    tracemalloc.start()
    sizes = [len(piece) for piece in decompressed(io.BytesIO(packed), suffix[1:])]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(sizes) == len(ROW) * ROWS and max(sizes) <= compression.PIECE_BYTES
    assert most < 20 * 2**20
    # An open twin, which gives all that comes of a chunk, holds far more.
    decoder = {
        '.gz': lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), '.bz2': bz2.BZ2Decompressor,
        '.xz': lzma.LZMADecompressor, '.zst': lambda: zstandard.ZstdDecompressor().decompressobj(),
    }[suffix]()  # fmt: skip
    assert len(decoder.decompress(packed[: 64 * 2**10])) > 8 * compression.PIECE_BYTES


@hypothesis.settings(deadline=None)
@hypothesis.given(
    parts=st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 3_000)), min_size=1, max_size=5),
    suffix=st.sampled_from([suffix for suffix in PACK if suffix]),
    piece=st.integers(1, 3_000),
    chunk=st.integers(1, 100),
    step=st.integers(1, 20),
)
def test_pieces_make_up_the_content_whatever_their_size(
    parts: list[tuple[bytes, int]], suffix: str, piece: int, chunk: int, step: int
) -> None:
    contents = [data * times for data, times in parts]
    packed = b''.join(map(PACK[suffix], contents))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, 'PIECE_BYTES', piece)
        patch.setattr(compression, '_CHUNK_BYTES', chunk)
        patch.setattr(compression, '_ZSTD_BYTES', step)
        found = list(decompressed(io.BytesIO(packed), suffix[1:]))
    assert b''.join(found) == b''.join(contents)
    assert all(0 < len(one) <= piece for one in found)


@pytest.mark.parametrize('suffix', ['.xz', '.zst'])
def test_a_window_that_is_too_large_is_not_granted(tmp_path: pathlib.Path, suffix: str) -> None:
    data = b'{"text": "a"}\n'
    for log, expected in ((27, (['a'], [])), (29, ([], [(Reason.UNREADABLE_REST, 0, b'')]))):
        if suffix == '.xz':
            # A header that asks for the window, and no data of that size.
            dictionary = {'id': lzma.FILTER_LZMA2, 'preset': 0, 'dict_size': 2**log}
            packed = lzma.compress(data, filters=[dictionary])
        else:
            parameters = zstandard.ZstdCompressionParameters(window_log=log, write_content_size=False)
            writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
            packed = writer.compress(data) + writer.flush()
        assert read_bytes(tmp_path, 'a.jsonl' + suffix, packed, TEXT) == expected
