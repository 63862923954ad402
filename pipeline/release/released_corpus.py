"""Reads the corpus of a finished run: as the reference of another run, or to evaluate it."""

import os
from collections.abc import Sequence

import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from pyarrow import parquet

from models.attributes import label_of
from models.records import SyntheticExample
from transforms.places import check_filesystem, split_patterns
from transforms.read import InputFile, list_input
from transforms.run_files import CORPUS_COLUMNS, DATA_FOLDER, REPORT

# Columns that a reader of texts needs; texts of a fine-tuned model have tokens of one kind.
_COLUMNS = ['text', 'label', 'private_tokens', 'public_tokens', 'truncated']
_TUNED_COLUMNS = ['text', 'label', 'tokens', 'truncated']


def is_release(place: str) -> bool:
    """True if it names a folder, and not files."""
    if len(patterns := split_patterns(place)) != 1:
        return False
    check_filesystem(place)
    return os.path.isdir(patterns[0]) or FileSystems.exists(FileSystems.join(patterns[0], REPORT))


def list_shards(folder: str, name: str) -> list[InputFile]:
    """The files of a finished run's corpus.

    Args:
        folder: The run's output.
        name: Its name in errors: the flag without dashes.

    Raises:
        ValueError: No run has finished there.
        FileNotFoundError: There are no shards.
    """
    # The name that is there has no file://, say.
    folder = ','.join(split_patterns(folder))
    if not FileSystems.exists(FileSystems.join(folder, REPORT)):
        raise ValueError(
            f'Expected files of texts, or the folder of a finished release, got {name}={folder!r}, a folder '
            f'without {REPORT}. Name the files, or the --output of a finished run.'
        )
    try:
        return list_input(FileSystems.join(folder, DATA_FOLDER, '*.parquet'))
    except FileNotFoundError:
        raise FileNotFoundError(
            f'Expected a release with texts, got {name}={folder!r}, which has none. Restore its data; of a '
            'release of `dp-corpus fine-tune` sample some first, with `dp-corpus generate --adapter`.'
        ) from None


def read_table(folder: str) -> pa.Table:
    """The whole corpus of a finished run, with all its columns, as it was written."""
    parts = []
    for shard in list_shards(folder, 'output'):
        with FileSystems.open(shard.path) as file:
            parts.append(parquet.read_table(pa.PythonFile(file, mode='r')))
    return pa.concat_tables(parts)


def read_examples(path: str, name: str, attributes: Sequence[str] = ()) -> list[SyntheticExample]:
    """The examples of one shard, without their batch.

    Args:
        path: The shard.
        name: Its name in errors.
        attributes: Columns whose values together are the label, where all are attributes of the corpus.

    Raises:
        ValueError: It is no shard of a corpus, or damaged.
    """
    with FileSystems.open(path) as file:
        try:
            source = parquet.ParquetFile(pa.PythonFile(file, mode='r'))
            names = source.schema_arrow.names
            of_label = tuple(attributes) if set(attributes) <= set(names) - set(CORPUS_COLUMNS) else ()
            columns = _TUNED_COLUMNS if 'tokens' in names else _COLUMNS
            rows = source.read(columns=[*columns, *of_label]).to_pylist()
            if of_label:
                rows = [
                    {name: row[name] for name in columns}
                    | {'label': label_of(row[name] for name in of_label)}
                    for row in rows
                ]
            if 'tokens' in names:
                # Free, as public tokens are.
                rows = [{'private_tokens': 0, 'public_tokens': row.pop('tokens'), **row} for row in rows]
            return [SyntheticExample(**row, batch_id='', index_in_batch=0) for row in rows]
        except (pa.ArrowException, KeyError, TypeError) as error:
            raise ValueError(
                f'Expected a shard of a corpus with the columns {_COLUMNS}, got {name} file={path!r}, which '
                'is none. Restore the release, or name files of texts.'
            ) from error
