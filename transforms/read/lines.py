"""The lines of a text file, in bounded memory."""

import codecs
from collections.abc import Iterable, Iterator

# A longer row is never held in memory as a whole. No prompt could use a text of this length.
MAX_ROW_BYTES = 64 * 2**20
# A row of CSV with more lines is too long. No text that a prompt could use has as many.
MAX_ROW_LINES = 10_000


def split_lines(
    chunks: Iterable[bytes], limit: int | None = None, *, end: bytes = b'\n', is_begin: bool = True
) -> Iterator[tuple[bytes, bool]]:
    """Yields (line with its end, whether it is complete).

    A line of more than `limit` bytes, by default `MAX_ROW_BYTES`, is cut there, and its rest is skipped. The
    byte order mark of a file's first line is dropped.
    """
    limit = MAX_ROW_BYTES if limit is None else limit
    held = bytearray()
    whole, first = True, is_begin
    for chunk in chunks:
        *ended, rest = chunk.split(end)
        for line in ended:
            if held or not whole:
                held += line[: max(0, limit - len(held))] if whole else b''
                line = bytes(held)
            yield (line.removeprefix(codecs.BOM_UTF8) if first else line) + end, whole and len(line) < limit
            held.clear()
            whole, first = True, False
        held += rest[: limit - len(held)]
        whole = len(held) < limit
    if held:
        yield bytes(held).removeprefix(codecs.BOM_UTF8) if first else bytes(held), whole
