"""The decompressed content of a file."""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import zstandard

# Small, since a chunk of compressed input can inflate a thousand times.
_CHUNK_BYTES = 64 * 2**10
# zlib's window bits plus 16: gzip framing, whose checksum is verified.
CODECS: dict[str, Callable[[], Any]] = {
    'gz': lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    'bz2': bz2.BZ2Decompressor,
    'xz': lzma.LZMADecompressor,
    'zst': lambda: zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj(),
}
# `bz2` reports a bad stream as a bare OSError.
_CODEC_ERRORS = (zlib.error, OSError, EOFError, lzma.LZMAError, zstandard.ZstdError)


class CorruptStream(Exception):
    """The rest of a compressed stream cannot be decoded. Carries no content."""


def decompressed(file: BinaryIO, codec: str | None) -> Iterator[bytes]:
    """Streams the content of an open file, with all members of a file that was concatenated.

    An error of the codec must become a rejection; an error of the filesystem must reach the runner, which
    tries again. So this function keeps the two apart. Other readers do not: Beam's and zstandard's end
    silently at a cut stream, and Arrow's raises the same error for both and knows no xz.

    Raises:
        CorruptStream: After all content that could be decoded.
    """
    decoder = None
    while chunk := file.read(_CHUNK_BYTES):
        if codec is None:
            yield chunk
            continue
        while chunk:
            # Zero bytes may pad the end of a gzip or xz member.
            if decoder is None and not (chunk := chunk.lstrip(b'\0')):
                break
            decoder = decoder or CODECS[codec]()
            try:
                data = decoder.decompress(chunk)
            except _CODEC_ERRORS:
                raise CorruptStream from None
            if data:
                yield data
            chunk = b''
            if decoder.eof:
                chunk, decoder = decoder.unused_data, None
    if decoder is not None:
        raise CorruptStream
