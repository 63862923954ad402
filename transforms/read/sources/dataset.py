"""Hugging Face data sets: folders that `save_to_disk` wrote, and names on the Hub.

A folder's Arrow files are read as they are, on any filesystem, and without the library `datasets`. A name is
loaded by that library, on each machine that reads, into its cache; workers refuse another version than the
first one found.
"""

import functools
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
from apache_beam.io import filesystem
from apache_beam.io.filesystems import FileSystems

from models import extras
from transforms import durable, places
from transforms.read import column_types
from transforms.read.errors import check_columns
from transforms.read.formats.format import RawRow
from transforms.read.identities import identity_of
from transforms.read.rules import Reason, RecordFields, Table
from transforms.read.sources.source import Part, Source, content_digest

_SPLITS, _STATE = 'dataset_dict.json', 'state.json'
# OWNER/NAME or NAME, and perhaps a configuration.
_NAME = re.compile(r'[\w.-]+(?:/[\w.-]+){0,2}', re.ASCII)
_ARROW = '.arrow'


class Dataset(Source):
    """`hf://DIR`, a folder that `datasets.Dataset.save_to_disk` wrote, or `hf://OWNER/NAME[/CONFIGURATION]`.

    A split of one of them is read; each of its Arrow files is a part. Values are what the files hold: a
    `ClassLabel` is its number.
    """

    def owns(self, place: str) -> bool:
        return places.is_dataset(place)

    def look(self, place: str) -> None:
        _kind(place)

    def header(self, place: str, table: Table) -> tuple[str, ...]:
        schema = _schema_of(place, table)
        return () if schema is None else tuple(schema.names)

    def check(self, place: str, fields: RecordFields) -> None:
        if (schema := _schema_of(place, fields.table)) is not None:
            check_columns(
                place,
                fields.names,
                schema.names,
                'Name the columns as the data set does.',
            )
            column_types.check_schema(schema, place, fields)

    def parts(self, place: str, table: Table) -> Iterator[Part]:
        files, version = _files(place, table)
        for number in range(len(files)):
            yield number, version

    def rows(self, place: str, part: Part, fields: RecordFields, *, whole: bool = False) -> Iterator[RawRow]:
        number, version = part
        files, here = _files(place, fields.table)
        if here != version:
            raise ValueError(
                f'Expected one version of the data set on all machines, got another one of input={place!r} '
                'here. Save it with save_to_disk where all of them can read it, and give hf://DIR.'
            )
        try:
            with _open(files[number]) as file:
                for batch in pa.ipc.open_stream(file):
                    yield from column_types.rows_of(batch, fields, whole=whole)
        except (pa.ArrowException, OSError) as error:
            # As of Parquet: an error of a filesystem goes to the runner, which tries again.
            if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
                raise
            yield Reason.UNREADABLE_REST, b''

    def digest(self, place: str, fields: RecordFields) -> str:
        digest = hashlib.sha256()
        for path in _files(place, fields.table)[0]:
            with _open(path) as file:
                digest.update(content_digest(file))
        return digest.hexdigest()

    def files(self, place: str) -> Iterator[str]:
        # Files of all splits: which one is read is not known here.
        path = place.removeprefix(places.DATASET).rstrip('/')
        if os.path.isdir(path):
            for folder, _, names in os.walk(path):
                yield from (os.path.join(folder, name) for name in names if name.endswith(_ARROW))
        elif _kind(place) != 'name':
            (match,) = FileSystems.match([durable.literal(path) + '/**'])
            yield from (one.path for one in match.metadata_list if one.path.endswith(_ARROW))


def _kind(place: str) -> str:
    """'split', 'splits' or 'name': what a data set is known by.

    Raises:
        FileNotFoundError: Neither a folder nor a name.
        ValueError: A folder that `save_to_disk` did not write.
    """
    path = place.removeprefix(places.DATASET).rstrip('/')
    for file, kind in ((_SPLITS, 'splits'), (_STATE, 'split')):
        if FileSystems.exists(FileSystems.join(path, file)):
            return kind
    if os.path.isdir(path):
        raise ValueError(
            f'Expected a folder that save_to_disk of the library datasets wrote, got input={place!r} without '
            f"{_STATE}. Files of tables have names of their own: --input 'DIR/*.parquet'."
        )
    if not _NAME.fullmatch(path):
        raise FileNotFoundError(
            f'Expected a data set, got none at input={place!r}. Check the path, or give hf://OWNER/NAME.'
        )
    return 'name'


