"""A folder of text files: each file is a record, and the folder that it lies in is its label.

The files are listed by workers and not when the pipeline is built: their names and their number belong to
the records.
"""

import hashlib
import os
import posixpath
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from apache_beam.io import filesystem
from apache_beam.io.filesystems import FileSystems

from transforms.read import dialect as dialect_lib
from transforms.read import lines
from transforms.read.columns import check_columns
from transforms.read.formats.format import Column, RawRow
from transforms.read.rules import Reason, RecordFields, Table
from transforms.read.sources.source import Part, Source

TEXT, LABEL, ID = COLUMNS = ('text', 'label', 'id')
_ENDING = '.txt'


class Folder(Source):
    """A folder of this machine, or a path that ends with a slash on another filesystem.

    Columns: `text`; `label`, the first folder on the way from the given folder to the file, none for a file
    that lies in the given folder itself; `id`, that way. Files whose names do not end with `.txt`, and what
    has a name that begins with a dot, are not read.
    """

    def owns(self, place: str) -> bool:
        return os.path.isdir(place) or ('://' in place and place.endswith('/'))

    def look(self, place: str) -> None:
        if next(_ways(place), None) is None:
            raise FileNotFoundError(
                f'Expected text files in the folder, got input={place!r} without any {_ENDING} file. A '
                'folder of texts holds LABEL/NAME.txt; of files that are tables name the files '
                '(DIR/*.parquet), and of a data set that was saved to disk write hf://DIR.'
            )

    def header(self, place: str, table: Table) -> tuple[Column, ...]:
        return tuple(Column(name=name) for name in COLUMNS)

    def check(self, place: str, fields: RecordFields) -> None:
        check_columns(
            place,
            fields.names,
            COLUMNS,
            'A folder of texts has the columns text, label (the folder of a file) and id (its path in the '
            'folder).',
        )

    def parts(self, place: str, table: Table) -> Iterator[Part]:
        # As bytes: a name need not be UTF-8.
        return map(os.fsencode, _ways(place))

    def rows(self, place: str, part: Part, fields: RecordFields) -> Iterator[RawRow]:
        with _open(place, os.fsdecode(part)) as file:
            data = file.read(lines.MAX_ROW_BYTES + 1)
        if len(data) > lines.MAX_ROW_BYTES:
            yield Reason.TOO_LONG, data
            return
        # Without columns the mark or the given encoding alone decides.
        encoding = dialect_lib.detect(data[: dialect_lib.HEAD_BYTES], fields.dialect, ()).encoding
        assert encoding is not None
        text = b''.join(dialect_lib.as_utf8([data[len(dialect_lib.mark(data)) :]], encoding))
        # The line end that text files end with.
        text = text.removesuffix(b'\n').removesuffix(b'\r')
        label, slash, _ = part.partition(b'/')
        yield {TEXT: text, LABEL: label if slash else None, ID: part}, data

    def whole_rows(self, place: str, fields: RecordFields) -> Iterator[Mapping[str, object]]:
        for part in self.parts(place, fields.table):
            for values, _ in self.rows(place, part, fields):
                if not isinstance(values, Reason):
                    yield values

    def digest(self, place: str, fields: RecordFields) -> str:
        digest = hashlib.sha256()
        for way in sorted(_ways(place)):
            with _open(place, way) as file:
                content = hashlib.sha256(file.read()).digest()
            digest.update(hashlib.sha256(os.fsencode(way)).digest() + content)
        return digest.hexdigest()

    def name(self, place: str, part: Part) -> str:
        return os.fsdecode(part).encode(errors='replace').decode()


def _ways(place: str) -> Iterator[str]:
    """The text files of a folder, by their paths from there."""
    if os.path.isdir(place):
        for folder, folders, names in os.walk(place):
            folders[:] = [name for name in folders if not name.startswith('.')]
            found = (os.path.relpath(os.path.join(folder, name), place) for name in names)
            yield from (way.replace(os.sep, '/') for way in found if _is_text(way.replace(os.sep, '/')))
        return
    # What Beam takes for a pattern stands for itself here.
    quoted = ''.join(f'[{character}]' if character in '*?[' else character for character in place)
    (match,) = FileSystems.match([quoted + '**'])
    for metadata in match.metadata_list:
        if _is_text(way := metadata.path.removeprefix(place)):
            yield way


def _is_text(way: str) -> bool:
    return way.lower().endswith(_ENDING) and not any(name.startswith('.') for name in way.split('/'))


def _open(place: str, way: str) -> BinaryIO:
    path = posixpath.join(place, way)
    return FileSystems.open(path, compression_type=filesystem.CompressionTypes.UNCOMPRESSED)
