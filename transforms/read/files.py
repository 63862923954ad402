"""The files and other places that are read, and a check of each before anything else happens."""

import dataclasses
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from typing import BinaryIO

from apache_beam.io import filesystem
from apache_beam.io.filesystems import FileSystems

from transforms.durable import is_local
from transforms.places import check_filesystem, none_found, split_patterns
from transforms.read.compression import CODECS
from transforms.read.errors import RestrictedError, check_columns, naming_only
from transforms.read.formats import FORMATS
from transforms.read.identities import Identity, identity_of
from transforms.read.rules import RecordFields
from transforms.read.sources import source_of

# Characters of a path that `FileSystems.match` takes for a pattern.
_WILDCARDS = frozenset('*?[')


@dataclasses.dataclass(frozen=True, order=True)
class InputFile:
    """A file that is read, or another place (`transforms.read.sources`), which has no size and time.

    Attributes:
        path: Its path, on any filesystem that Beam knows; the URL of a database.
        size: Its size in bytes.
        updated: When it was last written, in seconds since 1970; 0 if its filesystem keeps no time.
    """

    path: str
    size: int
    updated: float

    def checksum(self, fields: RecordFields | None = None) -> str:
        """A check of its content by its filesystem: the checksum of an object store, the size on a disk.

        Of another place it is a digest of all that is read of it, for which `fields` are needed.
        """
        if (source := source_of(self.path)) is not None:
            assert fields is not None
            with naming_only(self.path):
                return source.digest(self.path, fields)
        return FileSystems.checksum(self.path)


def list_input(pattern: str) -> list[InputFile]:
    """The files and other places that a comma-separated list names, each once, sorted by path.

    A run reads exactly these files, and its digest of the input is of exactly these files. Each is listed
    once, because a file that is read twice would count its units twice: by the first of its names, whatever
    links and ways lead to it (`identity_of`). Copies are files of their own. `**` stands for any folders,
    also for none.

    Raises:
        ValueError: The list is empty; what it names is no regular file; two places hold one file, as a folder
            and a folder in it do; something there cannot be listed.
        FileNotFoundError: One of its patterns matches no file; no database or data set is there.
    """
    patterns = split_patterns(pattern)
    if not patterns:
        raise ValueError(
            f'Expected paths or globs of input files, got pattern={pattern!r}. Name at least one file.'
        )
    listed: list[InputFile] = []
    for part in patterns:
        with naming_only(part):
            listed += _listed(part, pattern)
    with naming_only(pattern):
        return _each_once(listed)


def _listed(part: str, pattern: str) -> Iterable[InputFile]:
    if (source := source_of(part)) is not None:
        source.look(part)
        return [InputFile(part, 0, 0)]
    # An accent of a pattern may be a character of its own in the names, or none.
    forms = (part, unicodedata.normalize('NFC', part), unicodedata.normalize('NFD', part))
    for form in dict.fromkeys(forms):
        if matches := _match(form):
            _refuse_pipes(part, matches)
            return matches
    raise none_found(part, pattern)


def _refuse_pipes(part: str, listed: Iterable[InputFile]) -> None:
    for file in listed:
        if is_local(file.path) and not stat.S_ISREG(os.stat(file.path).st_mode):
            raise RestrictedError(
                f'Expected regular files, got input={part!r} with a pipe, a socket or a device. A run reads '
                'its input more than once: write it to a file first.',
                f'For the curator alone: {file.path!r}',
            )


def _each_once(listed: Iterable[InputFile]) -> list[InputFile]:
    """The files by their first names, without other names of theirs; refuses places that share a file."""
    kept: dict[Identity, InputFile] = {}
    for file in sorted(listed):
        if source_of(file.path) is not None:
            kept.setdefault(_place(file.path), file)
            continue
        first = kept.setdefault(identity_of(file.path), file)
        if first.path != file.path and not is_local(file.path):
            raise RestrictedError(
                'Expected paths that differ in more than //, . and .., got two that do not and that some '
                'filesystems take for one file. Rename one of them, or leave it out.',
                f'For the curator alone: {first.path!r} and {file.path!r}',
            )
    if len(kept) > 1 and any(source_of(file.path) is not None for file in kept.values()):
        _refuse_shared(kept.values())
    return list(kept.values())


def _place(path: str) -> str:
    return os.path.realpath(path) if is_local(path) else path.rstrip('/')


def _refuse_shared(listed: Iterable[InputFile]) -> None:
    """Refuses places of which two read one file: a folder and a folder in it, or links between them."""
    owner: dict[Identity, str] = {}
    for file in listed:
        for identity in identities_of(file.path):
            if (first := owner.setdefault(identity, file.path)) != file.path:
                # A glob may have matched them, and then their names belong to the records.
                raise RestrictedError(
                    'Expected places that share no file, got two of the input that share some: their records '
                    'would count twice. Leave one of them out.',
                    f'For the curator alone: {first!r} and {file.path!r}',
                )


def identities_of(place: str) -> Iterator[Identity]:
    """Identities of a file, or of all that is read of another place; private, as errors of it are."""
    with naming_only(place):
        if (source := source_of(place)) is None:
            yield identity_of(place)
            return
        yield _place(place)
        yield from map(identity_of, source.files(place))