def _files(place: str, table: Table) -> tuple[list[str], str]:
    """The Arrow files of a split, and its version; the version of a folder is empty.

    Raises:
        ValueError: There are several splits, of which none is named, or not this one.
        ConnectionError: A name that cannot be loaded.
    """
    path, kind = place.removeprefix(places.DATASET).rstrip('/'), _kind(place)
    if kind == 'name':
        return _load(path, place, table.split)
    if kind == 'splits':
        splits = list(map(str, _json(path, _SPLITS, place, 'splits')))
        _refuse_elsewhere(splits, _SPLITS, place)
        path = FileSystems.join(path, _split(splits, table.split, place))
    elif table.split is not None:
        raise ValueError(
            f'Expected no split of a folder that holds one, got split={table.split!r}, input={place!r}. '
            'Leave it out.'
        )
    named = _json(path, _STATE, place, '_data_files')
    files = [str(each['filename'] if isinstance(each, dict) and 'filename' in each else '') for each in named]
    _refuse_elsewhere(files, _STATE, place)
    paths = [FileSystems.join(path, name) for name in files]
    if len({identity_of(each) for each in paths}) < len(paths):
        raise ValueError(
            f'Expected {_STATE} to name each file once, got input={place!r} with one under two names, whose '
            'records would count twice. Save the data set again.'
        )
    return paths, ''


def _refuse_elsewhere(names: Sequence[str], file: str, place: str) -> None:
    """Refuses a data set that names what does not lie in its own folder."""
    if elsewhere := [name for name in names if posixpath.basename(name) != name or name in ('', '.', '..')]:
        raise ValueError(
            f'Expected {file} to name what lies in its own folder, got names={elsewhere} in input={place!r}. '
            'Save the data set again.'
        )


def _split(splits: Sequence[str], asked: str | None, place: str) -> str:
    """The split that is asked for, or the only one."""
    if asked is None and len(splits) == 1:
        return splits[0]
    if asked not in splits:
        got = 'none' if asked is None else f'split={asked!r}'
        raise ValueError(
            f'Expected one of the splits {list(splits)} of input={place!r}, got {got}. Name one with --split.'
        )
    return str(asked)


def _json(folder: str, name: str, place: str, key: str) -> list[Any]:
    with _open(FileSystems.join(folder, name)) as file:
        try:
            values = json.loads(file.read())[key]
        except (ValueError, KeyError, TypeError):
            values = None
    if not isinstance(values, list):
        raise ValueError(
            f'Expected a data set as save_to_disk writes it, got input={place!r} with another {name}. '
            'Save it again.'
        )
    return values


def _open(path: str) -> BinaryIO:
    return FileSystems.open(path, compression_type=filesystem.CompressionTypes.UNCOMPRESSED)


def _schema_of(place: str, table: Table) -> pa.Schema | None:
    """The schema of the first file of a split; None of a split without files."""
    for path in _files(place, table)[0][:1]:
        with _open(path) as file:
            return _schema(file, place)
    return None


def _schema(file: BinaryIO, place: str) -> pa.Schema:
    try:
        return pa.ipc.open_stream(file).schema
    except pa.ArrowException:
        pass
    raise ValueError(
        f'Expected Arrow files as save_to_disk writes them, got input={place!r} with another one. Save it '
        'again.'
    )


@functools.lru_cache(maxsize=8)  # a look at the Hub for every part would take long
def _load(name: str, place: str, split: str | None) -> tuple[list[str], str]:
    """The Arrow files of a split in the cache of the library, and its version."""
    extras.need(extras.DATASETS, use=f'input={place!r}, which is no folder here,')
    import datasets

    owner, *rest = name.split('/')
    configuration = rest[1] if len(rest) == 2 else None
    reason = None
    try:
        datasets.disable_progress_bars()
        loaded = datasets.load_dataset('/'.join([owner, *rest[:1]]), configuration)
    except (OSError, ValueError) as error:
        # Errors of the Hub, or of names and configurations, quote no row.
        reason = ' '.join(str(error).split())
    except Exception as error:  # noqa: BLE001 - whatever it is, its text may quote records
        reason = type(error).__name__
    if reason is not None:
        raise ConnectionError(
            f'Expected a data set that can be loaded, got input={place!r}, which is no folder here, and of '
            f'whose name the library datasets says: {reason.rstrip(".")}. Check the name and the network, '
            'or give hf://DIR, a folder that save_to_disk wrote.'
        )
    chosen = loaded[_split([str(each) for each in loaded], split, place)]
    return [str(each['filename']) for each in chosen.cache_files], str(chosen._fingerprint)
