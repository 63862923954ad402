"""The files that are read, and a check of each before anything else happens."""

import dataclasses
from collections.abc import Iterable, Sequence
from concurrent import futures
from typing import BinaryIO

from apache_beam.io import filesystem
from apache_beam.io.filesystems import FileSystems

from transforms.read.compression import CODECS
from transforms.read.formats import FORMATS
from transforms.read.rules import RecordFields

# Characters of a path that `FileSystems.match` takes for a pattern.
_WILDCARDS = frozenset('*?[')
# How much is shown of the columns of a file that lacks one.
_SHOWN_COLUMNS, _SHOWN_CHARACTERS = 40, 60


@dataclasses.dataclass(frozen=True, order=True)
class InputFile:
    """A file that is read.

    Attributes:
        path: Its path, on any filesystem that Beam knows.
        size: Its size in bytes.
        updated: When it was last written, in seconds since 1970; 0 if its filesystem keeps no time.
    """

    path: str
    size: int
    updated: float

    def checksum(self) -> str:
        """What its filesystem knows of its content: the checksum of an object store, the size on a disk."""
        return FileSystems.checksum(self.path)


class MissingColumns(ValueError):
    """A file lacks columns that are needed. The text of the error quotes nothing of the file.

    Attributes:
        for_the_curator: The columns that the file seems to have, for the curator's screen alone: what looks
            like a header row may be a record.
    """

    def __init__(self, message: str, columns: Iterable[str]) -> None:
        super().__init__(message)
        shown = [column[:_SHOWN_CHARACTERS] for column in sorted(columns)[:_SHOWN_COLUMNS]]
        self.for_the_curator = (
            'For the curator alone, because what looks like a header row may be a record, its columns: '
            f'{shown}'
        )


def list_input(pattern: str) -> list[InputFile]:
    """The files that a comma-separated list of paths and globs names, each once, sorted by path.

    A run reads exactly these files, and its digest of the input is of exactly these files. If a file has
    exactly the given name, that file is meant, even if the name has a `[`, `*` or `?`; otherwise these
    characters form a pattern. Each file is listed once, because a file that is read twice would count its
    units twice. A name with a comma cannot be given: write a `?` for the comma.

    Raises:
        ValueError: The list is empty.
        FileNotFoundError: One of its patterns matches no file.
    """
    patterns = split_patterns(pattern)
    if not patterns:
        raise ValueError(
            f'Expected paths or globs of input files, got pattern={pattern!r}. Name at least one file.'
        )
    found: dict[str, InputFile] = {}
    for part in patterns:
        matches = [_file_of(metadata) for metadata in _match(part)]
        if not matches:
            raise FileNotFoundError(
                f'Expected files for each pattern, got none for pattern={part!r}. '
                'Check the path, and that this machine may list it.'
            )
        found.update((file.path, file) for file in matches)
    return sorted(found.values())


def _match(part: str) -> Iterable[filesystem.FileMetadata]:
    # One pattern at a time: Beam takes the filesystem of the first pattern for all.
    if _WILDCARDS & set(part) and FileSystems.exists(part):
        return [FileSystems.get_filesystem(part).metadata(part)]
    (match,) = FileSystems.match([part])
    return match.metadata_list


def _file_of(metadata: filesystem.FileMetadata) -> InputFile:
    return InputFile(metadata.path, metadata.size_in_bytes, metadata.last_updated_in_seconds)


def split_patterns(pattern: str) -> list[str]:
    """The paths and globs of a comma-separated list."""
    return [part.strip() for part in pattern.split(',') if part.strip()]


def file_format(path: str) -> tuple[str, str | None]:
    """Format and codec of a file, from its extension.

    Raises:
        ValueError: The extension is unknown.
    """
    stem, _, last = path.lower().rpartition('.')
    codec = last if last in CODECS else None
    name = stem.rpartition('.')[2] if codec else last
    if name not in FORMATS or (codec and not FORMATS[name].is_text):
        raise ValueError(
            f'Expected a file ending in .{", .".join(FORMATS)}, the text formats also in '
            f'.{", .".join(CODECS)} after that, got path={path!r}. Rename the file or narrow the pattern.'
        )
    return name, codec


def open_file(path: str) -> BinaryIO:
    """Opens a file for its own bytes; `decompressed` undoes the codec."""
    return FileSystems.open(path, compression_type=filesystem.CompressionTypes.UNCOMPRESSED)


def check_input(pattern: str, fields: RecordFields) -> list[InputFile]:
    """The files of `list_input`, after a check that each has the columns that are needed.

    Errors quote the names of files and of the needed columns, and nothing that was read: what looks like a
    header row may be a record (`MissingColumns`).

    Args:
        pattern: Comma-separated paths and globs.
        fields: The columns that every file must have. A file of JSON objects has each column that occurs in
            an object near its beginning.

    Raises:
        ValueError: The list is empty, an extension is unknown, a column is missing, or a Parquet file is
            damaged or has a column of a wrong type.
        FileNotFoundError: A pattern matches no file.
    """
    found = list_input(pattern)
    for file in found:
        file_format(file.path)
    with futures.ThreadPoolExecutor(16) as threads:
        # `list` raises the first error, in the order of the file names.
        list(threads.map(lambda file: _check_file(file.path, fields), found))
    return found


def check_same(known: Sequence[str], found: Sequence[str]) -> None:
    """Checks that the files are still those of the run's digest of its input.

    Raises:
        ValueError: Files were added or removed in between.
    """
    came, went = sorted(set(found) - set(known)), sorted(set(known) - set(found))
    if came or went:
        raise ValueError(
            f'Expected the same input files throughout the preparations, got new={came}, missing={went}. '
            'Repeat the command when no other program writes there.'
        )


def _check_file(path: str, fields: RecordFields) -> None:
    name, codec = file_format(path)
    with open_file(path) as file:
        columns = FORMATS[name].columns(file, codec, path, fields)
    missing = [name for name in fields.names if columns is not None and name not in columns]
    if missing:
        assert columns is not None
        with open_file(path) as file:
            remedy = FORMATS[name].remedy(file, codec, fields)
        raise MissingColumns(
            f'Expected every input file to have the columns {fields.names}, got path={path!r} '
            f'without missing={missing}. {remedy}',
            columns,
        )