def _match(part: str) -> list[InputFile]:
    check_filesystem(part)
    try:
        files = FileSystems.get_filesystem(part)
    except ValueError:
        raise ValueError(
            'Expected a path of this machine, or a URL of a filesystem that Beam knows, such as '
            f'gs://BUCKET/FILE, got pattern={part!r}. Fetch the file, and give its path here.'
        ) from None
    if not _WILDCARDS & set(part) or files.exists(part):
        return [_file_of(files.metadata(part))] if files.exists(part) else []
    # Beam lists nothing for a pattern that begins with no folder.
    start = './' if is_local(part) and not os.path.dirname(re.split(r'[*?[]', part)[0]) else ''
    pattern = re.sub(r'/(?:\*\*/)+', '/**/', start + part)
    # Beam's ** has a folder where it stands between slashes.
    wanted = re.compile(files.translate_pattern(pattern).replace('/.*/', '/(?:.*/)?'))
    # One pattern at a time: Beam takes the filesystem of the first pattern for all.
    (match,) = FileSystems.match([pattern.replace('/**/', '/**')])
    matched = [_file_of(metadata) for metadata in match.metadata_list if wanted.match(metadata.path)]
    return [dataclasses.replace(file, path=file.path.removeprefix(start)) for file in matched]


def _file_of(metadata: filesystem.FileMetadata) -> InputFile:
    return InputFile(metadata.path, metadata.size_in_bytes, metadata.last_updated_in_seconds)


# Usual endings of a database in a file.
_OF_SQLITE = ('sqlite', 'sqlite3', 'db')


def file_format(path: str) -> tuple[str, str | None]:
    """Format and codec of a file, from its extension.

    Raises:
        ValueError: The extension is unknown.
    """
    stem, _, last = path.lower().rpartition('.')
    codec = last if last in CODECS else None
    name = stem.rpartition('.')[2] if codec else last
    if name not in FORMATS or (codec and not FORMATS[name].is_text):
        remedy = 'Rename the file or narrow the pattern.'
        if last in _OF_SQLITE:
            remedy = f'A database of SQLite is read as sqlite:///{path}.'
        raise ValueError(f'Expected a file ending in {_endings()}, got path={path!r}. {remedy}')
    return name, codec


def _endings() -> str:
    return f'.{", .".join(FORMATS)}, the text formats also in .{", .".join(CODECS)} after that'


def open_file(path: str) -> BinaryIO:
    """Opens a file for its own bytes; `decompressed` undoes the codec."""
    return FileSystems.open(path, compression_type=filesystem.CompressionTypes.UNCOMPRESSED)


def check_input(pattern: str, fields: RecordFields) -> list[InputFile]:
    """The files of `list_input`, after a check that each has the columns that are needed.

    A file of JSON objects has each column that occurs in an object near its beginning. Errors quote the names
    of files and of the needed columns, and nothing that was read (`MissingColumns`).

    Raises:
        ValueError: The list is empty, an extension is unknown, a column is missing, a Parquet file is
            damaged or has a column of a wrong type, or a database refuses the query.
        FileNotFoundError: A pattern matches no file.
        ConnectionError: A database does not answer.
    """
    listed = list_input(pattern)
    check_formats(pattern, listed)
    if not fields.positional and all(
        file.size == 0 and source_of(file.path) is None and file_format(file.path)[0] in ('csv', 'tsv')
        for file in listed
    ):
        # An empty file of JSON lines may mean that there is no record; here not even a header row is there.
        raise ValueError(
            f'Expected a header row and records, got path={listed[0].path!r} of 0 bytes. Write it again.'
        )
    with futures.ThreadPoolExecutor(16) as threads:
        # `list` raises the first error, in the order of the file names.
        list(threads.map(lambda file: _check_file(file.path, fields), listed))
    return listed


def check_formats(pattern: str, listed: Iterable[InputFile]) -> None:
    """Refuses files of unknown extensions; names those that the pattern spells out.

    Raises:
        ValueError: See above. What a glob matched may be the text of one person: its name is restricted.
    """
    for file in listed:
        if source_of(file.path) is not None:
            continue
        try:
            file_format(file.path)
        except ValueError:
            if file.path in split_patterns(pattern):
                raise
        else:
            continue
        raise RestrictedError(
            f'Expected a file ending in {_endings()}, got another one that input={pattern!r} matches. Narrow '
            'the pattern; of a folder of texts name the folder.',
            f'For the curator alone, because names may belong to the records: {file.path!r}',
        )


def check_same(known: Sequence[str], paths: Sequence[str]) -> None:
    """Checks that the files are still those of the run's digest of its input.

    Raises:
        ValueError: Files were added or removed in between.
    """
    came, went = sorted(set(paths) - set(known)), sorted(set(known) - set(paths))
    if came or went:
        raise ValueError(
            f'Expected the same input files throughout the preparations, got new={came}, missing={went}. '
            'Repeat the command when no other program writes there.'
        )


def _check_file(path: str, fields: RecordFields) -> None:
    with naming_only(path):
        if (source := source_of(path)) is not None:
            source.check(path, fields)
            return
        name, codec = file_format(path)
        with open_file(path) as file:
            columns = FORMATS[name].columns(file, codec, path, fields)
        if columns is not None and not columns.issuperset(fields.names):
            with open_file(path) as file:
                remedy = FORMATS[name].remedy(file, codec, fields)
            check_columns(path, fields.names, columns, remedy)
