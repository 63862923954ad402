"""Behind `dp-corpus split`: real texts set apart before any run reads them, by keyed hash.

What is set apart tells how good a corpus is and whether it repeats records, which records themselves
cannot: a corpus that quotes a record is close to it for that reason alone. A row's side follows from
its unit's id and the key, so all rows of a unit are on one side, and stay there as the files grow.
"""

import csv
import dataclasses
import itertools
import json
import pathlib
from collections.abc import Iterator

from models.privacy.randomness import RunKey
from transforms.read import RecordFields, check_input, decompressed, file_format, split_lines

KEY = 'split.key'
RECORDS, TEST = 'records', 'test'
# Of the hash that decides: shares are resolved to 2**-64.
_BYTES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """What was written. Restricted to the curator: true counts.

    Attributes:
        records: Rows for the run.
        test: Rows set apart.
        without_unit: Rows of neither: no unit id, or no row of their format.
    """

    records: int = dataclasses.field(repr=False)
    test: int = dataclasses.field(repr=False)
    without_unit: int = dataclasses.field(repr=False)


def split(pattern: str, folder: pathlib.Path, *, unit_field: str, test_share: float, key: RunKey) -> Split:
    """Writes the rows of each file, whole and in their order, to `records` or `test` in a folder.

    Args:
        pattern: Comma-separated paths and globs of CSV, JSONL or Parquet files.
        folder: A new folder, for the curator alone.
        unit_field: Column whose value decides; rows of one value stay together.
        test_share: Probability with which a unit is set apart.
        key: Of the hash.

    Raises:
        ValueError: A share outside (0, 1), a missing column, two files of one name.
        FileExistsError: The folder is there.
        FileNotFoundError: A pattern names no file.
    """
    if not 0 < test_share < 1:
        raise ValueError(
            f'Expected a share of units to set apart between 0 and 1, got test_share={test_share!r}. Give '
            '0.1 for a tenth.'
        )
    files = check_input(pattern, RecordFields(text=unit_field))
    names = [pathlib.Path(file.path).name for file in files]
    if len(set(names)) < len(names):
        raise ValueError(
            f'Expected files with names of their own, got input={pattern!r} with two of one name. '
            'Rename one, or split them apart.'
        )
    if folder.exists():
        raise FileExistsError(
            f'Expected a new folder, got --output {str(folder)!r}, which is there. Name another one.'
        )
    folder.mkdir(mode=0o700)
    key.write(folder / KEY)
    for side in (RECORDS, TEST):
        (folder / side).mkdir(mode=0o700)
    counts = [0, 0, 0]
    for file in files:
        chooser = _Chooser(key, test_share)
        name, codec = file_format(file.path)
        write = {'csv': _split_csv, 'parquet': _split_parquet}.get(name, _split_lines)
        write(file.path, codec, folder, unit_field, chooser)
        counts = [known + new for known, new in zip(counts, chooser.counts)]
    return Split(records=counts[0], test=counts[1], without_unit=counts[2])


class _Chooser:
    """Chooses the side of each row, and counts."""

    def __init__(self, key: RunKey, test_share: float) -> None:
        self._key, self._below = key, int(test_share * 256**_BYTES)
        self.counts = [0, 0, 0]

    def side(self, unit: object) -> str | None:
        """'records' or 'test'; None for a row without a unit id."""
        if unit is None or unit == '':
            self.counts[2] += 1
            return None
        digest = self._key.hash('split', str(unit).encode('utf-8', 'surrogatepass'), size=_BYTES)
        is_test = int.from_bytes(digest, 'little') < self._below
        self.counts[is_test] += 1
        return TEST if is_test else RECORDS


def _plain_name(path: str, codec: str | None) -> str:
    name = pathlib.Path(path).name
    return name if codec is None else name.rpartition('.')[0]


def _chunks(path: str, codec: str | None) -> Iterator[bytes]:
    from transforms.read.files import open_file

    with open_file(path) as file:
        yield from decompressed(file, codec)


def _split_csv(
    path: str, codec: str | None, folder: pathlib.Path, unit_field: str, chooser: _Chooser
) -> None:
    # Bytes that are no UTF-8 come out as they went in.
    lines = (line.decode(errors='surrogateescape') for line, _ in split_lines(_chunks(path, codec)))
    rows = csv.reader(lines)
    by_position = unit_field.isascii() and unit_field.isdigit()
    header = [] if by_position else next(rows)
    column = int(unit_field) if by_position else header.index(unit_field)
    name = _plain_name(path, codec)
    with (
        open(folder / RECORDS / name, 'w', encoding='utf-8', errors='surrogateescape', newline='') as records,
        open(folder / TEST / name, 'w', encoding='utf-8', errors='surrogateescape', newline='') as test,
    ):
        writers = {RECORDS: csv.writer(records), TEST: csv.writer(test)}
        if header:
            for writer in writers.values():
                writer.writerow(header)
        for row in rows:
            side = chooser.side(row[column] if column < len(row) else None)
            if side is not None:
                writers[side].writerow(row)


def _split_lines(
    path: str, codec: str | None, folder: pathlib.Path, unit_field: str, chooser: _Chooser
) -> None:
    name = _plain_name(path, codec)
    chunks = _chunks(path, codec)
    first = next(chunks, b'')
    if first.lstrip().startswith(b'['):
        raise ValueError(
            f'Expected a JSON object on each line, got file={pathlib.Path(path).name!r}, one array. '
            'Convert it to lines.'
        )
    with open(folder / RECORDS / name, 'wb') as records, open(folder / TEST / name, 'wb') as test:
        files = {RECORDS: records, TEST: test}
        for line, whole in split_lines(itertools.chain([first], chunks)):
            if not line.strip():
                continue
            side = chooser.side(_unit_of(line, unit_field) if whole else None)
            if side is not None:
                files[side].write(line.rstrip(b'\r\n') + b'\n')


def _unit_of(line: bytes, unit_field: str) -> object:
    try:
        row = json.loads(line)
    except (ValueError, TypeError):
        return None
    return row.get(unit_field) if isinstance(row, dict) else None


def _split_parquet(
    path: str, codec: str | None, folder: pathlib.Path, unit_field: str, chooser: _Chooser
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    from transforms.read.files import open_file

    name = _plain_name(path, codec)
    with open_file(path) as file:
        source = parquet.ParquetFile(pa.PythonFile(file, mode='r'))
        with (
            parquet.ParquetWriter(folder / RECORDS / name, source.schema_arrow) as records,
            parquet.ParquetWriter(folder / TEST / name, source.schema_arrow) as test,
        ):
            for batch in source.iter_batches():
                sides = [chooser.side(unit) for unit in batch.column(unit_field).to_pylist()]
                for side, writer in ((RECORDS, records), (TEST, test)):
                    writer.write_batch(batch.filter(pa.array([one == side for one in sides])))
