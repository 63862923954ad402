"""Formats of input files. A new format is a file in this folder and a line of the table."""

from transforms.read.formats import csv, excel, json, parquet
from transforms.read.formats.format import WHOLE, Format, RawRow

# By extension.
FORMATS: dict[str, Format] = {
    'jsonl': json.Json(reads_arrays=False),
    'ndjson': json.Json(reads_arrays=False),
    'json': json.Json(reads_arrays=True),
    'csv': csv.Csv(),
    # A tab where nothing else is given, declared or shown.
    'tsv': csv.Csv(('\t', ',', ';', '|')),
    'parquet': parquet.Parquet(),
    'xlsx': excel.Excel(),
}

__all__ = ['FORMATS', 'WHOLE', 'Format', 'RawRow']
