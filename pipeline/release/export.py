"""Behind `dp-corpus export`: the corpus of a finished run, which is public, in another form."""

import csv
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import sqlalchemy as sa
from apache_beam.io.filesystems import FileSystems
from pyarrow import parquet

from pipeline.release import released_corpus
from transforms.places import is_database
from transforms.read.sources import database

_ROWS_AT_ONCE = 1_000
# A spreadsheet takes a cell that begins with one of these for a formula; the last four are full-width forms.
_BEGINS_FORMULA = ('=', '+', '-', '@', '\t', '\r', '\n', '\uff1d', '\uff0b', '\uff0d', '\uff20')


def export(corpus: str, target: str, table: str | None = None) -> int:
    """Writes all examples of a corpus, with all their columns.

    Args:
        corpus: The output of a finished run.
        target: A new file, whose ending says its form, .jsonl or .csv; or the URL of a database.
        table: Name of a new table of the database.

    Returns:
        The number of examples.

    Raises:
        ValueError: No run has finished there, another ending, or a table that is not named or is there.
        FileExistsError: There is such a file.
        ConnectionError: The database does not answer.
    """
    shards = [file.path for file in released_corpus.list_shards(corpus, 'corpus')]
    if is_database(target):
        return _to_database(shards, target, table)
    if table is not None:
        raise ValueError(f'Expected a table of a database, got to={target!r}, table={table!r}. Leave it out.')
    path = pathlib.Path(target)
    if path.suffix not in ('.jsonl', '.csv'):
        raise ValueError(
            f'Expected a file ending in .jsonl or .csv, or the URL of a database, got to={target!r}. Rename '
            'it.'
        )
    if path.exists():
        raise FileExistsError(f'Expected a new file, got to={target!r}, which is there. Choose another name.')
    try:
        return _to_file(shards, path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _to_file(shards: Sequence[str], path: pathlib.Path) -> int:
    count = 0
    with path.open('x', encoding='utf-8', newline='') as file:
        writer = csv.writer(file)
        if path.suffix == '.csv':
            writer.writerow(map(_cell, _schema(shards).names))
        for rows in _rows(shards):
            count += len(rows)
            if path.suffix == '.csv':
                writer.writerows([_cell(value) for value in row.values()] for row in rows)
            else:
                file.writelines(json.dumps(row, ensure_ascii=False) + '\n' for row in rows)
    return count


def _schema(shards: Sequence[str]) -> pa.Schema:
    with FileSystems.open(shards[0]) as file:
        return parquet.read_schema(pa.PythonFile(file, mode='r'))


def _rows(shards: Sequence[str]) -> Iterator[list[dict[str, object]]]:
    for path in shards:
        with FileSystems.open(path) as file:
            for batch in parquet.ParquetFile(pa.PythonFile(file, mode='r')).iter_batches(_ROWS_AT_ONCE):
                yield batch.to_pylist()


def _cell(value: object) -> object:
    """A cell that a spreadsheet takes for text: the apostrophe before a formula says so."""
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGINS_FORMULA) else value


def _type_of(kind: pa.DataType) -> sa.types.TypeEngine:
    if pa.types.is_boolean(kind):
        return sa.Boolean()
    if pa.types.is_integer(kind):
        return sa.BigInteger()
    return sa.Double() if pa.types.is_floating(kind) else sa.Text()


def _to_database(shards: Sequence[str], target: str, name: str | None) -> int:
    """Makes a table and fills it, both in one transaction."""
    if not name:
        raise ValueError('Expected the name of a new table of the database, got none. Give --table corpus.')
    schema, count, reason = _schema(shards), 0, None
    table = sa.Table(name, sa.MetaData(), *(sa.Column(field.name, _type_of(field.type)) for field in schema))
    try:
        with database.connected(target, writes=True) as connection:
            if sa.inspect(connection).has_table(name):
                raise ValueError(
                    f'Expected the name of a new table, got table={name!r}, which is there. Choose another.'
                )
            table.create(connection)
            for rows in _rows(shards):
                connection.execute(sa.insert(table), [_of_table(row) for row in rows])
                count += len(rows)
    except sa.exc.DBAPIError as error:
        reason = ' '.join(str(error.orig).split())
    if reason is not None:
        raise ConnectionError(
            f'Expected a database that takes the corpus, got to={target!r}, which says: {reason}. Check that '
            'this account may make a table there.'
        )
    return count


def _of_table(row: Mapping[str, object]) -> dict[str, object]:
    return {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value
        for name, value in row.items()
    }
