"""Typed columns as the values that `models.spelling` spells: of Arrow and Parquet, and of databases.

What a type is as a label or an id is the same in every source (docs/settings.md, "Types of columns"):

* Text and bytes of any kind are UTF-8 that is not checked yet, and so are JSON texts.
* Numbers and booleans are Python's; floats of 32 and 16 bits keep their own digits.
* Dates, times and UUIDs are texts; a time with a zone is in that of UTC.
* A type that is a way to store another one (dictionaries, runs, extensions) is that one.
* Of a column that is nothing but missing (null) every value is missing.

Lists, structs, maps and the like are none of these. A date that no calendar of Python has (infinite, before
the year 1, after 9999) or a time beyond a day is `Unspelled`: its row is rejected, whatever its source.
"""

import bisect
import dataclasses
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from models import spelling
from transforms.read.formats.format import RawRow
from transforms.read.rules import RecordFields

_TIME = '[0-9]{2}:[0-9]{2}:[0-9]{2}[0-9.:+-]*'
_MOMENT = re.compile(f'(?!0000)[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}( {_TIME})?|{_TIME}')
_NANOSECONDS = {'s': 10**9, 'ms': 10**6, 'us': 10**3, 'ns': 1}
_TEXTS = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary,
    pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary,
)  # fmt: skip
_VALUES = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_date,
    pa.types.is_time, pa.types.is_timestamp, pa.types.is_duration,
)  # fmt: skip
# Extensions whose values are others than those that they are stored as.
_EXTENSIONS: Mapping[str, Callable[[Any], object]] = {
    'arrow.uuid': lambda value: str(uuid.UUID(bytes=value)),
    'arrow.bool8': bool,
}


@dataclasses.dataclass(frozen=True)
class Unspelled:
    """A value that is no label and no id; its text is that of its source, for the curator."""

    text: str = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return self.text


def moment(text: str) -> str | Unspelled:
    """A date or a time, perhaps with a zone, that Python has, or none.

    >>> moment('2024-05-06'), moment('2024-05-06 07:08:00.5+02'), moment('07:08:00')
    ('2024-05-06', '2024-05-06 07:08:00.5+02', '07:08:00')
    >>> [str(moment(text)) for text in ('infinity', '0044-03-15 BC')]
    ['infinity', '0044-03-15 BC']
    """
    return text if _MOMENT.fullmatch(text) else Unspelled(text)


def check_schema(schema: pa.Schema, path: str, fields: RecordFields) -> None:
    """Refuses a needed column of a type that no record can have, and two columns of its name."""
    for name in fields.names:
        if (count := schema.names.count(name)) > 1:
            raise ValueError(
                f'Expected each needed column once, got path={path!r}, column={name!r} {count} times. Give '
                'each column a name of its own.'
            )
        kind = _stored(schema.field(name).type) if count else pa.null()
        if not (_is_text(kind) or pa.types.is_null(kind) or (name != fields.text and _is_value(kind))):
            raise ValueError(
                'Expected text in the text column, and text, numbers, booleans, dates, times or UUIDs in the '
                f'other columns, got path={path!r}, column={name!r}, type={str(schema.field(name).type)!r}. '
                'Convert the column.'
            )


def rows_of(batch: pa.RecordBatch, fields: RecordFields, *, whole: bool) -> Iterator[RawRow]:
    """The needed columns of a batch, or all, row by row; of a name that occurs twice there is no value."""
    wanted = batch.schema.names if whole else fields.names
    names = [name for name in wanted if batch.schema.names.count(name) == 1]
    columns = {name: values_of(batch.column(name)) for name in names}
    for place in range(batch.num_rows):
        values = {name: column[place] for name, column in columns.items()}
        text = values.get(fields.text)
        yield values, text if isinstance(text, bytes) else b''


def values_of(column: pa.Array) -> list[Any]:
    """The values of a column, None where one is missing; of a type that is refused, those of Arrow."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        if _is_text(kind.value_type):
            # Views cannot be decoded.
            column = pa.DictionaryArray.from_arrays(column.indices, _as_bytes(column.dictionary))
        return values_of(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        values, ends = dict(enumerate(values_of(column.values))), column.run_ends.to_pylist()
        places = range(column.offset, column.offset + len(column))
        return [values.get(bisect.bisect_right(ends, place)) for place in places]
    if isinstance(kind, pa.BaseExtensionType):
        stored = values_of(column.storage)
        convert = _EXTENSIONS.get(kind.extension_name)
        return stored if convert is None else _each(convert, stored)
    if _is_text(kind):
        return _as_bytes(column).to_pylist()
    if pa.types.is_timestamp(kind):
        # Times with a zone are those of UTC, whatever their zone is called.
        zone = '' if kind.tz is None else '+00'
        written = column.view(pa.timestamp(kind.unit)).cast(pa.string()).to_pylist()
        return _each(lambda text: moment(text + zone), written)
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return _each(moment, column.cast(pa.string()).to_pylist())
    if pa.types.is_duration(kind):
        unit = _NANOSECONDS[kind.unit]
        return _each(lambda count: spelling.elapsed(count * unit), column.cast(pa.int64()).to_pylist())
    if pa.types.is_float32(kind):
        return _each(lambda value: spelling.Single(str(np.float32(value))), column.to_pylist())
    if pa.types.is_float16(kind):
        return _each(lambda value: spelling.Half(str(np.float16(value))), column.to_pylist())
    return column.to_pylist()


def _each(convert: Callable[[Any], object], values: Iterable[Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def _as_bytes(column: pa.Array) -> pa.Array:
    # Unchecked, because some writers store other bytes than UTF-8.
    return column.cast(pa.large_binary())


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type that another one is a way to store."""
    while True:
        if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        elif isinstance(kind, pa.BaseExtensionType) and kind.extension_name not in _EXTENSIONS:
            kind = kind.storage_type
        else:
            return kind


def _is_text(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in _TEXTS)


def _is_value(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) or any(is_kind(kind) for is_kind in _VALUES)
