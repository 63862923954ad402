"""The files and other places that are read, and a check of each before anything else happens."""

import dataclasses
from collections.abc import Iterable, Sequence
from concurrent import futures
from typing import BinaryIO

from apache_beam.io import filesystem
from apache_beam.io.filesystems import FileSystems

from transforms.places import check_filesystem, split_patterns
from transforms.read.columns import check_columns
from transforms.read.compression import CODECS
from transforms.read.formats import FORMATS
from transforms.read.rules import RecordFields
from transforms.read.sources import source_of

# Characters of a path that `FileSystems.match` takes for a pattern.
_WILDCARDS = frozenset('*?[')


@dataclasses.dataclass(frozen=True, order=True)
class InputFile:
    """A file that is read, or another place (`transforms.read.sources`), without size and time.

    Attributes:
        path: Its path, on any filesystem that Beam knows; the URL of a database.
        size: Its size in bytes.
        updated: When it was last written, in seconds since 1970; 0 if its filesystem keeps no time.
    """

    path: str
    size: int
    updated: float

    def checksum(self, fields: RecordFields | None = None) -> str:
        """What its filesystem knows of its content: the checksum of an object store, the size on a disk.

        Of another place it is a digest of all that is read of it, for which `fields` are needed.
        """
        if (source := source_of(self.path)) is not None:
            assert fields is not None
            return source.digest(self.path, fields)
        return FileSystems.checksum(self.path)


def list_input(pattern: str) -> list[InputFile]:
    """The files and other places that a comma-separated list names, each once, sorted by path.

    A run reads exactly these files, and its digest of the input is of exactly these files. If a file has
    exactly the given name, that file is meant, even if the name has a `[`, `*` or `?`; otherwise these
    characters form a pattern. Each file is listed once, because a file that is read twice would count its
    units twice. A name with a comma cannot be given: write a `?` for the comma.

    Raises:
        ValueError: The list is empty.
        FileNotFoundError: One of its patterns matches no file; no database or data set is there.
    """
    patterns = split_patterns(pattern)
    if not patterns:
        raise ValueError(
            f'Expected paths or globs of input files, got pattern={pattern!r}. Name at least one file.'
        )
    found: dict[str, InputFile] = {}
    for part in patterns:
        if (source := source_of(part)) is not None:
            source.look(part)
            found[part] = InputFile(part, 0, 0)
            continue
        matches = [_file_of(metadata) for metadata in _match(part)]
        if not matches:
            raise FileNotFoundError(
                f'Expected files for each pattern, got none for pattern={part!r}. '
                'Check the path, and that this machine may list it.'
            )
        found.update((file.path, file) for file in matches)
    return sorted(found.values())


def _match(part: str) -> Iterable[filesystem.FileMetadata]:
    check_filesystem(part)
    # One pattern at a time: Beam takes the filesystem of the first pattern for all.
    if _WILDCARDS & set(part) and FileSystems.exists(part):
        return [FileSystems.get_filesystem(part).metadata(part)]
    (match,) = FileSystems.match([part])
    return match.metadata_list


def _file_of(metadata: filesystem.FileMetadata) -> InputFile:
    return InputFile(metadata.path, metadata.size_in_bytes, metadata.last_updated_in_seconds)


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
        ValueError: The list is empty, an extension is unknown, a column is missing, a Parquet file is
            damaged or has a column of a wrong type, or a database refuses the query.
        FileNotFoundError: A pattern matches no file.
        ConnectionError: A database does not answer.
    """
    found = list_input(pattern)
    for file in found:
        if source_of(file.path) is None:
            file_format(file.path)
    if not fields.positional and all(file.size == 0 and _has_header(file.path) for file in found):
        # An empty file of JSON lines may mean that there is no record; here not even a header row is there.
        raise ValueError(
            f'Expected a header row and records, got path={found[0].path!r} of 0 bytes. Write it again.'
        )
    with futures.ThreadPoolExecutor(16) as threads:
        # `list` raises the first error, in the order of the file names.
        list(threads.map(lambda file: _check_file(file.path, fields), found))
    return found


def _has_header(path: str) -> bool:
    return source_of(path) is None and file_format(path)[0] == 'csv'


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
    if (source := source_of(path)) is not None:
        source.check(path, fields)
        return
    name, codec = file_format(path)
    with open_file(path) as file:
        columns = FORMATS[name].columns(file, codec, path, fields)
    if columns is None or all(name in columns for name in fields.names):
        return
    with open_file(path) as file:
        remedy = FORMATS[name].remedy(file, codec, fields)
    check_columns(path, fields.names, columns, remedy)
