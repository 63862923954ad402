"""Parquet, by row group and needed column."""

from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from transforms.read import column_types
from transforms.read.dialect import Dialect
from transforms.read.formats.format import Format, RawRow
from transforms.read.rules import Reason, RecordFields, Table

_ROWS_AT_ONCE = 1_024


class Parquet(Format):
    """One row of a row group is one row; a row group is a part."""

    is_text = False
    header_remedy = 'Give each column a name of its own.'

    def parts(self, open_file: Callable[[], BinaryIO]) -> Iterator[int]:
        with open_file() as file:
            yield from range(pq.read_metadata(file).num_row_groups)

    def rows(
        self, file: BinaryIO, codec: str | None, part: int, fields: RecordFields, *, whole: bool = False
    ) -> Iterator[RawRow]:
        try:
            parquet = pq.ParquetFile(file)
            names = [name for name in fields.names if name in parquet.schema_arrow.names]
            columns = None if whole else names
            for batch in parquet.iter_batches(_ROWS_AT_ONCE, row_groups=[part], columns=columns):
                yield from column_types.rows_of(batch, fields, whole=whole)
        except (pa.ArrowException, OSError) as error:
            # Arrow reports a broken page as a bare OSError without a number. An error of a filesystem has a
            # number or a class of its own: it goes to the runner, which tries again.
            if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
                raise
            yield Reason.UNREADABLE_REST, b''

    def columns(self, file: BinaryIO, codec: str | None, path: str, fields: RecordFields) -> set[str] | None:
        schema = _schema(file, path)
        column_types.check_schema(schema, path, fields)
        return set(schema.names)

    def header(
        self, file: BinaryIO, codec: str | None, path: str, dialect: Dialect, table: Table
    ) -> tuple[tuple[str, ...], Dialect] | None:
        return tuple(_schema(file, path).names), Dialect()


def _schema(file: BinaryIO, path: str) -> pa.Schema:
    try:
        return pq.read_schema(file)
    except pa.ArrowInvalid:
        raise ValueError(
            f'Expected a Parquet file, got path={path!r}, which is none or is incomplete. Write it again.'
        ) from None
