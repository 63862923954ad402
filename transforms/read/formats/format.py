"""What a format of input files has to say: its rows, and the columns that it seems to have."""

import abc
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

from transforms.read.rules import Reason, RecordFields

# (the row's values, or why it has none; its first bytes)
RawRow = tuple[Mapping[str, object] | Reason, bytes]

# The one part of a file that has no place to cut it.
WHOLE = -1


class Format(abc.ABC):
    """How a file is read. Stateless, and total over contents: a bad row is a `Reason`, no error.

    Attributes:
        is_text: Whether the file may be compressed as a whole.
    """

    is_text = True

    def parts(self, open_file: Callable[[], BinaryIO]) -> Iterator[int]:
        """What can be read apart, as numbers that `rows` takes: a text file has no place to cut it."""
        yield WHOLE

    @abc.abstractmethod
    def rows(self, file: BinaryIO, codec: str | None, part: int, fields: RecordFields) -> Iterator[RawRow]:
        """The rows of one part, streamed, in the file's order.

        Args:
            file: Opened, at its beginning, not decompressed.
            codec: What compresses it.
            part: One of `parts`.
            fields: The columns that are needed; a row may have more.

        Raises:
            CorruptStream: After every row before the damage.
        """

    @abc.abstractmethod
    def columns(self, file: BinaryIO, codec: str | None, path: str, fields: RecordFields) -> set[str] | None:
        """The columns that a look at the file's beginning finds; None where nothing there has any.

        Raises:
            ValueError: The file can be none of this format. It quotes `path`, never content.
        """

    def remedy(self, file: BinaryIO, codec: str | None, fields: RecordFields) -> str:
        """What to do when `fields` are not among the columns. It quotes nothing of the file."""
        return 'Name the columns as the file does; for CSV without a header row, by their numbers from 0.'
