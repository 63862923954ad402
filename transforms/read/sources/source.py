"""The interface of a place of records that is no file of one format: its parts, its rows, its digest."""

import abc
import hashlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from transforms.read.formats.format import RawRow
from transforms.read.rules import RecordFields, Table

# The part that one worker reads at a time: a value that can be pickled, and that may be private.
Part = Any
_CHUNK_BYTES = 2**20


def content_digest(file: BinaryIO) -> bytes:
    """SHA-256 of a file of any size."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.digest()


class Source(abc.ABC):
    """A reader of places. It has no state: workers read what the launcher has looked at.

    Attributes:
        header_remedy: What to do about a header that does not name each column once.
    """

    header_remedy = 'Name each column once.'

    @abc.abstractmethod
    def owns(self, place: str) -> bool:
        """True if a place is of this kind."""

    @abc.abstractmethod
    def look(self, place: str) -> None:
        """Looks whether the place is there, without reading a record.

        Raises:
            FileNotFoundError: It is not.
            ValueError: It is of a kind that is not known.
        """

    @abc.abstractmethod
    def header(self, place: str, table: Table) -> tuple[str, ...]:
        """The columns, in the order of the place, without reading a record. Errors as of `check`."""

    @abc.abstractmethod
    def check(self, place: str, fields: RecordFields) -> None:
        """Checks that the place has the columns that are needed. Errors quote nothing that was read.

        Raises:
            ValueError: It lacks a column, or has several tables, of which none is named.
            ConnectionError: It does not answer.
        """

    @abc.abstractmethod
    def parts(self, place: str, table: Table) -> Iterator[Part]:
        """The parts that workers can read apart; every row is in one of them."""

    @abc.abstractmethod
    def rows(self, place: str, part: Part, fields: RecordFields, *, whole: bool = False) -> Iterator[RawRow]:
        """The rows of one part, streamed, with the needed columns, or with all."""

    @abc.abstractmethod
    def digest(self, place: str, fields: RecordFields) -> str:
        """Digest of all that is read, whatever its order. Restricted to the curator, as a run's key is."""

    def files(self, place: str) -> Iterator[str]:
        """Paths of all files that may be read of it, for nothing is read twice; private."""
        yield from ()

    def name(self, place: str, part: Part) -> str:
        """The name of the part in the curator's list of rejected rows; restricted."""
        return place.rstrip('/').rpartition('/')[2]
