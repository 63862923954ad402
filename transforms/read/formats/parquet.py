"""Parquet, by row group and needed column."""

from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from transforms.read.dialect import Dialect
from transforms.read.formats.format import Column, Format, RawRow
from transforms.read.rules import Reason, RecordFields, Table

_ROWS_AT_ONCE = 1_024


class Parquet(Format):
    """One row of a row group is one row; a row group is a part."""

    is_text = False

    def parts(self, open_file: Callable[[], BinaryIO]) -> Iterator[int]:
        with open_file() as file:
            yield from range(pq.read_metadata(file).num_row_groups)

    def rows(self, file: BinaryIO, codec: str | None, part: int, fields: RecordFields) -> Iterator[RawRow]:
        return parquet_rows(file, part, fields)

    def columns(self, file: BinaryIO, codec: str | None, path: str, fields: RecordFields) -> set[str] | None:
        return _parquet_columns(file, path, fields)

    def header(
        self, file: BinaryIO, codec: str | None, path: str, dialect: Dialect, table: Table
    ) -> tuple[tuple[Column, ...], Dialect] | None:
        return schema_columns(_schema(file, path)), Dialect()


def schema_columns(schema: pa.Schema) -> tuple[Column, ...]:
    """The columns of a schema of Arrow, in its order."""
    return tuple(Column(name=field.name, is_fraction=pa.types.is_floating(field.type)) for field in schema)


def parquet_rows(file: BinaryIO, row_group: int, fields: RecordFields) -> Iterator[RawRow]:
    """The rows of one row group, of the needed columns only."""
    try:
        parquet = pq.ParquetFile(file)
        names = [name for name in fields.names if name in parquet.schema_arrow.names]
        for batch in parquet.iter_batches(_ROWS_AT_ONCE, row_groups=[row_group], columns=names):
            yield from batch_rows(batch, names, fields)
    except (pa.ArrowException, OSError) as error:
        # Arrow reports a broken page as a bare OSError without a number. An error of a filesystem has a
        # number or a class of its own: it goes to the runner, which tries again.
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise
        yield Reason.UNREADABLE_REST, b''


def batch_rows(batch: pa.RecordBatch, names: Sequence[str], fields: RecordFields) -> Iterator[RawRow]:
    """The rows of a batch of Arrow, of some of its columns."""
    columns = {name: _plain(batch.column(name)).to_pylist() for name in names}
    for place in range(batch.num_rows):
        values = {name: column[place] for name, column in columns.items()}
        text = values.get(fields.text)
        yield values, text if isinstance(text, bytes) else b''


def _plain(column: pa.Array) -> pa.Array:
    """Strings as unchecked bytes, because some writers store other bytes than UTF-8; categories as values."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_binary()) if _is_text(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(kind) for is_kind in (*strings, pa.types.is_binary, pa.types.is_large_binary))


def _parquet_columns(file: BinaryIO, path: str, fields: RecordFields) -> set[str]:
    schema = _schema(file, path)
    check_types(schema, path, fields)
    return set(schema.names)


def check_types(schema: pa.Schema, path: str, fields: RecordFields) -> None:
    """Refuses columns of types that no record can have.

    Raises:
        ValueError: See above.
    """
    for name in set(fields.names) & set(schema.names):
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        if not (_is_text(kind) or (number and name != fields.text)):
            raise ValueError(
                'Expected text in the text column and text, numbers or booleans in the other columns, got '
                f'path={path!r}, column={name!r}, type={str(kind)!r}. Convert the column.'
            )


def _schema(file: BinaryIO, path: str) -> pa.Schema:
    try:
        return pq.read_schema(file)
    except pa.ArrowInvalid:
        raise ValueError(
            f'Expected a Parquet file, got path={path!r}, which is none or is incomplete. Write it again.'
        ) from None
