"""Which files are read, and a look at each before anything else happens."""

import dataclasses
from collections.abc import Iterable, Sequence
from concurrent import futures
from typing import BinaryIO

from apache_beam.io import filesystem
from apache_beam.io.filesystems import FileSystems

from transforms.read.compression import CODECS
from transforms.read.formats import FORMATS
from transforms.read.rules import RecordFields

# What a path may hold that `FileSystems.match` takes for a pattern.
_WILDCARDS = frozenset('*?[')
# Of the columns of a file that lacks one.
_SHOWN_COLUMNS, _SHOWN_CHARACTERS = 40, 60


@dataclasses.dataclass(frozen=True, order=True)
class InputFile:
    """A file that is read.

    Attributes:
        path: Where it lies, on any filesystem that Beam knows.
        size: In bytes.
        updated: When it was last written, in seconds since 1970; 0 where its filesystem keeps no time.
    """

    path: str
    size: int
    updated: float

    def checksum(self) -> str:
        """What its filesystem knows of its content: an object store a checksum, a disk the size."""
        return FileSystems.checksum(self.path)


class MissingColumns(ValueError):
    """A file has not the columns that are needed. Its text quotes nothing of the file.

    Attributes:
        for_the_curator: The columns that it seems to have. A record may be among them, so only a
            screen may show it.
    """

    def __init__(self, message: str, columns: Iterable[str]) -> None:
        super().__init__(message)
        shown = [column[:_SHOWN_CHARACTERS] for column in sorted(columns)[:_SHOWN_COLUMNS]]
        self.for_the_curator = (
            f'For the curator alone, as what seems to be a header row can be a record, its columns: {shown}'
        )


def list_input(pattern: str) -> list[InputFile]:
    """The files that a comma-separated list of paths and globs names, each once, sorted by path.

    This list is what a run reads, and what is known of the input must be known of this list.
    A file that is called exactly so is meant itself, its name's `[`, `*` and `?` too; only
    where there is none are these a pattern's. Each once, since a file that is read twice
    would count its units twice. A comma inside a file name cannot be spelt: use a `?` for it.

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
    # One at a time: Beam takes the filesystem of the first for all.
    if _WILDCARDS & set(part) and FileSystems.exists(part):
        return [FileSystems.get_filesystem(part).metadata(part)]
    (match,) = FileSystems.match([part])
    return match.metadata_list


def _file_of(metadata: filesystem.FileMetadata) -> InputFile:
    return InputFile(metadata.path, metadata.size_in_bytes, metadata.last_updated_in_seconds)


def split_patterns(pattern: str) -> list[str]:
    """The paths and globs of a comma list."""
    return [part.strip() for part in pattern.split(',') if part.strip()]


def file_format(path: str) -> tuple[str, str | None]:
    """Format and codec of a file, from its extension.

    Raises:
        ValueError: No known extension.
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
    """The file's own bytes: `decompressed` undoes the codec, see there."""
    return FileSystems.open(path, compression_type=filesystem.CompressionTypes.UNCOMPRESSED)


def check_input(pattern: str, fields: RecordFields) -> list[InputFile]:
    """The files of `list_input`, after a look at the schema of each.

    Messages quote file names and the asked-for columns, never anything read: what seems
    to be a header row can be a record (`MissingColumns`).

    Args:
        pattern: Comma-separated paths and globs.
        fields: The columns that every file must have. A file of JSON objects has those
            that occur in any object near its beginning.

    Raises:
        ValueError: An empty list, an unknown extension, a missing column, or a Parquet
            file that is none or has a column of an unfit type.
        FileNotFoundError: A pattern matches no file.
    """
    found = list_input(pattern)
    for file in found:
        file_format(file.path)
    with futures.ThreadPoolExecutor(16) as threads:
        # `list` so that the first error, by file name, is raised here.
        list(threads.map(lambda file: _check_file(file.path, fields), found))
    return found


def check_same(known: Sequence[str], found: Sequence[str]) -> None:
    """Refuses to read other files than those that a run's digest of its input is of.

    Raises:
        ValueError: Files came or went in between.
    """
    came, went = sorted(set(found) - set(known)), sorted(set(known) - set(found))
    if came or went:
        raise ValueError(
            f'Expected the same input files from start to end of the preparations, got new={came}, '
            f'missing={went}. Repeat the command once nobody writes there.'
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
