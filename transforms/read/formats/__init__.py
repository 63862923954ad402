"""Formats of input files. A new format is a file in this folder and a line of the table."""

from transforms.read.formats import csv, excel, json, parquet
from transforms.read.formats.format import WHOLE, Format, RawRow

# By extension.
FORMATS: dict[str, Format] = {
    'jsonl': json.JsonLines(),
    'json': json.JsonFile(),
    'csv': csv.Csv(),
    'parquet': parquet.Parquet(),
    'xlsx': excel.Excel(),
}

__all__ = ['FORMATS', 'WHOLE', 'Format', 'RawRow']
