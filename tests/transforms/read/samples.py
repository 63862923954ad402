"""Rules and readers that the tests of this folder share."""

import bz2
import gzip
import lzma
import pathlib

import zstandard

from models.records import Record
from transforms import read
from transforms.read import RecordFields, RecordRules, Rejection

TEXT = RecordRules(fields=RecordFields(text='text'))


LABELLED = RecordRules(fields=RecordFields(text='text', label='label'), labels=('1', 'b', 'true', ''))


PACK = {
    '': lambda data: data,
    '.gz': gzip.compress,
    '.bz2': bz2.compress,
    '.xz': lzma.compress,
    '.zst': lambda data: zstandard.ZstdCompressor().compress(data),
}


def read_file(path: pathlib.Path, rules: RecordRules) -> tuple[list[Record], list[Rejection]]:
    found = [one for piece in read.split_file(str(path)) for one in read.read_piece(piece, rules)]
    return [one for one in found if isinstance(one, Record)], [
        one for one in found if isinstance(one, Rejection)
    ]


def read_bytes(
    folder: pathlib.Path, name: str, data: bytes, rules: RecordRules
) -> tuple[list[str], list[tuple]]:
    """(texts, [(reason, ordinal, raw)])."""
    path = folder / name
    path.write_bytes(data)
    records, rejected = read_file(path, rules)
    assert all(one.file == name for one in rejected)
    return [record.text for record in records], [(one.reason, one.ordinal, one.raw) for one in rejected]
