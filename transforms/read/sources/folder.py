"""A folder of text files: each file is a record, and the folder that it lies in is its label.

The files are listed by workers and not when the pipeline is built: their names and their number belong to
the records.
"""

import errno
import hashlib
import os
import posixpath
import stat
from collections.abc import Iterator
from typing import BinaryIO

from apache_beam.io import filesystem
from apache_beam.io.filesystems import FileSystems

from transforms.read import dialect as dialect_lib
from transforms.read import lines
from transforms.read.errors import check_columns
from transforms.read.formats.format import RawRow
from transforms.read.identities import Identity, identity_of
from transforms.read.rules import Reason, RecordFields, Table
from transforms.read.sources.source import Part, Source, content_digest

TEXT, LABEL, ID = COLUMNS = ('text', 'label', 'id')
_ENDING = '.txt'
# Errors of the system for a name behind which no file is that may be read.
_NO_FILE = frozenset(
    {
        errno.ENOENT, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENOTDIR, errno.ENAMETOOLONG,
    }
)  # fmt: skip


class Folder(Source):
    """A folder of this machine, or a path that ends with a slash on another filesystem.

    Columns: `text`; `label`, the first folder on the way from the given folder to the file, none for a file
    that lies in the given folder itself; `id`, that way. Files whose names do not end with `.txt`, and what
    has a name that begins with a dot, are not read.

    A name that leads to no file of the folder is a rejected row: a link that is dangling or leads out, a pipe
    or a socket, a file or a folder that may not be read, a linked folder, a second name of a file.
    """

    def owns(self, place: str) -> bool:
        return os.path.isdir(place) or ('://' in place and place.endswith('/'))

    def look(self, place: str) -> None:
        if next(_names(place), None) is None:
            raise FileNotFoundError(
                f'Expected text files in the folder, got input={place!r} without any {_ENDING} file. A '
                'folder of texts holds LABEL/NAME.txt; of files that are tables name the files '
                '(DIR/*.parquet), and of a data set that was saved to disk write hf://DIR.'
            )

    def header(self, place: str, table: Table) -> tuple[str, ...]:
        return COLUMNS

    def check(self, place: str, fields: RecordFields) -> None:
        check_columns(
            place,
            fields.names,
            COLUMNS,
            'A folder of texts has the columns text, label (the folder of a file) and id (its path in the '
            'folder).',
        )

    def parts(self, place: str, table: Table) -> Iterator[Part]:
        for way, is_file in _ways(place):
            # As bytes: a name need not be UTF-8. Decided here, so that a worker without the folder fails.
            yield os.fsencode(way), is_file

    def rows(self, place: str, part: Part, fields: RecordFields, *, whole: bool = False) -> Iterator[RawRow]:
        way, is_file = part
        if not is_file:
            yield Reason.MALFORMED, b''
            return
        with _open(place, os.fsdecode(way)) as file:
            data = file.read(lines.MAX_ROW_BYTES + 1)
        if len(data) > lines.MAX_ROW_BYTES:
            yield Reason.TOO_LONG, data
            return
        # Without columns the mark or the given encoding alone decides.
        encoding = dialect_lib.detect(data[: dialect_lib.HEAD_BYTES], fields.dialect, ()).encoding
        text = b''.join(dialect_lib.as_utf8([data[len(dialect_lib.mark(data)) :]], encoding))
        # The line end that text files end with.
        text = text.removesuffix(b'\n').removesuffix(b'\r')
        label, slash, _ = way.partition(b'/')
        yield {TEXT: text, LABEL: label if slash else None, ID: way}, data

    def digest(self, place: str, fields: RecordFields) -> str:
        digest = hashlib.sha256()
        for way, is_file in _ways(place):
            content = bytes(digest.digest_size)
            if is_file:
                with _open(place, way) as file:
                    content = content_digest(file)
            digest.update(hashlib.sha256(os.fsencode(way)).digest() + content)
        return digest.hexdigest()

    def files(self, place: str) -> Iterator[str]:
        return (posixpath.join(place, way) for way, is_file in _ways(place) if is_file)

    def name(self, place: str, part: Part) -> str:
        way, _ = part
        return os.fsdecode(way).encode(errors='replace').decode()


def _ways(place: str) -> Iterator[tuple[str, bool]]:
    """Paths from a folder, sorted, and whether each is of a file of the folder; of each file one is."""
    # The first name of a file counts, in whatever order the system lists them.
    names = sorted(_names(place))
    if not os.path.isdir(place):
        yield from ((way, True) for way in names)
        return
    root, seen = os.path.join(os.path.realpath(place), ''), set[Identity]()
    for way in names:
        identity = _file_at(os.path.join(place, way), root)
        yield way, identity is not None and identity not in seen
        if identity is not None:
            seen.add(identity)


def _file_at(path: str, root: str) -> Identity | None:
    """The identity of a file under `root` that can be read; None where there is none at this path."""
    try:
        if os.path.islink(path) and not os.path.realpath(path).startswith(root):
            return None
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        # Nonblocking, for a pipe that has taken the file's place.
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        return identity_of(path)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise


def _names(place: str) -> Iterator[str]:
    """Paths from a folder that a text may be at: of text files, of links to folders, of closed folders."""
    if os.path.isdir(place):
        closed: list[str] = []

        def keep(error: OSError) -> None:
            if error.filename == place:
                raise error
            closed.append(error.filename)

        for folder, folders, names in os.walk(place, onerror=keep):
            folders[:] = [name for name in folders if not name.startswith('.')]
            paths = [os.path.join(folder, name) for name in names if _is_text(name)]
            paths += [path for name in folders if os.path.islink(path := os.path.join(folder, name))]
            yield from (_way(path, place) for path in paths)
        yield from (_way(path, place) for path in closed)
        return
    # Characters of a pattern stand for themselves here.
    quoted = ''.join(f'[{character}]' if character in '*?[' else character for character in place)
    (match,) = FileSystems.match([quoted + '**'])
    for metadata in match.metadata_list:
        if _is_text(way := metadata.path.removeprefix(place)):
            yield way


def _way(path: str, place: str) -> str:
    return os.path.relpath(path, place).replace(os.sep, '/')


def _is_text(way: str) -> bool:
    return way.lower().endswith(_ENDING) and not any(name.startswith('.') for name in way.split('/'))


def _open(place: str, way: str) -> BinaryIO:
    path = posixpath.join(place, way)
    return FileSystems.open(path, compression_type=filesystem.CompressionTypes.UNCOMPRESSED)
