"""The interface of a format of input files: its rows, and its columns."""

import abc
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

from transforms.read.dialect import Dialect
from transforms.read.rules import Reason, RecordFields, Table

# (values of the row, or why it has none; first bytes of the row)
RawRow = tuple[Mapping[str, object] | Reason, bytes]

# The only part of a file that cannot be cut.
WHOLE = -1


class Format(abc.ABC):
    """A reader of files. It has no state. Any content is fine: a bad row is a `Reason` and no error.

    Attributes:
        is_text: Whether the file may be compressed as a whole.
        header_remedy: What to do about a header that does not name each column once.
    """

    is_text = True
    header_remedy = (
        'Give the file a header line with a name for each column, or give --delimiter and --encoding if it '
        'has one.'
    )

    def parts(self, open_file: Callable[[], BinaryIO]) -> Iterator[int]:
        """The parts that workers can read apart, as numbers for `rows`; a text file is one part."""
        yield WHOLE

    @abc.abstractmethod
    def rows(
        self, file: BinaryIO, codec: str | None, part: int, fields: RecordFields, *, whole: bool = False
    ) -> Iterator[RawRow]:
        """The rows of one part, streamed, in the file's order.

        Raises:
            CorruptStream: After all rows before the damage.
        """

    @abc.abstractmethod
    def columns(self, file: BinaryIO, codec: str | None, path: str, fields: RecordFields) -> set[str] | None:
        """The columns that the beginning of the file has; None if nothing there has columns.

        Raises:
            ValueError: The file cannot be of this format. The error quotes `path` and no content.
        """

    def header(
        self, file: BinaryIO, codec: str | None, path: str, dialect: Dialect, table: Table
    ) -> tuple[tuple[str, ...], Dialect] | None:
        """The columns, before anybody has named one, and how the file is written; None if it has none.

        Raises:
            ValueError: The file cannot be of this format, or it has several tables, of which `table` names
                none. The error quotes `path` and no content.
        """
        columns = self.columns(file, codec, path, RecordFields(text='text', dialect=dialect, table=table))
        return None if columns is None else (tuple(sorted(columns)), dialect)

    def remedy(self, file: BinaryIO, codec: str | None, fields: RecordFields) -> str:
        """The remedy where `fields` are missing among the columns. The text quotes nothing of the file."""
        return 'Name the columns as the file does; for CSV without a header row, give numbers from 0.'
