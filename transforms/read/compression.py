"""The decompressed content of a file, in pieces of bounded size."""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import zstandard

_CHUNK_BYTES = 64 * 2**10
# Bytes of the longest piece, whatever a compressed file says: one of 32 KB can stand for 1 GB.
PIECE_BYTES = 2**20
# Memory that a file may ask of a decompressor: the window of xz and zst. The program zstd grants as much by
# default, and xz -9 needs half of it.
MAX_WINDOW_BYTES = 2**27
_MAX_XZ_BYTES = 2**28
# zstandard puts no limit on what it returns. A block of 128 KiB has four bytes at least, so what comes of so
# many bytes is some 16 MiB at most.
_ZSTD_BYTES = 512


class CorruptStream(Exception):
    """The rest of a compressed stream cannot be decoded. Carries no content."""


def _zlib_pieces(decoder: Any, chunk: bytes) -> Iterator[bytes]:
    while True:
        data = decoder.decompress(chunk, PIECE_BYTES)
        chunk = decoder.unconsumed_tail
        yield data
        # A full piece may have left something behind although no input is left.
        if decoder.eof or (not chunk and len(data) < PIECE_BYTES):
            return


def _limited_pieces(decoder: Any, chunk: bytes) -> Iterator[bytes]:
    yield decoder.decompress(chunk, PIECE_BYTES)
    while not decoder.eof and not decoder.needs_input:
        yield decoder.decompress(b'', PIECE_BYTES)


class _Zstd:
    """A decompressor of zstandard, which takes few bytes at a time."""

    def __init__(self) -> None:
        self._decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
        self.unused_data = b''

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        for place in range(0, len(chunk), _ZSTD_BYTES):
            data = self._decoder.decompress(chunk[place : place + _ZSTD_BYTES])
            for at in range(0, len(data), PIECE_BYTES):
                yield data[at : at + PIECE_BYTES]
            if self.eof:
                self.unused_data = self._decoder.unused_data + chunk[place + _ZSTD_BYTES :]
                return


# A decompressor, and the pieces that it makes of a chunk.
_Codec = tuple[Callable[[], Any], Callable[[Any, bytes], Iterator[bytes]]]
# zlib's window bits plus 16: gzip framing, whose checksum is verified.
CODECS: dict[str, _Codec] = {
    'gz': (lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), _zlib_pieces),
    'bz2': (bz2.BZ2Decompressor, _limited_pieces),
    'xz': (lambda: lzma.LZMADecompressor(memlimit=_MAX_XZ_BYTES), _limited_pieces),
    'zst': (_Zstd, _Zstd.pieces),
}
# `bz2` reports a bad stream as a bare OSError.
_CODEC_ERRORS = (zlib.error, OSError, EOFError, lzma.LZMAError, zstandard.ZstdError)


def decompressed(file: BinaryIO, codec: str | None) -> Iterator[bytes]:
    """Streams the content of an open file, with all members of a file that was concatenated.

    An error of the codec must become a rejection; an error of the filesystem must reach the runner, which
    tries again. So this function keeps the two apart. Other readers do not: Beam's and zstandard's end
    silently at a cut stream, and Arrow's raises the same error for both and knows no xz.

    Returns:
        Pieces of at most `PIECE_BYTES`.

    Raises:
        CorruptStream: After all content that could be decoded. So is a stream whose window is larger than
            `MAX_WINDOW_BYTES`.
    """
    decoder = None
    while chunk := file.read(_CHUNK_BYTES):
        if codec is None:
            yield chunk
            continue
        new, pieces_of = CODECS[codec]
        while chunk:
            # Zero bytes may pad the end of a gzip or xz member.
            if decoder is None and not (chunk := chunk.lstrip(b'\0')):
                break
            decoder = decoder or new()
            pieces = pieces_of(decoder, chunk)
            while (piece := _next(pieces)) is not None:
                if piece:
                    yield piece
            chunk = b''
            if decoder.eof:
                chunk, decoder = decoder.unused_data, None
    if decoder is not None:
        raise CorruptStream


def _next(pieces: Iterator[bytes]) -> bytes | None:
    try:
        return next(pieces, None)
    except _CODEC_ERRORS:
        raise CorruptStream from None
