"""Sensitive files -> records, and the rows that cannot be records.

The extension of a file tells its format:

* `.jsonl`, `.ndjson`: one JSON object per line.
* `.json`: one JSON object per line, or one array of objects. A file is an array if it begins with `[`, unless
  its first line is complete by itself and others follow.
* `.csv`, `.tsv`: RFC 4180, with line breaks inside quotes. Any delimiter, other quotes or none: see
  `transforms.read.dialect`.
* `.parquet`.
* `.xlsx`: one sheet of an Excel workbook, as CSV.

Text is of any encoding. The text formats may also end in `.gz`, `.bz2`, `.xz` or `.zst`. Files may be on any
filesystem that Beam knows. Places that are no such files are in `transforms.read.sources`: the query of a
database, a folder of texts, a Hugging Face data set.

A bad row never stops a run, because success or failure is an output, too (METHOD 8). The row becomes a
`Rejection`, which is restricted to the curator. No row changes how another one is read; of CSV that holds
where its writer quotes as `Dialect.quoting` says.

The header row of a CSV file names its columns. If all given names are numbers ('0', '1', ...), they are
positions, and the file has no header row.

Labels, unit ids and record ids are compared as `models.spelling` spells them, in every format: 1, 1.0, '1.0'
and ' 1' are one id.
"""

from transforms.read.dialect import Dialect
from transforms.read.errors import MissingColumns
from transforms.read.files import InputFile, check_input, check_same, file_format, identities_of, list_input
from transforms.read.header import Header, read_header
from transforms.read.records import ReadRecords, read_piece, read_place, read_rows, split_file
from transforms.read.rules import Reason, RecordFields, RecordRules, Rejection, Table, to_record

__all__ = [
    'Dialect', 'Header', 'InputFile', 'MissingColumns', 'ReadRecords', 'Reason', 'RecordFields',
    'RecordRules', 'Rejection', 'Table', 'check_input', 'check_same', 'file_format', 'identities_of',
    'list_input', 'read_header', 'read_piece', 'read_place', 'read_rows', 'split_file', 'to_record',
]  # fmt: skip
